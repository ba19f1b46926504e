/* Parses requests for the tests of OpenAI's JSON. */
#include "openai_fixture.h"

#include "tests/support/testing.h"

#include <string.h>

#include "fake.h"

openai_context fake_context(void) {
    openai_context c = {.model = fake_model(), .model_name = "fake", .chat = fake_chat()};
    openai_defaults_init(&c.defaults);
    c.local = c.defaults;
    return c;
}

bool parse(const openai_context *c, openai_endpoint endpoint, const char *body, openai_request *r, openai_error *error) {
    json_error_t wrong;
    json_t *json = cl_json_load(body, strlen(body), JSON_ALLOW_NUL, &wrong);
    assert_non_null(json);
    const bool ok = openai_request_parse(c, endpoint, json, r, error);
    json_decref(json);
    return ok;
}

void parse_ok(const openai_context *c, openai_endpoint endpoint, const char *body, openai_request *r) {
    openai_error error;
    if (!parse(c, endpoint, body, r, &error)) fail_msg("%s: %s", body, error.message);
}

void assert_error(const openai_error *error, const char *body, int status, const char *param, const char *in_message) {
    char text[OPENAI_ERROR_TEXT];
    openai_error_text(error, text);
    if (error->status != status || strcmp(error->param, param) != 0 || !strstr(text, in_message))
        fail_msg("%s: %d %s: %s", body, error->status, error->param, text);
}

void assert_refused(const openai_context *c, openai_endpoint endpoint, const char *body, const char *param,
                    const char *in_message) {
    openai_request r;
    openai_error error;
    if (parse(c, endpoint, body, &r, &error)) fail_msg("%s was accepted", body);
    assert_error(&error, body, 400, param, in_message);
    assert_int_equal(r.n_prompts, 0);
}
