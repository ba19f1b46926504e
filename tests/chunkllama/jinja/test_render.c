/* Errors name the line and what is wrong there, and limits end what has no end. What is written: test_*.py. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "chunkllama/common/deadline.h"
#include "chunkllama/common/json_text.h"
#include "chunkllama/jinja/builtins.h"
#include "render.h"
#include "tests/support/texts.h"

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
        {"\n{{ raise_exception('roles must\nalternate') }}", CL_ERR_ARG, "line 2: roles must\\nalternate"},
        {"{{ 9223372036854775807 + 1 }}", CL_ERR_LIMIT, "line 1: a number is beyond 64 bits"},
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

static void what_nests_too_deeply_is_refused(void **state) {
    (void)state;
    static const char *const parts[] = {
        "{{ (",  "{{ ",           "{{ not ",         "{% if s %}",      "{% for x in s %}",  "{% set x %}",
        "{{ s[", "{{ s|default(", "{{ s if s else ", "{% macro m() %}", "{% filter upper %}"};
    static const char *const again[] = {
        "(",  "-",          "not ",         "{% if s %}",      "{% for x in s %}",  "{% set x %}",
        "s[", "s|default(", "s if s else ", "{% macro m() %}", "{% filter upper %}"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *text = repeated(parts[i], again[i], 50000, "");
        cl_jinja *t;
        cl_error error = {.message = ""};
        const cl_status status = cl_jinja_compile(text, strlen(text), &t, &error);
        assert_null(t);
        if (status != CL_ERR_LIMIT || !strstr(error.message, "nested")) fail_msg("%s...: \"%s\"", parts[i], error.message);
        free(text);
    }
    char *text = repeated("{{ 1", "+1", 100000, " }}");
    expect_error(text, CL_ERR_LIMIT, "line 1: the template is nested deeper than the allowed 200 levels");
    free(text);
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

/* Texts and lists of a size, by the names that the operations below have for them. */
static json_t *variables_of(size_t size) {
    char *ab = repeated("", "ab", size / 2, ""), *spaces = repeated("", " ", size, ""), *digits = repeated("", "0", size, ""),
         *formats = repeated("", "%y", size > 200 ? 200 : 2, "");
    json_t *l = json_array(), *m = json_array(), *floats = json_array(), *d = json_object();
    for (size_t i = 0; i < size / 10; i++) {
        char name[24];
        snprintf(name, sizeof name, "k%zu", i);
        json_array_append_new(l, json_string("y"));
        json_array_append_new(m, json_string("y"));
        json_object_set_new(d, name, json_null());
        if (i < 1000) json_array_append_new(floats, json_real(1.0 / (double)(i + 3)));
    }
    json_t *variables = json_pack("{ss ss ss ss ss so so so so sb}", "s", ab, "t", ab, "spaces", spaces, "digits", digits,
                                  "formats", formats, "l", l, "m", m, "floats", floats, "d", d, "big", size > 200);
    free(ab);
    free(spaces);
    free(digits);
    free(formats);
    return variables;
}

/* The least limit of steps with which rendering a template has a status. */
static int64_t least_steps(const char *text, const json_t *variables, cl_status status) {
    cl_jinja_options options;
    cl_jinja_options_init(&options);
    int64_t least = 0, most = options.max_steps;
    while (most - least > 1) {
        cl_prompt out = {0};
        options.max_steps = (least + most) / 2;
        *(render(text, variables, NULL, &options, &out, NULL) == status ? &most : &least) = options.max_steps;
        cl_prompt_free(&out);
    }
    return most;
}

/* Expressions whose work grows with the texts and lists that they get. */
static const char *const operations[] = {
    "s|upper",
    "s|lower",
    "s|title",
    "s|capitalize",
    "s|replace('x', 'y')",
    "s|replace(s, 'y')",
    "s|indent",
    "s|tojson",
    "s|length",
    "s|first",
    "s|last",
    "s|list",
    "s|join",
    "s|sort",
    "s|min",
    "s|unique",
    "s|map('upper')",
    "s|reject('none')",
    "s|selectattr('x')",
    "s|rejectattr('x')",
    "[s]|join",
    "[s, t]|sort",
    "[s, t]|min",
    "[s, t]|unique",
    "[s]|map(attribute=s)",
    "[s]|sort(attribute=s)",
    "[s]|selectattr(s)",
    "spaces|trim",
    "digits|int",
    "spaces|int",
    "[s]|string",
    "{1: s}|string",
    "l|list",
    "l|join",
    "l|sort",
    "l|min",
    "l|first",
    "l|last",
    "l|map('upper')",
    "l|tojson",
    "l|string",
    "d|items",
    "d|dictsort",
    "d|list",
    "d|tojson",
    "d|string",
    "d.items()",
    "d.keys()",
    "d.get('x')",
    "d.x",
    "d['x']",
    "d[1]",
    "'x' in d",
    "s.upper()",
    "s.lower()",
    "s.title()",
    "s.capitalize()",
    "spaces.strip()",
    "spaces.lstrip()",
    "spaces.rstrip()",
    "s.strip('ab')",
    "'x'.strip(s)",
    "('é' * 100).strip('ü' * 2000 ~ 'é')",
    "s.startswith(t)",
    "s.endswith(t)",
    "s.replace('x', 'y')",
    "s.split('x')",
    "s.split('a')",
    "'{}'.format(s)",
    "s.format()",
    "s == t",
    "s != t",
    "s < t",
    "'x' in s",
    "s not in t",
    "s in [t]",
    "[s]|reject('eq', t)",
    "[s]|reject('in', t)",
    "s + t",
    "s ~ t",
    "s * 2",
    "s[1:]",
    "s[9:10]",
    "s[-1]",
    "{s: 1}[t]",
    "{s: 1}.get(t)",
    "t in {s: 1}",
    "l + l",
    "l == m",
    "l < m",
    "'x' in l",
    "l[::-1]",
    "range(90000 if big else 9)",
    "floats|tojson",
    "floats|string",
    "strftime_now(formats)",
};
enum { N_OPERATIONS = sizeof operations / sizeof *operations };

/* Whatever an operation reads, compares or writes of a text of 256 KiB, or a list of a tenth as many elements, is counted. */
static void the_work_of_each_operation_is_counted(void **state) {
    (void)state;
    enum { LARGE = 1 << 18, SMALL = 16, STEPS = 2000 };
    json_t *small = variables_of(SMALL), *large = variables_of(LARGE);
    cl_jinja_options options;
    cl_jinja_options_init(&options);
    options.max_steps = least_steps("{% if 1 %}{% endif %}", large, CL_OK) + STEPS; /* reading the variables is counted, too */
    for (size_t i = 0; i < N_OPERATIONS; i++) {
        char text[256];
        cl_prompt out = {0};
        cl_error error = {.message = ""};
        snprintf(text, sizeof text, "{%% if %s %%}{%% endif %%}", operations[i]);
        if (render(text, small, NULL, NULL, &out, &error) != CL_OK) fail_msg("%s: %s", operations[i], error.message);
        cl_prompt_free(&out);
        expect_error_of(text, large, &options, CL_ERR_LIMIT, "steps");
    }
    json_decref(small);
    json_decref(large);
}

/* The builtins whose work the operations show, by the form of their use; `free` are those whose work does not grow. */
static const struct {
    const cj_builtin *table;
    const char *form, *free;
} tables[] = {
    {cj_filters_of_text, "|%s", " safe "}, /* it gives the value back */
    {cj_filters_of_lists, "|%s", " default "},
    {cj_tests, "'%s'", /* they look at the kind of the value, and equalto is eq */
     " defined undefined boolean true false integer float number string mapping iterable sequence equalto "},
    {cj_functions, "%s(", " raise_exception dict namespace "}, /* the template writes each argument of the last two */
    {cj_str_methods, ".%s(", ""},
    {cj_dict_methods, ".%s(", ""},
};

static bool has_use(const char *form, const char *name) {
    char use[64];
    snprintf(use, sizeof use, form, name); // NOLINT(clang-diagnostic-format-nonliteral)
    for (size_t i = 0; i < N_OPERATIONS; i++)
        if (strstr(operations[i], use)) return true;
    return false;
}

/* No filter, test, function or method is forgotten above. */
static void each_builtin_is_in_an_operation(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        for (const cj_builtin *b = tables[i].table; b->name; b++) {
            char name[64];
            snprintf(name, sizeof name, " %s ", b->name);
            if (!strstr(tables[i].free, name) && !has_use(tables[i].form, b->name)) fail_msg("no operation has %s", b->name);
        }
}

/* Names are compared with each other: a call with many takes as many steps as pairs of them. */
static void the_names_of_arguments_are_counted(void **state) {
    (void)state;
    enum { N = 20000 };
    char *text = malloc(64 * N), *at = text;
    assert_non_null(text);
    at += sprintf(at, "{%% macro m(p0");
    for (int i = 1; i < N; i++) at += sprintf(at, ",p%d", i);
    at += sprintf(at, ") %%}{%% endmacro %%}{{ m(p0=0");
    for (int i = 1; i < N; i++) at += sprintf(at, ",p%d=0", i);
    sprintf(at, ") }}");
    expect_error(text, CL_ERR_LIMIT, "steps");
    free(text);
}

/* At the edges of 64 bits, arithmetic gives a number or an error; under the sanitizers also no overflow. */
static void extreme_numbers(void **state) {
    (void)state;
    static const char *const numbers[] = {"(-9223372036854775807 - 1)",
                                          "-9223372036854775807",
                                          "-4611686018427387904",
                                          "-1",
                                          "0",
                                          "1",
                                          "3",
                                          "4611686018427387904",
                                          "9223372036854775807",
                                          "huge"};
    static const char *const patterns[] = {"a + b + c",
                                           "a - b - c",
                                           "a * b",
                                           "a % b",
                                           "-a",
                                           "range(a, b, c)|list",
                                           "l[a:b:c]",
                                           "'xyz'[a:b]",
                                           "l[a]",
                                           "'xyz'[b]",
                                           "'x' * a",
                                           "'x y'.split(' ', a)",
                                           "'x'|indent(a)",
                                           "l|tojson(indent=a)",
                                           "[a, b, c]|sort",
                                           "[a, b]|min",
                                           "a < b",
                                           "a == b",
                                           "a|int",
                                           "a|string|int",
                                           "range(a)|list",
                                           "[a, b, c]|unique|list",
                                           "{a: b}[a]",
                                           "[a, b, c]|tojson",
                                           "a is integer",
                                           "(a, b, c)|string",
                                           "a in [b, c]"};
    enum { N = sizeof numbers / sizeof *numbers };
    json_t *variables = parse_json("{\"l\": [1, 2, 3]}");
    cl_str number;
    size_t size;
    bool no_memory;
    char *mended = cl_json_mended("[1e999]", 7, &size, &no_memory);
    json_t *huge = json_loadb(mended, size, 0, NULL);
    assert_true(cl_json_is_number(json_array_get(huge, 0), &number));
    json_object_set(variables, "huge", json_array_get(huge, 0));
    expect_error_of("{{ l[:huge] }}", variables, NULL, CL_ERR_LIMIT, "line 1: a number is beyond 64 bits");
    expect_error_of("{{ 'xyz'[huge:] }}", variables, NULL, CL_ERR_LIMIT, "line 1: a number is beyond 64 bits");
    for (size_t i = 0; i < N * N * N; i++) {
        for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++) {
            char text[512];
            cl_prompt out = {0};
            if ((i / N > 0 && !strchr(patterns[k], 'b')) || (i / N / N > 0 && !strstr(patterns[k], "c"))) continue;
            snprintf(text, sizeof text, "{%% set a, b, c = %s, %s, %s %%}{{ %s }}", numbers[i % N], numbers[i / N % N],
                     numbers[i / N / N], patterns[k]);
            const cl_status status = render(text, variables, NULL, NULL, &out, NULL);
            /* The text of `huge` has an exponent, which int does not support. */
            const bool odd = i % N == N - 1 && strcmp(patterns[k], "a|string|int") == 0 && status == CL_ERR_UNSUPPORTED;
            if (!odd && status != CL_OK && status != CL_ERR_ARG && status != CL_ERR_LIMIT)
                fail_msg("%s: status %d", text, (int)status);
            cl_prompt_free(&out);
        }
    }
    json_decref(huge);
    json_decref(variables);
    free(mended);
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

/* The steps that were taken are known, also of a template that needs more than it may take: all of these. */
static void steps_are_reported(void **state) {
    (void)state;
    static const char *const texts[] = {
        "{% for i in range(300) %}{{ i }}{% endfor %}", "{{ raise_exception(range(99)|list|string) }}",
        "{% for i in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}", "{{ 'y' in long }}"};
    json_t *variables = parse_json(VARIABLES);
    char *text = repeated("", "x", 1 << 21, ""); /* which is searched by one count of steps */
    json_object_set_new(variables, "long", json_string(text));
    free(text);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        cl_jinja_options options;
        cl_jinja_options_init(&options);
        int64_t taken = -1;
        cl_prompt out = {0};
        options.max_steps = 200000;
        options.n_steps = &taken;
        const cl_status status = render(texts[i], variables, NULL, &options, &out, NULL);
        if (status == CL_ERR_LIMIT)
            assert_int_equal(taken, options.max_steps);
        else
            assert_int_equal(taken, least_steps(texts[i], variables, status));
        cl_prompt_free(&out);
    }
    json_decref(variables);
}

/* A thread may have less time than the steps take. */
static void the_threads_deadline_counts(void **state) {
    (void)state;
    static const cl_deadline passed = {.limit_s = 3};
    cl_jinja_options options;
    cl_jinja *t;
    cl_prompt out = {0};
    cl_error error;
    json_t *variables = parse_json(VARIABLES);
    cl_jinja_options_init(&options);
    assert_int_equal(cl_jinja_compile("\n{{ s }}", 8, &t, &error), CL_OK);
    cl_deadline_set(&passed);
    assert_int_equal(cl_jinja_render(t, variables, NULL, &options, &out, &error), CL_ERR_LIMIT);
    cl_deadline_set(NULL);
    assert_non_null(strstr(error.message, "longer to prepare than the 3 s"));
    assert_int_equal(cl_jinja_render(t, variables, NULL, &options, &out, &error), CL_OK);
    cl_prompt_free(&out);
    cl_jinja_free(&t);
    json_decref(variables);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_simplest_templates),
        cmocka_unit_test(names_of_own_hide_variables),
        cmocka_unit_test(errors_name_line_and_construct),
        cmocka_unit_test(what_nests_too_deeply_is_refused),
        cmocka_unit_test(hostile_templates_end),
        cmocka_unit_test(hostile_templates_are_compiled_soon),
        cmocka_unit_test(hostile_variables_end),
        cmocka_unit_test(the_callers_limits_count),
        cmocka_unit_test(the_work_of_each_operation_is_counted),
        cmocka_unit_test(each_builtin_is_in_an_operation),
        cmocka_unit_test(the_names_of_arguments_are_counted),
        cmocka_unit_test(extreme_numbers),
        cmocka_unit_test(steps_are_reported),
        cmocka_unit_test(the_threads_deadline_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
