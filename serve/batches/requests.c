/* Reads open batches, notes the output lines of their requests, and ends them. */
#include "requests.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- Reading ---- */

static void read_batch(sqlite3_stmt *q, batch_info *b) {
    *b = (batch_info){.sequence = sqlite3_column_int64(q, 0),
                      .domain = (uint32_t)sqlite3_column_int64(q, 1),
                      .expires_at = sqlite3_column_int64(q, 2)};
    snprintf(b->id, sizeof b->id, "%s", sql_text(q, 3));
    snprintf(b->input, sizeof b->input, "%s", sql_text(q, 4));
    snprintf(b->endpoint, sizeof b->endpoint, "%s", sql_text(q, 5));
    snprintf(b->status, sizeof b->status, "%s", sql_text(q, 6));
}

bool batch_list_open(batch_store *s, batch_info *batches, int most, int *n) {
    sqlite3_stmt *q = sql_begin(s->worker,
                                "SELECT sequence, domain, expires_at, id, input_file_id, endpoint, status FROM batch WHERE"
                                " sequence IN (SELECT min(sequence) FROM batch WHERE " STORE_OPEN " GROUP BY domain)"
                                " ORDER BY sequence LIMIT ?1",
                                "i", (int64_t)most);
    for (*n = 0; sql_next(q); ++*n) read_batch(q, &batches[*n]);
    return sql_end(q);
}

bool batch_next(batch_store *s, const batch_info *b, int64_t after, batch_request *next) {
    sqlite3_stmt *q = sql_begin(s->worker,
                                "SELECT number, place, size FROM request WHERE batch = ?1 AND number > ?2 AND record IS NULL"
                                " ORDER BY number LIMIT 1",
                                "ii", b->sequence, after);
    const bool found = sql_next(q);
    *next = (batch_request){0};
    if (found)
        *next = (batch_request){sqlite3_column_int64(q, 0), sqlite3_column_int64(q, 1), (size_t)sqlite3_column_int64(q, 2)};
    return sql_end(q);
}

/* ---- Output lines ---- */

bool batch_add_output(sqlite3 *db, const batch_info *b, int64_t number, bool failed, const char *output, size_t size) {
    return sql_run(db, "UPDATE request SET failed = ?3, record = ?4 WHERE batch = ?1 AND number = ?2", "iiib", b->sequence,
                   number, (int64_t)failed, output, size);
}

/* Give each request without an output line one that reports its expiry. */
static bool expire(sqlite3 *db, const batch_info *b) {
    return sql_run(db,
                   "UPDATE request SET failed = 1, record = '{\"id\": \"batch_req_' || number || '\", \"custom_id\": ' ||"
                   " json_quote(custom_id) || ', \"response\": null, \"error\": {\"code\": \"batch_expired\", \"message\":"
                   " \"the batch''s completion_window ended before this request\"}}' || char(10)"
                   " WHERE batch = ?1 AND record IS NULL",
                   "i", b->sequence);
}

/* ---- The end ---- */

/* The last step before the output lines become files. */
static bool finalize(batch_store *s, const batch_info *b, bool expired) {
    openai_error error;
    sqlite3 *db = store_begin(s, &error);
    return store_end(s, db && (expired ? expire(db, b) : batch_set_status(db, b->sequence, "finalizing")), &error);
}

/* Write the output lines of one kind to contents, and make these durable. */
static bool copy_output(batch_store *s, const batch_info *b, bool failed, batch_content *c) {
    openai_error error;
    bool ok = true;
    sqlite3_stmt *q = sql_begin(s->worker, "SELECT record FROM request WHERE batch = ?1 AND failed = ?2 ORDER BY number", "ii",
                                b->sequence, (int64_t)failed);
    while (ok && sql_next(q)) {
        const char *output = sqlite3_column_blob(q, 0); /* before its size */
        ok = output && content_write(c, output, (size_t)sqlite3_column_bytes(q, 0), &error);
    }
    ok &= sql_end(q);
    return ok && (c->bytes == 0 || content_sync(c, &error));
}

/* Make contents a file of the batch, unless they are empty. */
static bool add_file(sqlite3 *db, const batch_info *b, bool failed, const batch_content *c) {
    char name[STORE_ID + 20];
    snprintf(name, sizeof name, "%s_%s.jsonl", b->id, failed ? "error" : "output");
    return c->bytes == 0 || (sql_run(db,
                                     "INSERT INTO file (id, tenant, domain, bytes, created_at, filename, purpose)"
                                     " SELECT ?2, tenant, domain, ?3, ?4, ?5, 'batch_output' FROM batch WHERE sequence = ?1",
                                     "itiit", b->sequence, c->id, c->bytes, (int64_t)time(NULL), name) &&
                             sql_run(db,
                                     failed ? "UPDATE batch SET error_file_id = ?2 WHERE sequence = ?1"
                                            : "UPDATE batch SET output_file_id = ?2 WHERE sequence = ?1",
                                     "it", b->sequence, c->id));
}

/* Give the batch its last status. It may have been cancelled a moment ago. */
static bool close_batch(sqlite3 *db, const batch_info *b, const char *status) {
    bool ok = batch_set_status(db, b->sequence, status);
    if (ok && sqlite3_changes(db) == 0) ok = batch_set_status(db, b->sequence, "cancelled");
    return ok && sql_run(db, "DELETE FROM request WHERE batch = ?1", "i", b->sequence);
}

bool batch_end(batch_store *s, const batch_info *b, bool expired) {
    openai_error error;
    batch_content answers = content_begin(s), errors = content_begin(s);
    bool ok = finalize(s, b, expired) && copy_output(s, b, false, &answers) && copy_output(s, b, true, &errors);
    if (ok) {
        sqlite3 *db = store_begin(s, &error);
        ok = store_end(s,
                       db && add_file(db, b, false, &answers) && add_file(db, b, true, &errors) &&
                           close_batch(db, b, expired ? "expired" : "completed"),
                       &error);
    }
    answers.kept = errors.kept = ok;
    content_end(&answers);
    content_end(&errors);
    return ok;
}
