/* Clients that hang up, do not read, wait, or come all at once. */
#include "../support/testing.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "client.h"
#include "server_fixture.h"
#include "tests/openai/fake.h"

/* ---- Hanging up ---- */

static void hanging_up_in_a_stream_cancels(void **state) {
    const fixture *f = *state;
    const int fd = client_connect(f->port);
    client_send(fd, "POST", "/v1/completions", endless);
    free(client_read_until(fd, "\"text\":\"b\""));
    assert_true(client_metric(f->port, "vllm:num_requests_running") == 1);
    close(fd);
    assert_true(comes_to(f->port, "vllm:num_requests_running", 0));
    assert_true(
        comes_to(f->port, "vllm:request_success_total{model_name=\"fake \\\"model\\\"\",finished_reason=\"abort\"}", 1));
}

static void hanging_up_while_others_run_cancels(void **state) {
    const fixture *f = *state;
    int fds[5];
    for (int i = 0; i < 5; i++) {
        fds[i] = client_connect(f->port);
        client_send(fds[i], "POST", "/v1/completions", i % 2 ? endless : endless_whole);
    }
    assert_true(comes_to(f->port, "vllm:num_requests_running", 2));
    assert_true(comes_to(f->port, "vllm:num_requests_waiting", 3));
    for (int i = 2; i < 5; i++) close(fds[i]); /* the requests that wait */
    assert_true(comes_to(f->port, "vllm:num_requests_waiting", 0));
    assert_true(client_metric(f->port, "vllm:num_requests_running") == 2);
    for (int i = 0; i < 2; i++) close(fds[i]);
    assert_true(comes_to(f->port, "vllm:num_requests_running", 0));
}

static void hanging_up_before_the_first_token_cancels(void **state) {
    const fixture *f = *state;
    for (int whole = 0; whole < 2; whole++) {
        const int fd = client_connect(f->port);
        client_send(fd, "POST", "/v1/completions", whole ? "{\"prompt\":\"abc\"}" : "{\"prompt\":\"abc\",\"stream\":true}");
        assert_true(comes_to(f->port, "vllm:num_requests_running", 1));
        close(fd);
        assert_true(comes_to(f->port, "vllm:num_requests_running", 0));
    }
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
    assert_true(comes_to(f->port, "vllm:num_requests_running", 0)); /* its request has ended in the engine */
    char *text = client_read_until(lazy, "[DONE]");
    int n = 0;
    for (const char *at = text; (at = strstr(at, "\"text\":\"")); at += 8) n += at[8] != '"';
    assert_int_equal(n, 8 * 4000);
    free(text);
    close(lazy);
}

/* The time-out is for idle clients, not for those that wait for an answer. */
static void only_idle_clients_time_out(void **state) {
    const fixture *f = *state;
    const int idle = client_connect(f->port), stream = client_connect(f->port), whole = client_connect(f->port);
    client_send(stream, "POST", "/v1/completions", "{\"prompt\":\"abc\",\"max_tokens\":2,\"stream\":true}");
    client_send(whole, "POST", "/v1/completions", "{\"prompt\":\"abc\",\"max_tokens\":2}");
    char *text = client_read_all(idle); /* until the server closes it */
    assert_string_equal(text, "");
    free(text);
    assert_true(client_metric(f->port, "vllm:num_requests_running") == 2);
    text = client_read_until(stream, "[DONE]");
    assert_non_null(strstr(text, "[DONE]"));
    free(text);
    text = client_read_until(whole, "usage");
    assert_non_null(strstr(text, "\"text\":\"ab\""));
    free(text);
    close(idle);
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
        client_send(fds[i], "GET", "/health", NULL);
        free(client_read_until(fds[i], "ok"));
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
        free(client_read_until(stream, "\"text\":\"b\""));
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
    assert_true(comes_to(f->port, "vllm:num_requests_running", 0));
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
    fake_wait_for_text(); /* one is being prepared: the server waits for it, and the others arrive meanwhile */
    pthread_create(&stopper, NULL, stop, &f->running);
    for (int i = 0; i < N_HELD; i++) {
        char *text = client_read_all(fds[i]);
        if (!strstr(text, "HTTP/1.1 503")) fail_msg("%d: <%s>", i, text);
        free(text);
        close(fds[i]);
    }
    fake_hold_text(false);
    pthread_join(stopper, NULL);
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
        nanosleep(&(struct timespec){.tv_nsec = 500000L * i}, NULL);
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
    assert_true(comes_to(f->port, "vllm:num_requests_running", 0));
    assert_true(comes_to(f->port, "vllm:num_requests_waiting", 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(hanging_up_in_a_stream_cancels, set_up_slow, tear_down),
        cmocka_unit_test_setup_teardown(hanging_up_while_others_run_cancels, set_up_slow, tear_down),
        cmocka_unit_test_setup_teardown(hanging_up_before_the_first_token_cancels, set_up_long_prefill, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_does_not_read_delays_no_other, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(only_idle_clients_time_out, set_up_impatient, tear_down),
        cmocka_unit_test_setup_teardown(preparing_a_request_delays_no_other, set_up_slow, tear_down),
        cmocka_unit_test_setup_teardown(hanging_up_before_a_request_is_prepared_drops_it, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(stopping_reports_an_error_to_requests_that_are_not_prepared, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(many_at_once, set_up_fast, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
