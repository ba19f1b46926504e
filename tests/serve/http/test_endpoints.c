/* The endpoints beside text: readiness and loading, and tokens. */
#include "tests/support/wait.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "serve/protocol/dialect.h"
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
    expect_reply(f->port, "POST", "/v1/messages/count_tokens", "{\"messages\":[{\"role\":\"user\",\"content\":\"abc\"}]}", 200,
                 "{\"input_tokens\":4}");
    expect_reply(f->port, "GET", "/tokenizer_info", NULL, 200, "\"eos_token\":\"</s>\"");
    fake_hold_steps(false);
    assert_refused(f->port, "POST", "/tokenize", "{", 400, NULL, "not valid JSON");
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

/* ---- llama-server's ---- */

static void its_paths_are_answered(void **state) {
    const fixture *f = *state;
    static const char *const paths[] = {"/completion", "/completions"}, *const vectors[] = {"/embedding", "/embeddings"};
    for (size_t i = 0; i < 2; i++) {
        expect_reply(f->port, "POST", paths[i], "{\"prompt\":\"ab\",\"n_predict\":2}", 200, "\"content\":\"ab\"");
        expect_reply(f->port, "POST", vectors[i], "{\"content\":\"ab\"}", 200, "[{\"index\":0,\"embedding\":[[");
    }
    expect_reply(f->port, "POST", "/apply-template", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", 200,
                 "{\"prompt\":\"a</s>\"}");
    expect_reply(f->port, "POST", "/chat/completions",
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1}", 200,
                 "\"object\":\"chat.completion\"");
    expect_reply(f->port, "GET", "/props", NULL, 200, "\"chat_template\":\"{{ messages }}\"");
    expect_reply(f->port, "GET", "/slots", NULL, 200, "[{\"id\":0,\"n_ctx\":4096,\"is_processing\":false}");
    expect_reply(f->port, "GET", "/models", NULL, 200, "\"data\":[");
    expect_reply(f->port, "GET", "/v1/health", NULL, 200, "ok");
    expect_reply(f->port, "GET", "/completion", NULL, 405, "POST");
    expect_reply(f->port, "POST", "/props", "{}", 405, "GET");
    assert_refused(f->port, "POST", "/infill", "{\"input_prefix\":\"a\"}", 400, "input_suffix", "fill gaps");
}

/* ---- Ollama's ---- */

static void ollamas_paths_are_answered(void **state) {
    const fixture *f = *state;
    static const char chat[] = "{\"model\":\"x\",\"stream\":false,\"options\":{\"num_predict\":1},"
                               "\"messages\":[{\"role\":\"user\",\"content\":\"ab\"}]}";
    expect_reply(f->port, "POST", "/api/chat", chat, 200,
                 "\"message\":{\"role\":\"assistant\",\"content\":\"a\"},\"done\":true");
    expect_reply(f->port, "POST", "/api/generate",
                 "{\"prompt\":\"ab\",\"raw\":true,\"stream\":false,\"options\":{\"num_predict\":2}}", 200,
                 "\"response\":\"ab\",\"done\":true,\"done_reason\":\"length\"");
    expect_reply(f->port, "POST", "/api/embed", "{\"input\":[\"ab\",\"c\"]}", 200, "\"embeddings\":[[");
    expect_reply(f->port, "POST", "/api/embeddings", "{\"prompt\":\"ab\"}", 200, "{\"embedding\":[");
    expect_reply(f->port, "POST", "/api/show", "{\"model\":\"x\"}", 200, "\"model_info\":{\"general.architecture\"");
    expect_reply(f->port, "GET", "/api/tags", NULL, 200, "{\"models\":[{\"name\":\"fake \\\"model\\\":latest\"");
    expect_reply(f->port, "GET", "/api/ps", NULL, 200, "\"context_length\":4096");
    expect_reply(f->port, "GET", "/api/version", NULL, 200, "{\"version\":\"" OLLAMA_VERSION "\"}");
    expect_reply(f->port, "GET", "/api/chat", NULL, 405, "{\"error\":\"GET is not allowed for /api/chat; use POST\"}");
    expect_reply(f->port, "POST", "/api/chat", "{\"messages\":5}", 400, "{\"error\":\"'messages' must be an array");
}

/* Lines of JSON, unless the request says otherwise; one that only asks for the model is answered by an object. */
static void ollamas_streams_are_lines(void **state) {
    const fixture *f = *state;
    static const char *const ends[] = {"\"done_reason\":\"length\"", "\"done_reason\":\"load\""},
                             *const types[] = {"\r\nContent-Type: application/x-ndjson\r\n",
                                               "\r\nContent-Type: application/json\r\n"},
                             *const bodies[] = {"{\"prompt\":\"ab\",\"options\":{\"num_predict\":2}}", "{\"model\":\"x\"}"};
    for (size_t i = 0; i < 2; i++) {
        const int fd = client_connect(f->port);
        client_send_last(fd, "POST", "/api/generate", bodies[i]);
        char *text = client_read_all(fd);
        assert_non_null(strstr(text, types[i]));
        assert_non_null(strstr(text, ends[i]));
        assert_true((strstr(text, "\"response\":\"a\",\"done\":false}\n{") != NULL) == (i == 0));
        free(text);
        close(fd);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_server_that_loads_says_so, set_up_loading, tear_down),
        cmocka_unit_test_setup_teardown(a_request_that_began_before_is_refused, set_up_loading, tear_down),
        cmocka_unit_test_setup_teardown(a_server_that_never_served_stops, set_up_loading, tear_down),
        cmocka_unit_test_setup_teardown(tokens_are_answered_without_the_engine, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(tokenizing_holds_up_no_connection, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(its_paths_are_answered, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(ollamas_paths_are_answered, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(ollamas_streams_are_lines, set_up_fast, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
