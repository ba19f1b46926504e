/* Checks the input of a batch before its first request is computed. */
#define _GNU_SOURCE /* tdestroy */
#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "chunkllama/common/str.h"
#include "lines.h"
#include "serve/protocol/json.h"

typedef struct check {
    const char *endpoint;
    lines in;
    int64_t n;      /* requests so far */
    void *ids;      /* a tree of tsearch: the custom_ids, owned */
    json_t *errors; /* array */
    bool no_memory;
} check;

/* Add an error of a line (0: of the whole file). */
static void add_error(check *c, int64_t line, const char *code, const char *param, const char *message) {
    if (json_array_size(c->errors) >= BATCH_MAX_ERRORS) return;
    json_t *e = json_pack("{s:s, s:o, s:s, s:s?}", "code", code, "line", line ? json_integer(line) : json_null(), "message",
                          message, "param", param);
    if (!e || json_array_append_new(c->errors, e) != 0) c->no_memory = true;
}

static int compare(const void *a, const void *b) { return strcmp(a, b); }

/* Add a custom_id to those that were seen. False: it is there already. */
static bool add_id(check *c, const char *id) {
    char *copy = strdup(id);
    char *const *found = copy ? tsearch(copy, &c->ids, compare) : NULL;
    const bool is_new = found && *found == copy;
    if (!found) c->no_memory = true;
    if (!is_new) free(copy);
    return is_new || !found;
}

/* A member that must be this string; NULL: any but the empty one. */
static const char *read_member(check *c, const json_t *line, const char *name, const char *expected) {
    char message[200];
    const json_t *value = json_object_get(line, name);
    const char *text = json_string_value(value);
    if (text && strlen(text) == json_string_length(value) && (expected ? strcmp(text, expected) == 0 : *text)) return text;
    if (expected)
        snprintf(message, sizeof message, "%s must be \"%s\"", name, expected);
    else
        snprintf(message, sizeof message, "%s must be a string that is not empty", name);
    add_error(c, c->in.number, value ? "invalid_value" : "missing_required_parameter", name, message);
    return NULL;
}

static void check_object(check *c, const json_t *line) {
    const char *id = read_member(c, line, "custom_id", NULL);
    if (id && !add_id(c, id)) {
        char message[200];
        snprintf(message, sizeof message, "the custom_id '%.100s' is that of an earlier line; give each line its own", id);
        add_error(c, c->in.number, "duplicate_custom_id", "custom_id", message);
    }
    read_member(c, line, "method", "POST");
    read_member(c, line, "url", c->endpoint);
    const json_t *body = json_object_get(line, "body");
    if (!json_is_object(body))
        add_error(c, c->in.number, body ? "invalid_value" : "missing_required_parameter", "body",
                  "body must be an object, the request");
}

static void check_line(check *c, const char *text, size_t size) {
    openai_error error;
    const size_t mark = c->n == 1 ? cl_utf8_mark_size(text, size) : 0;
    json_t *line = openai_json_parse("line", text + mark, size - mark, &error);
    if (!line && error.status >= 500)
        c->no_memory = true;
    else if (!line)
        add_error(c, c->in.number, "invalid_json_line", NULL, error.message);
    else if (!json_is_object(line))
        add_error(c, c->in.number, "invalid_json_line", NULL, "the line is not a JSON object");
    else
        check_object(c, line);
    json_decref(line);
}

/* Check all lines; the status of the last read. */
static lines_status check_lines(check *c, bool (*stop)(void *ctx), void *ctx) {
    char message[120];
    for (;;) {
        const char *text;
        size_t size;
        const lines_status status = lines_next(&c->in, &text, &size);
        if (status == LINES_TOO_LONG) {
            snprintf(message, sizeof message, "the line is longer than %zu bytes, the limit of a request", c->in.max);
            add_error(c, c->in.number, "line_too_long", NULL, message);
        } else if (status != LINES_OK) {
            return status;
        }
        if (++c->n > BATCH_MAX_REQUESTS) {
            snprintf(message, sizeof message, "the file has more than %d requests; divide it", BATCH_MAX_REQUESTS);
            add_error(c, c->in.number, "too_many_requests", NULL, message);
            return LINES_END;
        }
        if (status == LINES_OK) check_line(c, text, size);
        if (c->no_memory || stop(ctx)) return LINES_END;
    }
}

cl_status batch_check(int fd, const char *endpoint, size_t max_line, bool (*stop)(void *ctx), void *ctx, int64_t *n,
                      json_t **errors, cl_error *error) {
    check c = {.endpoint = endpoint, .errors = json_array()};
    c.no_memory = !c.errors;
    lines_begin(&c.in, fd, max_line);
    const lines_status status = c.no_memory ? LINES_NO_MEMORY : check_lines(&c, stop, ctx);
    const int cause = errno;
    if (status == LINES_END && c.n == 0) add_error(&c, 0, "empty_file", NULL, "the file has no requests");
    tdestroy(c.ids, free);
    lines_free(&c.in);
    *n = c.n;
    *errors = c.errors;
    if (status == LINES_FAILED) return cl_fail(error, CL_ERR_FILE, "cannot read the input: %s", strerror(cause));
    if (status == LINES_NO_MEMORY || c.no_memory) return cl_fail(error, CL_ERR_NOMEM, "no memory to check the input");
    return CL_OK;
}
