/*
 * The files and batches of clients, in a folder and in an index in memory.
 *
 * Both are records. An update replaces a record as a whole, in the folder first, so what a client has learnt is on disk.
 * Callers get copies, since jansson's objects are not to be used by two threads, not even to count references.
 *
 *   ID.json   a record: {"tenant", "domain", "sequence", "object"}
 *   ID.data   the contents of a file
 *   *.part    contents that are being received, removed at the next start
 *
 * The object is what clients get. A batch's record also has the ids of its files, "output" and "errors".
 * The contents of a batch's output and errors exist from its first record on; their files' records follow when it ends.
 *
 * All functions but open and close may be called on any thread. Those that write wait for the disk. A record belongs to the
 * tenant whose domain it was made in: for others it does not exist.
 */
#ifndef SERVE_BATCHES_STORE_H
#define SERVE_BATCHES_STORE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "folder.h"
#include "serve/protocol/openai.h"

typedef struct store store;

typedef enum store_kind { STORE_FILE, STORE_BATCH, STORE_KINDS } store_kind;

enum {
    STORE_ID = 40,              /* bytes of an id, with its zero */
    STORE_MAX_RECORDS = 100000, /* of one kind; more are refused */
    STORE_MAX_NAME = 255,       /* bytes of a file's name */
    STORE_MAX_PURPOSE = 32,     /* bytes of a purpose */
};

/*
 * Open the folder, read all records, and remove contents that belong to none. Errors: those of folder_open; CL_ERR_FORMAT names
 * a record that cannot be read; CL_ERR_NOMEM.
 */
cl_status store_open(const char *path, store **s, cl_error *error);
void store_close(store **s);

/* To whom a record belongs. */
typedef struct store_owner {
    const char *tenant;
    uint32_t domain; /* of the tenant */
} store_owner;

/* ---- Records; copies, for the caller to free with json_decref ---- */

/* A copy of a value that shares nothing with it; NULL: memory is lacking (or value is NULL). */
json_t *store_copy(const json_t *value);

/* The record of this id; NULL: the tenant has none, or memory is lacking. */
json_t *store_get(store *s, store_kind kind, uint32_t domain, const char *id);

bool store_has(store *s, store_kind kind, uint32_t domain, const char *id);

/* The object that clients get, borrowed from a record. */
json_t *store_object(const json_t *record);
const char *store_id(const json_t *record);
store_owner store_owner_of(const json_t *record); /* borrowed */

/* Whether the batch of this object will not change any more. */
bool store_batch_ended(const json_t *object);

/* Which records a list has. */
typedef struct store_query {
    const char *after;   /* those behind the record of this id in the list; NULL: from the first one on */
    int64_t limit;       /* at most this many */
    bool oldest_first;   /* otherwise the newest come first */
    const char *purpose; /* files of this purpose; NULL: all */
} store_query;

/*
 * The objects of a tenant's records as OpenAI's list; NULL: memory is lacking, or there is no record `after`; *found says
 * which.
 */
json_t *store_list(store *s, store_kind kind, uint32_t domain, const store_query *query, bool *found);

/* Call `use` with the record of each batch, the oldest first, and stop where it returns false. Holds the index's lock. */
void store_each_batch(store *s, bool (*use)(void *ctx, const json_t *record), void *ctx);

/*
 * Write a new record of this object, which gets "id" and "created_at"; `object` is stolen. Further members of the record are in
 * `more` (borrowed, NULL: none). id: [STORE_ID], written here, or if it is not empty the id to use. CL_ERR_LIMIT: there are too
 * many records. *record (unless NULL) is a copy of it.
 */
cl_status store_add(store *s, store_kind kind, const store_owner *owner, char *id, json_t *object, json_t *more,
                    json_t **record, cl_error *error);

/*
 * Change a record: `change` gets a copy of its object, and returns false to leave the record as it is. With to_disk false the
 * change is lost when the process ends. *record (unless NULL) is a copy of the record afterwards, or NULL if there is none.
 * Errors: CL_ERR_FILE and CL_ERR_NOMEM, and the record is as before; but if the disk failed in the last moment, the next start
 * may find it changed.
 */
cl_status store_change(store *s, store_kind kind, const char *id, bool to_disk, bool (*change)(json_t *object, void *ctx),
                       void *ctx, json_t **record, cl_error *error);

/* Remove a record, and a file's contents. CL_ERR_FILE: it is still there. */
cl_status store_remove(store *s, store_kind kind, const char *id, cl_error *error);

/* Write a new id of this kind to id [STORE_ID]. False: the system has no random numbers. */
bool store_new_id(store_kind kind, char *id);

/* ---- Contents ---- */

/* Open the contents of a file for reading, or for appending; -1: they cannot be opened. */
int store_open_data(store *s, const char *id);
int store_append_data(store *s, const char *id, cl_error *error);

/* The folder, for what the store's own files share. */
const folder *store_folder(const store *s);

/* Remove contents that have no record. */
void store_remove_data(store *s, const char *id);

/*
 * A file that is being received. One thread at a time; any of them may follow another. An error is kept, and reported by
 * store_upload_end.
 */
typedef struct store_upload store_upload;

/* NULL: memory is lacking. */
store_upload *store_upload_begin(store *s, int64_t max_bytes);
void store_upload_write(store_upload *u, const char *data, size_t size);
int64_t store_upload_bytes(const store_upload *u);

/*
 * Make the file durable, and add its record. Errors: CL_ERR_ARG if it is larger than max_bytes, CL_ERR_FILE, CL_ERR_LIMIT,
 * CL_ERR_NOMEM.
 */
cl_status store_upload_end(store_upload *u, const store_owner *owner, const char *name, const char *purpose, json_t **record,
                           cl_error *error);

/* Free the upload, and remove what it received unless it has a record. NULL and pointers to NULL are ignored. */
void store_upload_free(store_upload **u);

/* The object of a file. NULL: memory is lacking. */
json_t *store_file_object(const char *name, const char *purpose, int64_t bytes);

#endif
