/* Each field of the peers' requests, by the list in peer_fields.json, is read, refused by name, or ignored for a reason. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "openai_fixture.h"

static const cl_reply_format thinking = {.name = "hermes",
                                         .syntax = CL_REPLY_JSON,
                                         .arguments = "arguments",
                                         .begin = "<tool_call>",
                                         .end = "</tool_call>",
                                         .think = "<think>",
                                         .answer = "</think>"};

/* A small body with this value of the field. */
static json_t *body_with(const json_t *field, openai_endpoint endpoint, json_t *value) {
    json_t *body = json_loads(endpoint == OPENAI_CHAT ? CHAT("\"n\":1") : COMPLETION("\"n\":1"), 0, NULL);
    json_object_update(body, json_object_get(field, "with"));
    json_object_set_new(body, json_string_value(json_object_get(field, "name")), value);
    return body;
}

static bool accepts(openai_endpoint endpoint, json_t *body, openai_error *error) {
    const openai_context c = fake_context();
    openai_request r;
    *error = (openai_error){0};
    const bool ok = openai_request_parse(&c, endpoint, body, &r, error);
    if (ok) openai_request_free(&r);
    json_decref(body);
    return ok;
}

/* A value of another type than this one, which no field takes besides it. */
static json_t *wrong_for(const json_t *value) {
    return json_is_number(value) || json_is_boolean(value) ? json_string("x") : json_integer(5);
}

static void check(const json_t *field, openai_endpoint endpoint) {
    const char *name = json_string_value(json_object_get(field, "name")), *is = json_string_value(json_object_get(field, "is"));
    const char *where = endpoint == OPENAI_CHAT ? "chat" : "completion";
    json_t *like = json_object_get(field, "like");
    openai_error error;
    const bool accepted = accepts(endpoint, body_with(field, endpoint, json_deep_copy(like)), &error);
    if (strcmp(is, "refused") == 0) {
        if (accepted) fail_msg("'%s' of a %s was accepted", name, where);
        assert_string_equal(error.param, name);
        assert_string_equal(error.code, "unsupported_parameter");
        return;
    }
    char text[OPENAI_ERROR_TEXT];
    if (!accepted) fail_msg("'%s' of a %s was refused: %s", name, where, openai_error_text(&error, text));
    const bool wrong_accepted = accepts(endpoint, body_with(field, endpoint, wrong_for(like)), &error);
    if (strcmp(is, "ignored") == 0) {
        assert_true(json_string_length(json_object_get(field, "why")) > 0);
        if (!wrong_accepted) fail_msg("'%s' of a %s is not ignored", name, where);
        return;
    }
    assert_string_equal(is, "read");
    if (wrong_accepted) fail_msg("'%s' of a %s is not read", name, where);
    if (strncmp(error.param, name, strlen(name)) != 0) fail_msg("'%s' of a %s: the error names '%s'", name, where, error.param);
}

static void each_field_of_the_peers_has_an_answer(void **state) {
    (void)state;
    json_t *list = json_load_file(PEER_FIELDS, 0, NULL), *fields = json_object_get(list, "fields"), *field;
    size_t i, k;
    fake_set_reply(&thinking);
    fake_fill_gaps(true);
    assert_true(json_array_size(fields) > 150);
    json_array_foreach(fields, i, field) {
        json_t *where;
        json_array_foreach(json_object_get(field, "in"), k, where)
            check(field, strcmp(json_string_value(where), "chat") == 0 ? OPENAI_CHAT : OPENAI_COMPLETION);
    }
    fake_set_reply(NULL);
    fake_fill_gaps(false);
    json_decref(list);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_field_of_the_peers_has_an_answer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
