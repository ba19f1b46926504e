/* Parses a line of a batch file into a request, and writes its record. */
#include "batch_line.h"

#include <stdio.h>
#include <string.h>

#include "llama/common/str.h"

static bool fail(batch_line *line, const char *param, const char *message) {
    line->failed = true;
    openai_fail(&line->error, param, "%s", message);
    return false;
}

/* Set *endpoint from the url of OpenAI's form; without a url from the fields of the body. */
static bool find_endpoint(batch_line *line, const json_t *object, const json_t *body, openai_endpoint *endpoint) {
    const json_t *url = line->openai_form ? json_object_get(object, "url") : NULL;
    const char *path = json_string_value(url);
    if (!url)
        *endpoint = json_object_get(body, "messages") ? OPENAI_CHAT : OPENAI_COMPLETION;
    else if (path && !strcmp(path, "/v1/chat/completions"))
        *endpoint = OPENAI_CHAT;
    else if (path && !strcmp(path, "/v1/completions"))
        *endpoint = OPENAI_COMPLETION;
    else
        return fail(line, "url", "url must be \"/v1/chat/completions\" or \"/v1/completions\"");
    if (!url && *endpoint == OPENAI_COMPLETION && !json_object_get(body, "prompt"))
        return fail(line, NULL, "the request has neither messages nor prompt");
    return true;
}

static bool parse_object(batch_line *line, const json_t *object, const openai_context *context) {
    line->openai_form = json_object_get(object, "custom_id") || json_object_get(object, "body");
    json_t *id = json_object_get(object, line->openai_form ? "custom_id" : "id");
    line->id = id ? json_incref(id) : json_integer((json_int_t)line->number);
    const json_t *body = line->openai_form ? json_object_get(object, "body") : object;
    if (!json_is_object(body)) return fail(line, "body", "body must be an object, the request");

    openai_endpoint endpoint;
    if (!find_endpoint(line, object, body, &endpoint)) return false;
    if (!openai_request_parse(context, endpoint, body, &line->request, &line->error)) {
        line->failed = true;
        return false;
    }
    if (!line->openai_form && (line->request.params.n != 1 || line->request.n_prompts != 1))
        return fail(line, "n", "the short form has one answer to one prompt; use custom_id and body for more");
    line->has_result = openai_result_init(&line->result, context, &line->request);
    return line->has_result ? true : fail(line, NULL, "no memory for the request");
}

bool batch_line_parse(batch_line *line, size_t number, const char *text, size_t size, const openai_context *context) {
    json_error_t problem;
    line->number = number;
    const size_t mark = number == 1 ? cl_utf8_mark_size(text, size) : 0;
    json_t *object = json_loadb(text + mark, size - mark, JSON_ALLOW_NUL, &problem);
    bool ok;
    if (json_is_object(object)) {
        ok = parse_object(line, object, context);
    } else {
        char message[256];
        snprintf(message, sizeof message, "the line is not a JSON object%s%s", object ? "" : ": ", object ? "" : problem.text);
        line->id = json_null();
        ok = fail(line, NULL, message);
    }
    json_decref(object);
    return ok;
}

/* The record of the short form. */
static json_t *short_json(const batch_line *line) {
    const openai_choice *choice = &line->result.choices[0];
    const openai_usage usage = openai_result_usage(&line->result);
    int64_t offset = 0;
    json_t *ids = json_array(), *record;
    for (size_t i = 0; i < choice->tokens.n; i++) json_array_append_new(ids, json_integer(choice->tokens.ids[i]));
    record =
        json_pack("{s:O, s:s%, s:o, s:s, s:o}", "id", line->id, "text", choice->text ? choice->text : "", choice->text_size,
                  "token_ids", ids, "finish_reason", openai_finish_name(choice->finish), "usage", openai_usage_json(&usage));
    if (record && line->request.params.logprobs)
        json_object_set_new(record, "logprobs", openai_logprobs_json(&line->result, 0, 0, false, &offset));
    return record;
}

/* OpenAI's record, whose body is the answer or the error object that the server would send. Steals the reference to body. */
static json_t *response_json(const batch_line *line, int status, json_t *body) {
    char id[40], request_id[40];
    snprintf(id, sizeof id, "batch_req_%zu", line->number);
    snprintf(request_id, sizeof request_id, "req_%zu", line->number);
    return json_pack("{s:s, s:O, s:{s:i, s:s, s:o}, s:n}", "id", id, "custom_id", line->id, "response", "status_code", status,
                     "request_id", request_id, "body", body, "error");
}

json_t *batch_line_json(const batch_line *line) {
    const bool failed = line->failed || line->result.failed;
    if (!failed) return line->openai_form ? response_json(line, 200, openai_result_json(&line->result)) : short_json(line);
    const openai_error *error = line->failed ? &line->error : &line->result.error;
    json_t *body = openai_error_json(error);
    if (line->openai_form) return response_json(line, error->status, body);
    json_t *record = json_pack("{s:O, s:I}", "id", line->id, "line", (json_int_t)line->number);
    json_object_update(record, body);
    json_decref(body);
    return record;
}

void batch_line_free(batch_line *line) {
    if (line->has_result) openai_result_free(&line->result);
    openai_request_free(&line->request);
    json_decref(line->id);
}
