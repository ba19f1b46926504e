/* Clients that hang up, do not read, wait, or come all at once. */
#include "tests/support/wait.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "serve/http/generation_state.h"
#include "serve/http/server_state.h"
#include "server_fixture.h"
#include "tests/serve/protocol/fake.h"
#include "tests/support/still_clock.h"

/* ---- Hanging up ---- */

/* Wait until the process has n files open. */
static void wait_for_files(int n) { WAIT_UNTIL(n_files() == n); }

static void hanging_up_before_the_first_token_cancels(void **state) {
    const fixture *f = *state;
    for (int whole = 0; whole < 2; whole++) {
        const int fd = client_connect(f->port);
        client_send(fd, "POST", "/v1/completions", whole ? "{\"prompt\":\"abc\"}" : "{\"prompt\":\"abc\",\"stream\":true}");
        wait_for_metric(f->port, "vllm:num_requests_running", 1);
        close(fd);
        wait_for_metric(f->port, "vllm:num_requests_running", 0);
    }
}

/*
 * The sockets of streams whose clients have gone are closed at once, also if older connections of the same thread are idle:
 * libmicrohttpd's own look at idle connections ends there.
 */
static void hanging_up_in_a_stream_closes_the_socket(void **state) {
    const fixture *f = *state;
    enum { N = 8 };
    int idle[N], streams[N];
    for (int i = 0; i < N; i++) {
        idle[i] = client_connect(f->port);
        client_send(idle[i], "GET", "/health", NULL);
        free(client_read_until(idle[i], "}"));
    }
    const int n_before = n_files();
    for (int how = 0; how < 4; how++) {
        fake_hold_steps(true); /* after the head nothing is sent, which would fail */
        for (int i = 0; i < N; i++) {
            streams[i] = client_connect(f->port);
            (how % 2 ? client_send : client_send_last)(streams[i], "POST", "/v1/completions",
                                                       "{\"prompt\":\"a\",\"stream\":true}");
            free(client_read_until(streams[i], "\r\n\r\n"));
        }
        for (int i = 0; i < N; i++) {
            const struct linger reset = {.l_onoff = 1};
            if (how < 2) setsockopt(streams[i], SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
            close(streams[i]);
        }
        wait_for_files(n_before);
        fake_hold_steps(false);
    }
    for (int i = 0; i < N; i++) close(idle[i]);
}

/* Whether the server lists all pins that the engine has; *n: how many it lists. */
static bool lists_all_pins(uint16_t port, size_t *n) {
    json_t *cache;
    assert_int_equal(client_call_json(port, "GET", "/cache", NULL, &cache), 200);
    *n = json_array_size(json_object_get(cache, "pins"));
    const json_int_t n_seqs = json_integer_value(json_object_get(cache, "sequences"));
    json_decref(cache);
    return (size_t)n_seqs == *n;
}

/* The number of pins that the server lists, once the engine has no others; no request may run. */
static size_t count_pins(uint16_t port) {
    size_t n;
    WAIT_UNTIL(lists_all_pins(port, &n));
    return n;
}

/* A pin that no client learns of ends, whenever the client hangs up; the others stay until they are deleted. */
static void hanging_up_before_the_answer_ends_a_pin(void **state) {
    static const char body[] = "{\"prompt\":\"abcd\"}";
    const fixture *f = *state;
    enum { N = 100 };
    const int n_files_before = n_files();
    for (int i = 0; i < N; i++) {
        const int fd = client_connect(f->port);
        client_send(fd, "POST", "/cache/pin", body);
        spin(10000 * i);
        close(fd);
    }
    char paths[N][64], *text;
    assert_int_equal(client_call(f->port, "GET", "/health", NULL, &text), 200); /* all those before have been accepted */
    free(text);
    wait_for_files(n_files_before); /* and closed: nothing of them is submitted any more */
    wait_for_metric(f->port, "vllm:num_requests_running", 0);
    wait_for_metric(f->port, "vllm:num_requests_waiting", 0);
    const size_t n_before = count_pins(f->port);
    for (int i = 0; i < N; i++) {
        json_t *pin;
        assert_int_equal(client_call_json(f->port, "POST", "/cache/pin", body, &pin), 200);
        snprintf(paths[i], sizeof paths[i], "/cache/pin/%.40s", json_string_value(json_object_get(pin, "id")));
        json_decref(pin);
    }
    assert_int_equal(count_pins(f->port), n_before + N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(client_call(f->port, "DELETE", paths[i], NULL, &text), 200);
        free(text);
    }
    assert_int_equal(count_pins(f->port), n_before);
}

/* A client that does not read delays no other, and gets all its tokens in the end. */
static void a_client_that_does_not_read_delays_no_other(void **state) {
    const fixture *f = *state;
    const int lazy = client_connect(f->port);
    client_send_last(lazy, "POST", "/v1/completions", "{\"prompt\":\"abc\",\"max_tokens\":4000,\"n\":8,\"stream\":true}");
    for (int i = 0; i < 5; i++) {
        char *text;
        assert_int_equal(client_call(f->port, "POST", "/v1/completions", "{\"prompt\":\"abc\"}", &text), 200);
        free(text);
    }
    wait_for_metric(f->port, "vllm:num_requests_running", 0); /* its request has ended in the engine */
    char *text = client_read_until(lazy, "[DONE]");
    int n = 0;
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) { /* TSan's strstr looks for the text's end */
        *end = '\0';
        const char *at = strstr(line, "\"text\":\"");
        n += at && at[8] != '"';
    }
    assert_int_equal(n, 8 * 4000);
    free(text);
    close(lazy);
}

static void assert_healthy(int fd) {
    client_send(fd, "GET", "/health", NULL);
    char *text = client_read_until(fd, "}");
    if (strncmp(text, "HTTP/1.1 200", 12) != 0) fail_msg("<%s>", text);
    free(text);
}

/* The server closes the connection without a word. */
static void assert_closed(int fd) {
    char *text = client_read_all(fd);
    assert_string_equal(text, "");
    free(text);
    close(fd);
}

/* Let a little time pass; whether the server has answered or closed the connection. */
static bool ends_soon(int fd) {
    char byte;
    move_clock(0.2);
    return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

/* The time-outs are for idle clients, not for those that wait for an answer, which takes longer than all of them here. */
static void only_idle_clients_time_out(void **state) {
    const fixture *f = *state;
    fake_hold_steps(true);
    const int stream = client_connect(f->port), whole = client_connect(f->port);
    client_send(stream, "POST", "/v1/completions", "{\"prompt\":\"abc\",\"max_tokens\":2,\"stream\":true}");
    client_send(whole, "POST", "/v1/completions", "{\"prompt\":\"abc\",\"max_tokens\":2}");
    WAIT_UNTIL(server_n_requests(f->running) == 2);
    assert_closed(client_connect(f->port)); /* by libmicrohttpd, whose clock goes on */
    const int idle = client_connect(f->port);
    assert_healthy(idle);
    move_clock(2 * 3600);
    WAIT_UNTIL(ends_soon(idle));
    assert_closed(idle);
    fake_hold_steps(false);
    char *text = client_read_until(stream, "[DONE]");
    assert_non_null(strstr(text, "[DONE]"));
    free(text);
    text = client_read_until(whole, "usage");
    assert_non_null(strstr(text, "\"text\":\"ab\""));
    free(text);
    close(stream);
    close(whole);
}

/* ---- While requests are prepared ---- */

enum { N_HELD = 8 }; /* more than the server has threads for its connections */

/* Send prompts whose text is held, each on a connection that the server has accepted. */
static void send_held(uint16_t port, int *fds) {
    fake_hold_text(true);
    for (int i = 0; i < N_HELD; i++) {
        fds[i] = client_connect(port);
        assert_healthy(fds[i]);
    }
    for (int i = 0; i < N_HELD; i++)
        client_send_last(fds[i], "POST", "/v1/completions", "{\"prompt\":\"abc\",\"max_tokens\":3}");
}

/* Streams and short answers go on, however many requests wait to be prepared; all of these are answered in the end. */
static void preparing_a_request_delays_no_other(void **state) {
    const fixture *f = *state;
    const int stream = client_connect(f->port);
    client_send(stream, "POST", "/v1/completions", endless);
    free(client_read_until(stream, "\"text\":\"a\""));
    int fds[N_HELD];
    send_held(f->port, fds);
    fake_wait_for_text();
    for (int i = 0; i < N_HELD; i++) {
        char *text;
        assert_int_equal(client_call(f->port, "GET", "/health", NULL, &text), 200);
        free(text);
        text = client_read_until(stream, "\"text\":\"b\"");
        assert_non_null(strstr(text, "\"text\":\"b\""));
        free(text);
    }
    assert_true(client_metric(f->port, "vllm:num_requests_running") == 1);
    assert_refused(f->port, "GET", "/v1/completions", NULL, 405, NULL, "use POST");
    fake_hold_text(false);
    for (int i = 0; i < N_HELD; i++) {
        char *text = client_read_all(fds[i]);
        assert_non_null(strstr(text, "\"text\":\"abc\""));
        free(text);
        close(fds[i]);
    }
    close(stream);
}

/* Neither the requests that wait nor the one that is being prepared reach the engine. */
static void hanging_up_before_a_request_is_prepared_drops_it(void **state) {
    const fixture *f = *state;
    int fds[N_HELD];
    send_held(f->port, fds);
    for (int i = 0; i < N_HELD; i++) {
        shutdown(fds[i], SHUT_WR);
        char *text = client_read_all(fds[i]); /* until the server closes it */
        assert_string_equal(text, "");
        free(text);
        close(fds[i]);
    }
    fake_hold_text(false);
    char *text;
    assert_int_equal(client_call(f->port, "POST", "/v1/completions", "{\"prompt\":\"abc\",\"max_tokens\":3}", &text), 200);
    free(text);
    assert_true(client_metric(f->port, "vllm:prompt_tokens_total") == 3);
    wait_for_metric(f->port, "vllm:num_requests_running", 0);
}

/* So does hanging up with the last byte, which the server may notice before it has read the request. */
static void hanging_up_with_the_request_drops_it(void **state) {
    const fixture *f = *state;
    fake_hold_text(true);
    for (int i = 0; i < 50; i++) {
        const int fd = client_connect(f->port);
        client_send_last(fd, "POST", "/v1/completions", "{\"prompt\":\"abc\",\"max_tokens\":3}");
        shutdown(fd, SHUT_WR);
        assert_closed(fd);
    }
    fake_hold_text(false);
    WAIT_UNTIL(server_n_requests(f->running) == 0);
    assert_true(client_metric(f->port, "vllm:prompt_tokens_total") == 0);
}

/* Requests whose bodies have been read. */
static int n_generations(http_server *s) {
    int n = 0;
    pthread_mutex_lock(&s->lock);
    for (const http_generation *g = s->generations; g; g = g->next) n++;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void *stop(void *server) {
    server_stop(server);
    return NULL;
}

static void stopping_reports_an_error_to_requests_that_are_not_prepared(void **state) {
    fixture *f = *state;
    int fds[N_HELD];
    pthread_t stopper;
    send_held(f->port, fds);
    fake_wait_for_text();                            /* one is being prepared */
    WAIT_UNTIL(n_generations(f->running) == N_HELD); /* and the others wait for it */
    pthread_create(&stopper, NULL, stop, &f->running);
    for (int i = 0; i < N_HELD; i++) {
        char *text = client_read_all(fds[i]);
        if (!strstr(text, "HTTP/1.1 503")) fail_msg("%d: <%s>", i, text);
        free(text);
        close(fds[i]);
    }
    pthread_join(stopper, NULL); /* it does not wait for the one that is being prepared */
    fake_hold_text(false);
}

/* A request whose grammar is being compiled delays only those with grammars, and the server's stop ends that, too. */
static void compiling_a_grammar_delays_no_other_request(void **state) {
    fixture *f = *state;
    static const char with_grammar[] = "{\"prompt\":\"abc\",\"max_tokens\":3,\"guided_regex\":\"a+\"}";
    static const char without[] = "{\"prompt\":\"abc\",\"max_tokens\":3}";
    fake_hold_grammars(true);
    int fds[2];
    for (int i = 0; i < 2; i++) {
        fds[i] = client_connect(f->port);
        client_send_last(fds[i], "POST", "/v1/completions", with_grammar);
    }
    WAIT_UNTIL(fake_compiles());
    WAIT_UNTIL(n_generations(f->running) == 2);
    char *text;
    assert_int_equal(client_call(f->port, "POST", "/v1/completions", without, &text), 200);
    free(text);
    server_stop(&f->running);
    for (int i = 0; i < 2; i++) {
        text = client_read_all(fds[i]);
        assert_non_null(strstr(text, "HTTP/1.1 503"));
        free(text);
        close(fds[i]);
    }
    fake_hold_grammars(false);
}

/* All of a request must be prepared within a time. */
static void preparing_a_request_has_a_deadline(void **state) {
    const fixture *f = *state;
    fake_hold_text(true);
    const int fd = client_connect(f->port);
    client_send_last(fd, "POST", "/v1/completions", "{\"prompt\":\"abc\",\"max_tokens\":3}");
    fake_wait_for_text();
    move_clock(1801);
    char *text = client_read_all(fd);
    if (!strstr(text, "HTTP/1.1 400") || !strstr(text, "takes longer to prepare than the 1800 s that it may") ||
        !strstr(text, "\"code\":null"))
        fail_msg("<%s>", text);
    free(text);
    close(fd);
    fake_hold_text(false);
}

/* ---- Connections that hold a place ---- */

#define HEAD "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"

/* What clients send before they stop. */
static const char *const unfinished[] = {
    "",
    "GET /hea",
    "GET /health HTTP/1.1\r\nHost: x\r\n",
    HEAD "Content-Length: 100\r\n\r\n{",
    HEAD "Transfer-Encoding: chunked\r\n\r\n9\r\n{",
};
enum { N_UNFINISHED = sizeof unfinished / sizeof *unfinished };

static int connect_and_send(uint16_t port, const char *text) {
    const int fd = client_connect(port);
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    return fd;
}

/* Let a little time pass once the server has read everything, and send a byte. False: it has closed the connection. */
static bool trickle(int fd) {
    wait_until_read(fd);
    move_clock(0.2);
    return send(fd, "a", 1, MSG_NOSIGNAL) == 1;
}

/* The server has neither answered nor closed the connection. */
static void assert_open(int fd) {
    char byte;
    assert_int_equal(recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
}

/* Fill a server of five connections. */
static void fill(uint16_t port, int fds[5]) {
    for (int i = 0; i < 5; i++) {
        fds[i] = client_connect(port);
        assert_healthy(fds[i]);
    }
}

/* The head of an answer has the status and ends the connection; its body is the error of the limit, of five connections. */
static void assert_beyond_the_limit(const char *text) {
    const char *message, *type;
    if (strncmp(text, "HTTP/1.1 503", 12) != 0 || !strstr(text, "\r\nRetry-After: ") || !strstr(text, "-Origin: *\r\n") ||
        !strstr(text, "\r\nConnection: close\r\n"))
        fail_msg("<%s>", text);
    json_t *error = json_loads(strstr(text, "\r\n\r\n"), 0, NULL);
    assert_unpack(error, "{s:{s:s, s:s, s:n, s:n!}!}", "error", "message", &message, "type", &type, "param", "code");
    assert_non_null(strstr(message, "5 connections"));
    assert_string_equal(type, "server_error");
    json_decref(error);
}

/* A spare connection has one answer: it says how the server is, or refuses the request at once, however long its body is. */
static void connections_beyond_the_limit_say_how_the_server_is(void **state) {
    const fixture *f = *state;
    static const char *const health[] = {"/health", "/readyz", "/livez", "/metrics"};
    static const char *const refused[] = {
        HEAD "Content-Length: 3\r\n\r\n{}\n",
        HEAD "Content-Length: 2000000\r\n\r\n{",
        HEAD "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n",
        "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
    };
    int fds[5];
    fill(f->port, fds);
    const int n_before = n_files();
    for (int i = 0; i < 40; i++) {
        const int fd = client_connect(f->port);
        client_send(fd, "GET", health[i % 4], NULL);
        char *text = client_read_all(fd);
        if (strncmp(text, "HTTP/1.1 200", 12) != 0 || !strstr(text, "\r\nConnection: close\r\n")) fail_msg("<%s>", text);
        free(text);
        close(fd);
        wait_for_files(n_before); /* the place is free again */
    }
    for (int i = 0; i < 40; i++) { /* no time passes, so the server neither waits for a body nor closes late connections */
        const int fd = connect_and_send(f->port, refused[i % 5]);
        char *text = client_read_all(fd);
        assert_beyond_the_limit(text);
        free(text);
        close(fd);
        wait_for_files(n_before);
    }
    for (int i = 0; i < 5; i++) assert_healthy(fds[i]); /* those within it are not disturbed */
    for (int i = 0; i < 5; i++) close(fds[i]);
}

/* Trickle, while other connections send requests, so that they stay open. */
static bool trickle_among(int fd, const int others[5]) {
    for (int i = 0; i < 5; i++) assert_healthy(others[i]);
    return trickle(fd);
}

/* There are four spare connections here, each for two seconds, however much it sends; others are refused without being read. */
static void spare_connections_are_few_and_short(void **state) {
    const fixture *f = *state;
    static const char *const begins[] = {"", "GET /health HTTP/1.1\r\nX: ", HEAD "X: ", "GET /health"};
    enum { N_SPARE = sizeof begins / sizeof *begins };
    int fds[5], spare[N_SPARE];
    char *text;
    fill(f->port, fds);
    const int n_before = n_files();
    for (int i = 0; i < N_SPARE; i++) spare[i] = connect_and_send(f->port, begins[i]);
    for (int i = 0; i < 20; i++) {
        const int fd = client_connect(f->port);
        client_send(fd, "GET", "/health", NULL);
        text = client_read_all(fd);
        assert_beyond_the_limit(text);
        free(text);
        close(fd);
    }
    for (int i = 0; i < N_SPARE; i++) assert_open(spare[i]);
    for (int i = 1; i < N_SPARE; i++) WAIT_UNTIL(!trickle_among(spare[i], fds));
    for (int i = 0; i < N_SPARE; i++) assert_closed(spare[i]);
    wait_for_files(n_before);
    assert_int_equal(client_call(f->port, "GET", "/health", NULL, &text), 200); /* there are spare ones again */
    free(text);
    for (int i = 0; i < 5; i++) close(fds[i]);
}

/* One that has sent nothing yet when another connection ends gets that one's place. */
static void a_spare_connection_takes_a_free_place(void **state) {
    const fixture *f = *state;
    int fds[5];
    fill(f->port, fds);
    const int n_before = n_files(), fd = client_connect(f->port);
    wait_for_files(n_before + 2); /* both ends of the connection: it has been accepted */
    close(fds[4]);
    wait_for_files(n_before);
    for (int i = 0; i < 3; i++) {
        client_send(fd, "POST", "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}");
        char *text = client_read_until(fd, "usage");
        assert_memory_equal(text, "HTTP/1.1 200", 12);
        assert_null(strstr(text, "Connection: close"));
        free(text);
    }
    close(fd);
    for (int i = 0; i < 4; i++) close(fds[i]);
}

/* Each request that does not arrive holds its place for a second only. */
static void a_request_must_arrive_in_time(void **state) {
    const fixture *f = *state;
    int fds[N_UNFINISHED];
    for (int i = 0; i < N_UNFINISHED; i++) {
        fds[i] = connect_and_send(f->port, unfinished[i]);
        wait_until_read(fds[i]);
    }
    move_clock(0.9);
    const int other = connect_and_send(f->port, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
    char *text = client_read_all(other);
    assert_beyond_the_limit(text); /* their places are taken */
    free(text);
    close(other);
    for (int i = 0; i < N_UNFINISHED; i++) assert_open(fds[i]);
    for (int i = 0; i < N_UNFINISHED; i++) {
        WAIT_UNTIL(ends_soon(fds[i]));
        assert_closed(fds[i]);
    }
}

/* A byte now and then is not enough. */
static void a_request_must_not_trickle(void **state) {
    const fixture *f = *state;
    static const char *const begins[] = {"GET /", HEAD "X: ", HEAD "Content-Length: 90000\r\n\r\n"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        const int fd = connect_and_send(f->port, begins[i]);
        wait_until_read(fd);
        assert_open(fd);
        WAIT_UNTIL(!trickle(fd));
        assert_closed(fd);
    }
}

/* A body may take longer than a request's time as long as its bytes arrive at a fair rate. */
static void a_long_body_may_take_its_time(void **state) {
    const fixture *f = *state;
    const int fd = connect_and_send(f->port, HEAD "Content-Length: 1048576\r\n\r\n");
    static char body[1 << 20];
    memset(body, ' ', sizeof body);
    const char *const json = "{\"prompt\":\"a\",\"max_tokens\":1}";
    for (size_t i = 0; json[i]; i++) body[i] = json[i];
    for (size_t at = 0; at < sizeof body; at += 65536) { /* in 14.4 s; 17 s are allowed */
        client_send_bytes(fd, body + at, 65536);
        wait_until_read(fd);
        move_clock(0.9);
    }
    char *text = client_read_until(fd, "usage");
    assert_memory_equal(text, "HTTP/1.1 200", 12);
    free(text);
    close(fd);
}

/* The server notices, although no time passes, also if the end comes together with the bytes before it. */
static void hanging_up_within_a_request_frees_the_place(void **state) {
    const fixture *f = *state;
    for (int repeat = 0; repeat < 8; repeat++)
        for (int i = 0; i < N_UNFINISHED; i++) {
            const int fd = connect_and_send(f->port, unfinished[i]);
            shutdown(fd, SHUT_WR);
            assert_closed(fd);
        }
}

/* A client may close its sending half after a request whose answer needs no engine. */
static void a_complete_request_is_answered_after_half_a_close(void **state) {
    const fixture *f = *state;
    for (int i = 0; i < 50; i++) {
        const int fd = connect_and_send(f->port, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
        shutdown(fd, SHUT_WR);
        char *text = client_read_all(fd);
        assert_memory_equal(text, "HTTP/1.1 200", 12);
        free(text);
        close(fd);
    }
}

/*
 * When files are lacking, connections are closed at once; afterwards all is well. The first one may still be closed, if the
 * server met the limit just before it was raised.
 */
static void lacking_files_end_connections_and_nothing_else(void **state) {
    const fixture *f = *state;
    struct rlimit before;
    getrlimit(RLIMIT_NOFILE, &before);
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(f->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fds[20];
    for (int i = 0; i < 20; i++) fds[i] = socket(AF_INET, SOCK_STREAM, 0);
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)fds[0], before.rlim_max});
    for (int i = 0; i < 20; i++) assert_int_equal(connect(fds[i], (const struct sockaddr *)&to, sizeof to), 0);
    for (int i = 0; i < 20; i++) assert_closed(fds[i]);
    setrlimit(RLIMIT_NOFILE, &before);
    char *text;
    int status = 0;
    for (int i = 0; i < 2 && status == 0; i++) {
        status = client_call(f->port, "GET", "/health", NULL, &text);
        free(text);
    }
    assert_int_equal(status, 200);
}

/* ---- Many at once ---- */

static void *call_many(void *arg) {
    const uint16_t port = *(const uint16_t *)arg;
    for (int i = 0; i < 8; i++) {
        char *text;
        const char *body =
            i % 2 ? "{\"prompt\":\"abc\",\"max_tokens\":50,\"stream\":true}" : "{\"prompt\":\"abc\",\"max_tokens\":50}";
        const int status = client_call(port, "POST", "/v1/completions", body, &text);
        const bool whole = strstr(text, "\"finish_reason\":\"length\"");
        free(text);
        if (status != 200 || !whole) return "failed";
        const int fd = client_connect(port); /* one that hangs up at any moment */
        client_send(fd, "POST", "/v1/completions", body);
        spin(200000 * i);
        close(fd);
    }
    return NULL;
}

static void many_at_once(void **state) {
    fixture *f = *state;
    pthread_t threads[32];
    for (int i = 0; i < 32; i++) pthread_create(&threads[i], NULL, call_many, &f->port);
    for (int i = 0; i < 32; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    wait_for_metric(f->port, "vllm:num_requests_running", 0);
    wait_for_metric(f->port, "vllm:num_requests_waiting", 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(hanging_up_in_a_stream_closes_the_socket, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(hanging_up_before_the_first_token_cancels, set_up_long_prefill, tear_down),
        cmocka_unit_test_setup_teardown(hanging_up_before_the_answer_ends_a_pin, set_up_pins, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_does_not_read_delays_no_other, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(only_idle_clients_time_out, set_up_impatient, tear_down),
        cmocka_unit_test_setup_teardown(preparing_a_request_delays_no_other, set_up_slow, tear_down),
        cmocka_unit_test_setup_teardown(hanging_up_before_a_request_is_prepared_drops_it, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(hanging_up_with_the_request_drops_it, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(stopping_reports_an_error_to_requests_that_are_not_prepared, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(compiling_a_grammar_delays_no_other_request, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(preparing_a_request_has_a_deadline, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(connections_beyond_the_limit_say_how_the_server_is, set_up_few, tear_down),
        cmocka_unit_test_setup_teardown(spare_connections_are_few_and_short, set_up_few, tear_down),
        cmocka_unit_test_setup_teardown(a_spare_connection_takes_a_free_place, set_up_few, tear_down),
        cmocka_unit_test_setup_teardown(a_request_must_arrive_in_time, set_up_few, tear_down),
        cmocka_unit_test_setup_teardown(a_request_must_not_trickle, set_up_few, tear_down),
        cmocka_unit_test_setup_teardown(a_long_body_may_take_its_time, set_up_few, tear_down),
        cmocka_unit_test_setup_teardown(hanging_up_within_a_request_frees_the_place, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_complete_request_is_answered_after_half_a_close, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(lacking_files_end_connections_and_nothing_else, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(many_at_once, set_up_fast, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
