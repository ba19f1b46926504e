/* A compiled template serves several threads at once. */
#include <pthread.h>

#include "render.h"

static const char variables_text[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"n\": 3}";

static void *render_often(void *context) {
    json_t *variables = parse_json(variables_text);
    cl_jinja_options options;
    cl_jinja_options_init(&options);
    for (int i = 0; i < 500; i++) {
        cl_prompt out = {0};
        if (cl_jinja_render(context, variables, NULL, &options, &out, NULL) != CL_OK) return context;
        if (out.size != 16 || memcmp(out.text, "A012xHI(user)n=3", 16) != 0) return context;
        cl_prompt_free(&out);
    }
    json_decref(variables);
    return NULL;
}

static void threads_share_a_template(void **state) {
    (void)state;
    static const char text[] =
        "{% macro m(x) %}{{ x|upper }}{% endmacro %}{% set ns = namespace(c=0) %}{{ m('a') }}{% for i in range(3) %}{% set "
        "ns.c = i %}"
        "{{ ns.c }}{% endfor %}x{% for y in messages %}{{ m(y.content) }}({{ y.role }}){% endfor %}{{ 'n={}'.format(n) }}";
    cl_jinja *t;
    assert_int_equal(cl_jinja_compile(text, sizeof text - 1, &t, NULL), CL_OK);
    pthread_t threads[4];
    for (size_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, render_often, t), 0);
    for (size_t i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    cl_jinja_free(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_share_a_template)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
