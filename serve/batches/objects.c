/* Answers for files and batches, and keeps files. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "store_index.h"

static const char *const prefixes[] = {"file-", "batch_"}, *const tables[] = {"file", "batch"};

/* ---- Errors ---- */

bool store_failed(sqlite3 *db, openai_error *error) {
    cl_error cause;
    if (sql_failure(db, &cause) == CL_ERR_FORMAT) cause.code = CL_ERR_FILE; /* it is no fault of the request */
    return openai_fail_from(error, NULL, &cause);
}

bool store_not_found(store_kind kind, const char *id, openai_error *error) {
    openai_fail(error, NULL, "there is no %s '%.100s'; GET /v1/%s lists those that there are", tables[kind], id,
                kind == STORE_FILE ? "files" : "batches");
    return openai_set_status(error, 404, kind == STORE_FILE ? "file_not_found" : "batch_not_found");
}

bool store_found(sqlite3 *db, sql_result result, store_kind kind, const char *id, openai_error *error) {
    if (result == SQL_FAILED) return store_failed(db, error);
    return result == SQL_FOUND || store_not_found(kind, id, error);
}

/* ---- Objects ---- */

/* Write the failure, if there was one: in the connection, or for lack of memory in the writer. */
static bool written(sqlite3 *db, bool ok, const openai_writer *w, openai_error *error) {
    if (!ok) return store_failed(db, error);
    return w->failed ? openai_fail_memory(error) : true;
}

bool store_write_object(sqlite3 *db, store_kind kind, uint32_t domain, const char *id, openai_writer *w, openai_error *error) {
    char sql[100];
    snprintf(sql, sizeof sql, "SELECT object FROM %s_object WHERE id = ?1 AND domain = ?2", tables[kind]);
    sqlite3_stmt *q = sql_begin(db, sql, "ti", id, (int64_t)domain);
    const bool found = sql_next(q);
    if (found) writer_raw(w, sql_text(q, 0));
    return written(db, sql_end(q), w, error) && (found || store_not_found(kind, id, error));
}

bool store_get(batch_store *s, store_kind kind, uint32_t domain, const char *id, openai_writer *w, openai_error *error) {
    pthread_mutex_lock(&s->reader.lock);
    const bool ok = store_write_object(s->reader.db, kind, domain, id, w, error);
    pthread_mutex_unlock(&s->reader.lock);
    return ok;
}

/* Find where a list begins: *sequence. */
static bool find_after(sqlite3 *db, store_kind kind, uint32_t domain, const char *id, int64_t *sequence, openai_error *error) {
    char sql[100];
    snprintf(sql, sizeof sql, "SELECT sequence FROM %s WHERE id = ?1 AND domain = ?2", tables[kind]);
    if (store_found(db, sql_find(db, sequence, sql, "ti", id, (int64_t)domain), kind, id, error)) return true;
    snprintf(error->param, sizeof error->param, "after");
    return false;
}

static void write_id(openai_writer *w, const char *key, const char *id) {
    writer_raw(w, key);
    writer_raw(w, *id ? "\"" : "null");
    writer_raw(w, id);
    writer_raw(w, *id ? "\"" : "");
}

/* Write the rows of a query for ids and objects, which has one more than the limit if there are more. */
static void write_list(sqlite3_stmt *q, int64_t limit, openai_writer *w) {
    char first[STORE_ID] = "", last[STORE_ID] = "";
    int64_t n = 0;
    writer_raw(w, "{\"object\":\"list\",\"data\":[");
    for (; sql_next(q) && n < limit; n++) {
        snprintf(last, sizeof last, "%s", sql_text(q, 0));
        if (n == 0) memcpy(first, last, sizeof first);
        if (n > 0) writer_raw(w, ",");
        writer_raw(w, sql_text(q, 1));
    }
    write_id(w, "],\"first_id\":", first);
    write_id(w, ",\"last_id\":", last);
    writer_raw(w, sqlite3_data_count(q) > 0 ? ",\"has_more\":true}" : ",\"has_more\":false}");
}

static bool list(sqlite3 *db, store_kind kind, uint32_t domain, const store_query *query, openai_writer *w,
                 openai_error *error) {
    char sql[300];
    int64_t after = query->oldest_first ? 0 : INT64_MAX;
    if (query->after && !find_after(db, kind, domain, query->after, &after, error)) return false;
    snprintf(sql, sizeof sql,
             "SELECT id, object FROM %s_object WHERE domain = ?1 AND sequence %s ?2 AND (?3 IS NULL OR purpose = ?3)"
             " ORDER BY sequence %s LIMIT ?4",
             tables[kind], query->oldest_first ? ">" : "<", query->oldest_first ? "ASC" : "DESC");
    sqlite3_stmt *q = sql_begin(db, sql, "iiti", (int64_t)domain, after, query->purpose, query->limit + 1);
    write_list(q, query->limit, w);
    return written(db, sql_end(q), w, error);
}

bool store_list(batch_store *s, store_kind kind, uint32_t domain, const store_query *query, openai_writer *w,
                openai_error *error) {
    pthread_mutex_lock(&s->reader.lock);
    const bool ok = list(s->reader.db, kind, domain, query, w, error);
    pthread_mutex_unlock(&s->reader.lock);
    return ok;
}

/* ---- New ones ---- */

bool store_new_id(store_kind kind, char *id, openai_error *error) {
    char random[OPENAI_RANDOM_ID];
    if (!openai_random_id(random))
        return openai_fail_from(error, NULL, &(cl_error){.code = CL_ERR_FILE, .message = "the system has no random numbers"});
    snprintf(id, STORE_ID, "%s%s", prefixes[kind], random);
    return true;
}

bool store_has_capacity(sqlite3 *db, store_kind kind, uint32_t domain, openai_error *error) {
    static const char *const paths[] = {"/v1/files/ID", "/v1/batches/ID"};
    char sql[100];
    int64_t n_all, n_own;
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", tables[kind]);
    if (sql_find(db, &n_all, sql, "") != SQL_FOUND) return store_failed(db, error);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s WHERE domain = ?1", tables[kind]);
    if (sql_find(db, &n_own, sql, "i", (int64_t)domain) != SQL_FOUND) return store_failed(db, error);
    if (n_own < STORE_MAX_OBJECTS - n_all) return true;
    openai_fail(
        error, NULL,
        "this client has %lld of %lld of kind %s, and the limit for all is %d; DELETE %s removes one that is not needed "
        "any more",
        (long long)n_own, (long long)n_all, tables[kind], STORE_MAX_OBJECTS, paths[kind]);
    return openai_set_status(error, 400, kind == STORE_FILE ? "too_many_files" : "too_many_batches");
}

/* ---- Files ---- */

static bool add_file(sqlite3 *db, const batch_content *c, const store_owner *owner, const char *name, const char *purpose) {
    return sql_run(db,
                   "INSERT INTO file (id, tenant, domain, bytes, created_at, filename, purpose)"
                   " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                   "ttiiitt", c->id, owner->tenant, (int64_t)owner->domain, c->bytes, (int64_t)time(NULL), name, purpose);
}

bool store_add_file(batch_content *c, const store_owner *owner, const char *name, const char *purpose, openai_writer *w,
                    openai_error *error) {
    if (!content_sync(c, error)) return false;
    sqlite3 *db = store_begin(c->store, error);
    const bool ok = db && store_has_capacity(db, STORE_FILE, owner->domain, error) &&
                    (add_file(db, c, owner, name, purpose) || store_failed(db, error)) &&
                    store_write_object(db, STORE_FILE, owner->domain, c->id, w, error);
    return c->kept = store_end(c->store, ok, error);
}

static bool find_bytes(sqlite3 *db, uint32_t domain, const char *id, int64_t *bytes, openai_error *error) {
    const sql_result result =
        sql_find(db, bytes, "SELECT bytes FROM file WHERE id = ?1 AND domain = ?2", "ti", id, (int64_t)domain);
    return store_found(db, result, STORE_FILE, id, error);
}

int store_open_file(batch_store *s, uint32_t domain, const char *id, int64_t *bytes, openai_error *error) {
    pthread_mutex_lock(&s->reader.lock);
    const bool found = find_bytes(s->reader.db, domain, id, bytes, error);
    pthread_mutex_unlock(&s->reader.lock);
    return found ? content_open(s, id, error) : -1;
}

/* Whether no batch reads a file. */
static bool is_free(sqlite3 *db, const char *id, openai_error *error) {
    char reader[STORE_ID] = "";
    sqlite3_stmt *q = sql_begin(db, "SELECT id FROM batch WHERE " STORE_OPEN " AND input_file_id = ?1", "t", id);
    if (sql_next(q)) snprintf(reader, sizeof reader, "%s", sql_text(q, 0));
    if (!sql_end(q)) return store_failed(db, error);
    if (!*reader) return true;
    openai_fail(error, NULL, "%s reads the file and has not ended; cancel it first", reader);
    return openai_set_status(error, 409, "file_in_use");
}

bool store_remove_file(batch_store *s, uint32_t domain, const char *id, openai_error *error) {
    int64_t bytes;
    sqlite3 *db = store_begin(s, error);
    const bool ok = db && find_bytes(db, domain, id, &bytes, error) && is_free(db, id, error) &&
                    (sql_run(db, "DELETE FROM file WHERE id = ?1", "t", id) || store_failed(db, error));
    if (!store_end(s, ok, error)) return false;
    content_remove(s, id);
    return true;
}
