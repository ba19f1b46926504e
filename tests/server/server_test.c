/* The HTTP server over the fake engine: answers, streams, errors, clients that hang up, and the end. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "client.h"
#include "fake.h"
#include "server/server.h"

typedef struct fixture {
    engine *engine;
    server *server;
    uint16_t port;
} fixture;

static int set_up_with(void **state, const server_config *config, const fake_config *fake) {
    fixture *f = calloc(1, sizeof *f);
    cl_error error;
    f->engine = fake_engine_create(fake);
    if (server_start(config, f->engine, fake_model(), &f->server, &error) != CL_OK) {
        print_error("%s\n", error.message);
        return -1;
    }
    f->port = server_port(f->server);
    *state = f;
    return 0;
}

static const fake_config fast = {.step_us = 200, .max_running = 64, .prefill_steps = 1, .n_ctx = 4096};
static const fake_config slow = {.step_us = 5000, .max_running = 2, .prefill_steps = 1, .n_ctx = 100000};
static const fake_config long_prefill = {.step_us = 5000, .max_running = 2, .prefill_steps = 100000, .n_ctx = 4096};

static server_config base_config(void) {
    server_config config;
    server_config_init(&config, fake_model());
    config.port = 0;
    config.model_name = "fake \"model\"";
    config.max_body_bytes = 100000;
    return config;
}

static int set_up_fast(void **state) {
    const server_config config = base_config();
    return set_up_with(state, &config, &fast);
}
static int set_up_slow(void **state) {
    const server_config config = base_config();
    return set_up_with(state, &config, &slow);
}
static int set_up_long_prefill(void **state) {
    const server_config config = base_config();
    return set_up_with(state, &config, &long_prefill);
}
static int set_up_guarded(void **state) {
    server_config config = base_config();
    config.api_key = "secret";
    config.cors_origin = "*";
    return set_up_with(state, &config, &fast);
}

static int set_up_impatient(void **state) {
    server_config config = base_config();
    config.timeout_s = 1;
    return set_up_with(state, &config, &(fake_config){.step_us = 5000, .max_running = 2, .prefill_steps = 500, .n_ctx = 4096});
}

static int tear_down(void **state) {
    fixture *f = *state;
    server_stop(&f->server);
    engine_destroy(&f->engine);
    free(f);
    return 0;
}

/* Wait until a metric has this value; false after a minute, which a busy machine may need for what takes a moment. */
static bool comes_to(uint16_t port, const char *metric, double value) {
    for (int i = 0; i < 6000; i++) {
        if (client_metric(port, metric) == value) return true;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return false;
}

/* json_unpack that fails the test, naming what did not fit. */
#define assert_unpack(json, ...)                                                                                               \
    do {                                                                                                                       \
        json_error_t at_;                                                                                                      \
        if (json_unpack_ex(json, &at_, 0, __VA_ARGS__) != 0) fail_msg("%s", at_.text);                                         \
    } while (0)

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
        {"vllm:time_to_first_token_seconds_count", 4},
        {"vllm:inter_token_latency_seconds_count", 16}, /* two for each of eight choices */
        {"vllm:e2e_request_latency_seconds_count", 4},
        {"vllm:e2e_request_latency_seconds_bucket{model_name=\"fake \\\"model\\\"\",le=\"+Inf\"}", 4},
        {"vllm:request_success_total{model_name=\"fake \\\"model\\\"\",finished_reason=\"length\"}", 4},
        {"vllm:request_success_total{model_name=\"fake \\\"model\\\"\",finished_reason=\"stop\"}", 0},
    };
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        if (!comes_to(f->port, samples[i].name, samples[i].value))
            fail_msg("%s is %g", samples[i].name, client_metric(f->port, samples[i].name));
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

static void streams_end_with_done(void **state) {
    const fixture *f = *state;
    const int fd = client_connect(f->port);
    client_send(fd, "POST", "/v1/chat/completions",
                "{\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}],\"max_tokens\":2,\"stream\":true,"
                "\"stream_options\":{\"include_usage\":true}}");
    char *text = client_read_until(fd, "[DONE]");
    assert_non_null(strstr(text, "Content-Type: text/event-stream"));
    const char *parts[] = {
        "\"object\":\"chat.completion.chunk\"",
        "\"delta\":{\"role\":\"assistant\",\"content\":\"a\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null",
        "\"delta\":{\"content\":\"b\"}",
        "\"delta\":{},\"logprobs\":null,\"finish_reason\":\"length\"",
        "\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2",
        "data: [DONE]"};
    const char *at = text;
    for (size_t i = 0; at && i < sizeof parts / sizeof *parts; i++) {
        at = strstr(at, parts[i]);
        if (!at) print_error("no %s in %s", parts[i], text);
    }
    assert_non_null(at);
    free(text);
    /* The connection serves on. */
    client_send(fd, "GET", "/health", NULL);
    text = client_read_until(fd, "ok");
    assert_non_null(strstr(text, "200 OK"));
    free(text);
    close(fd);
}

static void each_chunk_may_tell_the_usage_so_far(void **state) {
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
    const char *at = text;
    for (size_t i = 0; at && i < sizeof parts / sizeof *parts; i++) {
        at = strstr(at, parts[i]);
        if (!at) print_error("no %s in %s", parts[i], text);
    }
    assert_non_null(at);
    free(text);
    close(fd);
}

/* Status and error object of a refused request. */
static void assert_refused(uint16_t port, const char *method, const char *path, const char *body, int status, const char *param,
                           const char *in_message) {
    json_t *reply;
    const int got = client_call_json(port, method, path, body, &reply);
    if (got != status) fail_msg("%s %s: status %d, not %d", path, body ? body : "", got, status);
    const char *message, *type;
    const json_t *param_json, *code;
    assert_unpack(reply, "{s:{s:s, s:s, s:o, s:o!}!}", "error", "message", &message, "type", &type, "param", &param_json,
                  "code", &code);
    if (!strstr(message, in_message)) fail_msg("'%s' does not say '%s'", message, in_message);
    if (param)
        assert_string_equal(json_string_value(param_json), param);
    else
        assert_true(json_is_null(param_json));
    json_decref(reply);
}

static void errors_have_openais_shape(void **state) {
    const fixture *f = *state;
    const char *chat = "/v1/chat/completions", *completions = "/v1/completions";
    assert_refused(f->port, "GET", "/nowhere", NULL, 404, NULL, "/nowhere");
    assert_refused(f->port, "GET", chat, NULL, 405, NULL, "use POST");
    assert_refused(f->port, "POST", "/health", "{}", 405, NULL, "use GET");
    assert_refused(f->port, "GET", "/v1/models/other", NULL, 404, "model", "other");
    assert_refused(f->port, "POST", chat, "", 400, NULL, "not valid JSON");
    assert_refused(f->port, "POST", chat, "{\"messages\": [}", 400, NULL, "line 1, column 15");
    assert_refused(f->port, "POST", chat, "[]", 400, NULL, "must be a JSON object");
    assert_refused(f->port, "POST", completions, "{\"prompt\":\"abc\",\"max_tokens\":5000}", 400, NULL, "4096");
    assert_refused(f->port, "POST", completions, "{\"prompt\":\"abc\",\"temperature\":3}", 400, "temperature", "from 0 to 2");
    assert_refused(f->port, "POST", completions, "{\"prompt\":[\"ok\",\"fails!\"],\"max_tokens\":1}", 500, NULL,
                   "told to fail");
    char *large = malloc(200001);
    memset(large, ' ', 200000);
    large[200000] = '\0';
    assert_refused(f->port, "POST", chat, large, 413, NULL, "100000 bytes");
    free(large);
    json_t *reply;
    assert_int_equal(client_call_json(f->port, "GET", "/v1/models", NULL, &reply), 200);
    json_decref(reply);
    assert_true(comes_to(f->port, "vllm:num_requests_running", 0));
}

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

/* Ask whether to send a body (Expect: 100-continue), and read until `until` has come. */
static void assert_told(uint16_t port, const char *target, int length, const char *status, const char *until) {
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

static void a_client_that_asks_first_is_told_at_once(void **state) {
    const fixture *f = *state;
    assert_told(f->port, "POST /v1/completions", 200000, "HTTP/1.1 413", "request_too_large");
    assert_told(f->port, "POST /nowhere", 2, "HTTP/1.1 404", "not_found");
    assert_told(f->port, "POST /health", 2, "HTTP/1.1 405", "use GET");
    assert_told(f->port, "PUT /v1/completions", 2, "HTTP/1.1 405", "use POST");
    assert_told(f->port, "GET /health", 2, "HTTP/1.1 200", "\"ok\"");
    assert_told(f->port, "POST /v1/completions", 2, "HTTP/1.1 100", "\r\n\r\n");
}

/* A body that nobody will read is dropped, and neither the answer nor the connection suffers from it. */
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

static void a_stream_that_fails_says_so(void **state) {
    const fixture *f = *state;
    char *text;
    assert_int_equal(client_call(f->port, "POST", "/v1/completions", "{\"prompt\":\"a!\",\"stream\":true}", &text), 200);
    assert_non_null(
        strstr(text, "data: {\"error\":{\"message\":\"the fake engine was told to fail\",\"type\":\"server_error\""));
    free(text);
}

static void the_key_is_wanted(void **state) {
    const fixture *f = *state;
    char *text;
    assert_refused(f->port, "GET", "/v1/models", NULL, 401, NULL, "API key");
    assert_refused(f->port, "POST", "/v1/completions", "{}", 401, NULL, "API key");
    assert_told(f->port, "POST /v1/completions", 2, "HTTP/1.1 401", "API key");
    assert_int_equal(client_call(f->port, "GET", "/health", NULL, &text), 200);
    free(text);
    static const struct {
        const char *key;
        const char *status;
    } cases[] = {{"secret", "HTTP/1.1 200"}, {"secret2", "HTTP/1.1 401"}, {"secreT", "HTTP/1.1 401"}, {"", "HTTP/1.1 401"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int fd = client_connect(f->port);
        char request[200];
        snprintf(request, sizeof request,
                 "GET /v1/models HTTP/1.1\r\nHost: test\r\nConnection: close\r\nAuthorization: Bearer %s\r\n\r\n",
                 cases[i].key);
        assert_int_equal(write(fd, request, strlen(request)), strlen(request));
        text = client_read_all(fd);
        assert_memory_equal(text, cases[i].status, strlen(cases[i].status));
        assert_non_null(strstr(text, "Access-Control-Allow-Origin: *"));
        free(text);
        close(fd);
    }
}

/* Send `request` as it is, and expect an answer that begins and goes on so, before the server closes. */
static void assert_answered(uint16_t port, const char *request, const char *begins, const char *has) {
    const int fd = client_connect(port);
    assert_int_equal(write(fd, request, strlen(request)), strlen(request));
    char *text = client_read_all(fd);
    if (strncmp(text, begins, strlen(begins)) != 0 || !strstr(text, has)) fail_msg("<%s>: <%s>", request, text);
    free(text);
    close(fd);
}

static void the_scheme_of_a_key_has_no_case(void **state) {
    const fixture *f = *state;
    const char *const path = "GET /v1/models HTTP/1.1\r\nHost: test\r\nConnection: close\r\n";
    char request[200];
    static const char *const good[] = {"bearer secret", "BEARER  secret"}, *const bad[] = {"Basic secret", "Bearersecret"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(request, sizeof request, "%sAuthorization: %s\r\n\r\n", path, good[i]);
        assert_answered(f->port, request, "HTTP/1.1 200", "\"object\"");
        snprintf(request, sizeof request, "%sAuthorization: %s\r\n\r\n", path, bad[i]);
        assert_answered(f->port, request, "HTTP/1.1 401", "\r\nWWW-Authenticate: Bearer\r\n");
    }
}

/* What RFC 9112 wants refused: a proxy may read it differently. */
static void ambiguous_requests_are_refused(void **state) {
    const fixture *f = *state;
#define POST "POST /v1/completions HTTP/1.1\r\n"
    static const char *const requests[] = {
        POST "Host: x\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nabcde",
        POST "Host: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        POST "Host: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    };
#undef POST
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++)
        assert_answered(f->port, requests[i], "HTTP/1.1 400", "send one Content-Length");
    assert_answered(f->port, "GET /health HTTP/1.1\r\n\r\n", "HTTP/1.1 400", "Host");
}

static void a_target_may_be_a_whole_url(void **state) {
    const fixture *f = *state;
#define REST " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    assert_answered(f->port, "GET http://any:1/health" REST "\r\n", "HTTP/1.1 200", "\"ok\"");
    assert_answered(f->port, "GET HTTPS://any/v1/models?a=b" REST "\r\n", "HTTP/1.1 200", "\"list\"");
    assert_answered(f->port, "GET http://any" REST "\r\n", "HTTP/1.1 200", "ChunkLlama");
    assert_answered(f->port,
                    "POST http://any/v1/completions" REST "Content-Length: 29\r\n\r\n{\"prompt\":\"a\",\"max_tokens\":1}",
                    "HTTP/1.1 200", "\"text\":\"a\"");
    assert_answered(f->port, "GET http://any/nowhere" REST "\r\n", "HTTP/1.1 404", "at /nowhere");
#undef REST
}

/* Browsers ask with the headers that the client's code adds; without any, those that every client sends are named. */
static void a_browser_may_send_its_clients_headers(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *asked, *allowed;
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
                 cases[i].asked);
        assert_int_equal(write(fd, request, strlen(request)), strlen(request));
        char *text = client_read_all(fd);
        assert_memory_equal(text, "HTTP/1.1 204", 12);
        assert_non_null(strstr(text, cases[i].allowed));
        free(text);
        close(fd);
    }
}

/* ---- Hanging up ---- */

static const char endless[] = "{\"prompt\":\"abc\",\"max_tokens\":90000,\"stream\":true}";
static const char endless_whole[] = "{\"prompt\":\"abc\",\"max_tokens\":90000,\"n\":2}";

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
    for (int i = 2; i < 5; i++) close(fds[i]); /* those that wait */
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

/* A client that does not read holds up nobody, and loses nothing. */
static void a_client_that_does_not_read_holds_up_nobody(void **state) {
    const fixture *f = *state;
    const int lazy = client_connect(f->port);
    client_send_last(lazy, "POST", "/v1/completions", "{\"prompt\":\"abc\",\"max_tokens\":4000,\"n\":8,\"stream\":true}");
    for (int i = 0; i < 5; i++) {
        char *text;
        assert_int_equal(client_call(f->port, "POST", "/v1/completions", "{\"prompt\":\"abc\"}", &text), 200);
        free(text);
    }
    assert_true(comes_to(f->port, "vllm:num_requests_running", 0)); /* the engine is done with it */
    char *text = client_read_until(lazy, "[DONE]");
    int n = 0;
    for (const char *at = text; (at = strstr(at, "\"text\":\"")); at += 8) n += at[8] != '"';
    assert_int_equal(n, 8 * 4000);
    free(text);
    close(lazy);
}

/* The time-out is for clients that are idle, not for those that wait for us. */
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

/* ---- While requests are read ---- */

enum { N_HELD = 8 }; /* more than the server has threads for its connections */

/* Send prompts whose text is held, one a connection that has been accepted. */
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

/* Streams and short answers go on, however many requests wait to be read; all of these are answered in the end. */
static void reading_a_request_holds_up_nobody(void **state) {
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

/* Neither those that wait nor the one that is being read reach the engine. */
static void hanging_up_before_a_request_is_read_drops_it(void **state) {
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
    assert_true(client_metric(f->port, "vllm:num_requests_running") == 0);
}

static void *stop(void *server) {
    server_stop(server);
    return NULL;
}

static void stopping_tells_clients_that_wait_to_be_read(void **state) {
    fixture *f = *state;
    int fds[N_HELD];
    pthread_t stopper;
    send_held(f->port, fds);
    fake_wait_for_text(); /* one is being read: the server waits for that, and the others arrive meanwhile */
    pthread_create(&stopper, NULL, stop, &f->server);
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

/* ---- Start and end ---- */

static void stopping_tells_the_clients(void **state) {
    fixture *f = *state;
    int fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = client_connect(f->port);
        client_send(fds[i], "POST", "/v1/completions", i % 2 ? endless : endless_whole);
    }
    assert_true(comes_to(f->port, "vllm:num_requests_running", 2));
    assert_true(comes_to(f->port, "vllm:num_requests_waiting", 2));
    server_stop(&f->server);
    for (int i = 0; i < 4; i++) {
        char *text = client_read_all(fds[i]);
        if (!strstr(text, i % 2 ? "HTTP/1.1 200" : "HTTP/1.1 503")) fail_msg("%d: <%s>", i, text);
        assert_non_null(strstr(text, "the server is shutting down"));
        free(text);
        close(fds[i]);
    }
    assert_int_equal(client_connect(f->port), -1);
}

static void a_port_in_use_is_told(void **state) {
    const fixture *f = *state;
    server *second;
    cl_error error;
    server_config config = base_config();
    config.port = f->port;
    assert_int_equal(server_start(&config, f->engine, fake_model(), &second, &error), CL_ERR_FILE);
    assert_null(second);
    assert_non_null(strstr(error.message, "in use"));
    assert_non_null(strstr(error.message, "choose another port"));
    config = base_config();
    config.host = "no such host";
    assert_int_equal(server_start(&config, f->engine, fake_model(), &second, &error), CL_ERR_ARG);
    assert_non_null(strstr(error.message, "no such host"));
    config = base_config();
    config.n_threads = 0;
    assert_int_equal(server_start(&config, f->engine, fake_model(), &second, &error), CL_ERR_ARG);
    assert_non_null(strstr(error.message, "n_threads"));
    config = base_config();
    config.model_name = "x\xe9";
    assert_int_equal(server_start(&config, f->engine, fake_model(), &second, &error), CL_ERR_ARG);
    assert_non_null(strstr(error.message, "model_name is not UTF-8 at byte 1"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(chat_answers, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(metrics_count, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(completions_take_every_prompt_form, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(streams_end_with_done, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(each_chunk_may_tell_the_usage_so_far, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(errors_have_openais_shape, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_large_chunked_body_is_refused, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_asks_first_is_told_at_once, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(an_unwanted_body_is_read_to_its_end, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_stream_that_fails_says_so, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(the_key_is_wanted, set_up_guarded, tear_down),
        cmocka_unit_test_setup_teardown(the_scheme_of_a_key_has_no_case, set_up_guarded, tear_down),
        cmocka_unit_test_setup_teardown(ambiguous_requests_are_refused, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_target_may_be_a_whole_url, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_browser_may_send_its_clients_headers, set_up_guarded, tear_down),
        cmocka_unit_test_setup_teardown(hanging_up_in_a_stream_cancels, set_up_slow, tear_down),
        cmocka_unit_test_setup_teardown(hanging_up_while_others_run_cancels, set_up_slow, tear_down),
        cmocka_unit_test_setup_teardown(hanging_up_before_the_first_token_cancels, set_up_long_prefill, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_does_not_read_holds_up_nobody, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(only_idle_clients_time_out, set_up_impatient, tear_down),
        cmocka_unit_test_setup_teardown(reading_a_request_holds_up_nobody, set_up_slow, tear_down),
        cmocka_unit_test_setup_teardown(hanging_up_before_a_request_is_read_drops_it, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(stopping_tells_clients_that_wait_to_be_read, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(many_at_once, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(stopping_tells_the_clients, set_up_slow, tear_down),
        cmocka_unit_test_setup_teardown(a_port_in_use_is_told, set_up_fast, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
