/* The index of a store, for the files of this folder. */
#ifndef SERVE_BATCHES_STORE_INDEX_H
#define SERVE_BATCHES_STORE_INDEX_H

#include <pthread.h>

#include "sql.h"
#include "store.h"

/* A condition of SQL: the batch has not ended. */
#define STORE_OPEN "status NOT IN ('completed', 'failed', 'expired', 'cancelled')"

enum { STORE_VERSION = 1 };
extern const char store_schema[]; /* schema.sql, which sets user_version to STORE_VERSION */

/* A connection to the index, which threads use in turn. */
typedef struct batch_connection {
    sqlite3 *db;
    pthread_mutex_t lock;
} batch_connection;

struct batch_store {
    int folder;                   /* file descriptor; locked */
    const store_watcher *watcher; /* borrowed; NULL after store_open */
    batch_connection writer;      /* for transactions */
    pthread_mutex_t turn;         /* held by the next writer, so that one that ends and begins again does not overtake it */
    batch_connection reader;      /* for clients, who wait for each other's statements alone */
    sqlite3 *worker;              /* the same for the worker's thread, whose statements may take long */
};

/*
 * Begin a transaction, in which the caller alone writes. NULL: *error says why not. store_end is due in either case: with `ok`
 * it makes the changes durable, and otherwise, or if that fails, undoes them. It returns whether they were made; *error is
 * filled where `ok` was true.
 */
sqlite3 *store_begin(batch_store *s, openai_error *error);
bool store_end(batch_store *s, bool ok, openai_error *error);

/* Fill *error with the last failure in a connection. Returns false. */
bool store_failed(sqlite3 *db, openai_error *error);

/* Fill *error: a tenant has no file or batch of this id. Returns false. */
bool store_not_found(store_kind kind, const char *id, openai_error *error);

/* Whether a query found the tenant's object of this id; otherwise *error says why not. */
bool store_found(sqlite3 *db, sql_result result, store_kind kind, const char *id, openai_error *error);

/* As store_get, in a connection. */
bool store_write_object(sqlite3 *db, store_kind kind, uint32_t domain, const char *id, openai_writer *w, openai_error *error);

/* Remove the batches that ended long ago, of all tenants (batch.c). False: see sql_failure. */
bool batch_remove_old(sqlite3 *db);

/* Whether a tenant may have one more file or batch. */
bool store_has_capacity(sqlite3 *db, store_kind kind, uint32_t domain, openai_error *error);

/* Write a new id of this kind to id [STORE_ID]. */
bool store_new_id(store_kind kind, char *id, openai_error *error);

/* Write the name of a file's contents to name [STORE_ID + 8]. */
void content_name(const char *id, char *name);

/* As store_open_file, by the id alone. */
int content_open(batch_store *s, const char *id, openai_error *error);

void content_remove(batch_store *s, const char *id);

/* Make contents durable, those of nothing too, before the index has them. */
bool content_sync(batch_content *c, openai_error *error);

#endif
