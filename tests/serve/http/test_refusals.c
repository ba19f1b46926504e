/* What refused requests get, cost and leave: the shape of errors, bytes that are held or dropped, and lines of the log. */
#include "tests/support/wait.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "server_fixture.h"
#include "tests/serve/protocol/fake.h"
#include "tests/support/sleeping.h"
#include "tests/support/still_clock.h"

/* ---- Answers ---- */

/* Send text; the answer up to the server's close, which must begin with this status. */
static char *answer_of(uint16_t port, const char *request, int status) {
    const int fd = client_connect(port);
    client_send_bytes(fd, request, strlen(request));
    char *text = client_read_all(fd);
    if (strncmp(text, "HTTP/1.1 ", 9) != 0 || atoi(text + 9) != status) fail_msg("<%s>: <%s>", request, text);
    close(fd);
    return text;
}

#define END "Host: x\r\nConnection: close\r\n"

/* Errors of HTTP below /v1/messages have Anthropic's shape, those below /api Ollama's, and others OpenAI's. */
static void errors_have_the_shape_of_their_api(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *request;
        int status;
        const char *type; /* of Anthropic's error; "": the error is Ollama's; NULL: it is OpenAI's */
    } cases[] = {
        {"POST /v1/messages HTTP/1.1\r\n" END "\r\n", 401, "authentication_error"},
        {"POST /v1/messages/count_tokens HTTP/1.1\r\n" END "\r\n", 401, "authentication_error"},
        {"GET /v1/messages HTTP/1.1\r\n" END "\r\n", 405, "invalid_request_error"},
        {"GET /v1/messages/batches HTTP/1.1\r\n" END "\r\n", 404, "not_found_error"},
        {"POST /v1/messages/ HTTP/1.1\r\n" END "\r\n", 404, "not_found_error"},
        {"POST /v1/messages?beta=true HTTP/1.1\r\n" END "x-api-key: secret\r\nContent-Length: 2\r\n\r\n{}", 400,
         "invalid_request_error"},
        {"POST /v1/messages HTTP/1.1\r\n" END "x-api-key: secret\r\nContent-Length: 999999999\r\n\r\n", 413,
         "request_too_large"},
        {"POST /v1/messages HTTP/1.1\r\n" END "x-api-key: secret\r\nContent-Encoding: br\r\n\r\n", 415,
         "invalid_request_error"},
        {"POST /v1/messages HTTP/1.1\r\n" END "Content-Length : 2\r\n\r\n{}", 400, "invalid_request_error"},
        {"POST /v1/messages HTTP/1.1\r\n" END "Transfer-Encoding: br\r\n\r\n{}", 501, "api_error"},
        {"POST /v1/messages HTTP/1.1\r\nHost: y\r\n\r\n", 403, "permission_error"},
        {"POST /api/chat HTTP/1.1\r\n" END "\r\n", 401, ""},
        {"GET /api/tags HTTP/1.1\r\n" END "\r\n", 401, ""},
        {"POST /api/show HTTP/1.1\r\n" END "\r\n", 401, ""},
        {"POST /api/pull HTTP/1.1\r\n" END "\r\n", 404, ""},
        {"DELETE /api/tags HTTP/1.1\r\n" END "\r\n", 405, ""},
        {"POST /api/embed HTTP/1.1\r\n" END "x-api-key: secret\r\nContent-Length: 2\r\n\r\n[]", 400, ""},
        {"POST /api/chat HTTP/1.1\r\n" END "x-api-key: secret\r\nContent-Length: 999999999\r\n\r\n", 413, ""},
        {"GET /apis HTTP/1.1\r\n" END "\r\n", 404, NULL},
        {"POST /v1/completions HTTP/1.1\r\n" END "\r\n", 401, NULL},
        {"GET /v1/messagesx HTTP/1.1\r\n" END "\r\n", 404, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = answer_of(f->port, cases[i].request, cases[i].status);
        json_t *body = json_loads(strstr(text, "\r\n\r\n"), 0, NULL);
        const json_t *error = json_object_get(body, "error");
        const char *kind = json_string_value(json_object_get(body, "type"));
        const char *type = json_string_value(json_object_get(error, "type"));
        const bool right = !cases[i].type    ? !kind && json_object_get(error, "param")
                           : !*cases[i].type ? json_is_string(error) && json_object_size(body) == 1
                                             : kind && strcmp(kind, "error") == 0 && strcmp(type, cases[i].type) == 0 &&
                                                   strstr(text, "\r\nRequest-Id: ");
        if (!right) fail_msg("<%s>: <%s>", cases[i].request, text);
        json_decref(body);
        free(text);
    }
}

/* The value of X-Request-Id, allocated. */
static char *request_id_of(const char *answer) {
    const char *at = strstr(answer, "\r\nX-Request-Id: ");
    assert_non_null(at);
    at += strlen("\r\nX-Request-Id: ");
    return strndup(at, strcspn(at, "\r"));
}

/* Each answer has the id that the client sent, or one of its own, by which the answer's object is also named. */
static void answers_have_the_requests_id(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *line, *headers, *body;
        const char *id; /* NULL: any */
        int status;
        bool is_object; /* the answer has an object with the id */
    } cases[] = {
        {"GET /health", "X-Request-Id: a b/c\r\n", "", "a b/c", 200, false},
        {"GET /health", "", "", NULL, 200, false},
        {"GET /nowhere", "x-request-id: mine\r\n", "", "mine", 404, false},
        {"GET /v1/models", "X-Request-Id: \xc3\xa4\r\n", "", NULL, 401, false},
        {"POST /v1/completions", "x-api-key: secret\r\nX-Request-Id: first\r\n", "{\"prompt\":\"abc\"}", "first", 200, true},
        {"POST /v1/completions", "x-api-key: secret\r\n", "{\"prompt\":\"abc\"}", NULL, 200, true},
        {"POST /v1/completions", "x-api-key: secret\r\n", "{\"prompt\":\"abc\",\"request_id\":\"in-body\"}", "in-body", 200,
         true},
        {"POST /v1/completions", "x-api-key: secret\r\n", "{\"prompt\":\"a\",\"stream\":true}", NULL, 200, true},
        {"POST /v1/completions", "x-api-key: secret\r\n", "[]", NULL, 400, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char request[400], named[200];
        snprintf(request, sizeof request, "%s HTTP/1.1\r\n" END "%sContent-Length: %zu\r\n\r\n%s", cases[i].line,
                 cases[i].headers, strlen(cases[i].body), cases[i].body);
        char *text = answer_of(f->port, request, cases[i].status), *id = request_id_of(text);
        if (cases[i].id ? strcmp(id, cases[i].id) != 0 : strlen(id) != 24) fail_msg("<%s>: <%s>", request, text);
        snprintf(named, sizeof named, "\"id\":\"cmpl-%s\"", id);
        if (cases[i].is_object && !strstr(text, named)) fail_msg("%s is not in <%s>", named, text);
        free(id);
        free(text);
    }
}

/* ---- Bodies that nobody reads ---- */

/* Whether the server has closed a connection on which it has sent nothing. */
static bool is_closed(int fd) {
    char byte;
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0 || errno == ECONNRESET;
}

/* A body without an end is dropped for some megabytes, and then the connection is closed; a long one is answered at once. */
static void a_body_without_an_end_is_dropped_for_a_while(void **state) {
    const fixture *f = *state;
    static const char *const heads[] = {
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /nowhere HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nx-api-key: secret\r\nTransfer-Encoding: chunked\r\n\r\n",
    };
    static char chunk[65536 + 16];
    const int n = snprintf(chunk, sizeof chunk, "10000\r\n%65536s\r\n", "");
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        const int fd = client_connect(f->port);
        client_send_bytes(fd, heads[i], strlen(heads[i]));
        size_t sent = 0;
        errno = 0;
        while (!is_closed(fd) && send(fd, chunk, (size_t)n, MSG_NOSIGNAL) == n && sent < 100 << 20) sent += 65536;
        assert_in_range(sent, 8 << 20, 64 << 20); /* with what the sockets hold */
        close(fd);
    }
    free(answer_of(f->port, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 16000000000\r\n\r\n", 401));
    free(answer_of(
        f->port, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nx-api-key: secret\r\nContent-Length: 16000000000\r\n\r\n", 413));
}

/* ---- Memory for requests ---- */

enum { MIB = 1 << 20 };

static int set_up_bytes(void **state, size_t request_memory) {
    fixture *f = calloc(1, sizeof *f);
    server_config config = base_config();
    config.max_body_bytes = MIB;
    config.request_memory = request_memory;
    config.keys = &f->keys;
    if (server_keys_add(&f->keys, "alice", "alice", NULL) != CL_OK ||
        server_keys_add(&f->keys, "mallory", "mallory", NULL) != CL_OK ||
        server_keys_add(&f->keys, OPENAI_DEFAULT_TENANT, "secret", NULL) != CL_OK)
        return -1;
    return set_up_config(state, f, &config);
}
static int set_up_memory(void **state) { return set_up_bytes(state, 4 * MIB); }
static int set_up_little_memory(void **state) { return set_up_bytes(state, MIB); }
static int set_up_no_memory(void **state) { return set_up_bytes(state, 0); }

/* The counted bytes, for which a key is needed. */
static double counted_bytes(uint16_t port) {
    char *text = answer_of(port, "GET /metrics HTTP/1.1\r\n" END "x-api-key: secret\r\n\r\n", 200);
    const char *at = strstr(text, "\nchunkattn_request_memory_bytes{"), *end = at ? strstr(at, "} ") : NULL;
    const double value = end ? atof(end + 2) : -1;
    free(text);
    return value;
}

/* Begin a request with a body of `size` bytes, and send `sent` of them: a prompt of tokens. */
static int begin_request(uint16_t port, const char *key, int size, int sent) {
    char head[200];
    const int fd = client_connect(port);
    const int n = snprintf(head, sizeof head,
                           "POST /v1/completions HTTP/1.1\r\n" END "x-api-key: %s\r\nContent-Length: %d\r\n\r\n", key, size);
    client_send_bytes(fd, head, (size_t)n);
    static char body[MIB];
    snprintf(body, sizeof body, "%-*s", size, "{\"max_tokens\":1,\"prompt\":\"a\"}");
    client_send_bytes(fd, body, (size_t)sent);
    return fd;
}

static void assert_ends(int fd, const char *status, const char *has) {
    char *text = client_read_all(fd);
    if (strncmp(text, status, strlen(status)) != 0 || !strstr(text, has)) fail_msg("<%s>", text);
    free(text);
    close(fd);
}

/* Unfinished bodies of one tenant take its share and no more; its small requests, and others, are served all the same. */
static void unfinished_bodies_are_bounded(void **state) {
    const fixture *f = *state;
    enum { N = 12, SIZE = 900000 };
    int fds[N];
    for (int i = 0; i < N; i++) {
        fds[i] = begin_request(f->port, "mallory", SIZE, SIZE - 1);
        wait_until_read(fds[i]);
    }
    assert_in_range((size_t)counted_bytes(f->port), MIB, 2 * MIB);
    assert_ends(begin_request(f->port, "mallory", SIZE, SIZE), "HTTP/1.1 503", "\r\nRetry-After: 1\r\n");
    assert_ends(begin_request(f->port, "mallory", SIZE, SIZE), "HTTP/1.1 503", "--request-memory");
    assert_ends(begin_request(f->port, "mallory", 30000, 30000), "HTTP/1.1 200", "\"text\":\"a\"");
    assert_ends(begin_request(f->port, "alice", SIZE, SIZE), "HTTP/1.1 200", "\"text\":\"a\"");
    for (int i = 0; i < N; i++) close(fds[i]);
    WAIT_UNTIL(counted_bytes(f->port) == 0);
    assert_ends(begin_request(f->port, "mallory", SIZE, SIZE), "HTTP/1.1 200", "\"text\":\"a\"");
    WAIT_UNTIL(counted_bytes(f->port) == 0);
}

/* Send a completion of one token for each choice. */
static int send_completion(uint16_t port, const char *key, const char *body) {
    char head[200];
    const int fd = client_connect(port);
    const int n =
        snprintf(head, sizeof head, "POST /v1/completions HTTP/1.1\r\n" END "x-api-key: %s\r\nContent-Length: %zu\r\n\r\n", key,
                 strlen(body));
    client_send_bytes(fd, head, (size_t)n);
    client_send_bytes(fd, body, strlen(body));
    return fd;
}

static bool one_is_answered(const int *fds, int n) {
    char byte;
    int n_answered = 0;
    for (int i = 0; i < n; i++) n_answered += recv(fds[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
    return n_answered > 0;
}

/* Twelve requests of one tenant and one of another that the engine holds: only some of the twelve are accepted. */
static void check_waiting(uint16_t port, const char *body) {
    enum { N = 12 };
    int fds[N], n_refused = 0;
    fake_hold_steps(true);
    for (int i = 0; i < N; i++) fds[i] = send_completion(port, "mallory", body);
    const int other = send_completion(port, "alice", body);
    WAIT_UNTIL(counted_bytes(port) > 1800000); /* the share of the one but for part of a request, and one of the other */
    WAIT_UNTIL(one_is_answered(fds, N));       /* which only a refusal can be */
    assert_true(counted_bytes(port) < 3 * MIB);
    fake_hold_steps(false);
    for (int i = 0; i < N; i++) {
        char *text = client_read_all(fds[i]);
        n_refused += strncmp(text, "HTTP/1.1 503", 12) == 0 && strstr(text, "--request-memory");
        free(text);
        close(fds[i]);
    }
    assert_in_range(n_refused, 1, N - 1);
    assert_ends(other, "HTTP/1.1 200", "\"text\":\"");
    WAIT_UNTIL(counted_bytes(port) == 0);
}

/* So do requests that were read, until they have ended: choices count, tokens of prompts, and what choices repeat of them. */
static void requests_that_wait_are_bounded(void **state) {
    const fixture *f = *state;
    enum { N_PROMPTS = 25, N_TOKENS = 4000 };
    check_waiting(f->port, "{\"prompt\":[\"a\",\"b\",\"c\",\"d\"],\"max_tokens\":1,\"n\":128}");
    static char body[N_PROMPTS * (2 * N_TOKENS + 3) + 100];
    char *at = body + sprintf(body, "{\"max_tokens\":1,\"prompt\":[");
    for (int i = 0; i < N_PROMPTS; i++) {
        at += sprintf(at, "%s[1", i > 0 ? "," : "");
        for (int k = 1; k < N_TOKENS; k++) at += sprintf(at, ",1");
        at += sprintf(at, "]");
    }
    sprintf(at, "]}");
    check_waiting(f->port, body);
    snprintf(body, sizeof body, "{\"max_tokens\":1,\"n\":128,\"echo\":true,\"prompt\":\"%02770d\"}", 0);
    check_waiting(f->port, body);
}

/* So do lists in the body, which the engine copies for each prompt. */
static void lists_count_for_each_prompt(void **state) {
    const fixture *f = *state;
    enum { N_PROMPTS = 120, SIZE = 20000 };
    static const struct {
        const char *name, *before, *item, *after; /* `item` is a format of its index */
        int n;
    } lists[] = {{"stop", "[", "\"%0900d\"", "]", 4},        {"stop_token_ids", "[", "%d", "]", 250},
                 {"bad_words", "[", "\"%050d\"", "]", 20},   {"logit_bias", "{", "\"%d\":1", "}", 250},
                 {"allowed_token_ids", "[", "%d", "]", 250}, {"cache_salt", "", "\"%01000d\"", "", 1}};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        char body[SIZE], *at = body + sprintf(body, "{\"max_tokens\":1,\"prompt\":[\"a\"");
        for (int k = 1; k < N_PROMPTS; k++) at += sprintf(at, ",\"a\"");
        at += sprintf(at, "],\"%s\":%s", lists[i].name, lists[i].before);
        for (int k = 0; k < lists[i].n; k++) {
            if (k > 0) *at++ = ',';
            at += sprintf(at, lists[i].item, k);
        }
        sprintf(at, "%s}", lists[i].after);
        check_waiting(f->port, body);
    }
}

/* What a client may never send gets no 503, after which it would be sent again: neither a request, nor its body alone. */
static void what_never_fits_is_refused_for_good(void **state) {
    const fixture *f = *state;
    assert_ends(send_completion(f->port, "alice", "{\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\"],\"max_tokens\":1,\"n\":128}"),
                "HTTP/1.1 400", "a client may have 589824, with half of --request-memory");
    assert_ends(begin_request(f->port, "alice", 589825, 589825), "HTTP/1.1 413",
                "larger than 589824 bytes, the limit of this server by half of --request-memory");
    assert_ends(begin_request(f->port, "alice", 580000, 580000), "HTTP/1.1 200", "\"text\":\"a\"");
    WAIT_UNTIL(counted_bytes(f->port) == 0);
}

static atomic_int n_returned;
int __wrap_malloc_trim(size_t pad);
int __wrap_malloc_trim(size_t pad) {
    (void)pad;
    atomic_fetch_add(&n_returned, 1);
    return 1;
}

/* Once many bytes were counted, and the requests have ended, their memory is returned: once, and a tick later. */
static void memory_of_small_bodies_is_returned(void **state) {
    const fixture *f = *state;
    server_tick(f->running);
    assert_int_equal(n_returned, 0);
    for (int i = 0; i < 6; i++) check_waiting(f->port, "{\"prompt\":[\"a\",\"b\",\"c\",\"d\"],\"max_tokens\":1,\"n\":128}");
    server_tick(f->running);
    assert_int_equal(n_returned, 0);
    for (int i = 0; i < 3; i++) server_tick(f->running);
    assert_int_equal(n_returned, 1);
}

/* So do answers that the engine does not compute, from before they are made until somebody has read them. */
static void long_answers_are_bounded(void **state) {
    const fixture *f = *state;
    enum { N = 4000 };
    for (int is_long = 0; is_long < 2; is_long++) {
        char text[N + 300], body[N + 100], content[N + 1];
        const int n = is_long ? N : N / 8;
        memset(content, 'a', (size_t)n);
        content[n] = '\0';
        const int size =
            snprintf(body, sizeof body, "{\"content\":\"%s\",\"with_pieces\":%s}", content, is_long ? "true" : "false");
        snprintf(text, sizeof text, "POST /tokenize HTTP/1.1\r\n" END "x-api-key: alice\r\nContent-Length: %d\r\n\r\n%s", size,
                 body);
        char *answer = answer_of(f->port, text, is_long ? 400 : 200);
        assert_non_null(strstr(answer, is_long ? "--request-memory" : "[97,97,"));
        free(answer);
    }
}

/* ---- Lines of the log ---- */

static int log_pipe[2];
static server_log *piped_log;

static int set_up_log_with(void **state, int32_t max_connections) {
    server_config config = base_config();
    config.max_connections = max_connections;
    if (pipe(log_pipe) != 0) return -1;
    fixture *f = calloc(1, sizeof *f);
    if (server_keys_add(&f->keys, OPENAI_DEFAULT_TENANT, "secret", NULL) != CL_OK) return -1;
    piped_log = server_log_create(log_pipe[1], LOG_LEVEL_INFO, false);
    config.keys = &f->keys;
    config.log = piped_log;
    return set_up_config(state, f, &config);
}
static int set_up_log(void **state) { return set_up_log_with(state, base_config().max_connections); }
static int set_up_log_of_few(void **state) { return set_up_log_with(state, 5); }

/* The text in the pipe once it has `until`. */
static const char *read_log(const char *until) {
    static char text[1 << 20];
    size_t size = 0;
    for (text[0] = '\0'; !strstr(text, until); text[size] = '\0') {
        const ssize_t n = read(log_pipe[0], text + size, sizeof text - 1 - size);
        if (n <= 0) fail_msg("%s", text);
        size += (size_t)n;
    }
    return text;
}

static int count(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) n++;
    return n;
}

/* However many requests are refused, there are lines for some of them, and one that says how many there are not. */
static void refused_requests_fill_no_log(void **state) {
    const fixture *f = *state;
    enum { N = 300 };
    for (int i = 0; i < N; i++) {
        free(answer_of(f->port, "GET /v1/models HTTP/1.1\r\n" END "\r\n", 401));
        free(answer_of(f->port, "GET / HTTP/1.1\r\n\r\n", 400)); /* without a host */
    }
    WAIT_UNTIL(server_n_requests(f->running) == 0);
    move_clock(1); /* for LOG_RATE lines more */
    free(answer_of(f->port, "GET /v1/models HTTP/1.1\r\n" END "X-Request-Id: last\r\n\r\n", 401));
    free(answer_of(f->port, "GET /v1/models HTTP/1.1\r\n" END "x-api-key: secret\r\n\r\n", 200));
    free(answer_of(f->port,
                   "POST /v1/completions HTTP/1.1\r\n" END "x-api-key: secret\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}",
                   200));
    const char *text = read_log("finish=length");
    assert_int_equal(count(text, "status=401"), LOG_BURST + 1);
    assert_int_equal(count(text, "error=unreadable_request"), LOG_BURST);
    assert_int_equal(count(text, "left_out=200"), 1);
    assert_int_equal(count(text, "id=last "), 1);
    assert_true(client_metric(f->port, "chunkattn_http_replies_total{model_name=\"fake \\\"model\\\"\",status=\"401\"}") >= N);
}

/* Connect, and read the answer to nothing, which a connection beyond all limits gets. */
static void connect_in_vain(uint16_t port) {
    const int fd = client_connect(port);
    assert_ends(fd, "HTTP/1.1 503", "5 connections");
}

/* So do connections that are refused before anything was read from them. */
static void refused_connections_fill_no_log(void **state) {
    const fixture *f = *state;
    enum { N_PLACES = 5 + 4, N = 300 }; /* with the spare ones */
    int held[N_PLACES];
    for (int i = 0; i < N_PLACES; i++) held[i] = client_connect(f->port);
    for (int i = 0; i < N; i++) connect_in_vain(f->port);
    WAIT_UNTIL(others_sleep()); /* the last of them has had its line, if any */
    move_clock(1);
    connect_in_vain(f->port);
    const char *text = read_log("left_out=200");
    assert_int_equal(count(text, " connection "), LOG_BURST + 1);
    assert_int_equal(count(text, "left_out="), 1);
    for (int i = 0; i < N_PLACES; i++) close(held[i]);
}

static int tear_down_log(void **state) {
    tear_down(state);
    server_log_destroy(&piped_log);
    close(log_pipe[0]);
    close(log_pipe[1]);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(errors_have_the_shape_of_their_api, set_up_guarded, tear_down),
        cmocka_unit_test_setup_teardown(answers_have_the_requests_id, set_up_guarded, tear_down),
        cmocka_unit_test_setup_teardown(a_body_without_an_end_is_dropped_for_a_while, set_up_guarded, tear_down),
        cmocka_unit_test_setup_teardown(unfinished_bodies_are_bounded, set_up_memory, tear_down),
        cmocka_unit_test_setup_teardown(requests_that_wait_are_bounded, set_up_memory, tear_down),
        cmocka_unit_test_setup_teardown(lists_count_for_each_prompt, set_up_memory, tear_down),
        cmocka_unit_test_setup_teardown(what_never_fits_is_refused_for_good, set_up_little_memory, tear_down),
        cmocka_unit_test_setup_teardown(memory_of_small_bodies_is_returned, set_up_memory, tear_down),
        cmocka_unit_test_setup_teardown(long_answers_are_bounded, set_up_no_memory, tear_down),
        cmocka_unit_test_setup_teardown(refused_requests_fill_no_log, set_up_log, tear_down_log),
        cmocka_unit_test_setup_teardown(refused_connections_fill_no_log, set_up_log_of_few, tear_down_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
