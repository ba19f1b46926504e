/* The HTTP server over the fake engine: metrics, engines that fail, start and end. */
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "server_fixture.h"
#include "tests/serve/protocol/fake.h"
#include "tests/support/still_clock.h"

static void metrics_count(void **state) {
    const fixture *f = *state;
    char *text;
    for (int i = 0; i < 2; i++) {
        client_call(f->port, "POST", "/v1/completions", "{\"prompt\":[\"abcd\",\"xy\"],\"n\":2,\"max_tokens\":3}", &text);
        free(text);
    }
    static const struct {
        const char *name;
        double value;
    } samples[] = {
        {"vllm:num_requests_running{model_name=\"fake \\\"model\\\"\"}", 0},
        {"vllm:prompt_tokens_total", 12},
        {"vllm:generation_tokens_total", 24},
        {"vllm:prefix_cache_queries_total", 12},
        {"vllm:prefix_cache_hits_total", 6},
        {"vllm:spec_decode_num_drafts_total", 4},
        {"vllm:spec_decode_num_draft_tokens_total", 20},
        {"vllm:spec_decode_num_accepted_tokens_total", 8},
        {"vllm:num_preemptions_total", 4},
        {"chunkattn_recomputed_tokens_total", 12},
        {"chunkattn_waiting_tokens", 6},
        {"vllm:iteration_tokens_total_sum", 12345678901}, /* every digit counts */
        {"chunkattn_kv_tokens_retained", 31},
        {"chunkattn_kv_tokens_evicted_total", 32},
        {"chunkattn_kv_slots_padding", 33},
        {"chunkattn_kv_chunks_pinned", 34},
        {"vllm:time_to_first_token_seconds_count", 4},
        {"vllm:inter_token_latency_seconds_count", 16}, /* two for each of eight choices */
        {"vllm:request_generation_tokens_count", 8},    /* as vLLM, which counts each choice */
        {"vllm:request_generation_tokens_sum", 24},
        {"vllm:e2e_request_latency_seconds_count", 4},
        {"vllm:e2e_request_latency_seconds_bucket{model_name=\"fake \\\"model\\\"\",le=\"+Inf\"}", 4},
        {"vllm:request_success_total{model_name=\"fake \\\"model\\\"\",finished_reason=\"length\"}", 4},
        {"vllm:request_success_total{model_name=\"fake \\\"model\\\"\",finished_reason=\"stop\"}", 0},
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) wait_for_metric(f->port, samples[i].name, samples[i].value);
}

/* The connection of a stream serves on after its end. */
static void a_connection_serves_on_after_a_stream(void **state) {
    const fixture *f = *state;
    const int fd = client_connect(f->port);
    client_send(fd, "POST", "/v1/completions", "{\"prompt\":\"ab\",\"max_tokens\":2,\"stream\":true}");
    free(client_read_until(fd, "[DONE]"));
    client_send(fd, "GET", "/health", NULL);
    char *text = client_read_until(fd, "ok");
    assert_non_null(strstr(text, "200 OK"));
    free(text);
    close(fd);
}

static void an_engine_that_fails_is_reported(void **state) {
    const fixture *f = *state;
    char *text;
    assert_refused(f->port, "POST", "/v1/completions", "{\"prompt\":[\"ok\",\"fails!\"],\"max_tokens\":1}", 503, NULL,
                   "fails on request");
    assert_int_equal(client_call(f->port, "POST", "/v1/completions", "{\"prompt\":\"a!\",\"stream\":true}", &text), 200);
    assert_non_null(
        strstr(text, "data: {\"error\":{\"message\":\"the fake engine fails on request\",\"type\":\"server_error\""));
    free(text);
}

/* A part of a stream that has begun is refused by an event. */
static void a_prompt_that_waits_too_long_is_an_event(void **state) {
    const fixture *f = *state;
    const int fd = client_connect(f->port);
    client_send(fd, "POST", "/v1/completions", "{\"prompt\":[\"abc\",\"d\"],\"max_tokens\":90000,\"stream\":true}");
    wait_for_metric(f->port, "vllm:num_requests_running", 1);
    wait_for_metric(f->port, "vllm:num_requests_waiting", 1);
    move_clock(601);
    char *text = client_read_until(fd, "[DONE]");
    assert_memory_equal(text, "HTTP/1.1 200", 12);
    assert_non_null(strstr(text, "not admitted within 600 seconds, the limit of --queue-timeout"));
    assert_non_null(strstr(text, "\"type\":\"rate_limit_error\",\"param\":null,\"code\":\"rate_limit_exceeded\"}}"));
    free(text);
    close(fd);
}

/* ---- Start and end ---- */

static void stopping_reports_an_error_to_clients(void **state) {
    fixture *f = *state;
    int fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = client_connect(f->port);
        client_send(fds[i], "POST", "/v1/completions", i % 2 ? endless : endless_whole);
    }
    wait_for_metric(f->port, "vllm:num_requests_running", 2);
    wait_for_metric(f->port, "vllm:num_requests_waiting", 2);
    for (int i = 1; i < 4; i += 2) { /* their answers have begun */
        char *head = client_read_until(fds[i], "\r\n\r\n");
        assert_memory_equal(head, "HTTP/1.1 200", 12);
        free(head);
    }
    server_stop(&f->running);
    for (int i = 0; i < 4; i++) {
        char *text = client_read_all(fds[i]);
        if (i % 2 == 0 && !strstr(text, "HTTP/1.1 503")) fail_msg("%d: <%s>", i, text);
        assert_non_null(strstr(text, "the server is shutting down"));
        free(text);
        close(fds[i]);
    }
    assert_int_equal(client_connect(f->port), -1);
}

/* A header with these could not be sent, so there would be no answer. */
static void bad_origins_are_refused(void **state) {
    (void)state;
    static const char *const no_origins[] = {"", "a\r\nb", "a\tb"};
    for (int i = 0; i < 3; i++) {
        server_config config = base_config();
        http_server *none;
        cl_error error;
        config.cors_origin = no_origins[i];
        assert_int_equal(server_start(&config, &none, &error), CL_ERR_ARG);
        assert_null(none);
        assert_non_null(strstr(error.message, "cors_origin is empty or contains"));
    }
}

/* However its address is written. */
static void a_server_knows_who_reaches_it(void **state) {
    (void)state;
    static const struct {
        const char *host;
        bool is_local;
    } cases[] = {{"127.0.0.1", true}, {"localhost", true}, {"0x7f.1", true}, {"0.0.0.0", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        server_config config = base_config();
        http_server *s;
        cl_error error;
        config.host = cases[i].host;
        if (server_start(&config, &s, &error) != CL_OK) fail_msg("%s: %s", cases[i].host, error.message);
        assert_int_equal(server_is_local(s), cases[i].is_local);
        server_stop(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(metrics_count, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_connection_serves_on_after_a_stream, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(an_engine_that_fails_is_reported, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_prompt_that_waits_too_long_is_an_event, set_up_crowded, tear_down),
        cmocka_unit_test_setup_teardown(stopping_reports_an_error_to_clients, set_up_slow, tear_down),
        cmocka_unit_test(bad_origins_are_refused),
        cmocka_unit_test(a_server_knows_who_reaches_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
