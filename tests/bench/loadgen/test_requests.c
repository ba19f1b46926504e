/* Request bodies: what synthetic prompts share, the fields that are set, and files. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/loadgen/load_requests.h"

static const load_fields fields = {.model = "m", .completion_tokens = 5};
static load_requests made;

static json_t *body(size_t i) {
    json_t *json = json_loads(made.items[i].body, 0, NULL);
    assert_non_null(json);
    return json;
}

static int64_t number(const json_t *object, const char *key) { return json_integer_value(json_object_get(object, key)); }

/* Leading ids that two prompts have in common. */
static size_t common(size_t i, size_t j) {
    json_t *a = body(i), *b = body(j);
    const json_t *x = json_object_get(a, "prompt"), *y = json_object_get(b, "prompt");
    size_t n = 0;
    while (n < json_array_size(x) && json_equal(json_array_get(x, n), json_array_get(y, n))) n++;
    json_decref(a);
    json_decref(b);
    return n;
}

static void test_sharing(void **state) {
    (void)state;
    const load_shape shapes[] = {{12, 40, 0, 1, 1000, false, 1},
                                 {12, 40, 30, 1, 1000, false, 1},
                                 {12, 40, 40, 1, 1000, false, 1},
                                 {12, 40, 30, 3, 1000, false, 1}};
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) {
        const load_shape *s = &shapes[k];
        assert_true(load_requests_synthetic(s, &fields, &made));
        assert_int_equal(made.n, 12);
        for (size_t i = 0; i < made.n; i++) {
            json_t *b = body(i);
            const json_t *prompt = json_object_get(b, "prompt");
            assert_int_equal(json_array_size(prompt), 40);
            for (size_t p = 0; p < 40; p++) {
                assert_true(json_integer_value(json_array_get(prompt, p)) >= LOAD_FIRST_TOKEN);
                assert_true(json_integer_value(json_array_get(prompt, p)) < s->vocab);
            }
            json_decref(b);
            for (size_t j = 0; j < i; j++) {
                const bool same_prefix = (i - j) % (size_t)s->n_prefixes == 0;
                if (same_prefix)
                    assert_int_equal(common(i, j), s->shared_tokens);
                else
                    assert_true(common(i, j) < 4); /* by chance */
            }
        }
        load_requests_free(&made);
    }
}

static void test_prefixes(void **state) {
    (void)state;
    const load_shape s = {6, 40, 30, 3, 1000, false, 1};
    assert_true(load_requests_synthetic(&s, &fields, &made) && load_requests_prefixes(&s, &fields, &made));
    assert_int_equal(made.n, 9);
    for (size_t i = 0; i < 3; i++) assert_int_equal(common(6 + i, i), 30);
    load_requests_free(&made);
}

static void test_seed(void **state) {
    (void)state;
    load_shape s = {1, 40, 30, 1, 1000, false, 1};
    assert_true(load_requests_synthetic(&s, &fields, &made) && load_requests_synthetic(&s, &fields, &made));
    s.seed = 2;
    assert_true(load_requests_synthetic(&s, &fields, &made));
    assert_string_equal(made.items[0].body, made.items[1].body);
    assert_true(common(0, 2) < 4);
    load_requests_free(&made);
}

static void test_fields(void **state) {
    (void)state;
    json_t *extra = json_pack("{s:i, s:s}", "id_slot", 3, "model", "other");
    const load_fields f = {"m", 5, extra};
    const load_shape s = {1, 3, 0, 1, 1000, true, 1};
    assert_true(load_requests_synthetic(&s, &f, &made));
    json_t *b = body(0);
    assert_int_equal(number(b, "max_tokens"), 5);
    assert_int_equal(number(b, "id_slot"), 3);
    assert_true(json_is_true(json_object_get(b, "ignore_eos")) && json_is_true(json_object_get(b, "stream")));
    assert_true(json_is_true(json_object_get(json_object_get(b, "stream_options"), "include_usage")));
    assert_string_equal(json_string_value(json_object_get(b, "model")), "other");
    const char *text = json_string_value(json_object_get(b, "prompt"));
    int n_blanks = 0;
    for (const char *c = text; *c; c++) n_blanks += *c == ' ';
    assert_int_equal(n_blanks, 3);
    json_decref(b);
    json_decref(extra);
    load_requests_free(&made);
}

/* ---- Files ---- */

static char path[] = "/tmp/loadgen_requests_XXXXXX";

static cl_status read_file(const char *text, int64_t n, const load_fields *f, cl_error *error) {
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    load_requests_free(&made);
    return load_requests_read(path, n, f, &made, error);
}

static void test_file(void **state) {
    (void)state;
    cl_error error;
    const char *const text = "{\"id\": 1, \"prompt\": \"x\", \"max_tokens\": 9, \"temperature\": 0.5}\n\n"
                             "{\"custom_id\": \"a\", \"url\": \"/v1/chat/completions\", \"body\": {\"messages\": []}}\n";
    const load_fields own = {.model = "m"};
    assert_int_equal(read_file(text, 0, &own, &error), CL_OK);
    assert_int_equal(made.n, 2);
    assert_false(made.items[0].chat);
    assert_true(made.items[1].chat);
    json_t *b = body(0);
    assert_int_equal(number(b, "max_tokens"), 9);
    assert_true(json_real_value(json_object_get(b, "temperature")) == 0.5);
    assert_null(json_object_get(b, "id"));
    assert_null(json_object_get(b, "ignore_eos"));
    json_decref(b);
    assert_int_equal(read_file(text, 5, &fields, &error), CL_OK);
    assert_int_equal(made.n, 5);
    assert_true(made.items[3].chat && !made.items[4].chat);
    b = body(4);
    assert_int_equal(number(b, "max_tokens"), 5);
    json_decref(b);
    assert_int_equal(read_file(text, 1, &fields, &error), CL_OK);
    assert_int_equal(made.n, 1);
    load_requests_free(&made);
}

static void test_wrong_files(void **state) {
    (void)state;
    cl_error error;
    assert_int_equal(read_file("{\"prompt\": \"x\"}\n{\"id\": 1}\n", 0, &fields, &error), CL_ERR_FORMAT);
    assert_non_null(strstr(error.message, "line 2: it must be a JSON object with messages or a prompt"));
    assert_int_equal(read_file("{", 0, &fields, &error), CL_ERR_FORMAT);
    assert_int_equal(read_file("\n \n", 7, &fields, &error), CL_ERR_FORMAT);
    assert_non_null(strstr(error.message, "holds no requests"));
    load_requests_free(&made);
    assert_int_equal(load_requests_read("/nowhere.jsonl", 0, &fields, &made, &error), CL_ERR_FILE);
    load_requests_free(&made);
}

/* Sequences begin with the same tokens, and differ from then on. */
static void test_sequences(void **state) {
    (void)state;
    enum { N = 33, LENGTH = 40, SHARED = 24, VOCAB = 1000 };
    int32_t tokens[N][LENGTH], own[N][LENGTH];
    load_random_sequences(tokens[0], N, LENGTH, SHARED, VOCAB);
    load_random_sequences(own[0], N, LENGTH, 0, VOCAB);
    for (int i = 0; i < N; i++) {
        assert_memory_equal(tokens[i], tokens[0], SHARED * sizeof(int32_t));
        for (int j = 0; j < i; j++) {
            assert_memory_not_equal(tokens[i] + SHARED, tokens[j] + SHARED, (LENGTH - SHARED) * sizeof(int32_t));
            assert_int_not_equal(own[i][0], own[j][0]);
        }
        for (int k = 0; k < LENGTH; k++) assert_in_range(tokens[i][k], 0, VOCAB - 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sharing),  cmocka_unit_test(test_prefixes),
                                       cmocka_unit_test(test_seed),     cmocka_unit_test(test_fields),
                                       cmocka_unit_test(test_file),     cmocka_unit_test(test_wrong_files),
                                       cmocka_unit_test(test_sequences)};
    const int file = mkstemp(path);
    if (file < 0) return 1;
    close(file);
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return n_failed;
}
