/* HTTP as the RFCs and browsers define it: bodies, keys, headers and targets. */
#define _GNU_SOURCE /* POLLRDHUP */
#include "tests/support/wait.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "server_fixture.h"
#include "tests/support/still_clock.h"

static void a_large_chunked_body_is_refused(void **state) {
    const fixture *f = *state;
    const int fd = client_connect(f->port);
    const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n";
    char chunk[4096 + 9];
    snprintf(chunk, sizeof chunk, "1000\r\n%4096s\r\n", " ");
    assert_int_equal(write(fd, head, sizeof head - 1), sizeof head - 1);
    for (int i = 0; i < 40; i++) assert_int_equal(write(fd, chunk, 4096 + 8), 4096 + 8);
    assert_int_equal(write(fd, "0\r\n\r\n", 5), 5);
    char *text = client_read_until(fd, "request_too_large");
    assert_non_null(strstr(text, "413 "));
    free(text);
    close(fd);
}

/* Send headers with "Expect: 100-continue", and read until `until` has come. */
static void assert_expect(uint16_t port, const char *target, int length, const char *status, const char *until) {
    const int fd = client_connect(port);
    char head[300];
    snprintf(head, sizeof head, "%s HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", target,
             length);
    assert_int_equal(write(fd, head, strlen(head)), strlen(head));
    char *text = client_read_until(fd, until);
    if (strncmp(text, status, strlen(status)) != 0) fail_msg("%s, %d bytes: <%s>", target, length, text);
    free(text);
    close(fd);
}

static void a_client_that_expects_100_is_answered_at_once(void **state) {
    const fixture *f = *state;
    assert_expect(f->port, "POST /v1/completions", 200000, "HTTP/1.1 413", "request_too_large");
    assert_expect(f->port, "POST /nowhere", 2, "HTTP/1.1 404", "not_found");
    assert_expect(f->port, "POST /health", 2, "HTTP/1.1 405", "use GET");
    assert_expect(f->port, "PUT /v1/completions", 2, "HTTP/1.1 405", "use POST");
    assert_expect(f->port, "GET /health", 2, "HTTP/1.1 200", "\"ok\"");
    assert_expect(f->port, "POST /v1/completions", 2, "HTTP/1.1 100", "\r\n\r\n");
}

/* A body that no handler reads is dropped, and neither the answer nor the connection suffers from it. */
static void an_unwanted_body_is_read_to_its_end(void **state) {
    const fixture *f = *state;
    const int fd = client_connect(f->port);
    char *body = malloc(90001);
    memset(body, 'x', 90000);
    body[90000] = '\0';
    for (int i = 0; i < 3; i++) {
        client_send(fd, "POST", "/nowhere", body);
        char *text = client_read_until(fd, "not_found");
        assert_memory_equal(text, "HTTP/1.1 404", 12);
        free(text);
    }
    client_send(fd, "GET", "/health", body);
    char *text = client_read_until(fd, "ok\"");
    assert_memory_equal(text, "HTTP/1.1 200", 12);
    free(text);
    free(body);
    close(fd);
}

static void the_key_is_required(void **state) {
    const fixture *f = *state;
    char *text;
    assert_refused(f->port, "GET", "/v1/models", NULL, 401, NULL, "API key");
    assert_refused(f->port, "POST", "/v1/completions", "{}", 401, NULL, "API key");
    assert_expect(f->port, "POST /v1/completions", 2, "HTTP/1.1 401", "API key");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(client_call(f->port, "GET", i ? "/health" : "/metrics", NULL, &text), 200);
        free(text);
    }
}

/* Send `request` [size] as it is. The answer, up to the server's close, must begin with `begins` and contain `has`. */
static void assert_bytes_answered(uint16_t port, const char *request, size_t size, const char *begins, const char *has) {
    const int fd = client_connect(port);
    assert_int_equal(write(fd, request, size), size);
    char *text = client_read_all(fd);
    if (strncmp(text, begins, strlen(begins)) != 0 || !strstr(text, has)) fail_msg("<%s>: <%s>", request, text);
    free(text);
    close(fd);
}

static void assert_answered(uint16_t port, const char *request, const char *begins, const char *has) {
    assert_bytes_answered(port, request, strlen(request), begins, has);
}

/* The key may be sent as OpenAI's clients do, or as Anthropic's do, which may send another key in the other header. */
static void keys_have_two_headers(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *header, *begins, *has;
    } cases[] = {
        {"Authorization: bearer secret\r\n", "HTTP/1.1 200", "\"object\""},
        {"Authorization: BEARER  secret\r\n", "HTTP/1.1 200", "\"object\""},
        {"Authorization: Basic secret\r\n", "HTTP/1.1 401", "\r\nWWW-Authenticate: Bearer\r\n"},
        {"Authorization: Bearersecret\r\n", "HTTP/1.1 401", "\r\nWWW-Authenticate: Bearer\r\n"},
        {"Authorization: Bearer secret2\r\n", "HTTP/1.1 401", "\r\nAccess-Control-Allow-Origin: *\r\n"},
        {"Authorization: Bearer   \r\n", "HTTP/1.1 401", "\r\nWWW-Authenticate: Bearer\r\n"},
        {"Authorization: Bearer \r\n", "HTTP/1.1 401", "\r\nWWW-Authenticate: Bearer\r\n"},
        {"x-api-key: secret\r\n", "HTTP/1.1 200", "\"object\""},
        {"X-Api-Key: secret\r\nAuthorization: Bearer another\r\n", "HTTP/1.1 200", "\"object\""},
        {"x-api-key: another\r\nAuthorization: Bearer secret\r\n", "HTTP/1.1 200", "\"object\""},
        {"x-api-key: secret2\r\n", "HTTP/1.1 401", "invalid_api_key"},
        {"x-api-key: Bearer secret\r\n", "HTTP/1.1 401", "invalid_api_key"},
        {"x-api-key:\r\n", "HTTP/1.1 401", "invalid_api_key"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[200];
        snprintf(request, sizeof request, "GET /v1/models HTTP/1.1\r\nHost: test\r\nConnection: close\r\n%s\r\n",
                 cases[i].header);
        assert_answered(f->port, request, cases[i].begins, cases[i].has);
    }
}

/*
 * Requests that RFC 9112 requires to be refused, because a proxy may read them differently. Each has a second request in what
 * the server must not take for another one. (libmicrohttpd 0.9.75 sends the head of some of its own answers twice.)
 */
static void ambiguous_requests_are_refused(void **state) {
    const fixture *f = *state;
#define POST   "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
#define HIDDEN "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
#define BODY   "\r\n\r\n" HIDDEN
    static const struct {
        const char *request, *begins, *has;
    } cases[] = {
        {POST "Content-Length: 5\r\nContent-Length: 7" BODY, "HTTP/1.1 400", "send one Content-Length"},
        {POST "Content-Length: 5\r\nContent-Length: 5" BODY, "HTTP/1.1 400", "send one Content-Length"},
        {POST "Transfer-Encoding: chunked\r\nContent-Length: 5" BODY, "HTTP/1.1 400", "send one Content-Length"},
        {POST "Content-Length: 5\r\nTransfer-Encoding: chunked" BODY, "HTTP/1.1 400", "send one Content-Length"},
        {POST "Content-Length: 5\r\nTransfer-Encoding: identity" BODY, "HTTP/1.1 400", "send one Content-Length"},
        {POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked" BODY, "HTTP/1.1 400", "ambiguous_length"},
        {POST "Content-Length: 5, 5" BODY, "HTTP/1.1 400", ""},
        {POST "Content-Length: 5 5" BODY, "HTTP/1.1 400", ""},
        {POST "Content-Length: +5" BODY, "HTTP/1.1 400", ""},
        {POST "Content-Length: -5" BODY, "HTTP/1.1 400", ""},
        {POST "Content-Length: 0x5" BODY, "HTTP/1.1 400", ""},
        {POST "Content-Length: 5.0" BODY, "HTTP/1.1 400", ""},
        {POST "Content-Length: 5_0" BODY, "HTTP/1.1 400", ""},
        {POST "Content-Length: \"5\"" BODY, "HTTP/1.1 400", ""},
        {POST "Content-Length: 99999999999999999999" BODY, "HTTP/1.1 4", ""},
        {POST "Content-Length: 00000000000000000005" BODY, "HTTP/1.1 400", "19 digits"},
        {POST "Content-Length: 00000000000000000000000000000000000000000000000000005" BODY, "HTTP/1.1 400", "19 digits"},
        {POST "Content-Length : 40" BODY, "HTTP/1.1 400", "blank before the colon"},
        {POST "Content-Length\t: 40" BODY, "HTTP/1.1 400", "blank before the colon"},
        {POST "Transfer-Encoding : chunked\r\nContent-Length: 40" BODY, "HTTP/1.1 400", "blank before the colon"},
        {POST "Transfer-Encoding\x0b: chunked" BODY, "HTTP/1.1 400", "the name of a header"},
        {POST "Transfer Encoding: chunked" BODY, "HTTP/1.1 400", "the name of a header"},
        {POST "X[]: a" BODY, "HTTP/1.1 400", "the name of a header"},
        {POST "X(a): a" BODY, "HTTP/1.1 400", "the name of a header"},
        {POST "X\xc3\xa4: a" BODY, "HTTP/1.1 400", "the name of a header"},
        {POST ": a" BODY, "HTTP/1.1 400", ""},
        {POST "no colon" BODY, "HTTP/1.1 400", ""},
        {POST "X: a\r\n Transfer-Encoding: chunked" BODY, "HTTP/1.1 400", "several lines"},
        {POST "X: a\r\n\tb" BODY, "HTTP/1.1 400", "several lines"},
        {POST "X: a\rTransfer-Encoding: chunked" BODY, "HTTP/1.1 400", "control character"},
        {POST "X: a\r" BODY, "HTTP/1.1 400", "control character"},
        {POST "X: a\x01" BODY, "HTTP/1.1 400", "control character"},
        {POST "X: a\x7f" BODY, "HTTP/1.1 400", "control character"},
        {POST "X\r: a" BODY, "HTTP/1.1 400", "the name of a header"},
        {"Content-Length:9999 / HTTP/1.1\r\nHost: x" BODY, "HTTP/1.1 400", "invalid_method"},
        {"Transfer-Encoding:chunked / HTTP/1.1\r\nHost: x" BODY, "HTTP/1.1 400", "invalid_method"},
        {"GE(T /health HTTP/1.1\r\nHost: x" BODY, "HTTP/1.1 400", "invalid_method"},
        {"GET /health HTTP/1.1\r\n Host: x" BODY, "HTTP/1.1 400", ""},
        {"GET /health HTTP/1.1\r\n X: a\r\nHost: x" BODY, "HTTP/1.1 400", "the name of a header"},
        {"GET /health HTTP/1.1\r\nHost: x\r\nHost: x" BODY, "HTTP/1.1 400", "send one Host"},
        {"GET /health HTTP/1.1\r\nHost: x\r\nhost: y" BODY, "HTTP/1.1 400", "send one Host"},
        {"GET /health HTTP/1.1\r\n\r\n", "HTTP/1.1 400", "Host"},
        {"GET /health HTTP/1.1\r\nX: a" BODY, "HTTP/1.1 400", "Host"},
        {POST "Transfer-Encoding: gzip" BODY, "HTTP/1.1 501", "unknown_coding"},
        {POST "Transfer-Encoding: identity" BODY, "HTTP/1.1 501", "unknown_coding"},
        {POST "Transfer-Encoding: xchunked" BODY, "HTTP/1.1 501", "unknown_coding"},
        {POST "Transfer-Encoding:" BODY, "HTTP/1.1 501", "unknown_coding"},
        {POST "Transfer-Encoding: chunked, identity" BODY, "HTTP/1.1 400", "ambiguous_length"},
        {POST "Transfer-Encoding: gzip, chunked" BODY, "HTTP/1.1 400", "ambiguous_length"},
        {POST "Transfer-Encoding: chunked, chunked" BODY, "HTTP/1.1 400", "ambiguous_length"},
        {POST "Transfer-Encoding: chunked;a=b" BODY, "HTTP/1.1 400", "ambiguous_length"},
        {POST "Transfer-Encoding: chunked " BODY, "HTTP/1.1 400", "ambiguous_length"},
        {"POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked" BODY, "HTTP/1.1 400",
         "HTTP/1.0 has no"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int fd = client_connect(f->port);
        client_send_bytes(fd, cases[i].request, strlen(cases[i].request));
        char *text = client_read_all(fd);
        if (strncmp(text, cases[i].begins, strlen(cases[i].begins)) != 0 || !strstr(text, cases[i].has) ||
            strstr(text, "HTTP/1.1 200")) /* which the second request would get */
            fail_msg("<%s>: <%s>", cases[i].request, text);
        free(text);
        close(fd);
    }
#undef BODY
#undef HIDDEN
#undef POST
}

/* A zero character ends strings in C, so that libmicrohttpd drops the bytes behind it. */
static void zero_characters_are_refused(void **state) {
    const fixture *f = *state;
#define END "Connection: close\r\n\r\n"
#define CASE(text)                                                                                                             \
    { text, sizeof(text) - 1 }
    static const struct {
        const char *request;
        size_t size;
    } bad[] = {
        CASE("GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\0x\r\n" END),
        CASE("GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\0\r\n" END),
        CASE("GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer secret\0x\r\n\r\n"),
        CASE("GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer secret\0\0\0\r\n\r\n"),
        CASE("GET /v1/models HTTP/1.1\nHost: x\nAuthorization: Bearer secret\0x\nConnection: close\n\n"),
        CASE("GET /health HTTP/1.1\r\nHost: x\0y\r\nX: a\r\n" END),
        CASE("GET /health HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n" END), /* RFC 9112 forbids a field on two lines */
        CASE("GET /health\0x HTTP/1.1\r\nHost: x\r\n" END),
        CASE("GET /health?a=\0x HTTP/1.1\r\nHost: x\r\n" END),
        CASE("GET /health\0?a=x HTTP/1.1\r\nHost: x\r\n" END),
        CASE("GET /health%00 HTTP/1.1\r\nHost: x\r\n" END),
        CASE("GET /health%00x HTTP/1.1\r\nHost: x\r\n" END),
        CASE("GET /health?a=b%00c HTTP/1.1\r\nHost: x\r\n" END),
        CASE("GET\0 /health HTTP/1.1\r\nHost: x\r\n" END),
    };
    static const struct {
        const char *request;
        size_t size;
    } good[] = {
        CASE("GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization:Bearer secret\r\n" END),
        CASE("GET /v1/models HTTP/1.1\nHost: x\nAuthorization: \t Bearer secret\nConnection: close\n\n"),
        CASE("GET /v1/models HTTP/1.0\r\nAuthorization: Bearer secret\r\n\r\n"),
        CASE("GET /health HTTP/1.0\r\n\r\n"),
        CASE("GET /health HTTP/1.0\n\n"),
        CASE("\r\nGET /health HTTP/1.1\r\nHost:\r\nX:\r\nY: \r\nCookie: a=b; c=d\r\n" END),
        CASE("GET /health?a=%30%2500&b=c+d&&e HTTP/1.1\r\nHost: x\r\n" END),
        CASE("GET /%68ealth?a=b HTTP/1.1\r\nHost: x\r\n" END),
    };
#undef CASE
#undef END
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_bytes_answered(f->port, bad[i].request, bad[i].size, "HTTP/1.1 400", "zero character");
    /* In a field's name libmicrohttpd itself does not find the colon. */
    const char in_name[] = "GET /health HTTP/1.1\r\nHost: x\r\nX\0Y: a\r\n\r\n";
    assert_bytes_answered(f->port, in_name, sizeof in_name - 1, "HTTP/1.1 400", "malformed");
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_bytes_answered(f->port, good[i].request, good[i].size, "HTTP/1.1 200", "{");
}

/* The error has the form of the path's API, where the server itself reads the head; the library's answer is a page. */
static void what_cannot_be_read_is_answered(void **state) {
    const fixture *f = *state;
#define BODY      "\r\nHost: x\r\nContent-Length: 3\r\nConnection: close\r\n\r\n{\"a"
#define TWO_HOSTS "\r\nHost: x\r\nHost: y\r\n\r\n"
    static const struct {
        const char *request, *status, *has;
    } cases[] = {
        {"POST /v1/completions HTTP/1.1" BODY, "HTTP/1.1 400", "\r\n\r\n{\"error\":{\"message\":\"the body is not valid JSON"},
        {"POST /v1/messages HTTP/1.1" BODY, "HTTP/1.1 400", "\r\n\r\n{\"type\":\"error\",\"error\":{"},
        {"POST /api/chat HTTP/1.1" BODY, "HTTP/1.1 400", "\r\n\r\n{\"error\":\"the body is not valid JSON"},
        {"POST /v1/completions HTTP/1.1" TWO_HOSTS, "HTTP/1.1 400", "\"code\":\"ambiguous_host\""},
        {"POST /v1/messages HTTP/1.1" TWO_HOSTS, "HTTP/1.1 400", "\r\n\r\n{\"type\":\"error\",\"error\":{"},
        {"POST /api/chat HTTP/1.1" TWO_HOSTS, "HTTP/1.1 400", "\r\n\r\n{\"error\":\"the headers name the host twice"},
        {"POST /v1/messages HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", "HTTP/1.1 400", "<html>"},
        {"POST /v1/messages HTTP/1.1\r\n\r\n", "HTTP/1.1 400", "<html>"},
        {"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: y\r\n\r\n", "HTTP/1.1 400", "<html>"},
        {"POST /v1/messages HTTP/3.0\r\nHost: x\r\n\r\n", "HTTP/1.1 505", "<html>"},
    };
#undef BODY
#undef TWO_HOSTS
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_answered(f->port, cases[i].request, cases[i].status, cases[i].has);
    const int fd = client_connect(f->port);
    assert_int_equal(write(fd, "hello\r\n\r\n", 9), 9);
    char *text = client_read_all(fd);
    assert_string_equal(text, "");
    free(text);
    close(fd);
}

/* A head of any length, in many pieces, has no zero character. */
static void a_long_head_is_read(void **state) {
    const fixture *f = *state;
    const int fd = client_connect(f->port);
    char line[400];
    for (int repeat = 0; repeat < 3; repeat++) {
        const char begin[] = "GET /health?x=y HTTP/1.1\r\nHost: x\r\n";
        assert_int_equal(write(fd, begin, sizeof begin - 1), sizeof begin - 1);
        for (int i = 0; i < 60; i++) {
            const int n = snprintf(line, sizeof line, "X-%d: %*d\r\n", i, 5 * i, i);
            assert_int_equal(write(fd, line, (size_t)n), n);
        }
        assert_int_equal(write(fd, "\r\n", 2), 2);
        char *text = client_read_until(fd, "}");
        assert_memory_equal(text, "HTTP/1.1 200", 12);
        free(text);
    }
    close(fd);
}

/* The client may still be sending when the server has answered a request that it cannot read, and has closed its half. */
static void the_answer_to_a_broken_body_reaches_the_client(void **state) {
    const fixture *f = *state;
    const int fd = client_connect(f->port);
    const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    assert_int_equal(write(fd, head, sizeof head - 1), sizeof head - 1);
    struct pollfd closed = {.fd = fd, .events = POLLRDHUP};
    WAIT_UNTIL(poll(&closed, 1, 0) == 1);
    char more[1000] = {0};
    for (int i = 0; i < 8; i++) {
        assert_int_equal(send(fd, more, sizeof more, MSG_NOSIGNAL), sizeof more);
        wait_until_read(fd);
    }
    char *text = client_read_all(fd);
    assert_memory_equal(text, "HTTP/1.1 400", 12);
    free(text);
    close(fd);
}

/* Also in any pieces; a hidden request behind the body is never answered. */
static void chunked_bodies_are_read_strictly(void **state) {
    const fixture *f = *state;
#define CHUNKED "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
#define BODY    "{\"prompt\":\"a\",\"max_tokens\":1}"
    static const struct {
        const char *request;
        bool is_right;
    } cases[] = {
        {CHUNKED "1d\r\n" BODY "\r\n0\r\n\r\n", true},   {CHUNKED "01D;a=b\r\n" BODY "\r\n000\r\nX: a\r\n\r\n", true},
        {CHUNKED "1d\n" BODY "\r\n0\r\n\r\n", false},    {CHUNKED "1d;a\n" BODY "\r\n0\r\n\r\n", false},
        {CHUNKED "1d\r\n" BODY "\n0\r\n\r\n", false},    {CHUNKED "1d\r\n" BODY "\r\n0\n\r\n", false},
        {CHUNKED "1d\r\n" BODY "\r\n0\r\n\n", false},    {CHUNKED "1d\r\n" BODY "\r\n0\r\nX: a\n\r\n", false},
        {CHUNKED "1d\r\n" BODY "\r\n0;\n\r\n", false},   {CHUNKED "0x1d\r\n" BODY "\r\n0\r\n\r\n", false},
        {CHUNKED "+1d\r\n" BODY "\r\n0\r\n\r\n", false}, {CHUNKED "1d\r" BODY "\r\n0\r\n\r\n", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int in_pieces = 0; in_pieces < 2; in_pieces++) {
            const int fd = client_connect(f->port);
            const size_t n = strlen(cases[i].request);
            for (size_t at = 0, size = in_pieces ? 1 : n; at < n; at += size) {
                client_send_bytes(fd, cases[i].request + at, size);
                if (in_pieces) wait_until_read(fd);
            }
            const char hidden[] = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            client_send_bytes(fd, hidden, sizeof hidden - 1);
            char *text = client_read_all(fd);
            const bool ok = cases[i].is_right ? strstr(text, "\"text\":\"a\"") && strstr(text, "\"ok\"")
                                              : strncmp(text, "HTTP/1.1 400", 12) == 0 || (in_pieces && !*text);
            if (!ok || (!cases[i].is_right && strstr(text, "\"ok\""))) fail_msg("<%s>: <%s>", cases[i].request, text);
            free(text);
            close(fd);
        }
#undef BODY
#undef CHUNKED
}

static void a_target_may_be_a_whole_url(void **state) {
    const fixture *f = *state;
#define REST " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    assert_answered(f->port, "GET http://test:1/health" REST "\r\n", "HTTP/1.1 200", "\"ok\"");
    assert_answered(f->port, "GET HTTPS://test/v1/models?a=b" REST "\r\n", "HTTP/1.1 200", "\"list\"");
    assert_answered(f->port, "GET http://test" REST "\r\n", "HTTP/1.1 200", "ChunkLlama");
    assert_answered(f->port,
                    "POST http://test/v1/completions" REST "Content-Length: 29\r\n\r\n{\"prompt\":\"a\",\"max_tokens\":1}",
                    "HTTP/1.1 200", "\"text\":\"a\"");
    assert_answered(f->port, "GET http://test/nowhere" REST "\r\n", "HTTP/1.1 404", "no endpoint /nowhere");
}

static void packed_bodies_are_refused(void **state) {
    const fixture *f = *state;
#define PROMPT "Content-Length: 29\r\n\r\n{\"prompt\":\"a\",\"max_tokens\":1}"
    assert_answered(f->port, "POST /v1/completions" REST "Content-Encoding: gzip\r\n" PROMPT, "HTTP/1.1 415",
                    "Content-Encoding gzip");
    assert_answered(f->port, "POST /v1/completions" REST "Content-Encoding: identity\r\n" PROMPT, "HTTP/1.1 200",
                    "\"text\":\"a\"");
#undef PROMPT
}

static void allowed_methods_are_reported(void **state) {
    const fixture *f = *state;
    assert_answered(f->port, "PUT /health" REST "\r\n", "HTTP/1.1 405", "Allow: GET, HEAD\r\n");
    assert_answered(f->port, "GET /v1/completions" REST "\r\n", "HTTP/1.1 405", "Allow: POST\r\n");
    assert_answered(f->port, "GET /v1/messages" REST "\r\n", "HTTP/1.1 405", "{\"type\":\"error\",\"error\":{\"type\":");
}
#undef REST

/* A preflight names the headers that the page adds, and all are allowed; without names, those that every client sends are. */
static void a_browser_may_send_its_clients_headers(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *requested, *allowed;
    } cases[] = {
        {"", "Access-Control-Allow-Headers: Authorization, Content-Type\r\n"},
        {"Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n",
         "Access-Control-Allow-Headers: authorization,content-type,x-stainless-os\r\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int fd = client_connect(f->port);
        char request[300];
        snprintf(request, sizeof request,
                 "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: test\r\nConnection: close\r\nOrigin: http://page\r\n"
                 "Access-Control-Request-Method: POST\r\n%s\r\n",
                 cases[i].requested);
        assert_int_equal(write(fd, request, strlen(request)), strlen(request));
        char *text = client_read_all(fd);
        assert_memory_equal(text, "HTTP/1.1 204", 12);
        assert_non_null(strstr(text, cases[i].allowed));
        free(text);
        close(fd);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_large_chunked_body_is_refused, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_expects_100_is_answered_at_once, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(an_unwanted_body_is_read_to_its_end, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(the_key_is_required, set_up_guarded, tear_down),
        cmocka_unit_test_setup_teardown(keys_have_two_headers, set_up_guarded, tear_down),
        cmocka_unit_test_setup_teardown(ambiguous_requests_are_refused, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(zero_characters_are_refused, set_up_guarded, tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_be_read_is_answered, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_long_head_is_read, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(the_answer_to_a_broken_body_reaches_the_client, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(chunked_bodies_are_read_strictly, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_target_may_be_a_whole_url, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(allowed_methods_are_reported, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(packed_bodies_are_refused, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_browser_may_send_its_clients_headers, set_up_guarded, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
