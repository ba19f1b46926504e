/* The HTTP server over the fake engine: answers, streams, errors, start and end. */
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "server_fixture.h"
#include "tests/serve/protocol/fake.h"
#include "tests/support/still_clock.h"

static void chat_answers(void **state) {
    const fixture *f = *state;
    json_t *reply;
    assert_int_equal(client_call_json(f->port, "POST", "/v1/chat/completions",
                                      "{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"max_tokens\":3}", &reply),
                     200);
    const char *object, *model, *role, *content, *finish;
    int index, prompt, completion, total, cached;
    assert_unpack(reply, "{s:s, s:s, s:[{s:i, s:{s:s, s:s}, s:s}!], s:{s:i, s:i, s:i, s:{s:i}}}", "object", &object, "model",
                  &model, "choices", "index", &index, "message", "role", &role, "content", &content, "finish_reason", &finish,
                  "usage", "prompt_tokens", &prompt, "completion_tokens", &completion, "total_tokens", &total,
                  "prompt_tokens_details", "cached_tokens", &cached);
    assert_string_equal(object, "chat.completion");
    assert_string_equal(model, "fake \"model\"");
    assert_string_equal(role, "assistant");
    assert_string_equal(content, "hel");
    assert_string_equal(finish, "length");
    assert_int_equal(index, 0);
    assert_int_equal(prompt, 6);
    assert_int_equal(completion, 3);
    assert_int_equal(total, 9);
    assert_int_equal(cached, 3);
    json_decref(reply);
}

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

static void completions_take_every_prompt_form(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *body;
        int n;
        const char *first, *last;
    } cases[] = {
        {"{\"prompt\":\"abc\",\"max_tokens\":4}", 1, "abca", "abca"},
        {"{\"prompt\":[\"abc\",\"xyz\"],\"max_tokens\":2,\"n\":2}", 4, "ab", "xy"},
        {"{\"prompt\":[97,98],\"max_tokens\":2}", 1, "ab", "ab"},
        {"{\"prompt\":[[97,98],[120]],\"max_tokens\":2}", 2, "ab", "xx"},
        {"{\"prompt\":\"abc\",\"max_tokens\":2,\"echo\":true}", 1, "abcab", "abcab"},
        {"{\"prompt\":[97,98],\"max_tokens\":0,\"echo\":true}", 1, "ab", "ab"},
        {"{\"prompt\":\"abcdefghijklmnopq\"}", 1, "abcdefghijklmnop", "abcdefghijklmnop"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *reply, *choices;
        const char *first, *last;
        assert_int_equal(client_call_json(f->port, "POST", "/v1/completions", cases[i].body, &reply), 200);
        choices = json_object_get(reply, "choices");
        assert_int_equal(json_array_size(choices), cases[i].n);
        assert_unpack(json_array_get(choices, 0), "{s:s}", "text", &first);
        assert_unpack(json_array_get(choices, (size_t)cases[i].n - 1), "{s:s}", "text", &last);
        assert_string_equal(first, cases[i].first);
        assert_string_equal(last, cases[i].last);
        for (int c = 0; c < cases[i].n; c++) {
            int index;
            assert_unpack(json_array_get(choices, (size_t)c), "{s:i}", "index", &index);
            assert_int_equal(index, c);
        }
        json_decref(reply);
    }
}

/* The parts stand in the text one after another. */
static void assert_in_order(const char *text, const char *const *parts, size_t n) {
    const char *at = text;
    for (size_t i = 0; at && i < n; i++) {
        at = strstr(at, parts[i]);
        if (!at) print_error("%s does not follow the parts before it in %s", parts[i], text);
    }
    assert_non_null(at);
}

static void streams_end_with_done(void **state) {
    const fixture *f = *state;
    const int fd = client_connect(f->port);
    client_send(fd, "POST", "/v1/chat/completions",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}],\"max_tokens\":2,\"stream\":true,"
                "\"stream_options\":{\"include_usage\":true}}");
    char *text = client_read_until(fd, "[DONE]");
    assert_non_null(strstr(text, "Content-Type: text/event-stream"));
    static const char *const parts[] = {
        "\"object\":\"chat.completion.chunk\"",
        "\"delta\":{\"role\":\"assistant\",\"content\":\"a\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null",
        "\"delta\":{\"content\":\"b\"}",
        "\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"",
        "\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2",
        "data: [DONE]"};
    assert_in_order(text, parts, sizeof parts / sizeof *parts);
    free(text);
    /* The connection serves on. */
    client_send(fd, "GET", "/health", NULL);
    text = client_read_until(fd, "ok");
    assert_non_null(strstr(text, "200 OK"));
    free(text);
    close(fd);
}

static void each_chunk_may_report_the_usage_so_far(void **state) {
    const fixture *f = *state;
    const int fd = client_connect(f->port);
    client_send(fd, "POST", "/v1/completions",
                "{\"prompt\":\"ab\",\"max_tokens\":2,\"stream\":true,"
                "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}}");
    char *text = client_read_until(fd, "[DONE]");
    static const char *const parts[] = {
        "\"text\":\"a\"",           "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1,\"total_tokens\":3",
        "\"text\":\"b\"",           "\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":2,\"total_tokens\":4",
        "\"choices\":[],\"usage\"", "\"completion_tokens\":2",
    };
    assert_null(strstr(text, "\"usage\":null"));
    assert_in_order(text, parts, sizeof parts / sizeof *parts);
    free(text);
    close(fd);
}

static void errors_have_openais_shape(void **state) {
    const fixture *f = *state;
    const char *chat = "/v1/chat/completions", *completions = "/v1/completions";
    assert_refused(f->port, "GET", "/nowhere", NULL, 404, NULL, "there is no endpoint /nowhere; GET / lists all endpoints");
    assert_refused(f->port, "GET", chat, NULL, 405, NULL, "use POST");
    assert_refused(f->port, "POST", "/health", "{}", 405, NULL, "use GET");
    assert_refused(f->port, "GET", "/v1/models/other", NULL, 404, "model", "other");
    assert_refused(f->port, "POST", chat, "", 400, NULL, "not valid JSON");
    assert_refused(f->port, "POST", chat, "{\"messages\": [}", 400, NULL, "line 1, column 15");
    assert_refused(f->port, "POST", chat, "[]", 400, NULL, "must be a JSON object");
    assert_refused(f->port, "POST", completions, "{\"prompt\":\"abc\",\"max_tokens\":5000}", 400, NULL, "4096");
    assert_refused(f->port, "POST", completions, "{\"prompt\":\"abc\",\"temperature\":-3}", 400, "temperature",
                   "from 0 to 10000");
    assert_refused(f->port, "POST", completions, "{\"prompt\":[\"ok\",\"fails!\"],\"max_tokens\":1}", 503, NULL,
                   "fails on request");
    char *large = malloc(200001);
    memset(large, ' ', 200000);
    large[200000] = '\0';
    assert_refused(f->port, "POST", chat, large, 413, NULL, "100000 bytes");
    free(large);
    json_t *reply;
    assert_int_equal(client_call_json(f->port, "GET", "/v1/models", NULL, &reply), 200);
    json_decref(reply);
    wait_for_metric(f->port, "vllm:num_requests_running", 0);
}

static void a_stream_that_fails_says_so(void **state) {
    const fixture *f = *state;
    char *text;
    assert_int_equal(client_call(f->port, "POST", "/v1/completions", "{\"prompt\":\"a!\",\"stream\":true}", &text), 200);
    assert_non_null(
        strstr(text, "data: {\"error\":{\"message\":\"the fake engine fails on request\",\"type\":\"server_error\""));
    free(text);
}

static void a_full_queue_is_refused_with_429(void **state) {
    const fixture *f = *state;
    int fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = client_connect(f->port);
        client_send(fds[i], "POST", "/v1/completions", endless);
        wait_for_metric(f->port, "vllm:num_requests_running", 1);
    }
    wait_for_metric(f->port, "vllm:num_requests_waiting", 3);
    const int fd = client_connect(f->port);
    client_send_last(fd, "POST", "/v1/completions", endless);
    char *text = client_read_all(fd);
    static const char *const parts[] = {" 429 Too Many Requests", "Retry-After: 2\r\n", /* of 1.5 s */
                                        "{\"error\":{\"message\":\"3 requests wait\",\"type\":\"rate_limit_error\","
                                        "\"param\":null,\"code\":\"rate_limit_exceeded\"}}"};
    assert_in_order(text, parts, sizeof parts / sizeof *parts);
    free(text);
    close(fd);
    for (int i = 0; i < 4; i++) close(fds[i]);
    wait_for_metric(f->port, "vllm:num_requests_waiting", 0);
    wait_for_metric(f->port, "vllm:num_requests_running", 0);
    assert_int_equal(client_call(f->port, "POST", "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}", &text), 200);
    free(text);
}

/* Whether it runs or waits, and in a stream as an event. */
static void a_request_that_takes_too_long_is_ended_with_504(void **state) {
    const fixture *f = *state;
    const int fd = client_connect(f->port);
    client_send(fd, "POST", "/v1/completions", endless);
    char *text = client_read_until(fd, "\"text\":\"b\"");
    assert_memory_equal(text, "HTTP/1.1 200", 12);
    free(text);
    const int waiting = client_connect(f->port);
    client_send_last(waiting, "POST", "/v1/completions", endless_whole);
    wait_for_metric(f->port, "vllm:num_requests_waiting", 1);
    move_clock(601);
    text = client_read_all(waiting);
    assert_memory_equal(text, "HTTP/1.1 504", 12);
    assert_non_null(strstr(text, "the request is late"));
    free(text);
    close(waiting);
    text = client_read_until(fd, "[DONE]");
    static const char *const parts[] = {"data: {\"error\":{\"message\":\"the request is late\",\"type\":\"server_error\","
                                        "\"param\":null,\"code\":\"timeout\"}}",
                                        "data: [DONE]"};
    assert_in_order(text, parts, sizeof parts / sizeof *parts);
    free(text);
    close(fd);
}

/* A stream, too, since it has not begun: clients repeat a request by its status. A part of a stream that has begun is an event.
 */
static void a_request_that_waits_too_long_is_refused_with_429(void **state) {
    const fixture *f = *state;
    static const char *const waiting[] = {endless, endless_whole};
    static const char *const parts[] = {" 429 Too Many Requests", "Retry-After: 1\r\n",
                                        "not admitted within 600 seconds, the limit of --queue-timeout",
                                        "\"type\":\"rate_limit_error\",\"param\":null,\"code\":\"rate_limit_exceeded\"}}"};
    int busy = client_connect(f->port);
    client_send(busy, "POST", "/v1/completions", endless);
    free(client_read_until(busy, "\"text\":\"b\""));
    for (size_t i = 0; i < sizeof waiting / sizeof *waiting; i++) {
        const int fd = client_connect(f->port);
        client_send_last(fd, "POST", "/v1/completions", waiting[i]);
        wait_for_metric(f->port, "vllm:num_requests_waiting", 1);
        move_clock(601);
        char *text = client_read_all(fd);
        assert_in_order(text, parts, sizeof parts / sizeof *parts);
        free(text);
        close(fd);
        wait_for_metric(f->port, "vllm:num_requests_waiting", 0); /* which is updated at the end of the step */
    }
    close(busy);
    wait_for_metric(f->port, "vllm:num_requests_running", 0);
    busy = client_connect(f->port);
    client_send(busy, "POST", "/v1/completions", "{\"prompt\":[\"abc\",\"d\"],\"max_tokens\":90000,\"stream\":true}");
    wait_for_metric(f->port, "vllm:num_requests_running", 1);
    wait_for_metric(f->port, "vllm:num_requests_waiting", 1);
    move_clock(601);
    char *text = client_read_until(busy, "[DONE]"); /* its second prompt has waited too long */
    assert_memory_equal(text, "HTTP/1.1 200", 12);
    assert_in_order(text, &parts[2], 2);
    free(text);
    close(busy);
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

static void assert_no_start(const server_config *config, cl_status code, const char *message) {
    server *second;
    cl_error error;
    assert_int_equal(server_start(config, &second, &error), code);
    assert_null(second);
    if (!strstr(error.message, message)) fail_msg("<%s> does not say <%s>", error.message, message);
}

static void a_port_in_use_is_refused(void **state) {
    const fixture *f = *state;
    server_config config = base_config();
    config.port = f->port;
    assert_no_start(&config, CL_ERR_FILE, "another program uses the port; end that program or choose another port");
}

static void bad_settings_are_refused(void **state) {
    (void)state;
    server_config config = base_config();
    config.host = "no such host";
    assert_no_start(&config, CL_ERR_ARG, "no such host");
    config = base_config();
    config.n_threads = 0;
    assert_no_start(&config, CL_ERR_ARG, "n_threads");
    config = base_config();
    config.generation_timeout_s = -1;
    assert_no_start(&config, CL_ERR_ARG, "generation_timeout_s is -1");
    config = base_config();
    config.queue_timeout_s = -1;
    assert_no_start(&config, CL_ERR_ARG, "queue_timeout_s is -1");
    config = base_config();
    config.model_name = "x\xe9";
    assert_no_start(&config, CL_ERR_ARG, "model_name is not UTF-8 at byte 1");
    config = base_config();
    config.keys = &(server_keys){0}; /* no client could send one */
    assert_no_start(&config, CL_ERR_ARG, "keys has no key");
    static const char *const no_origins[] = {"", "a\r\nb", "a\tb"};
    for (int i = 0; i < 3; i++) { /* a header with these could not be sent, so there would be no answer */
        config = base_config();
        config.cors_origin = no_origins[i];
        assert_no_start(&config, CL_ERR_ARG, "cors_origin is empty or contains");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(chat_answers, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(metrics_count, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(completions_take_every_prompt_form, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(streams_end_with_done, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(each_chunk_may_report_the_usage_so_far, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(errors_have_openais_shape, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_stream_that_fails_says_so, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_full_queue_is_refused_with_429, set_up_busy, tear_down),
        cmocka_unit_test_setup_teardown(a_request_that_waits_too_long_is_refused_with_429, set_up_crowded, tear_down),
        cmocka_unit_test_setup_teardown(a_request_that_takes_too_long_is_ended_with_504, set_up_hurried, tear_down),
        cmocka_unit_test_setup_teardown(stopping_reports_an_error_to_clients, set_up_slow, tear_down),
        cmocka_unit_test_setup_teardown(a_port_in_use_is_refused, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(bad_settings_are_refused, set_up_fast, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
