/* Checks the input of a batch before its first request is computed, and notes where the requests are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/str.h"
#include "lines.h"
#include "requests.h"
#include "serve/protocol/json.h"

/* Bytes of the input after which other writers have their turn. */
enum { PIECE = 4 << 20 };

typedef struct check {
    batch_store *s;
    const batch_info *b;
    sqlite3 *db;   /* in a transaction; NULL: it could not be begun */
    int64_t piece; /* where in the input it began */
    batch_lines in;
    int64_t n;      /* requests so far */
    json_t *errors; /* array */
    bool lacks;     /* the disk or memory */
} check;

/* Add an error of a line (0: of the whole file). */
static void add_error(check *c, int64_t line, const char *code, const char *param, const char *message) {
    if (json_array_size(c->errors) >= BATCH_MAX_ERRORS) return;
    json_t *e = json_pack("{s:s, s:o, s:s, s:s?}", "code", code, "line", line ? json_integer(line) : json_null(), "message",
                          message, "param", param);
    if (!e || json_array_append_new(c->errors, e) != 0) c->lacks = true;
}

/* ---- Lines ---- */

/* Note a request. False: its custom_id is that of an earlier one. */
static bool note(check *c, const char *id) {
    c->lacks |= !sql_run(c->db,
                         "INSERT INTO request (batch, number, place, size, custom_id) VALUES (?1, ?2, ?3, ?4, ?5)"
                         " ON CONFLICT DO NOTHING",
                         "iiiit", c->b->sequence, c->n, c->in.place, (int64_t)c->in.size, id);
    return c->lacks || sqlite3_changes(c->db) > 0;
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
    if (id && !note(c, id)) {
        char message[200];
        snprintf(message, sizeof message, "the custom_id '%.100s' is that of an earlier line; give each line its own", id);
        add_error(c, c->in.number, "duplicate_custom_id", "custom_id", message);
    }
    read_member(c, line, "method", "POST");
    read_member(c, line, "url", c->b->endpoint);
    const json_t *body = json_object_get(line, "body");
    if (!cl_json_is_object(body))
        add_error(c, c->in.number, body ? "invalid_value" : "missing_required_parameter", "body",
                  "body must be an object, the request");
}

static void check_line(check *c) {
    openai_error error;
    const size_t mark = c->n == 1 ? cl_utf8_mark_size(c->in.text, c->in.size) : 0;
    json_t *line = openai_json_parse("line", c->in.text + mark, c->in.size - mark, &error);
    if (!line && error.status >= 500)
        c->lacks = true;
    else if (!line)
        add_error(c, c->in.number, "invalid_json_line", NULL, error.message);
    else if (!cl_json_is_object(line))
        add_error(c, c->in.number, "invalid_json_line", NULL, "the line is not a JSON object");
    else
        check_object(c, line);
    json_decref(line);
}

/* End the transaction, and begin another one. */
static void begin_piece(check *c) {
    openai_error error;
    c->piece = c->in.place;
    c->lacks |= !store_end(c->s, !c->lacks, &error);
    c->db = store_begin(c->s, &error);
    c->lacks |= !c->db;
}

/* Check all lines; the status of the last read. */
static lines_status check_lines(check *c, bool (*stop)(void *ctx), void *ctx) {
    char message[120];
    for (;;) {
        const lines_status status = lines_next(&c->in);
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
        if (status == LINES_OK) check_line(c);
        if (c->in.place - c->piece > PIECE) begin_piece(c);
        c->lacks |= stop(ctx);
        if (c->lacks) return LINES_END;
    }
}

/* ---- The batch ---- */

/* Forget the requests that were noted, perhaps by an earlier check that did not come to its end. */
static bool forget(const check *c) { return sql_run(c->db, "DELETE FROM request WHERE batch = ?1", "i", c->b->sequence); }

static bool fail(const check *c) {
    openai_writer w = {0};
    writer_value(&w, NULL, json_incref(c->errors));
    char *errors = writer_end(&w, NULL);
    const bool ok =
        errors && forget(c) && batch_set_status(c->db, c->b->sequence, "failed") &&
        sql_run(c->db, "UPDATE batch SET errors = json_object('object', 'list', 'data', json(?2)) WHERE sequence = ?1", "it",
                c->b->sequence, errors);
    free(errors);
    return ok;
}

static bool begin_work(const check *c) {
    return sql_run(c->db, "UPDATE batch SET total = ?2 WHERE sequence = ?1", "ii", c->b->sequence, c->n) &&
           batch_set_status(c->db, c->b->sequence, "in_progress");
}

/* Check the input in transactions, of which the last one is open. False: it is to be undone. */
static bool check_input(check *c, int fd, bool (*stop)(void *ctx), void *ctx) {
    if (fd < 0)
        add_error(c, 0, "file_not_found", NULL, "the input file cannot be read");
    else if (!forget(c) || check_lines(c, stop, ctx) != LINES_END)
        return false;
    else if (c->n == 0)
        add_error(c, 0, "empty_file", NULL, "the file has no requests");
    return !c->lacks && (json_array_size(c->errors) > 0 ? fail(c) : begin_work(c));
}

bool batch_check(batch_store *s, const batch_info *b, int fd, size_t max_line, bool (*stop)(void *ctx), void *ctx) {
    openai_error error;
    check c = {.s = s, .b = b, .db = store_begin(s, &error), .errors = json_array()};
    lines_begin(&c.in, fd, 0, max_line);
    const bool ok = store_end(s, c.db && c.errors && check_input(&c, fd, stop, ctx), &error);
    lines_free(&c.in);
    json_decref(c.errors);
    return ok;
}
