/*
 * SQLite in a few words. A connection is used by one thread at a time, and remembers its last failure (sql_failure), so
 * that functions only say whether they succeeded.
 */
#ifndef SERVE_BATCHES_SQL_H
#define SERVE_BATCHES_SQL_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "chunkllama/common/error.h"

/*
 * Open a database for reading, with `writes` also for writing; then it is created if it does not exist. All of its files are
 * open afterwards. False: see sql_failure; *db is NULL or to be closed.
 */
bool sql_open(const char *path, bool writes, sqlite3 **db);

/*
 * Prepare a statement; sql_end ends it. types has a letter for each parameter of the statement, whose values follow: i is an
 * int64_t, t a text (NULL: null), b bytes and then their number, a size_t. Texts and bytes are borrowed until sql_end. NULL: it
 * failed; the functions below accept NULL.
 */
sqlite3_stmt *sql_begin(sqlite3 *db, const char *sql, const char *types, ...);

/* Go to the next row, whose values sqlite3_column_* returns. False: there is none, or the statement failed. */
bool sql_next(sqlite3_stmt *q);

/* A column's value as text, borrowed until the next call. "": it is null, or memory is lacking; sql_end reports the latter. */
const char *sql_text(sqlite3_stmt *q, int column);

/* End a statement. False: it failed. */
bool sql_end(sqlite3_stmt *q);

/* What a query for one value found. */
typedef enum sql_result { SQL_FAILED, SQL_NONE, SQL_FOUND } sql_result;

/* Read the integer in the first column of the first row. */
sql_result sql_find(sqlite3 *db, int64_t *value, const char *sql, const char *types, ...);

/* Run a statement, and drop its rows. */
bool sql_run(sqlite3 *db, const char *sql, const char *types, ...);

/*
 * The failure of the last call: CL_ERR_NOMEM; CL_ERR_FORMAT if the database, or JSON in it, is damaged; otherwise CL_ERR_FILE,
 * also if the disk is full. db NULL: CL_ERR_NOMEM.
 */
cl_status sql_failure(sqlite3 *db, cl_error *error);

#endif
