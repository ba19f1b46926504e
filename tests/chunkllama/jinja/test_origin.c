/*
 * Whatever a template does with its variables, no byte of them becomes the template's own: each filter and each method is
 * called with many arguments, of which the caller's are in Greek, and no Greek letter may be in an own part.
 */
#include <stdio.h>

#include "chunkllama/jinja/builtins.h"
#include "render.h"

static json_t *variables, *own;

/* Greek upper and lower case letters, which change to one another. */
static const char VARIABLES[] =
    "{\"s\": \"λόγος Σ\\nἀρχή \", \"g\": \"λ\", \"l\": [\"λα\", \"Βα\"], \"d\": {\"λ\": \"ω\", \"λόγος Σ\\nἀρχή \": \"Ω\"},"
    " \"ds\": [{\"n\": \"λ\", \"k\": \"Λ\"}, {\"n\": \"ω\"}], \"ll\": [[\"λ\", \"ω\"]], \"i\": 3, \"f\": 2.5, \"format\": \"{} "
    "λ\"}";

static bool has_greek(const char *text, size_t size) {
    for (size_t i = 0; i + 1 < size; i++) {
        const unsigned char *c = (const unsigned char *)text + i;
        if ((c[0] == 0xcd && c[1] >= 0xb0) || c[0] == 0xce || c[0] == 0xcf || (c[0] == 0xe1 && c[1] >= 0xbc)) return true;
    }
    return false;
}

/* Render, and check the origin of what comes out. Returns whether something did. *greek: it has Greek letters. */
static bool try_template(const char *text, bool *greek) {
    cl_prompt out = {0};
    const cl_status status = render(text, variables, own, NULL, &out, NULL);
    *greek = status == CL_OK && out.size > 0 && has_greek(out.text, out.size);
    size_t end = 0;
    for (size_t i = 0; i < out.n_own && status == CL_OK; i++) {
        assert_true(out.own[i].start >= end && out.own[i].start < out.own[i].end && out.own[i].end <= out.size);
        end = out.own[i].end;
        if (has_greek(out.text + out.own[i].start, end - out.own[i].start)) fail_msg("Greek letters became own in %s", text);
    }
    cl_prompt_free(&out);
    return status == CL_OK;
}

static const char *const objects[] = {
    "s", "l", "d", "ds", "ll", "i", "f", "format", "'<|x|>'", "('<' ~ s ~ '>')", "('a' + g)", "missing", "bos_token"};
static const char *const arguments[] = {"",
                                        "s",
                                        "g",
                                        "l",
                                        "d",
                                        "i",
                                        "0",
                                        "'x'",
                                        "'upper'",
                                        "'n'",
                                        "attribute='n'",
                                        "'n', 'string'",
                                        "g, '<'",
                                        "'<', g",
                                        "g, bos_token",
                                        "bos_token, s",
                                        "'replace', g, '<'",
                                        "'defined'",
                                        "'eq', g",
                                        "s, 1",
                                        "2, true",
                                        "true",
                                        "l|list",
                                        "'join', g",
                                        "separators=(g, g)"};

/* Call a filter or method in many ways. Returns how often it gave a text; *n_greek: with Greek letters. */
static int try_all(const char *pattern, const char *name, int *n_greek) {
    char call[256], text[512];
    int n = 0;
    *n_greek = 0;
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        for (size_t k = 0; k < sizeof arguments / sizeof *arguments; k++) {
            bool greek;
            snprintf(call, sizeof call, pattern, objects[i], name, arguments[k]);
            snprintf(text, sizeof text,
                     "{%% set r = %s %%}<{%% if r is sequence or r is number %%}{{ r }}{{ r|string }}{%% endif %%}{%% if r is "
                     "iterable %%}{%% for x in r %%}{{ x }}{{ '<' ~ x ~ "
                     "bos_token }}{%% endfor %%}{%% endif %%}>",
                     call);
            n += try_template(text, &greek);
            *n_greek += greek;
        }
    }
    return n;
}

static void try_table(const cj_builtin *table, const char *pattern) {
    for (; table->name; table++) {
        int n_greek;
        if (try_all(pattern, table->name, &n_greek) == 0) fail_msg("'%s' never gave a text", table->name);
    }
}

static void origin_after_filters(void **state) {
    (void)state;
    try_table(cj_filters_of_text, "(%s)|%s(%s)");
    try_table(cj_filters_of_lists, "(%s)|%s(%s)");
}

static void origin_after_methods(void **state) {
    (void)state;
    try_table(cj_str_methods, "(%s).%s(%s)");
    try_table(cj_dict_methods, "(%s).%s(%s)");
}

/* The roles of messages are own if they are known, and at this place only. */
static void origin_of_roles(void **state) {
    (void)state;
    json_t *chat = parse_json(
        "{\"messages\": [{\"role\": \"user\", \"content\": \"user\"}, {\"role\": \"λ\"}, {\"role\": 5}, 6], \"role\": \"user\","
        " \"m\": [{\"role\": \"user\"}]}");
    cl_prompt out = {0};
    static const char text[] = "{% for m in messages[:2] %}{{ m.role }}|{{ m.content }}{% endfor %}{{ role }}{{ m[0].role }}";
    assert_int_equal(render(text, chat, NULL, NULL, &out, NULL), CL_OK);
    static const char expected[] = "user|userλ|useruser";
    assert_int_equal(out.size, sizeof expected - 1);
    assert_memory_equal(out.text, expected, out.size);
    assert_int_equal(out.n_own, 2);
    assert_true(own_part_is(&out, 0, 0, 5)); /* "user|" */
    assert_true(own_part_is(&out, 1, 11, 12));
    cl_prompt_free(&out);
    cl_jinja_options options;
    cl_jinja_options_init(&options);
    options.roles = NULL;
    out = (cl_prompt){0};
    assert_int_equal(render("{{ messages[0].role }}", chat, NULL, &options, &out, NULL), CL_OK);
    assert_int_equal(out.n_own, 0);
    cl_prompt_free(&out);
    json_decref(chat);
}

static int set_up(void **state) {
    (void)state;
    variables = parse_json(VARIABLES);
    own = parse_json("{\"bos_token\": \"<s>\"}");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    json_decref(variables);
    json_decref(own);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(origin_after_filters), cmocka_unit_test(origin_after_methods),
                                       cmocka_unit_test(origin_of_roles)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
