/* Responses and Anthropic's Messages over HTTP: answers, streams, errors, keys, and counting. */
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "server_fixture.h"
#include "tests/serve/protocol/fake.h"

#define INPUT    "\"input\":\"abc\",\"max_output_tokens\":3"
#define MESSAGES "\"messages\":[{\"role\":\"user\",\"content\":\"abc\"}],\"max_tokens\":3"

/* A header of a request to `path`, which is sent as it is; the answer begins and contains this. */
static void assert_answered(uint16_t port, const char *header, const char *path, const char *body, const char *begins,
                            const char *has) {
    char request[512];
    const int fd = client_connect(port);
    snprintf(request, sizeof request,
             "POST %s HTTP/1.1\r\nHost: test\r\nConnection: close\r\n%sContent-Type: application/json\r\nContent-Length: "
             "%zu\r\n\r\n%s",
             path, header, strlen(body), body);
    client_send_bytes(fd, request, strlen(request));
    char *text = client_read_all(fd);
    if (strncmp(text, begins, strlen(begins)) != 0 || !strstr(text, has)) fail_msg("<%s>: <%s>", request, text);
    free(text);
    close(fd);
}

/* ---- Answers ---- */

static void whole_answers(void **state) {
    const fixture *f = *state;
    json_t *reply;
    const char *text, *status;
    assert_int_equal(client_call_json(f->port, "POST", "/v1/responses", "{" INPUT "}", &reply), 200);
    assert_unpack(reply, "{s:s, s:[{s:[{s:s}]}]}", "status", &status, "output", "content", "text", &text);
    assert_string_equal(status, "incomplete");
    assert_string_equal(text, "abc");
    json_decref(reply);
    json_int_t input, cached;
    assert_int_equal(client_call_json(f->port, "POST", "/v1/messages?beta=true", "{" MESSAGES "}", &reply), 200);
    assert_unpack(reply, "{s:s, s:[{s:s}], s:{s:I, s:I}}", "stop_reason", &status, "content", "text", &text, "usage",
                  "input_tokens", &input, "cache_read_input_tokens", &cached);
    assert_string_equal(status, "max_tokens");
    assert_string_equal(text, "abc");
    assert_true(input == 2 && cached == 2); /* the fake engine has half of each prompt */
    json_decref(reply);
}

/* The text of a stream, up to its end. */
static char *stream_of(uint16_t port, const char *path, const char *body) {
    const int fd = client_connect(port);
    client_send_last(fd, "POST", path, body);
    char *text = client_read_all(fd);
    close(fd);
    assert_non_null(strstr(text, "Content-Type: text/event-stream"));
    return text;
}

/* These must be in the text in this order, ended by NULL. */
static void assert_order(const char *text, const char *const *parts) {
    const char *at = text;
    for (; *parts; parts++) {
        const char *found = strstr(at, *parts);
        if (!found) fail_msg("%s is not there, or too early: %s", *parts, text);
        at = found ? found + strlen(*parts) : at;
    }
}

static void streams(void **state) {
    const fixture *f = *state;
    static const char *const responses[] = {
        "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,",
        "event: response.in_progress\ndata: {",
        "event: response.output_text.delta\ndata: {",
        "\"delta\":\"a\"",
        "event: response.output_text.done\ndata: {",
        "\"text\":\"abc\"",
        "event: response.incomplete\ndata: {",
        NULL,
    };
    static const char *const messages[] = {
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{",
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        "event: content_block_start\n",
        "\"text_delta\",\"text\":\"a\"",
        "event: content_block_stop\n",
        "event: message_delta\ndata: {",
        "\"stop_reason\":\"max_tokens\"",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        NULL,
    };
    char *text = stream_of(f->port, "/v1/responses", "{" INPUT ",\"stream\":true}");
    assert_order(text, responses);
    assert_null(strstr(text, "[DONE]"));
    free(text);
    text = stream_of(f->port, "/v1/messages", "{" MESSAGES ",\"stream\":true}");
    assert_order(text, messages);
    free(text);
}

/* The fake engine fails at a prompt with '!'. */
static void streams_that_fail(void **state) {
    const fixture *f = *state;
    static const char *const responses[] = {"event: response.created\n", "event: response.failed\n", "\"status\":\"failed\"",
                                            "the fake engine fails", NULL};
    static const char *const messages[] = {"event: message_start\n",
                                           "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
                                           "\"message\":\"the fake engine fails",
                                           NULL};
    char *text = stream_of(f->port, "/v1/responses", "{\"input\":\"a!\",\"stream\":true}");
    assert_order(text, responses);
    free(text);
    text = stream_of(f->port, "/v1/messages", "{\"messages\":[{\"role\":\"user\",\"content\":\"a!\"}],\"stream\":true}");
    assert_order(text, messages);
    free(text);
}

/* Tokens are counted without the engine, whose steps are held. */
static void tokens_are_counted_at_once(void **state) {
    const fixture *f = *state;
    json_t *reply;
    json_int_t n;
    fake_hold_steps(true);
    assert_int_equal(client_call_json(f->port, "POST", "/v1/messages/count_tokens", "{" MESSAGES "}", &reply), 200);
    fake_hold_steps(false);
    assert_unpack(reply, "{s:I!}", "input_tokens", &n);
    assert_int_equal(n, 4); /* the fake format adds a token */
    json_decref(reply);
}

/* ---- Errors and keys ---- */

static void errors_have_the_shape_of_the_api(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *path, *body, *begins, *has;
    } cases[] = {
        {"/v1/messages", "{", "HTTP/1.1 400", "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"},
        {"/v1/messages", "{}", "HTTP/1.1 400", "'messages' must be an array"},
        {"/v1/messages/count_tokens", "{}", "HTTP/1.1 400",
         "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\""},
        {"/v1/responses", "{}", "HTTP/1.1 400", "\"type\":\"invalid_request_error\",\"param\":\"input\",\"code\":null}"},
        {"/v1/messages/batches", "{}", "HTTP/1.1 404", "\"code\":\"not_found\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_answered(f->port, "", cases[i].path, cases[i].body, cases[i].begins, cases[i].has);
    char *reply;
    assert_int_equal(client_call(f->port, "GET", "/v1/messages", NULL, &reply), 405);
    assert_non_null(strstr(reply, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\""));
    free(reply);
}

static void the_key_may_be_sent_as_anthropics_clients_do(void **state) {
    const fixture *f = *state;
    static const struct {
        const char *header, *begins, *has;
    } cases[] = {
        {"", "HTTP/1.1 401",
         "{\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"this server requires"},
        {"x-api-key: secret\r\n", "HTTP/1.1 200", "\"stop_reason\""},
        {"X-Api-Key: secret\r\nAuthorization: Bearer another\r\n", "HTTP/1.1 200", "\"stop_reason\""},
        {"x-api-key: another\r\nAuthorization: Bearer secret\r\n", "HTTP/1.1 200", "\"stop_reason\""},
        {"x-api-key: secret2\r\n", "HTTP/1.1 401", "authentication_error"},
        {"x-api-key: Bearer secret\r\n", "HTTP/1.1 401", "authentication_error"},
        {"x-api-key:\r\n", "HTTP/1.1 401", "authentication_error"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_answered(f->port, cases[i].header, "/v1/messages", "{" MESSAGES "}", cases[i].begins, cases[i].has);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whole_answers, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(streams, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(streams_that_fail, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(tokens_are_counted_at_once, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(errors_have_the_shape_of_the_api, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(the_key_may_be_sent_as_anthropics_clients_do, set_up_guarded, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
