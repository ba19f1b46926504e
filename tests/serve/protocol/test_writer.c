/* The writer's JSON is read as the values that were written. */
#include "tests/support/testing.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "serve/protocol/writer.h"

static void write_all_kinds(openai_writer *w) {
    writer_open(w, NULL, '{');
    writer_string(w, "a", "b");
    writer_open(w, "c", '[');
    writer_integer(w, NULL, INT64_MIN);
    writer_null(w, NULL);
    writer_open(w, NULL, '[');
    writer_close(w);
    writer_open(w, NULL, '{');
    writer_close(w);
    writer_string(w, NULL, NULL);
    writer_close(w);
    writer_named_real(w, "d\0\"", 3, 9);
    writer_joined(w, "e", "f\xc3", 2, "\xa9g", 2);
    writer_value(w, "h", json_true());
    writer_named_real(w, "d\0\"", 3, -0.25);
    writer_close(w);
}

static void assert_text(openai_writer *w, const char *expected) {
    size_t size;
    char *text = writer_end(w, &size);
    assert_string_equal(text, expected);
    assert_int_equal(size, strlen(expected));
    free(text);
}

static void values_are_separated(void **state) {
    (void)state;
    openai_writer compact = {0}, spaced = {.spaced = true};
    write_all_kinds(&compact);
    assert_text(
        &compact,
        "{\"a\":\"b\",\"c\":[-9223372036854775808,null,[],{},null],\"d\\u0000\\\"\":-0.25,\"e\":\"f\xef\xbf\xbd\xef\xbf\xbdg\","
        "\"h\":true}");
    write_all_kinds(&spaced);
    assert_text(&spaced, "{\"a\": \"b\", \"c\": [-9223372036854775808, null, [], {}, null], \"d\\u0000\\\"\": -0.25, \"e\": "
                         "\"f\xef\xbf\xbd\xef\xbf\xbdg\", \"h\": true}");
}

static void raw_text_separates_documents(void **state) {
    (void)state;
    openai_writer w = {0};
    for (int i = 0; i < 2; i++) {
        writer_begin_event(&w, i ? "name" : NULL);
        writer_integer(&w, NULL, i);
        writer_end_event(&w);
    }
    writer_raw(&w, "end");
    assert_text(&w, "data: 0\n\nevent: name\ndata: 1\n\nend");
    assert_text(&w, "");
}

static void assert_string(const char *bytes, size_t size, const char *text, size_t text_size) {
    openai_writer w = {0};
    writer_bytes(&w, NULL, bytes, size);
    char *written = writer_end(&w, NULL);
    json_t *json = json_loads(written, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_int_equal(json_string_length(json), text_size);
    assert_memory_equal(json_string_value(json), text, text_size);
    json_decref(json);
    free(written);
}

static void any_bytes_make_a_string(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        const char *text;
    } cases[] = {
        {NULL, 0, ""},
        {"a\xc3\xa9", 3, "a\xc3\xa9"},
        {"a\xc3", 2, "a\xef\xbf\xbd"},
        {"a\xc3z", 3, "a\xef\xbf\xbdz"},
        {"\xff\xfe!", 3, "\xef\xbf\xbd\xef\xbf\xbd!"},
        {"\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* half a surrogate pair */
        {"\xf0\x9f\x92", 3, "\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string(cases[i].bytes, cases[i].size, cases[i].text, strlen(cases[i].text));
    for (int c = 0; c < 0x80; c++) {
        const char bytes[3] = {'x', (char)c, 'y'};
        assert_string(bytes, sizeof bytes, bytes, sizeof bytes);
    }
}

static void reals_are_read_again_as_they_were(void **state) {
    (void)state;
    static const double values[] = {0, -1.5, -9999, 0.1f, -1e-5f, 1e300, -3.4028234663852886e38, 5e-324, 123456789012345680.0};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        openai_writer w = {0};
        writer_real(&w, NULL, values[i]);
        char *written = writer_end(&w, NULL);
        json_t *json = json_loads(written, JSON_DECODE_ANY, NULL);
        assert_true(json_is_real(json));
        assert_true(json_real_value(json) == values[i]);
        json_decref(json);
        free(written);
    }
}

static void a_failure_remains_until_the_end(void **state) {
    (void)state;
    openai_writer w = {0};
    writer_string(&w, NULL, "a");
    writer_fail(&w);
    writer_string(&w, NULL, "b");
    writer_clear(&w);
    writer_string(&w, NULL, "c");
    assert_null(writer_end(&w, NULL));
    writer_string(&w, NULL, "d");
    assert_text(&w, "\"d\"");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_separated),
        cmocka_unit_test(raw_text_separates_documents),
        cmocka_unit_test(any_bytes_make_a_string),
        cmocka_unit_test(reals_are_read_again_as_they_were),
        cmocka_unit_test(a_failure_remains_until_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
