/* What GET /cache?nodes and POST /cache/explain refuse, and clients that do not wait for their answers. */
#include "tests/support/testing.h"

#include <stdio.h>
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

static json_t *explain(uint16_t port, const char *body) { return call(port, "POST", "/cache/explain", body); }

static void wrong_questions_are_refused(void **state) {
    const uint16_t port = port_of(state);
    assert_refused(port, "POST", "/cache/explain", "{}", 400, "prompt", "'prompt'");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":[\"a\",\"b\"]}", 400, "prompt", "2 prompts");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":\"a\",\"tenant\":\"b\"}", 400, "tenant", "no tenant 'b'");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":\"a\",\"tenant\":7}", 400, "tenant",
                   "'tenant' must be a string");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":\"a\",\"url\":1}", 400, "url", "'url' must be one of \"/v1/");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":\"a\",\"url\":\"/v1/messages/count_tokens\"}", 400, "url",
                   "\"/v1/messages\"");
    assert_refused(port, "POST", "/cache/explain", "{\"prompt\":\"a\",\"url\":\"/v1/embeddings\"}", 400, "input", "'input'");
    assert_refused(port, "POST", "/cache/explain", "{\"url\":\"/v1/responses\"}", 400, "input", "'input'");
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
        cmocka_unit_test_setup_teardown(wrong_parameters_are_refused, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(wrong_questions_are_refused, set_up_fast, tear_down),
        cmocka_unit_test_setup_teardown(nobody_waits_any_more, set_up_slow, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
