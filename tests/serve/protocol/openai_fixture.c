/* Parses requests for the tests of OpenAI's JSON. */
#include "openai_fixture.h"

#include "fake.h"
#include "tests/support/testing.h"

openai_context fake_context(void) {
    openai_context c = {.model = fake_model(), .model_name = "fake", .chat = fake_chat()};
    openai_defaults_init(&c.defaults);
    return c;
}

bool parse(const openai_context *c, openai_endpoint endpoint, const char *body, openai_request *r, openai_error *error) {
    json_t *json = json_loads(body, JSON_ALLOW_NUL, NULL);
    assert_non_null(json);
    const bool ok = openai_request_parse(c, endpoint, json, r, error);
    json_decref(json);
    return ok;
}

void parse_ok(const openai_context *c, openai_endpoint endpoint, const char *body, openai_request *r) {
    openai_error error;
    if (!parse(c, endpoint, body, r, &error)) fail_msg("%s: %s", body, error.message);
}
