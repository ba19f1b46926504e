/* Every allocation of compiling and rendering fails, alone or with all later ones: CL_ERR_NOMEM, and the prompt as it was. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "render.h"
#include "tests/serve/protocol/failing_malloc.h"

static const char VARIABLES[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"Be\"}, {\"role\": \"user\", "
                                "\"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"Ho\"},"
                                " {\"role\": \"user\", \"content\": \"Hm\"}], \"add_generation_prompt\": true,"
                                " \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\", "
                                "\"parameters\": {\"type\": \"object\", \"properties\": {}}}}]}";

static char *read_template(const char *name) {
    char path[512];
    snprintf(path, sizeof path, TEMPLATES "/%s.jinja", name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s is not there", path);
    char *text = calloc(1, 1 << 16);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

static void render_without_memory(const char *text, const json_t *variables, bool all) {
    cl_prompt expected = {0};
    cl_error error = {.message = ""};
    if (render(text, variables, NULL, NULL, &expected, &error) != CL_OK) fail_msg("%s", error.message);
    int n = 0;
    for (bool failed = true; failed;) {
        cl_prompt out = {0};
        cl_prompt_add(&out, cl_str_of("before"));
        cl_prompt_add_format(&out, "<s>"); /* what is rendered may continue it */
        error = (cl_error){.message = ""};
        fail_malloc(++n, all);
        const cl_status status = render(text, variables, NULL, NULL, &out, &error);
        failed = mend_malloc();
        if (status == CL_OK) {
            assert_int_equal(out.size, expected.size + 9);
            assert_memory_equal(out.text + 9, expected.text, expected.size);
        } else {
            if (status != CL_ERR_NOMEM || error.code != CL_ERR_NOMEM) fail_msg("allocation %d: \"%s\"", n, error.message);
            assert_int_equal(out.size, 9);
            assert_int_equal(out.n_own, 1);
            assert_true(own_part_is(&out, 0, 6, 9));
            assert_false(out.no_memory);
        }
        cl_prompt_free(&out);
    }
    assert_true(n > 5);
    cl_prompt_free(&expected);
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char *const names[] = {"llama3_1", "qwen3", "gptoss", "gemma3"};
    json_t *variables = parse_json(VARIABLES);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *text = read_template(names[i]);
        render_without_memory(text, variables, false);
        render_without_memory(text, variables, true);
        free(text);
    }
    json_decref(variables);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
