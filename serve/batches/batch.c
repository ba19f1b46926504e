/* Creates, changes and cancels batches. */
#include "batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "serve/protocol/dialect.h"
#include "serve/protocol/parse.h"

const char *batch_status(const json_t *record) { return json_string_value(json_object_get(store_object(record), "status")); }

bool batch_has_status(const json_t *record, const char *status) {
    const char *has = batch_status(record);
    return has && strcmp(has, status) == 0;
}

bool batch_not_found(store_kind kind, const char *id, openai_error *error) {
    openai_fail(error, NULL, "there is no %s '%.100s'; %s lists those that there are", kind == STORE_FILE ? "file" : "batch",
                id, kind == STORE_FILE ? "GET /v1/files" : "GET /v1/batches");
    error->status = 404;
    error->code = kind == STORE_FILE ? "file_not_found" : "batch_not_found";
    return false;
}

static bool fail_memory(openai_error *error) {
    return openai_fail_from(error, NULL,
                            &(cl_error){.code = CL_ERR_NOMEM, .message = "out of memory; send the request again later"});
}

json_t *batch_find(store *s, store_kind kind, uint32_t domain, const char *id, openai_error *error) {
    json_t *record = store_get(s, kind, domain, id);
    if (!record) store_has(s, kind, domain, id) ? fail_memory(error) : batch_not_found(kind, id, error);
    return record;
}

/* ---- The body of POST /v1/batches ---- */

typedef struct batch_body {
    const char *input, *endpoint, *window;
    int64_t seconds; /* of the window */
    const json_t *metadata;
} batch_body;

static bool read_name(const json_t *body, const char *name, const char **value, openai_error *error) {
    const json_t *field = field_get(body, name);
    if (!field) return openai_fail(error, name, "%s is missing", name);
    return field_name(field, name, value, error);
}

/* OpenAI's window is "24h"; a number of seconds, minutes, hours or days is accepted. */
static bool read_window(batch_body *b, openai_error *error) {
    static const struct {
        char letter;
        int64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    char *end;
    const long n = strtol(b->window, &end, 10);
    if (*b->window >= '0' && *b->window <= '9' && n >= 1 && n <= 1000000 && *end && !end[1])
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
            if (*end == units[i].letter) b->seconds = n * units[i].seconds;
    if (b->seconds > 0) return true;
    return openai_fail(error, "completion_window",
                       "completion_window is '%.40s'; it must be a number from 1 to 1000000 and s, m, h or d, such as 24h",
                       b->window);
}

static bool check_metadata(const json_t *metadata, openai_error *error) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return openai_fail(error, "metadata", "metadata must be an object, not %s", field_kind(metadata));
    if (json_object_size(metadata) > BATCH_MAX_METADATA)
        return openai_fail(error, "metadata", "metadata has %zu members; at most %d are possible", json_object_size(metadata),
                           BATCH_MAX_METADATA);
    json_object_foreach((json_t *)metadata, key, value) {
        if (strlen(key) > 64) return openai_fail(error, "metadata", "a name in metadata has more than 64 bytes");
        if (!json_is_string(value) || json_string_length(value) > 512)
            return openai_fail(error, "metadata", "metadata.%.64s must be a string of at most 512 bytes", key);
    }
    return true;
}

static bool read_body(const json_t *body, batch_body *b, openai_error *error) {
    if (!json_is_object(body)) return openai_fail(error, NULL, "the body must be a JSON object, not %s", field_kind(body));
    if (!read_name(body, "input_file_id", &b->input, error) || !read_name(body, "endpoint", &b->endpoint, error) ||
        !read_name(body, "completion_window", &b->window, error))
        return false;
    if (!openai_dialect_read(json_object_get(body, "endpoint"), "endpoint", error)) return false;
    b->metadata = field_get(body, "metadata");
    return read_window(b, error) && (!b->metadata || check_metadata(b->metadata, error));
}

/* ---- Creation ---- */

/* The members that are null at first stand in the order in which OpenAI lists them. */
static json_t *make_object(const batch_body *b) {
    static const char *const nulls[] = {"output_file_id", "error_file_id", "in_progress_at", "finalizing_at", "completed_at",
                                        "failed_at",      "expired_at",    "cancelling_at",  "cancelled_at"};
    json_t *object = json_pack("{s:s, s:s, s:s, s:n, s:s, s:s, s:s, s:i, s:I}", "id", "", "object", "batch", "endpoint",
                               b->endpoint, "errors", "input_file_id", b->input, "completion_window", b->window, "status",
                               "validating", "created_at", 0, "expires_at", (json_int_t)time(NULL) + b->seconds);
    bool ok = object;
    for (size_t i = 0; ok && i < sizeof nulls / sizeof *nulls; i++)
        ok = json_object_set_new(object, nulls[i], json_null()) == 0;
    json_t *counts = ok ? json_pack("{s:i, s:i, s:i}", "total", 0, "completed", 0, "failed", 0) : NULL;
    ok = ok && json_object_set_new(object, "request_counts", counts) == 0 &&
         json_object_set_new(object, "metadata", b->metadata ? store_copy(b->metadata) : json_null()) == 0;
    if (ok) return object;
    json_decref(object);
    return NULL;
}

bool batch_create(store *s, const store_owner *owner, const json_t *body, json_t **record, openai_error *error) {
    batch_body b = {.input = "", .endpoint = "", .window = ""};
    if (!read_body(body, &b, error)) return false;
    json_t *file = store_get(s, STORE_FILE, owner->domain, b.input);
    if (!file && store_has(s, STORE_FILE, owner->domain, b.input)) return fail_memory(error);
    const char *purpose = file ? json_string_value(json_object_get(store_object(file), "purpose")) : NULL;
    const bool is_input = purpose && strcmp(purpose, "batch") == 0;
    json_decref(file);
    if (!file) {
        openai_fail(error, "input_file_id", "there is no file '%.100s'; POST /v1/files with purpose 'batch' makes one",
                    b.input);
        error->status = 404;
        error->code = "file_not_found";
        return false;
    }
    if (!is_input) return openai_fail(error, "input_file_id", "the file's purpose must be 'batch'");

    char id[STORE_ID] = "", output[STORE_ID], errors[STORE_ID];
    cl_error cause;
    if (!store_new_id(STORE_FILE, output) || !store_new_id(STORE_FILE, errors))
        return openai_fail_from(error, NULL, &(cl_error){.code = CL_ERR_FILE, .message = "the system has no random numbers"});
    json_t *object = make_object(&b), *more = json_pack("{s:s, s:s}", "output", output, "errors", errors);
    if (!object || !more) {
        json_decref(object);
        json_decref(more);
        return fail_memory(error);
    }
    const cl_status status = store_add(s, STORE_BATCH, owner, id, object, more, record, &cause);
    json_decref(more);
    return status == CL_OK ? true : openai_fail_from(error, NULL, &cause);
}

/* ---- Changes ---- */

static bool set_counts(json_t *object, const batch_counts *c) {
    json_t *counts = json_pack("{s:I, s:I, s:I}", "total", (json_int_t)c->total, "completed", (json_int_t)c->completed,
                               "failed", (json_int_t)c->failed);
    return json_object_set_new(object, "request_counts", counts) == 0;
}

static bool set_status(json_t *object, const char *status) {
    char member[32];
    snprintf(member, sizeof member, "%s_at", status);
    return json_object_set_new(object, "status", json_string(status)) == 0 &&
           json_object_set_new(object, member, json_integer((json_int_t)time(NULL))) == 0;
}

static bool may_become(const json_t *object, const char *status) {
    const char *now = json_string_value(json_object_get(object, "status"));
    if (store_batch_ended(object)) return false;
    return !status || strcmp(now, "cancelling") != 0 || strcmp(status, "cancelled") == 0;
}

/* False: memory is lacking. */
static bool set_all(json_t *object, const batch_change *c) {
    bool ok = !c->status || set_status(object, c->status);
    if (ok && c->counts) ok = set_counts(object, c->counts);
    if (ok && c->errors)
        ok = json_object_set_new(object, "errors", json_pack("{s:s, s:O}", "object", "list", "data", c->errors)) == 0;
    if (ok && c->output_file_id) ok = json_object_set_new(object, "output_file_id", json_string(c->output_file_id)) == 0;
    if (ok && c->error_file_id) ok = json_object_set_new(object, "error_file_id", json_string(c->error_file_id)) == 0;
    return ok;
}

typedef struct application {
    const batch_change *change;
    bool no_memory;
} application;

static bool apply(json_t *object, void *ctx) {
    application *a = ctx;
    if (!may_become(object, a->change->status)) return false;
    a->no_memory = !set_all(object, a->change);
    return !a->no_memory;
}

cl_status batch_set(store *s, const char *id, const batch_change *change, bool to_disk, json_t **record, cl_error *error) {
    application a = {.change = change};
    const cl_status status = store_change(s, STORE_BATCH, id, to_disk, apply, &a, record, error);
    return status == CL_OK && a.no_memory ? cl_fail(error, CL_ERR_NOMEM, "no memory for the record") : status;
}

bool batch_cancel(store *s, uint32_t domain, const char *id, json_t **record, openai_error *error) {
    cl_error cause;
    if (!store_has(s, STORE_BATCH, domain, id)) return batch_not_found(STORE_BATCH, id, error);
    if (batch_set(s, id, &(batch_change){.status = "cancelling"}, true, record, &cause) != CL_OK) {
        json_decref(*record);
        *record = NULL;
        return openai_fail_from(error, NULL, &cause);
    }
    if (batch_has_status(*record, "cancelling") || batch_has_status(*record, "cancelled")) return true;
    openai_fail(error, NULL, "the batch is %s already, so it cannot be cancelled", batch_status(*record));
    error->status = 409;
    json_decref(*record);
    *record = NULL;
    return false;
}

/* ---- Files ---- */

typedef struct reader {
    const char *file;
    char batch[STORE_ID]; /* the id of a batch that reads the file; "": none */
} reader;

static bool find_reader(void *ctx, const json_t *record) {
    reader *r = ctx;
    const json_t *object = store_object(record);
    const char *input = json_string_value(json_object_get(object, "input_file_id"));
    if (store_batch_ended(object) || !input || strcmp(input, r->file) != 0) return true;
    snprintf(r->batch, sizeof r->batch, "%s", store_id(record));
    return false;
}

bool batch_remove_file(store *s, uint32_t domain, const char *id, openai_error *error) {
    cl_error cause;
    reader r = {.file = id};
    if (!store_has(s, STORE_FILE, domain, id)) return batch_not_found(STORE_FILE, id, error);
    store_each_batch(s, find_reader, &r);
    if (r.batch[0]) {
        openai_fail(error, NULL, "%s reads the file and has not ended; cancel it first", r.batch);
        error->status = 409;
        error->code = "file_in_use";
        return false;
    }
    return store_remove(s, STORE_FILE, id, &cause) == CL_OK ? true : openai_fail_from(error, NULL, &cause);
}
