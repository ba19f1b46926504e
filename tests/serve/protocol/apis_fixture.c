/* Scenes: see apis_fixture.h. */
#include "apis_fixture.h"

#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "openai_fixture.h"

/* ---- Scenes ---- */

void scene_begin(scene *s, const openai_dialect *dialect, const char *body) {
    *s = (scene){.dialect = dialect, .context = fake_context()};
    openai_error error;
    json_error_t wrong;
    json_t *json = cl_json_load(body, strlen(body), JSON_ALLOW_NUL, &wrong);
    assert_non_null(json);
    if (!dialect->parse(&s->context, json, &s->request, &error)) fail_msg("%s: %s", body, error.message);
    json_decref(json);
    assert_true(openai_result_init(&s->result, &s->context, &s->request));
    strcpy(s->result.id, s->request.id_prefix);
    strcat(s->result.id, "id");
    s->result.created = 1;
    if (s->request.stream) dialect->stream_begin(&s->stream, &s->result);
}

void scene_end(scene *s) {
    writer_free(&s->stream);
    openai_result_free(&s->result);
    openai_request_free(&s->request);
}

static void extend(openai_text *text, const char *more) {
    const size_t size = strlen(more);
    text->data = realloc(text->data, text->size + size + 1);
    memcpy(text->data + text->size, more, size + 1);
    text->size += size;
    text->capacity = text->size + 1;
}

static openai_text *text_of(openai_choice *c, cl_reply_kind kind) {
    switch (kind) {
    case CL_REPLY_CONTENT: return &c->text;
    case CL_REPLY_REASONING: return &c->reasoning;
    case CL_REPLY_CALL: return &c->calls[c->n_calls - 1].name;
    default: return &c->calls[c->n_calls - 1].arguments;
    }
}

void scene_say(scene *s, cl_reply_kind kind, const char *text) {
    openai_choice *c = &s->result.choices[0];
    if (kind == CL_REPLY_CALL) {
        c->calls = realloc(c->calls, (c->n_calls + 1) * sizeof *c->calls);
        c->calls[c->n_calls] = (openai_call){0};
        snprintf(c->calls[c->n_calls].id, sizeof c->calls->id, "call_%zu", c->n_calls);
        c->n_calls++;
    }
    extend(text_of(c, kind), text);
    assert_true(openai_items_add(c, kind, c->n_calls - (c->n_calls > 0), strlen(text)));
    const cl_engine_event event = {
        .kind = CL_EVENT_TOKEN, .token = {.id = 'x'}, .n_prompt = 10, .n_cached = 4, .n_completion = 2};
    s->result.usage[0] = (openai_usage){.prompt_tokens = 10, .cached_tokens = 4, .completion_tokens = 2, .reasoning_tokens = 1};
    if (s->request.stream) s->dialect->stream_event(&s->stream, &s->result, 0, &event);
}

void scene_finish(scene *s, cl_engine_finish finish, int32_t stop) {
    const cl_engine_event event = {.kind = CL_EVENT_END,
                                   .end = {.finish = finish, .stop = stop},
                                   .text = "",
                                   .last = true,
                                   .n_prompt = 10,
                                   .n_cached = 4,
                                   .n_completion = 2};
    openai_result_add(&s->result, 0, &event, 0);
    s->result.usage[0].reasoning_tokens = 1;
    if (!s->request.stream) return;
    s->dialect->stream_event(&s->stream, &s->result, 0, &event);
    s->dialect->stream_end(&s->stream, &s->result, NULL);
}

/* ---- Answers ---- */

json_t *read_writer(openai_writer *w) {
    char *text = writer_end(w, NULL);
    assert_non_null(text);
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    free(text);
    return json;
}

json_t *scene_answer(const scene *s) {
    openai_writer w = {0};
    s->dialect->write_answer(&w, NULL, &s->result);
    return read_writer(&w);
}

json_t *scene_chunk(scene *s, const cl_engine_event *event, size_t k) {
    openai_writer w = {0};
    openai_write_chunk(&w, &s->result, 0, event, k);
    return read_writer(&w);
}

json_t *scene_events(scene *s) {
    char *text = writer_end(&s->stream, NULL), *at = text, *event;
    json_t *events = json_array();
    assert_non_null(text);
    while ((event = strsep(&at, "\n")) && *event) {
        char *data = strsep(&at, "\n"), *blank = strsep(&at, "\n");
        assert_true(strncmp(event, "event: ", 7) == 0 && data && strncmp(data, "data: ", 6) == 0 && blank && !*blank);
        json_t *json = json_loads(data + 6, 0, NULL);
        assert_non_null(json);
        json_array_append_new(events, json_pack("[s,o]", event + 7, json));
    }
    free(text);
    return events;
}

/* ---- Checks ---- */

static const json_t *at_pointer(const json_t *json, const char *pointer) {
    while (json && *pointer == '/') {
        char name[64] = "";
        const size_t size = strcspn(++pointer, "/");
        memcpy(name, pointer, size);
        pointer += size;
        json = json_is_array(json) ? json_array_get(json, strtoul(name, NULL, 10)) : json_object_get(json, name);
    }
    return json;
}

void assert_at(const json_t *json, const char *pointer, const char *expected) {
    char *text = json_dumps(at_pointer(json, pointer), JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text != !expected || (text && strcmp(text, expected) != 0))
        fail_msg("%s is %s, not %s", pointer, text ? text : "absent", expected ? expected : "absent");
    free(text);
}

void assert_types(const json_t *events, const char *const *types) {
    size_t i = 0;
    for (; types[i]; i++) {
        const char *type = json_string_value(at_pointer(json_array_get(events, i), "/0"));
        const char *inner = json_string_value(at_pointer(json_array_get(events, i), "/1/type"));
        if (!type || strcmp(type, types[i]) != 0) fail_msg("event %zu is %s, not %s", i, type ? type : "absent", types[i]);
        assert_string_equal(type, inner);
    }
    assert_int_equal(json_array_size(events), i);
}

char *joined(const json_t *events, const char *type, const char *pointer) {
    char *text = calloc(1, 4096);
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(json_string_value(json_array_get(event, 0)), type) == 0)
            strcat(text, json_string_value(at_pointer(json_array_get(event, 1), pointer)));
    }
    return text;
}

void assert_body_refused(const openai_dialect *dialect, const char *body, int status, const char *param,
                         const char *in_message) {
    const openai_context context = fake_context();
    openai_request request;
    openai_error error;
    json_error_t wrong;
    json_t *json = cl_json_load(body, strlen(body), JSON_ALLOW_NUL | JSON_DECODE_ANY, &wrong);
    assert_non_null(json);
    if (dialect->parse(&context, json, &request, &error)) fail_msg("%s is accepted", body);
    json_decref(json);
    assert_error(&error, body, status, param, in_message);
    assert_null(request.prompts);
    assert_null(request.repeated);
}
