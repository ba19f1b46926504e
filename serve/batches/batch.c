/* Creates and cancels batches. */
#include "batch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "requests.h"
#include "serve/protocol/dialect.h"
#include "serve/protocol/parse.h"

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
    if (!cl_json_is_object(metadata))
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
    if (!cl_json_is_object(body)) return openai_fail(error, NULL, "the body must be a JSON object, not %s", field_kind(body));
    if (!read_name(body, "input_file_id", &b->input, error) || !read_name(body, "endpoint", &b->endpoint, error) ||
        !read_name(body, "completion_window", &b->window, error))
        return false;
    if (!openai_dialect_read(json_object_get(body, "endpoint"), "endpoint", error)) return false;
    b->metadata = field_get(body, "metadata");
    return read_window(b, error) && (!b->metadata || check_metadata(b->metadata, error));
}

/* ---- Creation ---- */

/* Whether the tenant has this file, and it may be the input of a batch. */
static bool check_input(sqlite3 *db, uint32_t domain, const char *id, openai_error *error) {
    int64_t fits;
    const sql_result result =
        sql_find(db, &fits, "SELECT purpose = 'batch' FROM file WHERE id = ?1 AND domain = ?2", "ti", id, (int64_t)domain);
    if (result == SQL_FAILED) return store_failed(db, error);
    if (result == SQL_FOUND) return fits || openai_fail(error, "input_file_id", "the file's purpose must be 'batch'");
    openai_fail(error, "input_file_id", "there is no file '%.100s'; POST /v1/files with purpose 'batch' makes one", id);
    return openai_set_status(error, 404, "file_not_found");
}

/* metadata: as JSON; NULL: there is none. */
static bool add(sqlite3 *db, const char *id, const store_owner *owner, const batch_body *b, const char *metadata) {
    const int64_t now = (int64_t)time(NULL);
    return sql_run(db,
                   "INSERT INTO batch (id, tenant, domain, endpoint, input_file_id, completion_window, status, created_at,"
                   " expires_at, metadata) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'validating', ?7, ?8, ?9)",
                   "ttitttiit", id, owner->tenant, (int64_t)owner->domain, b->endpoint, b->input, b->window, now,
                   now + b->seconds, metadata);
}

bool batch_remove_old(sqlite3 *db) {
    const int64_t before = (int64_t)time(NULL) - (int64_t)STORE_MAX_DAYS * 24 * 3600;
    return sql_run(db,
                   "DELETE FROM batch WHERE NOT (" STORE_OPEN
                   ") AND coalesce(completed_at, failed_at, expired_at, cancelled_at, created_at) < ?1",
                   "i", before);
}

bool batch_create(batch_store *s, const store_owner *owner, const json_t *body, openai_writer *w, openai_error *error) {
    batch_body b = {.input = "", .endpoint = "", .window = ""};
    char id[STORE_ID], *metadata = NULL;
    if (!read_body(body, &b, error) || !store_new_id(STORE_BATCH, id, error)) return false;
    if (b.metadata) {
        openai_writer text = {0};
        writer_value(&text, NULL, json_incref((json_t *)b.metadata));
        metadata = writer_end(&text, NULL);
        if (!metadata) return openai_fail_memory(error);
    }
    sqlite3 *db = store_begin(s, error);
    const bool ok = db && check_input(db, owner->domain, b.input, error) && (batch_remove_old(db) || store_failed(db, error)) &&
                    store_has_capacity(db, STORE_BATCH, owner->domain, error) &&
                    (add(db, id, owner, &b, metadata) || store_failed(db, error)) &&
                    store_write_object(db, STORE_BATCH, owner->domain, id, w, error);
    free(metadata);
    return store_end(s, ok, error);
}

/* ---- Changes ---- */

bool batch_set_status(sqlite3 *db, int64_t sequence, const char *status) {
    char sql[300];
    snprintf(sql, sizeof sql,
             "UPDATE batch SET status = '%s', %s_at = ?2 WHERE sequence = ?1 AND " STORE_OPEN
             " AND (status <> 'cancelling' OR '%s' = 'cancelled')",
             status, status, status);
    return sql_run(db, sql, "ii", sequence, (int64_t)time(NULL));
}

/* Find a batch that was cancelled, or can be. */
static bool find_open(sqlite3 *db, uint32_t domain, const char *id, int64_t *sequence, openai_error *error) {
    int64_t open = 0;
    const sql_result result =
        sql_find(db, sequence, "SELECT sequence FROM batch WHERE id = ?1 AND domain = ?2", "ti", id, (int64_t)domain);
    if (!store_found(db, result, STORE_BATCH, id, error)) return false;
    if (sql_find(db, &open, "SELECT status = 'cancelled' OR " STORE_OPEN " FROM batch WHERE sequence = ?1", "i", *sequence) !=
        SQL_FOUND)
        return store_failed(db, error);
    if (open) return true;
    openai_fail(error, NULL, "the batch has ended already, so it cannot be cancelled");
    return openai_set_status(error, 409, NULL);
}

/* Whether the tenant has this batch, and it has ended. */
static bool check_ended(sqlite3 *db, uint32_t domain, const char *id, openai_error *error) {
    int64_t open = 0;
    const sql_result result =
        sql_find(db, &open, "SELECT " STORE_OPEN " FROM batch WHERE id = ?1 AND domain = ?2", "ti", id, (int64_t)domain);
    if (!store_found(db, result, STORE_BATCH, id, error)) return false;
    if (!open) return true;
    openai_fail(error, NULL, "the batch has not ended, so it cannot be removed; cancel it first");
    return openai_set_status(error, 409, NULL);
}

bool batch_remove(batch_store *s, uint32_t domain, const char *id, openai_error *error) {
    sqlite3 *db = store_begin(s, error);
    const bool ok = db && check_ended(db, domain, id, error) &&
                    (sql_run(db, "DELETE FROM batch WHERE id = ?1", "t", id) || store_failed(db, error));
    return store_end(s, ok, error);
}

bool batch_cancel(batch_store *s, uint32_t domain, const char *id, openai_writer *w, openai_error *error) {
    int64_t sequence;
    sqlite3 *db = store_begin(s, error);
    const bool ok = db && find_open(db, domain, id, &sequence, error) &&
                    (batch_set_status(db, sequence, "cancelling") || store_failed(db, error)) &&
                    store_write_object(db, STORE_BATCH, domain, id, w, error);
    return store_end(s, ok, error);
}
