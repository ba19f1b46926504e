/* GET /cache?nodes, POST /cache/explain and POST /cache/reset, over the fake engine, whose cache retains all prompts. */
#include "tests/support/testing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "server_fixture.h"

static uint16_t port_of(void **state) { return ((fixture *)*state)->port; }

/* An answer of status 200. */
static json_t *call(uint16_t port, const char *method, const char *path, const char *body) {
    json_t *reply;
    const int status = client_call_json(port, method, path, body, &reply);
    if (status != 200) fail_msg("%s: status %d", path, status);
    return reply;
}

static void complete(uint16_t port, const char *prompt) {
    char body[400];
    snprintf(body, sizeof body, "{\"prompt\":\"%s\",\"max_tokens\":1}", prompt);
    json_decref(call(port, "POST", "/v1/completions", body));
}

static int64_t integer(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value)) fail_msg("%s is no integer", name);
    return json_integer_value(value);
}

static const char *string(const json_t *object, const char *name) {
    const char *value = json_string_value(json_object_get(object, name));
    return value ? value : "null";
}

/* Three prompts: a trunk of 22 tokens and two leaves; and another. */
static void fill(uint16_t port) {
    complete(port, "You are a pirate. Say no more.");
    complete(port, "You are a pirate. Say yes, sir.");
    complete(port, "Once upon a time");
}

static void the_tree_is_shown(void **state) {
    const uint16_t port = port_of(state);
    json_t *reply = call(port, "GET", "/cache?nodes=10", NULL);
    assert_string_equal(string(reply, "object"), "cache.nodes");
    assert_int_equal(json_array_size(json_object_get(reply, "data")), 0);
    assert_true(json_is_null(json_object_get(reply, "next")));
    json_decref(reply);
    fill(port);
    reply = call(port, "GET", "/cache?nodes=10", NULL);
    const json_t *data = json_object_get(reply, "data");
    assert_int_equal(json_array_size(data), 4);
    assert_int_equal(integer(reply, "nodes"), 4);
    assert_int_equal(integer(reply, "max_sequences"), 32);
    assert_int_equal(integer(reply, "chunk_tokens"), 64);
    const json_t *other = json_array_get(data, 0), *trunk = json_array_get(data, 1), *leaf = json_array_get(data, 2);
    assert_string_equal(string(other, "text"), "Once upon a time");
    assert_true(json_is_null(json_object_get(other, "parent")));
    assert_string_equal(string(trunk, "text"), "You are a pirate. Say ");
    assert_string_equal(string(trunk, "tenant"), "default");
    assert_string_equal(string(trunk, "state"), "retained");
    assert_int_equal(integer(trunk, "tokens"), 22);
    assert_int_equal(integer(trunk, "ready"), 22);
    assert_int_equal(integer(trunk, "chunks"), 1);
    assert_int_equal(integer(trunk, "hits"), 1);
    assert_int_equal(integer(trunk, "readers") + integer(trunk, "sequences") + integer(trunk, "pins"), 0);
    assert_true(integer(trunk, "last_use") > 1600000000);
    assert_int_equal(integer(leaf, "parent"), integer(trunk, "id"));
    assert_int_equal(integer(leaf, "position"), 22);
    const int64_t id = integer(trunk, "id");
    assert_int_equal(integer(leaf, "depth"), 1);
    json_decref(reply);
    reply = call(port, "GET", "/cache?nodes=10&text=3", NULL);
    assert_string_equal(string(json_array_get(json_object_get(reply, "data"), 1), "text"), "You");
    json_decref(reply);
    /* One node with all of its text, and those below it. */
    char path[100];
    snprintf(path, sizeof path, "/cache?nodes=10&text=1000&node=%" PRId64, id);
    reply = call(port, "GET", path, NULL);
    assert_int_equal(json_array_size(json_object_get(reply, "data")), 3);
    assert_int_equal(integer(json_array_get(json_object_get(reply, "data"), 0), "id"), id);
    assert_true(json_is_null(json_object_get(reply, "next")));
    json_decref(reply);
    reply = call(port, "GET", "/cache?nodes=10&text=0&min_tokens=9", NULL);
    data = json_object_get(reply, "data");
    assert_int_equal(json_array_size(data), 2); /* the leaves have 8 tokens at most */
    assert_null(json_object_get(json_array_get(data, 0), "text"));
    json_decref(reply);
}

static void pages_are_the_whole(void **state) {
    const uint16_t port = port_of(state);
    char path[100] = "/cache?nodes=1", stale[100];
    int n = 0;
    fill(port);
    for (bool more = true; more; n++) {
        json_t *reply = call(port, "GET", path, NULL);
        assert_int_equal(json_array_size(json_object_get(reply, "data")), 1);
        more = json_is_string(json_object_get(reply, "next"));
        memcpy(stale, path, sizeof stale);
        if (more) snprintf(path, sizeof path, "/cache?nodes=1&cursor=%s", string(reply, "next"));
        json_decref(reply);
    }
    assert_int_equal(n, 4);
    assert_refused(port, "GET", stale, NULL, 400, "cursor", "begin again without it");
}

static void wrong_parameters_are_refused(void **state) {
    const uint16_t port = port_of(state);
    static const char *const values[] = {"0",    "-1",   "4097",  "1.5", "1e3", "x", "", "%20", "+1", "99999999999999999999",
                                         "1%00", "0x10", "%F0%9F"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char path[100];
        snprintf(path, sizeof path, "/cache?nodes=%s", values[i]);
        const bool zero = strstr(values[i], "%00");
        assert_refused(port, "GET", path, NULL, 400, zero ? NULL : "nodes", zero ? "zero character" : "from 1 to 4096");
    }
    assert_refused(port, "GET", "/cache?nodes=1&text=16385", NULL, 400, "text", "from 0 to 16384");
    assert_refused(port, "GET", "/cache?nodes=4096&text=257", NULL, 400, "text", "'nodes' times 'text' is 1052672");
    assert_refused(port, "GET", "/cache?nodes=1&node=77", NULL, 404, "node", "there is no node 77");
    assert_refused(port, "GET", "/cache?nodes=1&node=0", NULL, 400, "node", "from 1 to");
    assert_refused(port, "GET", "/cache?nodes=1&node=1&cursor=1", NULL, 400, "node", "exclude each other");
    assert_refused(port, "GET", "/cache?text=on", NULL, 400, "text", "from 0 to 16384"); /* also without nodes */
    assert_refused(port, "GET", "/cache?nodes=1&min_tokens=-3", NULL, 400, "min_tokens", "'min_tokens' is '-3'");
    assert_refused(port, "GET", "/cache?nodes=1&cursor=0", NULL, 400, "cursor", "from 1 to");
    assert_refused(port, "GET", "/cache?nodes=1&cursor=12345", NULL, 400, "cursor", "does not know this cursor");
    json_decref(call(port, "GET", "/cache?other=x&nodes=1&_=123", NULL)); /* unknown ones do not count */
}

/* The reply to GET with a header; allocated. */
static char *get_with(uint16_t port, const char *path, const char *header) {
    char request[400];
    const int fd = client_connect(port);
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n", path, header);
    client_send_bytes(fd, request, strlen(request));
    return client_read_all(fd);
}

/* A page that polls gets a small answer as long as nothing has changed. */
static void what_has_not_changed_is_not_sent(void **state) {
    const uint16_t port = port_of(state);
    char header[100], tag[40];
    fill(port);
    char *reply = get_with(port, "/cache?nodes=10", "");
    while (memcmp(reply, "HTTP/1.1 200", 12) == 0) { /* a request that was answered ends a little later */
        const char *at = strstr(reply, "ETag: ");
        assert_non_null(at);
        assert_int_equal(sscanf(at, "ETag: %39[^\r]", tag), 1);
        free(reply);
        snprintf(header, sizeof header, "If-None-Match: %s\r\n", tag);
        reply = get_with(port, "/cache?nodes=10", header);
    }
    assert_memory_equal(reply, "HTTP/1.1 304", 12);
    assert_non_null(strstr(reply, tag));
    assert_null(strstr(reply, "cache.nodes"));
    free(reply);
    reply = get_with(port, "/cache?nodes=11", header); /* another question */
    assert_memory_equal(reply, "HTTP/1.1 200", 12);
    free(reply);
    complete(port, "Another prompt");
    reply = get_with(port, "/cache?nodes=10", header);
    assert_memory_equal(reply, "HTTP/1.1 200", 12);
    assert_non_null(strstr(reply, "Another prompt"));
    free(reply);
}

static json_t *explain(uint16_t port, const char *body) { return call(port, "POST", "/cache/explain", body); }

static void a_prompt_is_explained(void **state) {
    const uint16_t port = port_of(state);
    json_t *e = explain(port, "{\"prompt\":\"You are a pirate.\"}");
    assert_string_equal(string(e, "object"), "cache.explanation");
    assert_string_equal(string(e, "reason"), "absent");
    assert_int_equal(integer(e, "tokens"), 17);
    assert_int_equal(integer(e, "matched"), 0);
    assert_true(json_is_null(json_object_get(e, "other")) && json_is_null(json_object_get(e, "evicted")));
    json_decref(e);
    fill(port);
    e = explain(port, "{\"prompt\":\"You are a pirate. Say yes, sir.\",\"tenant\":\"default\"}");
    assert_string_equal(string(e, "reason"), "whole");
    assert_int_equal(integer(e, "matched"), 30);
    assert_int_equal(integer(e, "ready"), 30);
    assert_true(json_is_null(json_object_get(e, "difference")));
    json_decref(e);
    /* One word differs. Two messages of a chat are joined by the fake format. */
    e = explain(port, "{\"messages\":[{\"role\":\"system\",\"content\":\"You are a \"},"
                      "{\"role\":\"user\",\"content\":\"parrot. Say no more.\"}]}");
    const json_t *d = json_object_get(e, "difference");
    assert_string_equal(string(e, "reason"), "differs");
    assert_int_equal(integer(e, "matched"), 10);
    assert_int_equal(integer(d, "position"), 11);
    assert_string_equal(string(d, "before"), "You are a p");
    assert_string_equal(string(json_object_get(d, "prompt"), "token_text"), "a");
    assert_string_equal(string(json_object_get(d, "prompt"), "text"), "arrot. Say no mo");
    assert_string_equal(string(json_object_get(d, "cache"), "token_text"), "i");
    assert_string_equal(string(json_object_get(d, "cache"), "text"), "irate. Say ");
    assert_non_null(strstr(string(e, "message"), "at position 11 the cache has another token"));
    json_decref(e);
    json_decref(call(port, "POST", "/cache/reset", NULL));
    e = explain(port, "{\"prompt\":\"You are a pirate. Say yes, sir. And more\"}");
    assert_string_equal(string(e, "reason"), "evicted");
    assert_int_equal(integer(json_object_get(e, "evicted"), "tokens"), 30);
    assert_true(json_is_real(json_object_get(json_object_get(e, "evicted"), "seconds_ago")));
    json_decref(e);
}

static void wrong_questions_are_refused(void **state) {
    const uint16_t port = port_of(state);
    assert_refused(port, "POST", "/cache/explain", "{", 400, NULL, "body");
    assert_refused(port, "POST", "/cache/explain", NULL, 400, NULL, "body");
    assert_refused(port, "POST", "/cache/explain", "[1]", 400, NULL, "must be a JSON object");
    assert_refused(port, "POST", "/cache/explain", "{}", 400, "prompt", "'prompt'");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":[]}", 400, "prompt", "prompt");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":[\"a\",\"b\"]}", 400, "prompt", "2 prompts");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":[1,-1]}", 400, "prompt[1]", "-1");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":\"a\",\"tenant\":\"b\"}", 400, "tenant", "no tenant 'b'");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":\"a\",\"tenant\":7}", 400, "tenant",
                   "'tenant' must be a string");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":\"a\",\"max_tokens\":-5}", 400, "max_tokens", "max_tokens");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":\"a\",\"url\":1}", 400, "url", "'url' must be one of \"/v1/");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":\"a\",\"url\":\"/v1/messages/count_tokens\"}", 400, "url",
                   "\"/v1/messages\"");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":\"a\",\"url\":\"/v1/embeddings\"}", 400, "input", "'input'");
    assert_refused(port, "POST", "/cache/explain", "{\"url\":\"/v1/responses\"}", 400, "input", "'input'");
    assert_refused(port, "GET", "/cache/explain", NULL, 405, NULL, "use POST");
}

static void what_is_retained_can_be_dropped(void **state) {
    const uint16_t port = port_of(state);
    static const char *const paths[] = {"/cache/reset", "/reset_prefix_cache",
                                        "/reset_prefix_cache?reset_running_requests=false&reset_external=false"};
    for (int i = 0; i < 3; i++) {
        fill(port);
        json_t *reply = call(port, "POST", paths[i], i == 1 ? "{\"any\":1}" : NULL);
        assert_string_equal(string(reply, "object"), "cache.reset");
        assert_int_equal(integer(reply, "nodes") + integer(reply, "tokens_retained"), 0);
        json_decref(reply);
    }
    assert_refused(port, "POST", "/cache/reset?reset_external=true", NULL, 400, "reset_external", "the file tier");
    assert_refused(port, "POST", "/cache/reset?reset_running_requests=1", NULL, 400, "reset_running_requests", "that run");
    assert_refused(port, "GET", "/cache/reset", NULL, 405, NULL, "use POST");
}

/* These endpoints are the operator's. */
static void other_tenants_are_refused(void **state) {
    const uint16_t port = port_of(state);
    char *reply = get_with(port, "/cache?nodes=1", "Authorization: Bearer key-a\r\n");
    assert_memory_equal(reply, "HTTP/1.1 403", 12);
    free(reply);
    reply = get_with(port, "/cache?nodes=1", "Authorization: Bearer secret\r\n");
    assert_memory_equal(reply, "HTTP/1.1 200", 12);
    free(reply);
    static const char *const paths[] = {"/cache/explain", "/cache/reset", "/reset_prefix_cache"};
    for (int i = 0; i < 3; i++) {
        char request[200];
        const int fd = client_connect(port);
        snprintf(
            request, sizeof request,
            "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer key-a\r\nContent-Length: 2\r\n\r\n{}",
            paths[i]);
        client_send_bytes(fd, request, strlen(request));
        reply = client_read_all(fd);
        assert_memory_equal(reply, "HTTP/1.1 403", 12);
        free(reply);
    }
}

/* Clients that hang up while the engine is in a step, and a server that stops then. */
static void nobody_waits_any_more(void **state) {
    const uint16_t port = port_of(state);
    const int stream = client_connect(port);
    client_send(stream, "POST", "/v1/completions", endless);
    free(client_read_until(stream, "data: "));
    for (int i = 0; i < 20; i++) {
        const int fd = client_connect(port);
        if (i % 2)
            client_send(fd, "GET", "/cache?nodes=100", NULL);
        else
            client_send(fd, "POST", "/cache/explain", "{\"prompt\":\"abcdef\"}");
        close(fd);
    }
    json_decref(explain(port, "{\"prompt\":\"abcdef\"}"));
    const int fd = client_connect(port);
    client_send(fd, "GET", "/cache?nodes=100", NULL); /* and the test ends */
    close(stream);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_tree_is_shown, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(pages_are_the_whole, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(wrong_parameters_are_refused, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(what_has_not_changed_is_not_sent, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(a_prompt_is_explained, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(wrong_questions_are_refused, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(what_is_retained_can_be_dropped, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(other_tenants_are_refused, set_up_tenants, tear_down),
        cmocka_unit_test_setup_teardown(nobody_waits_any_more, set_up_slow, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
