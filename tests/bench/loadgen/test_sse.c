/* Server-sent events are parsed from pieces cut anywhere. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/loadgen/sse.h"

static char seen[1024]; /* "<data>" of each event */
static size_t n_events, stop_after;

static bool on_event(void *ctx, const char *data, size_t size) {
    (void)ctx;
    assert_int_equal(strlen(data), size);
    strcat(strcat(strcat(seen, "<"), data), ">");
    return ++n_events != stop_after;
}

static bool feed(load_sse *s, const char *text, size_t size) { return load_sse_feed(s, text, size, on_event, NULL); }

/* Parse a stream cut at every place, and byte by byte. It must give `events`, and end inside an event if `unfinished`. */
static void check(const char *stream, const char *events, bool unfinished) {
    const size_t size = strlen(stream);
    for (size_t cut = 0; cut <= size + 1; cut++) {
        load_sse s = {0};
        *seen = 0;
        n_events = stop_after = 0;
        if (cut <= size) {
            assert_true(feed(&s, stream, cut));
            assert_true(feed(&s, stream + cut, size - cut));
        } else {
            for (size_t i = 0; i < size; i++) assert_true(feed(&s, stream + i, 1));
        }
        assert_string_equal(seen, events);
        assert_true(load_sse_unfinished(&s) == unfinished);
        load_sse_free(&s);
    }
}

static void test_streams(void **state) {
    (void)state;
    check("", "", false);
    check("data: one\n\ndata: two\n\n", "<one><two>", false);
    check("data:one\r\n\r\ndata:  two\r\rdata: three\n\n", "<one>< two><three>", false);
    check("data: a\r\ndata: b\r\n\r\n", "<a\nb>", false);
    check("data: a\ndata: b\ndata\ndata:\n\n", "<a\nb\n\n>", false);
    check(": a comment\n\nevent: x\nid: 7\ndata: y\nretry: 5\n\n\n\n", "<y>", false);
    check("data\n\n", "<>", false);
    check("database: no\nDATA: no\n data: no\n\n", "", false);
    check("data: cut of", "", true);
    check("data: cut off\n", "", true);
    check("data: whole\n\nda", "<whole>", true);
    check("data: {\"a\": \"b: c\"}\n\n", "<{\"a\": \"b: c\"}>", false);
}

static void test_handler_stops(void **state) {
    (void)state;
    load_sse s = {0};
    *seen = 0;
    n_events = 0;
    stop_after = 2;
    assert_false(feed(&s, "data: 1\n\ndata: 2\n\ndata: 3\n\n", 27));
    assert_string_equal(seen, "<1><2>");
    load_sse_free(&s);
}

static void test_long_lines(void **state) {
    (void)state;
    load_sse s = {0};
    static char line[900];
    memset(line, 'x', sizeof line - 1);
    *seen = 0;
    n_events = stop_after = 0;
    assert_true(feed(&s, "data: ", 6) && feed(&s, line, strlen(line)) && feed(&s, "\n\n", 2));
    assert_int_equal(strlen(seen), strlen(line) + 2);
    load_sse_free(&s);
}

/* Feed `text` repeatedly; the number of bytes accepted before one is refused. 0: none is refused. */
static size_t refused_after(const char *text, size_t size) {
    load_sse s = {0};
    size_t fed = 0;
    while (fed < 4 * (size_t)LOAD_BUFFER_MAX && feed(&s, text, size)) fed += size;
    const bool refused =
        s.too_large && s.line.capacity <= 2 * (LOAD_BUFFER_MAX + 64) && s.data.capacity <= 2 * (LOAD_BUFFER_MAX + 64);
    load_sse_free(&s);
    return refused ? fed : 0;
}

static void test_endless(void **state) {
    (void)state;
    enum { SIZE = 1 << 20 };
    static char text[SIZE] = "data: ";
    memset(text + 6, 'x', SIZE - 6);
    assert_int_equal(refused_after(text, SIZE), LOAD_BUFFER_MAX); /* a line */
    text[SIZE - 1] = '\n';
    assert_int_equal(refused_after(text, SIZE), LOAD_BUFFER_MAX); /* an event of many lines */
    text[0] = ':';
    assert_int_equal(refused_after(text, SIZE), 0); /* comments are ignored */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_streams), cmocka_unit_test(test_handler_stops),
                                       cmocka_unit_test(test_long_lines), cmocka_unit_test(test_endless)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
