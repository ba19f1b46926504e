/* Each field of the peers' requests, by the list in peer_fields.json, is read, refused by name, or ignored for a reason. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "openai_fixture.h"
#include "serve/protocol/dialect.h"

/* Requests, and a small body of each. */
typedef struct place {
    const char *name;
    const openai_dialect *dialect;
    const char *body;
} place;

static const place places[] = {
    {"chat", &openai_chat, CHAT("\"n\":1")},
    {"completion", &openai_completion, COMPLETION("\"n\":1")},
    {"embedding", &openai_embedding, "{\"input\":\"x\"}"},
    {"score", &openai_score, "{\"text_1\":\"x\",\"text_2\":\"x\"}"},
    {"rerank", &openai_rerank, "{\"query\":\"x\",\"documents\":[\"x\"]}"},
};

static const place *place_of(const char *name) {
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (strcmp(places[i].name, name) == 0) return &places[i];
    fail_msg("there is no '%s'", name);
    return NULL;
}

/* The body with this value of the field. */
static json_t *body_with(const json_t *field, const place *where, json_t *value) {
    json_t *body = json_loads(where->body, 0, NULL);
    json_object_update(body, json_object_get(field, "with"));
    json_object_set_new(body, json_string_value(json_object_get(field, "name")), value);
    return body;
}

static bool accepts(const place *where, json_t *body, openai_error *error) {
    const openai_context c = fake_context();
    openai_request r;
    *error = (openai_error){0};
    const bool ok = where->dialect->parse(&c, body, &r, error);
    if (ok) openai_request_free(&r);
    json_decref(body);
    return ok;
}

/* A value of another type than this one, which no field takes besides it. */
static json_t *wrong_for(const json_t *value) {
    return json_is_number(value) || json_is_boolean(value) ? json_string("x") : json_integer(5);
}

static void check(const json_t *field, const place *at) {
    const char *name = json_string_value(json_object_get(field, "name")), *is = json_string_value(json_object_get(field, "is"));
    const char *where = at->name;
    json_t *like = json_object_get(field, "like");
    openai_error error;
    const bool accepted = accepts(at, body_with(field, at, json_deep_copy(like)), &error);
    if (strcmp(is, "refused") == 0) {
        if (accepted) fail_msg("'%s' of a %s was accepted", name, where);
        assert_string_equal(error.param, name);
        assert_string_equal(error.code, "unsupported_parameter");
        return;
    }
    char text[OPENAI_ERROR_TEXT];
    if (!accepted) fail_msg("'%s' of a %s was refused: %s", name, where, openai_error_text(&error, text));
    const bool wrong_accepted = accepts(at, body_with(field, at, wrong_for(like)), &error);
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
    cl_reply_format thinking;
    cl_reply_format_find(cl_str_of("<tool_call></think>"), true, &thinking);
    fake_set_reply(&thinking);
    fake_fill_gaps(true);
    fake_know_words(true);
    assert_true(json_array_size(fields) > 250);
    json_array_foreach(fields, i, field) {
        json_t *where;
        json_array_foreach(json_object_get(field, "in"), k, where) check(field, place_of(json_string_value(where)));
    }
    fake_set_reply(NULL);
    fake_fill_gaps(false);
    fake_know_words(false);
    json_decref(list);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_field_of_the_peers_has_an_answer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
