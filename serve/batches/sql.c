/* Runs the statements of SQLite. */
#include "sql.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

/* Milliseconds for which a statement waits where another program, such as a backup, has locked the database. */
enum { BUSY_MS = 10000 };

bool sql_open(const char *path, bool writes, sqlite3 **db) {
    const int access = writes ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
    const bool ok = sqlite3_open_v2(path, db, access | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK;
    return ok && sqlite3_busy_timeout(*db, BUSY_MS) == SQLITE_OK && sql_run(*db, "PRAGMA schema_version", "");
}

/* Give a parameter, from 1, its value. */
static int bind(sqlite3_stmt *q, int i, char type, va_list *values) {
    if (type == 'i') return sqlite3_bind_int64(q, i, va_arg(*values, int64_t));
    const char *bytes = va_arg(*values, const char *);
    if (type == 't') return sqlite3_bind_text(q, i, bytes, -1, SQLITE_STATIC);
    return sqlite3_bind_blob64(q, i, bytes, va_arg(*values, size_t), SQLITE_STATIC);
}

static sqlite3_stmt *begin(sqlite3 *db, const char *sql, const char *types, va_list *values) {
    sqlite3_stmt *q = NULL;
    int code = sqlite3_prepare_v2(db, sql, -1, &q, NULL);
    for (int i = 0; code == SQLITE_OK && types[i]; i++) code = bind(q, i + 1, types[i], values);
    if (code == SQLITE_OK) return q;
    sqlite3_finalize(q);
    return NULL;
}

sqlite3_stmt *sql_begin(sqlite3 *db, const char *sql, const char *types, ...) {
    va_list values;
    va_start(values, types);
    sqlite3_stmt *q = begin(db, sql, types, &values);
    va_end(values);
    return q;
}

bool sql_next(sqlite3_stmt *q) { return q && sqlite3_step(q) == SQLITE_ROW; }

const char *sql_text(sqlite3_stmt *q, int column) {
    const unsigned char *text = sqlite3_column_text(q, column);
    return text ? (const char *)text : "";
}

bool sql_end(sqlite3_stmt *q) { return sqlite3_finalize(q) == SQLITE_OK && q; }

sql_result sql_find(sqlite3 *db, int64_t *value, const char *sql, const char *types, ...) {
    va_list values;
    va_start(values, types);
    sqlite3_stmt *q = begin(db, sql, types, &values);
    va_end(values);
    const bool found = sql_next(q);
    if (found) *value = sqlite3_column_int64(q, 0);
    return !sql_end(q) ? SQL_FAILED : found ? SQL_FOUND : SQL_NONE;
}

bool sql_run(sqlite3 *db, const char *sql, const char *types, ...) {
    va_list values;
    va_start(values, types);
    sqlite3_stmt *q = begin(db, sql, types, &values);
    va_end(values);
    while (sql_next(q)) {
    }
    return sql_end(q);
}

cl_status sql_failure(sqlite3 *db, cl_error *error) {
    const int code = sqlite3_errcode(db) & 0xff;
    const int cause = code == SQLITE_FULL ? ENOSPC : db ? sqlite3_system_errno(db) : 0;
    switch (code) {
    case SQLITE_NOMEM: return cl_fail(error, CL_ERR_NOMEM, "no memory for the index of --files-dir; try again later");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_CONSTRAINT:
    case SQLITE_ERROR:
        return cl_fail(error, CL_ERR_FORMAT,
                       "index.db in the folder of --files-dir is damaged (%s); restore the folder from a copy",
                       sqlite3_errmsg(db));
    default:
        return cl_fail(error, CL_ERR_FILE, "cannot use index.db in the folder of --files-dir: %s%s%s", sqlite3_errmsg(db),
                       cause ? ": " : "", cause ? strerror(cause) : "");
    }
}
