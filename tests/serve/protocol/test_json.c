/* Bodies are parsed, or refused with the reason. */
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_text.h"
#include "serve/protocol/json.h"
#include "serve/protocol/parse.h"

/* ---- An allocator that fails once: the linker puts it in place of malloc in the code under test ---- */

static int allocations_left = -1; /* that succeed before one fails; < 0: all do */

void *__real_malloc(size_t size); // NOLINT(bugprone-reserved-identifier)
void *__wrap_malloc(size_t size); // NOLINT(bugprone-reserved-identifier)

void *__wrap_malloc(size_t size) { // NOLINT(bugprone-reserved-identifier)
    return allocations_left >= 0 && allocations_left-- == 0 ? NULL : __real_malloc(size);
}

/* Whichever allocation fails, the answer is that memory is lacking, and the next try succeeds. */
static void lacking_memory_is_not_the_clients_fault(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{\"prompt\": \"abc\"}",
        "{\"a\": [1, 2.5, true, null, \"x\"], \"b\": {\"c\": [[], {}]}}",
        "[0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9]",
        "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9,\"j\":0}",
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        openai_error error;
        json_t *json = NULL;
        int n = 0;
        for (; !json; n++) {
            allocations_left = n;
            json = openai_json_parse("body", bodies[i], strlen(bodies[i]), &error);
            allocations_left = -1;
            if (!json && (error.status != 503 || strcmp(error.type, "server_error") != 0 || !strstr(error.message, "memory")))
                fail_msg("%s, allocation %d: %d %s", bodies[i], n, error.status, error.message);
        }
        assert_true(n > 5);
        json_decref(json);
    }
}

static void invalid_text_is_the_clients_fault(void **state) {
    (void)state;
    static const char *const bodies[] = {"",
                                         "{",
                                         "{\"a\":}",
                                         "[1,]",
                                         "\"abc",
                                         "{\"a\":\"\xff\"}",
                                         "1e999 ",
                                         "18446744073709551615",
                                         "[018446744073709551615]",
                                         "[18446744073709551615.]",
                                         "[-]",
                                         "[\"\\ud800\\u\"]"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        openai_error error;
        assert_null(openai_json_parse("body", bodies[i], strlen(bodies[i]), &error));
        assert_int_equal(error.status, 400);
        assert_non_null(strstr(error.message, "the body is not valid JSON: "));
    }
}

/* ---- What jansson alone refuses ---- */

/* A hundred zeros. */
#define TEN         "0000000000"
#define ZEROS       TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
#define ZEROS_AFTER "1." ZEROS ZEROS ZEROS ZEROS

/* Numbers of any size are written as they were read, and a surrogate without its other half is U+FFFD. */
static void all_json_is_read(void **state) {
    (void)state;
    static const struct {
        const char *text, *written; /* NULL: the same */
    } cases[] = {
        {"[18446744073709551615,-9223372036854775809,9223372036854775808]", NULL},
        {"[9223372036854775807,-9223372036854775808,1.5,-0.0]", NULL},
        {"{\"a\":{\"b\":[123456789012345678901234567890,1e999,-1E+999,{\"c\":[]}]}}", NULL},
        {"{\"18446744073709551615\":\"18446744073709551615\"}", NULL},
        {"[0." ZEROS ZEROS ZEROS ZEROS "1," ZEROS_AFTER "]", "[0.0,1.0]"},
        {"[1." ZEROS ZEROS ZEROS ZEROS "e400]", NULL},
        {"[\"\\\\18446744073709551615\",\"\\\"\",99999999999999999999]", NULL},
        {" [ 99999999999999999999 , \"\\ud83d\\ude42\" ] ", "[99999999999999999999,\"\xf0\x9f\x99\x82\"]"},
        {"[\"a\\ud83d\"]", "[\"a\xef\xbf\xbd\"]"},
        {"[\"\\udE42b\\uD83D\\ud83d\\ude42\"]", "[\"\xef\xbf\xbd"
                                                "b\xef\xbf\xbd\xf0\x9f\x99\x82\"]"},
        {"{\"k\\ud800\":\"\\\\ud800\\ud800\\u0041\"}", "{\"k\xef\xbf\xbd\":\"\\\\ud800\xef\xbf\xbd"
                                                       "A\"}"},
        /* The mark of numbers is of no use to a client. */
        {"{\"\xf4\x8f\xbf\xbf\":\"1\",\"\\udbff\\udfff\":\"2\"}", "{\"\xef\xbf\xbd\":\"2\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        openai_error error;
        const char *expected = cases[i].written ? cases[i].written : cases[i].text;
        json_t *json = openai_json_parse("body", cases[i].text, strlen(cases[i].text), &error);
        if (!json) fail_msg("%s: %s", cases[i].text, error.message);
        char *written = cl_json_dumps(json, JSON_COMPACT);
        openai_writer w = {0};
        writer_value(&w, NULL, json);
        char *answer = writer_end(&w, NULL);
        assert_string_equal(written, expected);
        assert_string_equal(answer, written);
        free(answer);
        free(written);
    }
}

/* A real is written with as many digits as it needs, since the readers of the text would round 17 of them. */
static void reals_have_few_digits(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"[0.1,-0.3,2e-7,1e300,2.5]", "[0.1,-0.3,2e-07,1e+300,2.5]"},
        {"[0.30000000000000004,123456789.00000001,5e-324]", "[0.30000000000000004,123456789.00000001,4.94065645841247e-324]"},
        {"{\"0.10000000000000001\":[\"\\\"0.10000000000000001\\\\\",true,null,false,7]}", NULL},
        {"[1e1000,0.1,123456789012345678901234567890]", NULL},
        {"[100000000000000000000.0,1e15]", "[1e20,1e+15]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_error_t wrong;
        json_t *json = cl_json_load(cases[i][0], strlen(cases[i][0]), 0, &wrong);
        assert_non_null(json);
        char *written = cl_json_dumps(json, JSON_COMPACT);
        assert_string_equal(written, cases[i][1] ? cases[i][1] : cases[i][0]);
        free(written);
        json_decref(json);
    }
}

/* A number is looked at by itself: with the text behind each of these, they would take hours. */
static void many_long_integers_are_written(void **state) {
    (void)state;
    enum { N = 1000000, N_DIGITS = 19 };
    json_t *one = json_integer(INT64_MAX), *all = json_array();
    for (int i = 0; i < N; i++) json_array_append(all, one);
    char *written = cl_json_dumps(all, JSON_COMPACT);
    assert_int_equal(strlen(written), (size_t)N * (N_DIGITS + 1) + 1);
    assert_memory_equal(written, "[9223372036854775807,9223372036854775807,", 41);
    free(written);
    json_decref(all);
    json_decref(one);
}

/* Such a number is of no type that a field may have. */
static void a_number_beyond_64_bits_is_no_other_value(void **state) {
    (void)state;
    static const char text[] = "{\"n\":18446744073709551615}";
    openai_error error;
    json_t *body = openai_json_parse("body", text, strlen(text), &error);
    int64_t n = 5;
    assert_false(field_int(body, "n", 0, 9, &n, &error));
    assert_string_equal(error.message, "must be an integer, not a number beyond 64 bits");
    assert_int_equal(n, 5);
    json_decref(body);
}

/* The same holds of texts that are read without a body, and their reader learns why. */
static void a_text_without_memory_is_not_invalid(void **state) {
    (void)state;
    static const char text[] = "{\"a\":18446744073709551615}";
    json_error_t wrong;
    for (int n = 0; n < 2; n++) { /* the copy, and what jansson needs */
        wrong = (json_error_t){.text = "not set"};
        allocations_left = n;
        assert_null(cl_json_load(text, strlen(text), 0, &wrong));
        allocations_left = -1;
        assert_int_equal(wrong.line, -1);
        assert_string_equal(wrong.text, "memory is lacking");
    }
    json_t *json = cl_json_load(text, strlen(text), 0, &wrong);
    assert_non_null(json);
    json_decref(json);
}

/* ---- Limits ---- */

/* before, n times `repeated`, and after, as allocated text. */
static char *repeat(const char *before, const char *repeated, size_t n, const char *after) {
    const size_t size = strlen(repeated), begin = strlen(before);
    char *text = malloc(begin + n * size + strlen(after) + 1);
    strcpy(text, before);
    for (size_t i = 0; i < n; i++) strcpy(text + begin + i * size, repeated);
    strcpy(text + begin + n * size, after);
    return text;
}

typedef struct body_case {
    const char *before, *repeated;
    size_t n;
    const char *after, *refused; /* part of the message; NULL: accepted */
} body_case;

static const body_case body_cases[] = {
    /* What real requests have. */
    {"{\"prompt\":\"", "word ", 3000000, "\"}", NULL},
    {"{\"prompt\":\"", "[{,:\\\"", 2500000, "\"}", NULL},
    {"{\"prompt\":\"", "\\\\", 8000000, "\"}", NULL},
    {"{\"prompt\":[1", ",123456", 1000000, "]}", NULL},
    {"{\"messages\":[{}", ",{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"}]}", 10000, "]}", NULL},
    /* The limits. */
    {"[0", ",0", OPENAI_JSON_MAX_VALUES - 3, "]", NULL},
    {"[0", ",0", OPENAI_JSON_MAX_VALUES - 1, "]", "2097153 values and names of fields; at most 2097152"},
    {"[\"", "\",\"", OPENAI_JSON_MAX_VALUES, "\"]", "values and names of fields; at most 2097152"},
    {"[0", ",{}", OPENAI_JSON_MAX_CONTAINERS - 1, "]", NULL},
    {"[0", ",{}", OPENAI_JSON_MAX_CONTAINERS, "]", "131073 objects and arrays; at most 131072"},
    {"[0", ",[ ]", OPENAI_JSON_MAX_CONTAINERS, "]", "131073 objects and arrays; at most 131072"},
    {"", "[", OPENAI_JSON_MAX_DEPTH + 1, "0]", "129 levels"},
    {"", "[", OPENAI_JSON_MAX_DEPTH, "0]", "not valid JSON"},
    {"{\"a\": \"\\\\\", \"b\": ", "[", OPENAI_JSON_MAX_DEPTH, "",
     "129 levels"}, /* the string ends: its last quote is not escaped */
    {"", "]", 1000000, "[]", "not valid JSON"},
    {"\"", "\\", 1000001, "\"", "not valid JSON"},
};

static void only_absurd_bodies_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof body_cases / sizeof *body_cases; i++) {
        const body_case *c = &body_cases[i];
        char *text = repeat(c->before, c->repeated, c->n, c->after);
        openai_error error = {0};
        json_t *json = openai_json_parse("body", text, strlen(text), &error);
        if (c->refused ? json || error.status != 400 || !strstr(error.message, c->refused) : !json)
            fail_msg("case %zu: %s %d %s", i, json ? "accepted" : "refused", error.status, error.message);
        json_decref(json);
        free(text);
    }
}

static int set_up(void **state) {
    (void)state;
    openai_json_init();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lacking_memory_is_not_the_clients_fault),
        cmocka_unit_test(invalid_text_is_the_clients_fault),
        cmocka_unit_test(only_absurd_bodies_are_refused),
        cmocka_unit_test(all_json_is_read),
        cmocka_unit_test(reals_have_few_digits),
        cmocka_unit_test(many_long_integers_are_written),
        cmocka_unit_test(a_number_beyond_64_bits_is_no_other_value),
        cmocka_unit_test(a_text_without_memory_is_not_invalid),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
