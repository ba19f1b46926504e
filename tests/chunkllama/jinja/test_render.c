/* Errors name the line and what is wrong there, and limits end what has no end. What is written: test_*.py. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "render.h"

static const char VARIABLES[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"n\": 3, \"s\": \"text\"}";

static void expect(const char *text, const char *expected) {
    json_t *variables = parse_json(VARIABLES);
    cl_prompt out = {0};
    cl_error error = {.message = ""};
    if (render(text, variables, NULL, NULL, &out, &error) != CL_OK) fail_msg("%s: %s", text, error.message);
    assert_int_equal(out.size, strlen(expected));
    assert_memory_equal(out.size ? out.text : "", expected, out.size);
    cl_prompt_free(&out);
    json_decref(variables);
}

static void expect_error_of(const char *text, const json_t *variables, const cl_jinja_options *options, cl_status status,
                            const char *message) {
    cl_prompt out = {0};
    cl_error error = {.message = ""};
    cl_prompt_add(&out, cl_str_of("before"));
    if (render(text, variables, NULL, options, &out, &error) != status || error.code != status ||
        !strstr(error.message, message))
        fail_msg("%s: status %d, \"%s\", not \"%s\"", text, (int)error.code, error.message, message);
    assert_int_equal(out.size, strlen("before"));
    assert_int_equal(out.n_own, 0);
    cl_prompt_free(&out);
}

static void expect_error(const char *text, cl_status status, const char *message) {
    json_t *variables = parse_json(VARIABLES);
    expect_error_of(text, variables, NULL, status, message);
    json_decref(variables);
}

static void errors_name_line_and_construct(void **state) {
    (void)state;
    static const struct {
        const char *text;
        cl_status status;
        const char *message;
    } cases[] = {
        {"a\nb {{ s|foo }}", CL_ERR_UNSUPPORTED, "line 2: the filter 'foo' is not supported"},
        {"{{ s is foo }}", CL_ERR_UNSUPPORTED, "line 1: the test 'foo' is not supported"},
        {"{{ 1 is odd }}", CL_ERR_UNSUPPORTED, "line 1: the test 'odd' is not supported"},
        {"{{ s|center(9) }}", CL_ERR_UNSUPPORTED, "line 1: the filter 'center' is not supported"},
        {"{{ [s]|map('reverse') }}", CL_ERR_UNSUPPORTED, "line 1: the filter 'reverse' is not supported"},
        {"\n\n{% foo %}", CL_ERR_FORMAT, "line 3: unknown tag 'foo'"},
        {"{% include 'x' %}", CL_ERR_UNSUPPORTED, "line 1: the tag 'include' is not supported"},
        {"{% raw %}{{ {% endraw %}", CL_ERR_UNSUPPORTED, "line 1: the tag 'raw' is not supported"},
        {"x\n{% if s %}\ny", CL_ERR_FORMAT, "line 2: the tag has no 'endif'"},
        {"{{ s", CL_ERR_FORMAT, "line 1: '{{' has no '}}'"},
        {"{{ (s }}", CL_ERR_FORMAT, "line 1: unexpected '}'"},
        {"{{ s s }}", CL_ERR_FORMAT, "line 1: expected '}}', found s"},
        {"{{ 'x }}", CL_ERR_FORMAT, "line 1: a string has no end"},
        {"\n{# x", CL_ERR_FORMAT, "line 2: the comment has no end"},
        {"{{ s ? 1 }}", CL_ERR_FORMAT, "line 1: unexpected character '?'"},
        {"{{ '\\u00e9' }}", CL_ERR_UNSUPPORTED, "line 1: escapes of strings other than \\a"},
        {"{{ 1.5 }}", CL_ERR_UNSUPPORTED, "line 1: numbers that are not written in decimal digits alone are not supported"},
        {"{{ n / 2 }}", CL_ERR_UNSUPPORTED, "line 1: the operator '/' is not supported"},
        {"{{ n ** 2 }}", CL_ERR_UNSUPPORTED, "line 1: the operator '**' is not supported"},
        {"{{ dict(**s) }}", CL_ERR_UNSUPPORTED, "line 1: the operator '**' is not supported"},
        {"{{ [n] * 2 }}", CL_ERR_UNSUPPORTED, "line 1: '*' of lists is not supported"},
        {"{{ s[::2] }}", CL_ERR_UNSUPPORTED, "line 1: the step of a string's slice is not supported"},
        {"{{ n is eq 1 }}", CL_ERR_UNSUPPORTED, "line 1: arguments of tests after 'is' are not supported"},
        {"{{ range(2) }}", CL_ERR_UNSUPPORTED, "line 1: printing a value of type 'range' is not supported"},
        {"{% macro m() %}{{ varargs }}{% endmacro %}", CL_ERR_UNSUPPORTED, "line 1: the variable 'varargs' is not supported"},
        {"{% for (a, b), c in s %}{% endfor %}", CL_ERR_UNSUPPORTED, "line 1: parentheses around names to assign to"},
        {"\xff", CL_ERR_FORMAT, "line 1: the template is not UTF-8"},
        {"{% break %}", CL_ERR_FORMAT, "line 1: 'break' is not in a loop"},
        {"{% for x in s recursive %}{% endfor %}", CL_ERR_UNSUPPORTED, "line 1: recursive loops are not supported"},
        {"a\n{{ missing.x }}", CL_ERR_ARG, "line 2: 'missing' is undefined"},
        {"{{ s.find('x') }}", CL_ERR_UNSUPPORTED, "line 1: the method 'find' of 'str' is not supported"},
        {"{{ [].append(1) }}", CL_ERR_UNSUPPORTED, "line 1: the method 'append' of 'list' is not supported"},
        {"{{ cycler(1) }}", CL_ERR_UNSUPPORTED, "line 1: the function 'cycler' does not exist, or is not supported"},
        {"{{ dict(x) }}", CL_ERR_UNSUPPORTED, "line 1: dict and namespace do not support an argument without a name"},
        {"{{ strftime_now('%z') }}", CL_ERR_UNSUPPORTED, "line 1: '%z' of strftime_now is not supported"},
        {"{% for x in s %}{{ loop.length }}{% endfor %}", CL_ERR_UNSUPPORTED,
         "line 1: the loop attribute 'length' is not supported"},
        {"{{ s.split() }}", CL_ERR_UNSUPPORTED, "line 1: function 'split' does not support so few arguments"},
        {"{{ '%s' % s }}", CL_ERR_UNSUPPORTED, "line 1: '%' of strings is not supported"},
        {"{{ '{x}'.format(x=s) }}", CL_ERR_UNSUPPORTED, "line 1: fields of str.format other than '{}' are not supported"},
        {"{{ s + 1 }}", CL_ERR_ARG, "line 1: '+' cannot be applied to 'str' and 'int'"},
        {"{{ n % 0 }}", CL_ERR_ARG, "line 1: division by zero"},
        {"{{ n() }}", CL_ERR_ARG, "line 1: 'int' object is not callable"},
        {"{{ n|length }}", CL_ERR_ARG, "line 1: object of type 'int' has no len()"},
        {"{{ s|indent(1, true, true) }}", CL_ERR_UNSUPPORTED,
         "line 1: filter 'indent' supports at most 3 arguments, and got 4"},
        {"{{ s|indent(blank=true) }}", CL_ERR_UNSUPPORTED, "line 1: filter 'indent' does not support an argument 'blank'"},
        {"{{ s|indent(1, width=1) }}", CL_ERR_ARG, "line 1: filter 'indent' takes no second argument 'width'"},
        {"{{ s|sort(true) }}", CL_ERR_UNSUPPORTED, "line 1: filter 'sort' supports only the argument 'attribute'"},
        {"{{ messages|map(attribute='a.b') }}", CL_ERR_UNSUPPORTED,
         "line 1: attributes such as 'a.b', 'a,b' and '0' are not supported by filters"},
        {"{{ messages|sort(attribute='a,b') }}", CL_ERR_UNSUPPORTED,
         "line 1: attributes such as 'a.b', 'a,b' and '0' are not supported by filters"},
        {"{% macro m(a) %}{% endmacro %}\n{{ m(1, 2) }}", CL_ERR_ARG, "line 2: macro 'm' takes at most 1 arguments"},
        {"{% set s.x = 1 %}", CL_ERR_ARG, "line 1: 's' is no namespace, so its attributes cannot be set"},
        {"{% set a, b = [1] %}", CL_ERR_ARG, "line 1: 1 values cannot be unpacked to 2 names"},
        {"\n{{ raise_exception('roles must\nalternate') }}", CL_ERR_ARG, "line 2: roles must?alternate"},
        {"{{ 9223372036854775807 + 1 }}", CL_ERR_LIMIT, "line 1: an integer is beyond 64 bits"},
        {"{{ range(100001) }}", CL_ERR_LIMIT, "line 1: range has more than the allowed 100000 elements"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_error(cases[i].text, cases[i].status, cases[i].message);
}

static void the_simplest_templates(void **state) {
    (void)state;
    expect("", "");
    expect("text", "text");
    expect("{{ s }}{% for m in messages %}<{{ m.role }}>{{ m['content'] }}{% endfor %}", "text<user>Hi");
    cl_prompt out = {0};
    cl_jinja *t;
    cl_jinja_options options;
    cl_jinja_options_init(&options);
    assert_int_equal(cl_jinja_compile("a{{ x }}b", 9, &t, NULL), CL_OK);
    assert_int_equal(cl_jinja_render(t, NULL, NULL, &options, &out, NULL), CL_OK); /* no variables at all */
    assert_int_equal(cl_jinja_render(t, NULL, NULL, &options, &out, NULL), CL_OK); /* appends */
    assert_int_equal(out.size, 4);
    assert_memory_equal(out.text, "abab", 4);
    assert_int_equal(out.n_own, 1);
    assert_true(own_part_is(&out, 0, 0, 4));
    cl_prompt_free(&out);
    cl_jinja_free(&t);
    cl_jinja_free(&t);
    assert_int_equal(cl_jinja_compile("{{", 2, &t, NULL), CL_ERR_FORMAT);
    assert_null(t);
}

static void names_of_own_hide_variables(void **state) {
    (void)state;
    json_t *variables = parse_json("{\"bos_token\": \"<s>\", \"x\": \"<s>\"}"), *own = parse_json("{\"bos_token\": \"<bos>\"}");
    cl_prompt out = {0};
    assert_int_equal(render("{{ x }}{{ bos_token }}{{ x }}", variables, own, NULL, &out, NULL), CL_OK);
    assert_int_equal(out.size, 11);
    assert_memory_equal(out.text, "<s><bos><s>", 11);
    assert_int_equal(out.n_own, 1);
    assert_true(own_part_is(&out, 0, 3, 8));
    cl_prompt_free(&out);
    json_decref(variables);
    json_decref(own);
}

/* ---- Limits ---- */

static char *repeated(const char *part, int n, const char *end) {
    char *text = malloc(strlen(part) * (size_t)n + strlen(end) + 1);
    assert_non_null(text);
    text[0] = 0;
    char *at = text;
    for (int i = 0; i < n; i++) at = stpcpy(at, part);
    strcpy(at, end);
    return text;
}

static void what_nests_too_deeply_is_refused(void **state) {
    (void)state;
    static const char *const parts[] = {
        "{{ (",  "{{ ",           "{{ not ",         "{% if s %}",      "{% for x in s %}",  "{% set x %}",
        "{{ s[", "{{ s|default(", "{{ s if s else ", "{% macro m() %}", "{% filter upper %}"};
    static const char *const again[] = {
        "(",  "-",          "not ",         "{% if s %}",      "{% for x in s %}",  "{% set x %}",
        "s[", "s|default(", "s if s else ", "{% macro m() %}", "{% filter upper %}"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *deep = repeated(again[i], 50000, "");
        char *text = malloc(strlen(deep) + 32);
        assert_non_null(text);
        strcpy(stpcpy(text, parts[i]), deep);
        cl_jinja *t;
        cl_error error = {.message = ""};
        const cl_status status = cl_jinja_compile(text, strlen(text), &t, &error);
        assert_null(t);
        if (status != CL_ERR_LIMIT || !strstr(error.message, "nested")) fail_msg("%s...: \"%s\"", parts[i], error.message);
        free(text);
        free(deep);
    }
    char *sum = repeated("+1", 100000, " }}"), *text = malloc(strlen(sum) + 8);
    assert_non_null(text);
    strcpy(stpcpy(text, "{{ 1"), sum);
    expect_error(text, CL_ERR_LIMIT, "line 1: the template is nested deeper than the allowed 200 levels");
    free(text);
    free(sum);
}

static void hostile_templates_end(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
         "line 1: the template needs more than the allowed"},
        {"\n{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "line 2: nested deeper than the allowed 400 levels"},
        {"{{ 'x' * 100000000000 }}", "line 1: a text is longer than the allowed 16777216 bytes"},
        {"{% for a in range(100000) %}{{ 'x' * 10000 }}{% endfor %}",
         "line 1: a text is longer than the allowed 16777216 bytes"},
        {"{% set ns = namespace(x='x' * 1000) %}{% for a in range(100000) %}{% set ns.x = ns.x + 'x' %}{% endfor %}",
         "allowed 268435456 bytes of memory"},
        {"{% set ns = namespace(x=[]) %}{% for a in range(100000) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
         "line 1: nested deeper than"},
        {"{% set ns = namespace(x=[]) %}{% for a in range(30) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
         "allowed"},
        {"{% set ns = namespace(x=[]) %}{% for a in range(30) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x|tojson }}",
         "allowed"},
        {"{% set ns = namespace(x=[], y=[]) %}{% for a in range(30) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] "
         "%}{% endfor %}{{ ns.x == ns.y }}",
         "steps"},
        {"{{ 'x'|indent(1000000000, true) }}", "bytes"},
        {"{{ ('a' * 20000)|replace('a', 'b' * 1000) }}", "bytes"},
        {"{% for x in range(1000) %}{{ range(100000)|list == range(100000)|list }}{% endfor %}", "allowed"},
        {"{% for x in range(100000) %}{{ range(100000)|sort|list|length }}{% endfor %}", "allowed"},
        {"{{ strftime_now('%1000000d') }}", "line 1: the text of strftime_now is longer than 1000 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) expect_error(cases[i].text, CL_ERR_LIMIT, cases[i].message);
}

/* What a model's file brings is compiled when the model is loaded. */
static void hostile_templates_are_compiled_soon(void **state) {
    (void)state;
    enum { SIZE = 1 << 20 };
    char *text = malloc(SIZE + 64), *at = text;
    assert_non_null(text);
    for (int i = 0; at < text + SIZE / 2; i++) at += sprintf(at, "{%%set x%d=x%d%%}", i, i + 1);
    for (int i = 0; at < text + SIZE - 32; i++) at += sprintf(at, "{%%if x%d%%}{%%endif%%}", i);
    cl_jinja *t;
    cl_error error;
    assert_int_equal(cl_jinja_compile(text, (size_t)(at - text), &t, &error), CL_ERR_LIMIT);
    if (!strstr(error.message, "steps")) fail_msg("<%s>", error.message); /* not for another reason */
    memset(text, ' ', SIZE + 1);
    assert_int_equal(cl_jinja_compile(text, SIZE + 1, &t, NULL), CL_ERR_LIMIT);
    assert_int_equal(cl_jinja_compile(text, SIZE, &t, NULL), CL_OK);
    cl_jinja_free(&t);
    free(text);
}

static void hostile_variables_end(void **state) {
    (void)state;
    json_t *deep = json_array();
    for (int i = 0; i < 1000; i++) {
        json_t *outer = json_array();
        json_array_append_new(outer, deep);
        deep = outer;
    }
    json_t *variables = json_pack("{s:o}", "deep", deep);
    expect_error_of("{{ 1 }}", variables, NULL, CL_ERR_LIMIT, "nested deeper than the allowed 400 levels");
    json_decref(variables);
}

static void the_callers_limits_count(void **state) {
    (void)state;
    json_t *variables = parse_json(VARIABLES);
    cl_jinja_options options;
    cl_jinja_options_init(&options);
    options.max_bytes = 10;
    expect_error_of("{{ 'x' * 11 }}", variables, &options, CL_ERR_LIMIT, "longer than the allowed 10 bytes");
    expect_error_of("12345{{ s }}67", variables, &options, CL_ERR_LIMIT, "longer than the allowed 10 bytes");
    cl_jinja_options_init(&options);
    options.max_steps = 1000;
    expect_error_of("{% for x in range(1000) %}{% endfor %}", variables, &options, CL_ERR_LIMIT, "the allowed 1000 steps");
    cl_jinja_options_init(&options);
    options.max_depth = 20;
    expect_error_of("{{ ((((((((((((((((((((-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-(-1)))))))))))))))))))))))))))))))))))))) }}",
                    variables, &options, CL_ERR_LIMIT, "the allowed 20 levels");
    cl_jinja_options_init(&options);
    options.max_memory = 100000;
    expect_error_of("{{ range(10000)|list }}", variables, &options, CL_ERR_LIMIT, "the allowed 100000 bytes of memory");
    json_decref(variables);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_simplest_templates),         cmocka_unit_test(names_of_own_hide_variables),
        cmocka_unit_test(errors_name_line_and_construct), cmocka_unit_test(what_nests_too_deeply_is_refused),
        cmocka_unit_test(hostile_templates_end),          cmocka_unit_test(hostile_templates_are_compiled_soon),
        cmocka_unit_test(hostile_variables_end),          cmocka_unit_test(the_callers_limits_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
