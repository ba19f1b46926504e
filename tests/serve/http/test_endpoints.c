/* The endpoints beside text: readiness and loading, tokens, embeddings, and the description of the API. */
#include "tests/support/wait.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "server_fixture.h"
#include "tests/serve/protocol/fake.h"

static void expect_reply(uint16_t port, const char *method, const char *path, const char *body, int status, const char *text) {
    char *reply;
    const int got = client_call(port, method, path, body, &reply);
    if (got != status || !strstr(reply, text)) fail_msg("%s %s: %d <%s>", method, path, got, reply);
    free(reply);
}

/* ---- Loading ---- */

/* A server that loads. */
static int set_up_loading(void **state) {
    fixture *f = calloc(1, sizeof *f);
    server_config config = base_config();
    cl_error error;
    if (server_keys_add(&f->keys, OPENAI_DEFAULT_TENANT, "secret", NULL) != CL_OK) return -1;
    config.keys = &f->keys;
    config.n_threads = 1;
    f->engine = fake_engine_create(&(fake_config){.step_us = 200, .max_running = 4, .prefill_steps = 1, .n_ctx = 4096});
    if (server_start(&config, &f->running, &error) != CL_OK) return -1;
    f->port = server_port(f->running);
    *state = f;
    return 0;
}

static const char authorized[] = "GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n\r\n";

static void a_server_that_loads_says_so(void **state) {
    fixture *f = *state;
    expect_reply(f->port, "GET", "/livez", NULL, 200, "\"ok\"");
    expect_reply(f->port, "GET", "/version", NULL, 200, cl_version());
    expect_reply(f->port, "GET", "/metrics", NULL, 200, "vllm:num_requests_running{model_name=\"fake \\\"model\\\"\"} 0");
    expect_reply(f->port, "GET", "/openapi.json", NULL, 200, "\"openapi\"");
    expect_reply(f->port, "GET", "/", NULL, 200, "POST /v1/embeddings");
    expect_reply(f->port, "GET", "/readyz", NULL, 503, "\"code\":\"model_loading\"");
    expect_reply(f->port, "GET", "/health", NULL, 503, "Loading model");
    expect_reply(f->port, "GET", "/v1/models", NULL, 401, "invalid_api_key");
    expect_reply(f->port, "GET", "/nowhere", NULL, 404, "not_found");
    expect_reply(f->port, "POST", "/v1/completions", "{\"prompt\":\"a\"}", 401, "invalid_api_key");
    const int fd = client_connect(f->port);
    client_send_bytes(fd, authorized, strlen(authorized));
    char *text = client_read_until(fd, "model_loading");
    assert_non_null(strstr(text, "HTTP/1.1 503"));
    assert_non_null(strstr(text, "Retry-After: 5"));
    free(text);

    server_serve(f->running, f->engine, fake_model(), fake_chat(), NULL);
    expect_reply(f->port, "GET", "/readyz", NULL, 200, "\"ok\"");
    expect_reply(f->port, "GET", "/health", NULL, 200, "\"ok\"");
    client_send_bytes(fd, authorized, strlen(authorized)); /* on the connection from before */
    text = client_read_until(fd, "max_model_len");
    assert_non_null(strstr(text, "HTTP/1.1 200"));
    free(text);
    close(fd);
}

/* Its body was not kept. */
static void a_request_that_began_before_is_refused(void **state) {
    fixture *f = *state;
    static const char head[] = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n"
                               "Content-Length: 29\r\n\r\n{\"prompt\":\"abc\",";
    const int fd = client_connect(f->port);
    client_send_bytes(fd, head, strlen(head));
    WAIT_UNTIL(server_n_requests(f->running) == 1);
    expect_reply(f->port, "GET", "/livez", NULL, 200, "ok"); /* by the only thread, so it has handled the head */
    server_serve(f->running, f->engine, fake_model(), fake_chat(), NULL);
    client_send_bytes(fd, "\"max_tokens\":1}", 13);
    char *text = client_read_until(fd, "model_loading");
    assert_non_null(strstr(text, "HTTP/1.1 503"));
    free(text);
    close(fd);
}

static void a_server_that_never_served_stops(void **state) {
    fixture *f = *state;
    server_stop(&f->running);
    assert_null(f->running);
    assert_int_equal(client_connect(f->port), -1);
}

/* ---- Tokens ---- */

static void tokens_are_answered_without_the_engine(void **state) {
    const fixture *f = *state;
    fake_hold_steps(true);
    expect_reply(f->port, "POST", "/tokenize", "{\"prompt\":\"ab\"}", 200,
                 "{\"count\":2,\"max_model_len\":4096,\"tokens\":[97,98],\"token_strs\":null}");
    expect_reply(f->port, "POST", "/tokenize", "{\"content\":\"ab\"}", 200, "{\"tokens\":[97,98]}");
    expect_reply(f->port, "POST", "/detokenize", "{\"tokens\":[97,98]}", 200, "{\"prompt\":\"ab\",\"content\":\"ab\"}");
    expect_reply(f->port, "POST", "/v1/chat/completions/render", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", 200,
                 "\"token_ids\":[97,257]");
    expect_reply(f->port, "POST", "/v1/completions/render", "{\"prompt\":[[1],[2]]}", 200, "\"token_ids\":[2]");
    expect_reply(f->port, "GET", "/tokenizer_info", NULL, 200, "\"eos_token\":\"</s>\"");
    fake_hold_steps(false);
    assert_refused(f->port, "POST", "/tokenize", "{\"prompt\":1}", 400, "prompt", "must be a string");
    assert_refused(f->port, "POST", "/tokenize", "{", 400, NULL, "not valid JSON");
    assert_refused(f->port, "POST", "/detokenize", "{\"tokens\":[999]}", 400, "tokens[0]", "0 to 257");
    assert_refused(f->port, "GET", "/tokenize", NULL, 405, NULL, "use POST");
}

/* While a text is tokenized, the thread of its connection answers others, and the client may hang up. */
static void tokenizing_holds_up_no_connection(void **state) {
    const fixture *f = *state;
    fake_hold_text(true);
    int fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = client_connect(f->port);
        client_send(fds[i], "POST", "/tokenize", "{\"prompt\":\"ab\"}");
    }
    fake_wait_for_text();
    for (int i = 0; i < 4; i++) expect_reply(f->port, "GET", "/v1/models", NULL, 200, "max_model_len");
    close(fds[0]);
    fake_hold_text(false);
    for (int i = 1; i < 4; i++) {
        char *text = client_read_until(fds[i], "token_strs");
        assert_non_null(strstr(text, "\"count\":2"));
        free(text);
        close(fds[i]);
    }
}

/* ---- Embeddings ---- */

static void embeddings_answer(void **state) {
    const fixture *f = *state;
    json_t *reply;
    assert_int_equal(
        client_call_json(f->port, "POST", "/v1/embeddings", "{\"input\":[\"abc\",[7,8]],\"pooling\":\"mean\"}", &reply), 200);
    double a[3], b[3];
    int total;
    assert_unpack(reply, "{s:[{s:[F, F, F!]}, {s:[F, F, F!]}!], s:{s:i}}", "data", "embedding", &a[0], &a[1], &a[2],
                  "embedding", &b[0], &b[1], &b[2], "usage", "total_tokens", &total);
    /* Tokens, last token and pooling, by the fake engine. */
    assert_true(fabs(a[0] / a[2] - 3.0 / CL_ENGINE_POOL_MEAN) < 1e-6 && fabs(a[1] / a[0] - 'c' / 3.0) < 1e-4);
    assert_true(fabs(b[0] / b[2] - 2.0 / CL_ENGINE_POOL_MEAN) < 1e-6 && fabs(b[1] / b[0] - 8 / 2.0) < 1e-4);
    assert_int_equal(total, 5);
    json_decref(reply);
    assert_refused(f->port, "POST", "/v1/embeddings", "{\"input\":\"a!\"}", 503, NULL, "the fake engine fails");
    assert_refused(f->port, "POST", "/v1/embeddings", "{}", 400, "input", "missing");
}

/* ---- The page ---- */

/* The reply to a GET with one more header, head and body. */
static char *get_with(uint16_t port, const char *path, const char *header) {
    char request[512];
    const int size = snprintf(request, sizeof request, "GET %s HTTP/1.0\r\nHost: x\r\n%s\r\n\r\n", path, header);
    const int fd = client_connect(port);
    client_send_bytes(fd, request, (size_t)size);
    char *text = client_read_all(fd);
    close(fd);
    return text;
}

static const char as_browser[] = "Accept: text/html,application/xhtml+xml,*/*;q=0.8";

static void expect_in_reply(uint16_t port, const char *path, const char *header, const char *const *wanted, size_t n) {
    char *text = get_with(port, path, header);
    for (size_t i = 0; i < n; i++)
        if (!strstr(text, wanted[i])) fail_msg("GET %s, %s: no <%s> in <%.1000s>", path, header, wanted[i], text);
    free(text);
}
#define EXPECT_IN_REPLY(port, path, header, ...)                                                                               \
    expect_in_reply(port, path, header, (const char *const[]){__VA_ARGS__},                                                    \
                    sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* Browsers get the page at /, also without the key that the API needs; other clients get the list of endpoints. */
static void browsers_get_the_page(void **state) {
    const fixture *f = *state;
    EXPECT_IN_REPLY(f->port, "/", as_browser, " 200 ", "Content-Type: text/html; charset=utf-8", "<!DOCTYPE html>",
                    "web/app.js", "Content-Security-Policy: default-src 'none'; script-src 'self';",
                    "X-Content-Type-Options: nosniff", "Vary: Accept", "Cache-Control: no-cache");
    EXPECT_IN_REPLY(f->port, "/", "Accept: */*", " 200 ", "Content-Type: text/plain", "GET /web/ID\n");
    EXPECT_IN_REPLY(f->port, "/web/app.js", "Accept: */*", " 200 ", "Content-Type: text/javascript; charset=utf-8",
                    "start_chat", "Content-Security-Policy: default-src 'none'");
    EXPECT_IN_REPLY(f->port, "/web/style.css", "Accept: */*", " 200 ", "Content-Type: text/css; charset=utf-8", "--accent");
    EXPECT_IN_REPLY(f->port, "/web/icon.svg", "Accept: */*", " 200 ", "Content-Type: image/svg+xml");
    EXPECT_IN_REPLY(f->port, "/web/index.html", as_browser, " 404 ", "there is no endpoint /web/index.html");
    EXPECT_IN_REPLY(f->port, "/web/../server/openapi.json", as_browser, " 404 ");
}

static void a_browser_that_has_a_file_is_not_sent_it_again(void **state) {
    const fixture *f = *state;
    char header[64];
    char *text = get_with(f->port, "/web/app.js", "Accept: */*");
    const char *etag = strstr(text, "ETag: \"");
    assert_non_null(etag);
    snprintf(header, sizeof header, "If-None-Match: %.18s", etag + strlen("ETag: "));
    free(text);
    text = get_with(f->port, "/web/app.js", header);
    assert_non_null(strstr(text, " 304 "));
    assert_null(strstr(text, "start_chat"));
    free(text);
    EXPECT_IN_REPLY(f->port, "/web/style.css", header, " 200 ", "--accent");
}

static int set_up_without_page(void **state) {
    fixture *f = calloc(1, sizeof *f);
    server_config config = base_config();
    cl_error error;
    config.no_page = true;
    f->engine = fake_engine_create(&(fake_config){.step_us = 200, .max_running = 4, .prefill_steps = 1, .n_ctx = 4096});
    if (server_start(&config, &f->running, &error) != CL_OK) return -1;
    f->port = server_port(f->running);
    *state = f;
    return 0;
}

static void a_server_without_the_page_has_none_of_it(void **state) {
    const fixture *f = *state;
    char *text = get_with(f->port, "/", as_browser);
    assert_non_null(strstr(text, "Content-Type: text/plain"));
    assert_non_null(strstr(text, "GET /openapi.json\n"));
    assert_null(strstr(text, "/web/"));
    free(text);
    EXPECT_IN_REPLY(f->port, "/web/app.js", as_browser, " 404 ", "not_found");
}

/* ---- Methods ---- */

static void a_wrong_method_learns_of_the_right_ones(void **state) {
    const fixture *f = *state;
    const int fd = client_connect(f->port);
    client_send_last(fd, "PUT", "/v1/models", NULL);
    char *text = client_read_all(fd);
    assert_non_null(strstr(text, "Allow: GET, HEAD\r\n"));
    assert_non_null(strstr(text, "use GET, HEAD"));
    free(text);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_server_that_loads_says_so, set_up_loading, tear_down),
        cmocka_unit_test_setup_teardown(a_request_that_began_before_is_refused, set_up_loading, tear_down),
        cmocka_unit_test_setup_teardown(a_server_that_never_served_stops, set_up_loading, tear_down),
        cmocka_unit_test_setup_teardown(tokens_are_answered_without_the_engine, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(tokenizing_holds_up_no_connection, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(embeddings_answer, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(browsers_get_the_page, set_up_guarded, tear_down),
        cmocka_unit_test_setup_teardown(a_browser_that_has_a_file_is_not_sent_it_again, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_server_without_the_page_has_none_of_it, set_up_without_page, tear_down),
        cmocka_unit_test_setup_teardown(a_wrong_method_learns_of_the_right_ones, set_up_fast, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
