/* A server that is to end answers the accepted requests, and no others. */
#define _GNU_SOURCE /* POLLRDHUP */
#include "tests/support/wait.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client.h"
#include "server_fixture.h"
#include "tests/serve/protocol/fake.h"
#include "tests/support/still_clock.h"

#define HEAD "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"

static const char short_stream[] = "{\"prompt\":\"abc\",\"max_tokens\":3,\"stream\":true}";
static const char short_whole[] = "{\"prompt\":\"abc\",\"max_tokens\":3}";

static void send_text(int fd, const char *text) { client_send_bytes(fd, text, strlen(text)); }

static void assert_begins(const char *text, const char *begin) {
    if (strncmp(text, begin, strlen(begin)) != 0) fail_msg("<%s>", text);
}

/* Wait until the server has accepted n requests that it has not answered. */
static void wait_for_requests(const fixture *f, int32_t n) { WAIT_UNTIL(server_n_requests(f->running) == n); }

/* Send a request on the connection, which is refused; the connection ends. */
static void assert_refused_and_closed(int fd, const char *path, const char *body, const char *part) {
    client_send(fd, body ? "POST" : "GET", path, body);
    char *text = client_read_all(fd);
    assert_begins(text, "HTTP/1.1 503");
    if (!strstr(text, "\r\nRetry-After: 5\r\n") || !strstr(text, "\r\nConnection: close\r\n") || !strstr(text, part))
        fail_msg("<%s>", text);
    free(text);
    close(fd);
}

static void assert_closed(int fd) {
    char *text = client_read_all(fd);
    assert_string_equal(text, "");
    free(text);
    close(fd);
}

/* Let a moment pass; whether the server has closed the connection. */
static bool ends_at_once(int fd) {
    move_clock(1e-3);
    return poll(&(struct pollfd){.fd = fd, .events = POLLRDHUP}, 1, 0) == 1;
}

static void what_was_accepted_is_answered(void **state) {
    fixture *f = *state;
    static const char *const answered[] = {"/livez", "/metrics", "/version", "/"};
    fake_hold_steps(true);
    const int stream = client_connect(f->port), whole = client_connect(f->port), body = client_connect(f->port);
    client_send(stream, "POST", "/v1/completions", short_stream);
    client_send(whole, "POST", "/v1/completions", short_whole);
    send_text(body, HEAD "Content-Length: 31\r\n\r\n{\"prompt\"");
    wait_for_requests(f, 3);
    server_drain(f->running);
    assert_refused_and_closed(client_connect(f->port), "/readyz", NULL, "\"the server is shutting down; ");
    assert_refused_and_closed(client_connect(f->port), "/health", NULL, "\"type\":\"server_error\"");
    assert_refused_and_closed(client_connect(f->port), "/v1/completions", short_stream, "shutting down");
    assert_refused_and_closed(client_connect(f->port), "/tokenize", "{\"prompt\":\"a\"}", "shutting down");
    assert_refused_and_closed(client_connect(f->port), "/v1/messages", "{}", "{\"type\":\"error\",\"error\":{\"type\":");
    for (size_t i = 0; i < sizeof answered / sizeof *answered; i++) {
        const int fd = client_connect(f->port);
        client_send(fd, "GET", answered[i], NULL);
        char *text = client_read_all(fd);
        assert_begins(text, "HTTP/1.1 200");
        free(text);
        close(fd);
    }
    assert_int_equal(server_n_requests(f->running), 3);
    fake_hold_steps(false);
    send_text(body, ":\"abc\",\"max_tokens\":3}");
    const int fds[] = {stream, whole, body};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
        WAIT_UNTIL(ends_at_once(fds[i])); /* with its answer, long before it would be idle for too long */
        char *text = client_read_all(fds[i]);
        assert_begins(text, "HTTP/1.1 200");
        if (!strstr(text, i == 0 ? "data: [DONE]" : "\"text\":\"abc\"")) fail_msg("<%s>", text);
        free(text);
        close(fds[i]);
    }
    wait_for_requests(f, 0);
}

/* A connection that has had a request ends at once; one that is new may send its first within a second, which is refused. */
static void idle_connections_end(void **state) {
    fixture *f = *state;
    enum { N = 8 };
    int idle[N];
    for (int i = 0; i < N; i++) {
        idle[i] = client_connect(f->port);
        client_send(idle[i], "GET", "/health", NULL);
        free(client_read_until(idle[i], "}"));
    }
    const int unused = client_connect(f->port), asks = client_connect(f->port), head = client_connect(f->port);
    send_text(head, HEAD);
    wait_until_read(unused); /* it has been accepted, and those before it */
    wait_until_read(head);
    wait_for_requests(f, 0);
    server_drain(f->running);
    move_clock(0.01);
    for (int i = 0; i < N; i++) assert_closed(idle[i]);
    assert_refused_and_closed(asks, "/v1/models", NULL, "shutting down");
    assert_int_equal(recv(unused, &(char){0}, 1, MSG_PEEK | MSG_DONTWAIT), -1); /* it is open */
    move_clock(1);
    assert_closed(unused);
    send_text(head, "Content-Length: 31\r\n\r\n{\"prompt\":\"abc\",\"max_tokens\":3}"); /* its head came too late */
    char *text = client_read_all(head);
    assert_begins(text, "HTTP/1.1 503");
    free(text);
    close(head);
}

/* A client that hangs up is not waited for. */
static void a_client_that_hangs_up_is_not_waited_for(void **state) {
    fixture *f = *state;
    const int fd = client_connect(f->port);
    client_send(fd, "POST", "/v1/completions", endless_whole);
    wait_for_requests(f, 1);
    server_drain(f->running);
    close(fd);
    wait_for_requests(f, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_was_accepted_is_answered, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(idle_connections_end, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_hangs_up_is_not_waited_for, set_up_slow, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
