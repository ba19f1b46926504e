/* The framing of chunked bodies: what RFC 9112 allows passes, in any pieces, and the first wrong byte is found. */
#include "tests/support/testing.h"

#include <string.h>

#include "serve/http/wire.h"

#define HEAD "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
#define NEXT "GET / HTTP/1.1\r\n\r\n"

/* The index of the first wrong byte of a stream that comes in pieces of `size` bytes; its length: there is none. */
static size_t first_wrong(const char *stream, size_t size) {
    http_wire w = {0};
    const size_t n = strlen(stream);
    for (size_t at = 0; at < n; at += size) {
        const size_t piece = size < n - at ? size : n - at, passed = wire_pass(&w, stream + at, piece);
        if (passed < piece) return at + passed;
    }
    return n;
}

/* In pieces of any size the first wrong byte is that at an index behind the head; < 0: there is none. */
static void check(const char *head, const char *body, int wrong) {
    char stream[600];
    strcpy(stream, head);
    strcat(stream, body);
    const size_t expected = wrong < 0 ? strlen(stream) : strlen(head) + (size_t)wrong;
    for (size_t size = 1; size <= sizeof stream; size = size < 4 ? size + 1 : size * 2) {
        const size_t got = first_wrong(stream, size);
        if (got != expected) fail_msg("<%s> in pieces of %zu: %zu, not %zu", stream, size, got, expected);
    }
}

static void the_first_wrong_byte_is_found(void **state) {
    (void)state;
    static const struct {
        const char *body;
        int wrong; /* < 0: nothing */
    } cases[] = {
        {"2\r\n{}\r\n0\r\n\r\n" NEXT HEAD "0\r\n\r\n", -1},
        {"000A\r\n0123456789\r\n00\r\n\r\n", -1},
        {"a;b=\"c d\";e\r\n0123456789\r\n0;f\r\n\r\n" NEXT, -1},
        {"1\r\n\n\r\n0\r\nX: a\r\nY: b\tc\r\n\r\n" NEXT, -1},
        {"2\n{}", 1},
        {"2\r\n{}\n0\r\n", 5},
        {"2\r\n{}\r\n0\n\r\n", 8},
        {"2\r\n{}\r\n0\r\n\n", 10},
        {"2;\n{}", 2},
        {"2;a=b\n{}", 5},
        {"2\r\n{}\r|0\r\n", 6},
        {"2\r{}", 2},
        {"2;a\rb\r\n{}", 4},
        {"2;a\x01", 3},
        {"\n", 0},
        {"\r\n", 0},
        {"+2", 0},
        {"-2", 0},
        {"0x2", 1},
        {" 2", 0},
        {"2 \r\n", 1},
        {"2\t;a\r\n", 1},
        {";a\r\n", 0},
        {"00000000000000000", 16},
        {"fffffffffffffffff", 16},
        {"3\r\n{}\r\n0\r\n", 6},
        {"1\r\n{}\r\n", 4},
        {"0\r\nX: a\n", 7},
        {"0\r\nX : a\r\n", 4},
        {"0\r\n: a\r\n", 3},
        {"0\r\nX\r\n", 4},
        {"0\r\nX: a\rb", 8},
        {"0\r\n X: a\r\n", 3},
        {"0\r\nX: a\r\n\tb\r\n", 9},
        {"0\r\nX: \x7f", 6},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(HEAD, cases[i].body, cases[i].wrong);
}

/* Which heads are followed by a chunked body. */
static void heads_say_how_a_body_ends(void **state) {
    (void)state;
    static const struct {
        const char *head;
        bool is_chunked;
    } cases[] = {
        {NEXT NEXT, false},
        {"\r\n" NEXT, false},
        {"GET / HTTP/1.1\n\n", false},
        {"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n2\n{}\n", false},
        {"POST / HTTP/1.1\r\nX: Transfer-Encoding: chunked\r\n\r\n", false},
        {"POST / HTTP/1.1\nTransfer-Encoding: chunked\n\n", true},
        {"POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\nHost: x\r\n\r\n", true},
        {"POST / HTTP/1.1\r\nTransfer-Encoding: \t\t                                                     chunked\r\n\r\n",
         true},
        {"POST / HTTP/1.1\r\nX-0123456789012345678901234567890123456789012345678901234567890123456789: b\r\n"
         "Transfer-Encoding: chunked\r\n\r\n",
         true},
        {HEAD "0\r\n\r\n" NEXT, false},
        {"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}" HEAD, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check(cases[i].head, "2\n{}", cases[i].is_chunked ? 1 : -1);
}

/* Lines have a limit. */
static void long_lines_are_wrong(void **state) {
    (void)state;
    static const char *const begins[] = {HEAD "1;", HEAD "0\r\n"};
    static const size_t n_before[] = {2, 0}; /* bytes of the line that is then made too long */
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        char stream[WIRE_LINE_BYTES + 200] = "";
        const size_t n = strlen(begins[i]);
        memset(stream, 'a', sizeof stream - 1);
        memcpy(stream, begins[i], n);
        assert_int_equal(first_wrong(stream, 700), n - n_before[i] + WIRE_LINE_BYTES);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_wrong_byte_is_found),
        cmocka_unit_test(heads_say_how_a_body_ends),
        cmocka_unit_test(long_lines_are_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
