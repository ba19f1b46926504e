/* The pass over schemas: its work is bounded, it survives any schema, and lacking memory is an error. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_text.h"
#include "chunkllama/schema/regex.h"
#include "chunkllama/schema/schema.h"
#include "tests/support/rng.h"

static cl_status rewrite(json_t *schema, bool lenient, json_t **out, cl_error *error) {
    char weaker[CL_SCHEMA_WEAKER_BYTES] = "";
    const cl_schema_options options = {.lenient = lenient};
    return cl_schema_rewrite(schema, &options, out, weaker, error);
}

/* ---- Work ---- */

/* A schema of n definitions, each made of the next one by a text with two %s of its name. */
static json_t *chain(int n, const char *format) {
    json_t *definitions = json_object();
    for (int i = 0; i < n; i++) {
        char next[32], text[256], name[16];
        snprintf(next, sizeof next, "#/$defs/%d", i + 1);
        snprintf(text, sizeof text, format, next, next);
        snprintf(name, sizeof name, "%d", i);
        json_object_set_new(definitions, name, json_loads(text, 0, NULL));
    }
    char last[16];
    snprintf(last, sizeof last, "%d", n);
    json_object_set_new(definitions, last, json_pack("{s{s{}}}", "properties", "a"));
    return json_pack("{s[{ss}{s{s{}}}]so}", "allOf", "$ref", "#/$defs/0", "properties", "b", "$defs", definitions);
}

/* A schema, which it frees, takes more than the limit. */
static void expect_limit_of(const char *name, bool lenient, json_t *schema) {
    cl_error error = {.message = ""};
    json_t *out;
    if (rewrite(schema, lenient, &out, &error) != CL_ERR_LIMIT) fail_msg("%s: %s", name, out ? "written" : error.message);
    assert_non_null(strstr(error.message, "simplify it"));
    assert_null(out);
    json_decref(schema);
}

static void expect_limit(const char *name, json_t *schema) { expect_limit_of(name, false, schema); }

static void work_is_bounded(void **state) {
    (void)state;
    static const char *const formats[] = {
        "{\"allOf\":[{\"$ref\":\"%s\"},{\"$ref\":\"%s\"}]}",
        "{\"oneOf\":[{\"$ref\":\"%s\"},{\"required\":[\"x\"],\"allOf\":[{\"$ref\":\"%s\"}]}]}",
        "{\"if\":{\"required\":[\"b\"]},\"then\":{\"$ref\":\"%s\"},\"else\":{\"$ref\":\"%s\"}}",
        "{\"anyOf\":[{\"$ref\":\"%s\"},{\"properties\":{\"c\":{}},\"allOf\":[{\"$ref\":\"%s\"}]}]}",
        "{\"dependencies\":{\"b\":{\"$ref\":\"%s\"},\"c\":{\"$ref\":\"%s\"}}}",
    };
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) expect_limit(formats[i], chain(40, formats[i]));
    json_t *schema = json_object();
    for (int i = 0; i < 10; i++) schema = json_pack("{sosi}", "contains", schema, "minContains", 64);
    expect_limit("contains", schema);
}

/* A text of n times the same letter. */
static json_t *repeated(char letter, size_t n) {
    char *text = malloc(n + 1);
    memset(text, letter, n);
    text[n] = 0;
    json_t *value = json_string(text);
    free(text);
    return value;
}

/* References to a schema, which it takes over, two to the power of n. */
static json_t *refer_often(int n, json_t *schema) {
    json_t *definitions = json_pack("{so}", "0", schema);
    for (int i = 1; i <= n; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        json_t *reference = json_pack("{so}", "$ref", json_sprintf("#/$defs/%d", i - 1));
        json_object_set_new(definitions, name, json_pack("{s[Oo]s{}}", "allOf", reference, reference, "properties"));
    }
    return json_pack("{sos{}so}", "$ref", json_sprintf("#/$defs/%d", n), "properties", "$defs", definitions);
}

/* A schema, which it frees, with n members that are no keywords. */
static json_t *with_members(int n, json_t *schema) {
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        json_object_set_new(schema, name, json_null());
    }
    return schema;
}

/* Members that are no keywords, and values that are not what a keyword needs, count wherever they are passed. */
static void odd_members_are_work(void **state) {
    (void)state;
    enum { OFTEN = 8, SELDOM = 4, MANY = 20000 };
    json_t *values = json_array();
    for (int i = 0; i < MANY; i++) json_array_append_new(values, json_integer(i));
    expect_limit("a part", refer_often(OFTEN, with_members(MANY, json_pack("{s{}}", "properties"))));
    expect_limit("a place", refer_often(OFTEN, json_pack("{s{so}}", "properties", "a",
                                                         with_members(MANY, json_pack("{ss}", "$ref", "#/$defs/0")))));
    expect_limit("what is not so",
                 refer_often(OFTEN, json_pack("{s{}so}", "properties", "not", with_members(MANY, json_object()))));
    expect_limit("no parts",
                 refer_often(OFTEN, json_pack("{s{}so}", "properties", "anyOf", with_members(MANY, json_object()))));
    expect_limit("no names", refer_often(SELDOM, json_pack("{s{}sO}", "properties", "required", values)));
    expect_limit_of("a key of the pass", true,
                    refer_often(OFTEN, json_pack("{s{}s[O]}", "properties", "\001not values", values)));
    json_t *unique =
        refer_often(OFTEN, json_pack("{s{}sbs{ss}}", "properties", "uniqueItems", 1, "items", "$ref", "#/$defs/inexact"));
    json_object_set_new(json_object_get(unique, "$defs"), "inexact", json_pack("{s[[Of]]}", "enum", values, 1e30));
    expect_limit("few values", unique);
    json_decref(values);
}

/* Once the limit is reached nothing is compared any more; otherwise this takes minutes. */
static void the_limit_ends_the_pass(void **state) {
    (void)state;
    json_t *branches = json_array();
    for (int i = 0; i < 200000; i++) json_array_append_new(branches, json_false());
    expect_limit("oneOf", json_pack("{so}", "oneOf", branches));
}

/* A bound of n digits. */
static json_t *long_bound(size_t n) {
    json_t *digits = repeated('1', n), *text = json_sprintf("{\"maximum\":%s,\"properties\":{}}", json_string_value(digits));
    json_t *schema = cl_json_load(json_string_value(text), json_string_length(text), 0, NULL);
    assert_non_null(schema);
    json_decref(digits);
    json_decref(text);
    return schema;
}

/* References to a schema by the end of its $id. */
static json_t *refer_by_id(const char *id) {
    json_t *schema = json_pack("{s{s{}}s[]so}", "$defs", "a", "allOf", "$id", json_sprintf("%s/x", id));
    for (int i = 0; i < 100; i++)
        json_array_append_new(json_object_get(schema, "allOf"), json_pack("{ss}", "$ref", "x#/$defs/a"));
    return schema;
}

/* Texts, values and names count as work, however few subschemas there are. */
static void long_texts_are_work(void **state) {
    (void)state;
    enum { OFTEN = 8 };
    json_t *text = repeated('a', 400000), *values = json_array(), *types = json_array(), *none = json_object();
    const char *name = json_string_value(text);
    for (int i = 0; i < 20000; i++) json_array_append_new(values, json_integer(i));
    for (int i = 0; i < 10; i++) json_array_append_new(types, json_pack("{sO}", "type", values));
    json_t *pointers = refer_often(OFTEN, json_pack("{s[{so}]s{}}", "allOf", "$ref", json_sprintf("#/%s", name), "properties"));
    json_object_set(pointers, name, none);
    expect_limit("$ref", pointers);
    expect_limit("enum", refer_often(OFTEN, json_pack("{s[O]s{}}", "enum", text, "properties")));
    expect_limit("pattern", refer_often(OFTEN, json_pack("{sOs{}}", "pattern", text, "properties")));
    expect_limit("properties", refer_often(OFTEN, json_pack("{s{s{}}}", "properties", name)));
    expect_limit("required", refer_often(OFTEN, json_pack("{s[O]s{}}", "required", text, "properties")));
    expect_limit("not required", refer_often(OFTEN, json_pack("{s{s[O]}s{}}", "not", "required", text, "properties")));
    expect_limit("many values", refer_often(OFTEN, json_pack("{sOs{}}", "enum", values, "properties")));
    expect_limit("unique values", json_pack("{sbs{s[OOOi]}}", "uniqueItems", 1, "items", "enum", text, values, none, 1));
    expect_limit("equal values", json_pack("{s[{sO}{sO}]}", "oneOf", "enum", values, "enum", values));
    expect_limit("types", json_pack("{sO}", "oneOf", types));
    json_t *behind = json_sprintf("%s(?<=b)", name);
    expect_limit("pattern beside format",
                 refer_often(OFTEN, json_pack("{sssOs{}}", "format", "date", "pattern", behind, "properties")));
    json_t *shorter = json_sprintf("%.20000s(?<=b)", name); /* which is a regular expression */
    expect_limit_of("pattern of names", true,
                    refer_often(OFTEN + 2, json_pack("{s{sO}s{}}", "propertyNames", "pattern", shorter, "properties")));
    expect_limit("bound", refer_often(OFTEN, long_bound(400000)));
    expect_limit("$id", refer_by_id(name));
    json_decref(behind);
    json_decref(shorter);
    json_decref(text);
    json_decref(values);
    json_decref(types);
    json_decref(none);
}

/* The schemas of several tools share the limit. */
static void work_is_added_up(void **state) {
    (void)state;
    json_t *schema = json_pack("{s{s{}}}", "properties", "a"), *out;
    char weaker[CL_SCHEMA_WEAKER_BYTES] = "";
    size_t work = CL_SCHEMA_MAX_WORK - 10;
    cl_error error;
    const cl_schema_options options = {.work = &work};
    assert_int_equal(cl_schema_rewrite(schema, &options, &out, weaker, &error), CL_ERR_LIMIT);
    work = 0;
    assert_int_equal(cl_schema_rewrite(schema, &options, &out, weaker, &error), CL_OK);
    assert_true(work > 0 && work < 50);
    json_decref(out);
    json_decref(schema);
}

/* An expression is one of n kinds, which have expressions in them and nothing that tells them apart. */
static json_t *expressions(int n) {
    json_t *kinds = json_array();
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        json_array_append_new(kinds, json_pack("{sss{s{ss}s{ss}s{s{ss}}}s[ss]}", "type", "object", "properties", "left", "$ref",
                                               "#/$defs/E", "right", "$ref", "#/$defs/E", name, "items", "$ref", "#/$defs/E",
                                               "required", "left", name));
    }
    return json_pack("{sss{s{so}}}", "$ref", "#/$defs/E", "$defs", "E", "oneOf", kinds);
}

/* Branches of oneOf that would take too much work to tell apart stay as they are, and the schema is not refused. */
static void recursive_unions_are_written(void **state) {
    (void)state;
    for (int n = 2; n <= 50; n += 24) {
        json_t *schema = expressions(n), *out;
        cl_error error = {.message = ""};
        if (rewrite(schema, false, &out, &error) != CL_OK) fail_msg("%d kinds: %s", n, error.message);
        json_decref(out);
        json_decref(schema);
    }
}

static void depth_is_bounded(void **state) {
    (void)state;
    json_t *schema = json_object(), *out = NULL;
    cl_error error;
    for (int i = 0; i < 1000; i++) schema = json_pack("{so}", "items", schema);
    assert_int_equal(rewrite(schema, false, &out, &error), CL_ERR_LIMIT);
    json_decref(schema);
}

/* ---- Any schema ---- */

static const char *const keywords[] = {
    "type",
    "const",
    "enum",
    "minimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "pattern",
    "format",
    "prefixItems",
    "items",
    "additionalItems",
    "maxItems",
    "contains",
    "maxContains",
    "uniqueItems",
    "properties",
    "required",
    "patternProperties",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "$ref",
    "dependencies",
    "$id",
    "dependentSchemas",
    "dependentRequired",
    "$anchor",
    "$defs",
    "x-guidance",
    "unevaluatedItems",
    "additionalProperties",
    "unevaluatedProperties",
};
enum { N_KEYWORDS = sizeof keywords / sizeof *keywords };

/* A value that may or may not suit a keyword. */
static json_t *random_value(rng *r, int depth);

static json_t *random_schema(rng *r, int depth) {
    json_t *schema = json_object();
    for (int i = rng_below(r, 4); i >= 0; i--)
        json_object_set_new(schema, keywords[rng_below(r, N_KEYWORDS)], random_value(r, depth - 1));
    return schema;
}

static json_t *random_value(rng *r, int depth) {
    static const char *const texts[] = {"object", "array", "a", "#", "#/$defs/a", "^(?!a)b", "(?=", "#a", "[", "date"};
    json_t *list = json_array(), *map = json_object();
    const int kind = rng_below(r, depth > 0 ? 8 : 4);
    for (int i = rng_below(r, 3); i > 0 && kind > 5; i--) {
        json_array_append_new(list, random_value(r, depth - 1));
        json_object_set_new(map, texts[rng_below(r, 10)], random_schema(r, depth - 1));
    }
    json_t *value = kind == 0   ? json_string(texts[rng_below(r, 10)])
                    : kind == 1 ? json_integer(rng_below(r, 5))
                    : kind == 2 ? json_boolean(rng_below(r, 2))
                    : kind == 3 ? json_null()
                    : kind < 6  ? random_schema(r, depth)
                    : kind == 6 ? json_incref(list)
                                : json_incref(map);
    json_decref(list);
    json_decref(map);
    return value;
}

/* The keys that the pass itself uses are nothing special in a client's schema. */
static void keys_of_the_pass_are_no_keys_of_clients(void **state) {
    (void)state;
    json_t *text = repeated('a', 1000000), *out;
    cl_error error;
    json_t *schema = json_pack("{s[O]sb}", "\001not values", text, "\001made", 1);
    assert_int_equal(rewrite(schema, false, &out, &error), CL_ERR_ARG);
    assert_null(out);
    json_decref(schema);
    json_decref(text);
}

/* A schema of alternatives, more of them than a number holds. */
static json_t *alternatives(void) {
    json_t *any = json_array(), *schema = json_object();
    for (int i = 0; i < 64; i++) json_array_append_new(any, json_object());
    for (int i = 0; i < 11; i++) schema = json_pack("{s[{sO}o]}", "allOf", "anyOf", any, schema);
    json_decref(any);
    return schema;
}

/* They are too many to be excluded from another branch. */
static void alternatives_do_not_wrap(void **state) {
    (void)state;
    char weaker[CL_SCHEMA_WEAKER_BYTES] = "";
    const cl_schema_options options = {.lenient = true};
    json_t *schema = json_pack("{s[{ss}{so}]}", "oneOf", "type", "object", "not", alternatives()), *out;
    cl_error error = {.message = ""};
    if (cl_schema_rewrite(schema, &options, &out, weaker, &error) != CL_OK) fail_msg("%s", error.message);
    assert_non_null(strstr(weaker, "oneOf"));
    json_decref(out);
    json_decref(schema);
}

/* Those that are written are written again to something. */
static void any_schema_is_written_or_refused(void **state) {
    (void)state;
    size_t n_written = 0;
    for (unsigned i = 0; i < 5000; i++) {
        rng r = {i};
        json_t *schema = random_schema(&r, 5), *before = json_deep_copy(schema), *out, *again;
        cl_error error = {.message = ""};
        const cl_status status = rewrite(schema, i % 2, &out, &error);
        if (!json_equal(schema, before)) fail_msg("seed %u: the client's schema has changed", i);
        if (status == CL_OK ? !out : out || !error.message[0]) fail_msg("seed %u: status %d", i, (int)status);
        if (out && rewrite(out, true, &again, &error) == CL_OK) {
            n_written++;
            json_decref(again);
        }
        json_decref(out);
        json_decref(schema);
        json_decref(before);
    }
    assert_true(n_written > 500);
}

/* ---- Memory ---- */

static size_t n_left; /* allocations of jansson until one fails */
static bool fails_once, has_failed;

static void *allocate(size_t size) {
    if (n_left > 0 || (fails_once && has_failed)) {
        n_left -= n_left > 0;
        return malloc(size);
    }
    has_failed = true;
    return NULL;
}

/* The n-th allocation fails, alone or with all later ones. */
static cl_status rewrite_without_memory(json_t *schema, size_t n, bool once, bool lenient, json_t **out, cl_error *error) {
    json_malloc_t old_malloc;
    json_free_t old_free;
    json_get_alloc_funcs(&old_malloc, &old_free);
    n_left = n;
    fails_once = once;
    has_failed = false;
    json_set_alloc_funcs(allocate, free);
    const cl_status status = rewrite(schema, lenient, out, error);
    json_set_alloc_funcs(old_malloc, old_free);
    return status;
}

static void lacking_memory_is_an_error(void **state) {
    (void)state;
    static const char text[] =
        "{\"$defs\":{\"a\":{\"properties\":{\"k\":{\"const\":\"x\"},\"n\":{\"maximum\":1e19}}}},\"oneOf\":[{\"$ref\":\"#/$defs/"
        "a\"},"
        "{\"properties\":{\"k\":{\"enum\":[\"y\",1]}},\"required\":[\"z\"]}],\"if\":{\"properties\":{\"k\":{\"const\":\"x\"}}},"
        "\"then\":{\"minProperties\":1},\"anyOf\":[{\"required\":[\"z\"]},{}],\"not\":{\"enum\":[\"a\",1,true]},"
        "\"properties\":{\"p\":{\"pattern\":\"^(?!a)\\\\d$\",\"contains\":{},\"uniqueItems\":true,\"items\":{\"enum\":[1,2]}},"
        "\"t\":{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"const\":1}}},{\"type\":\"object\",\"properties\":{"
        "\"k\":"
        "{\"const\":2}}}]},\"m\":{\"properties\":{\"a\":{},\"b\":{}},\"patternProperties\":{\"^c\":{}},\"required\":[\"a\"],"
        "\"maxProperties\":2}},\"dependencies\":{\"p\":[\"k\"]},\"propertyNames\":{\"pattern\":\"a\"},\"minProperties\":1,"
        "\"x-guidance\":{\"whitespace_flexible\":true}}";
    json_t *schema = json_loads(text, 0, NULL), *out;
    assert_non_null(schema);
    for (int way = 0; way < 4; way++) {
        size_t n = 0;
        for (has_failed = true; has_failed; n++) {
            cl_error error = {.message = ""};
            const cl_status status = rewrite_without_memory(schema, n, way % 2, way / 2, &out, &error);
            if (status != (has_failed ? CL_ERR_NOMEM : CL_OK)) fail_msg("allocation %zu: %s", n, error.message);
            if (has_failed) assert_null(out);
        }
        assert_true(n > 500);
        json_decref(out);
    }
    json_decref(schema);
}

/* ---- Regular expressions ---- */

static void regular_expressions_are_written(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"\\d\\D", "[0-9][^0-9]"},
        {"[\\w.]", "[[0-9A-Za-z_].]"},
        {"[^]\\s]\\s", "[^][\\x20\\t\\n\\r\\f\\v]][\\x20\\t\\n\\r\\f\\v]"},
        {"\\\\d\\.\\x41", "\\\\d\\.\\x41"},
        {"[[:alpha:]\\d]\\d", "[[:alpha:][0-9]][0-9]"},
        {"(?u)\\d", "(?u)\\p{Nd}"},
        {"((?u)\\d)\\d(?u:\\W)\\d", "((?u)\\p{Nd})[0-9](?u:[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}])[0-9]"},
        {"(?P<a>\\d)(?<b>x)(?:y)", "(?P<a>[0-9])(?<b>x)(?:y)"},
        {"(?iu)\\d(?-u)\\d", "(?iu)\\p{Nd}(?-u)[0-9]"},
        {"(?x)a # ( [\n\\d", "(?x)a # ( [\n[0-9]"},
        {"(?x)\\s", "(?x)[\\x20\\t\\n\\r\\f\\v]"},
        {"[+.-\\w]+-\\d", "[+.\\-[0-9A-Za-z_]]+-[0-9]"},
        {"[\\w-\\d][\\w-a][a-c]", "[[0-9A-Za-z_]\\-[0-9]][[0-9A-Za-z_]\\-a][a-c]"},
        {"[a[b&&~~-]]", "[a\\[b\\&\\&\\~\\~\\-]]"},
        {"[--]-[[:alpha:][:^x:]]", "[\\-\\-]-[[:alpha:]\\[:^x:]]"},
        {"a\\", "a\\"},
        {"[(", "[("},
        {")\\d", ")[0-9]"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n;
        char *text = cl_regex_ascii(cases[i][0], strlen(cases[i][0]), &n);
        assert_string_equal(text, cases[i][1]);
        assert_int_equal(n, strlen(text));
        free(text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_is_bounded),
        cmocka_unit_test(odd_members_are_work),
        cmocka_unit_test(the_limit_ends_the_pass),
        cmocka_unit_test(long_texts_are_work),
        cmocka_unit_test(work_is_added_up),
        cmocka_unit_test(recursive_unions_are_written),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(keys_of_the_pass_are_no_keys_of_clients),
        cmocka_unit_test(alternatives_do_not_wrap),
        cmocka_unit_test(any_schema_is_written_or_refused),
        cmocka_unit_test(lacking_memory_is_an_error),
        cmocka_unit_test(regular_expressions_are_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
