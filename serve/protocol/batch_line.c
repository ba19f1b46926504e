/* Parses a line of a batch file into a request, and writes its output line. */
#include "batch_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_text.h"
#include "chunkllama/common/str.h"
#include "json.h"
#include "parse.h"

static bool fail(batch_line *line, const char *param, const char *message) {
    line->failed = true;
    openai_fail(&line->error, param, "%s", message);
    return false;
}

static bool fail_memory(batch_line *line) {
    line->failed = true;
    return openai_fail_memory(&line->error);
}

/* Set the line's id, also as text, so that even an output line for which memory is lacking has it. */
static bool set_id(batch_line *line, const json_t *object) {
    json_t *id = json_object_get(object, line->openai_form ? "custom_id" : "id");
    line->id = id ? json_incref(id) : json_integer((json_int_t)line->number);
    line->id_text = line->id ? cl_json_dumps(line->id, JSON_ENCODE_ANY) : NULL;
    return line->id_text ? true : fail_memory(line);
}

/* Set the line's dialect from the url of OpenAI's form; without a url from the fields of the body. */
static bool find_dialect(batch_line *line, const json_t *object, const json_t *body) {
    const json_t *url = line->openai_form ? json_object_get(object, "url") : NULL;
    const openai_dialect *found = url ? openai_dialect_read(url, "url", &line->error) : openai_dialect_of(body);
    line->failed = !found;
    if (!found) return false;
    line->dialect = found;
    if (!url && found == &openai_completion && !json_object_get(body, "prompt"))
        return fail(line, NULL, "the request has neither messages nor prompt");
    return true;
}

/* ---- The request ---- */

/* Set the domain of the line's tenant. */
static bool set_tenant(batch_line *line, const json_t *object, openai_tenants *tenants) {
    const json_t *tenant = tenants ? field_get(object, "tenant") : NULL;
    const char *name;
    cl_error error;
    if (!tenant) return true;
    if (field_name(tenant, "tenant", &name, &line->error)) {
        if (openai_tenants_domain(tenants, name, &line->request.params.domain, &error) == CL_OK) return true;
        openai_fail_from(&line->error, "tenant", &error);
    }
    line->failed = true;
    return false;
}

static bool parse_object(batch_line *line, const json_t *object, const openai_context *context, openai_tenants *tenants) {
    line->openai_form = json_object_get(object, "custom_id") || json_object_get(object, "body");
    if (!set_id(line, object)) return false;
    const json_t *body = line->openai_form ? json_object_get(object, "body") : object;
    if (!cl_json_is_object(body)) return fail(line, "body", "body must be an object, the request");

    if (!find_dialect(line, object, body)) return false;
    if (!line->dialect->parse(context, body, &line->request, &line->error)) {
        line->failed = true;
        return false;
    }
    if (!set_tenant(line, object, tenants)) return false;
    if (!line->openai_form && (line->request.n != 1 || line->request.n_prompts != 1))
        return fail(line, "n", "the short form has one answer to one prompt; use custom_id and body for more");
    line->has_result = openai_result_init(&line->result, context, &line->request);
    return line->has_result ? true : fail_memory(line);
}

bool batch_line_parse(batch_line *line, size_t number, const char *text, size_t size, const openai_context *context,
                      openai_tenants *tenants) {
    line->number = number;
    line->dialect = &openai_chat;
    const size_t mark = number == 1 ? cl_utf8_mark_size(text, size) : 0;
    json_t *object = openai_json_parse("line", text + mark, size - mark, &line->error);
    bool ok = false;
    if (!object)
        line->failed = true;
    else if (!cl_json_is_object(object))
        fail(line, NULL, "the line is not a JSON object");
    else
        ok = parse_object(line, object, context, tenants);
    json_decref(object);
    return ok;
}

/* ---- The output line ---- */

bool batch_line_has_error(const batch_line *line) { return line->failed || line->result.failed; }

static const openai_error *error_of(const batch_line *line) { return line->failed ? &line->error : &line->result.error; }

static void write_id(openai_writer *w, const char *key, const batch_line *line) {
    writer_value(w, key, line->id ? json_incref(line->id) : json_null());
}

static void write_short_answer(openai_writer *w, const batch_line *line) {
    const openai_choice *choice = &line->result.choices[0];
    const openai_usage usage = openai_result_usage(&line->result);
    int64_t offset = 0;
    writer_bytes(w, "text", choice->text.data, choice->text.size);
    openai_write_split(w, choice);
    writer_integers(w, "token_ids", choice->tokens.ids, choice->tokens.n);
    writer_string(w, "finish_reason", openai_finish_reason(choice));
    openai_write_usage(w, "usage", &usage);
    if (line->request.logprobs) openai_write_logprobs(w, &line->result, 0, 0, false, &offset);
}

static void write_short(openai_writer *w, const batch_line *line) {
    writer_open(w, NULL, '{');
    write_id(w, "id", line);
    if (batch_line_has_error(line)) {
        writer_integer(w, "line", (int64_t)line->number);
        openai_write_error(w, error_of(line));
    } else {
        write_short_answer(w, line);
    }
    writer_close(w);
}

/* OpenAI's output line, whose body is the answer or the error object that the server would send. */
static void write_openai(openai_writer *w, const batch_line *line) {
    char id[40];
    snprintf(id, sizeof id, "batch_req_%zu", line->number);
    writer_open(w, NULL, '{');
    writer_string(w, "id", id);
    write_id(w, "custom_id", line);
    writer_open(w, "response", '{');
    writer_integer(w, "status_code", batch_line_has_error(line) ? error_of(line)->status : 200);
    writer_string(w, "request_id", id + strlen("batch_"));
    if (batch_line_has_error(line))
        line->dialect->write_error(w, "body", error_of(line));
    else
        line->dialect->write_answer(w, "body", &line->result);
    writer_close(w);
    writer_null(w, "error");
    writer_close(w);
}

/* Print an error for a line, memory for whose output was lacking. Allocates nothing. False: it cannot be written. */
static bool print_no_memory(const batch_line *line, FILE *out) {
    const char *id = line->id_text ? line->id_text : "null";
    if (!line->openai_form)
        return fprintf(out, "{\"id\": %s, \"line\": %zu, " OPENAI_NO_MEMORY_ERROR "}\n", id, line->number) > 0;
    return fprintf(out,
                   "{\"id\": \"batch_req_%zu\", \"custom_id\": %s, \"response\": {\"status_code\": 500, \"request_id\": "
                   "\"req_%zu\", \"body\": %s}, \"error\": null}\n",
                   line->number, id, line->number, line->dialect->no_memory_body) > 0;
}

char *batch_line_output(const batch_line *line, size_t *size) {
    openai_writer w = {.spaced = true};
    line->openai_form ? write_openai(&w, line) : write_short(&w, line);
    writer_raw(&w, "\n");
    return writer_end(&w, size);
}

bool batch_line_print(const batch_line *line, FILE *out, bool *is_error) {
    size_t size;
    char *output = batch_line_output(line, &size);
    *is_error = !output || batch_line_has_error(line);
    const bool ok = output ? fwrite(output, 1, size, out) == size : print_no_memory(line, out);
    free(output);
    return ok && fflush(out) == 0;
}

void batch_line_free(batch_line *line) {
    if (line->has_result) openai_result_free(&line->result);
    openai_request_free(&line->request);
    json_decref(line->id);
    free(line->id_text);
}
