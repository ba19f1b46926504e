/*
 * The files and batches of clients, in a folder.
 *
 *   index.db        the index: a database of SQLite (schema.sql), with two more files while it is open
 *   file-ID.data    the contents of a file
 *
 * The index alone decides which files exist. Contents are made durable before the index has their file; contents without one
 * were left by a crash, and are removed at the next start. What is damaged is renamed to NAME.asideN. A change that a call has
 * reported is durable.
 *
 * All functions but open and close may be called on any thread. Those that write wait for the disk, one after another; those
 * that read do not wait for them. Files and batches belong to the tenant whose domain they were made in: for others they do not
 * exist. Functions that return false have filled *error.
 */
#ifndef SERVE_BATCHES_STORE_H
#define SERVE_BATCHES_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "serve/protocol/openai.h"

typedef struct batch_store batch_store;

typedef enum store_kind { STORE_FILE, STORE_BATCH } store_kind;

enum {
    STORE_ID = 40,              /* bytes of an id, with its zero */
    STORE_MAX_OBJECTS = 100000, /* of files, and of batches; a tenant may have at most as many as it leaves free */
    STORE_MAX_DAYS = 30,        /* for which a batch that has ended is kept if it is not removed before */
    STORE_MAX_NAME = 255,       /* bytes of a file's name */
    STORE_MAX_PURPOSE = 32,     /* bytes of a purpose */
};

/*
 * Gets each entry of the folder that is damaged: its name, the name that it has from now on (NULL: there is nothing to
 * rename), and the reason.
 */
typedef struct store_watcher {
    void (*set_aside)(void *ctx, const char *name, const char *aside, const char *reason);
    void *ctx;
} store_watcher;

/*
 * Open the folder, which is created if its parent exists, lock it, and remove contents that belong to no file, and batches that
 * ended STORE_MAX_DAYS ago.
 *
 * What is damaged does not keep the rest from being used: an index that SQLite cannot read is renamed, and so are contents that
 * lose their index or are not of the size that it says; their files are gone for clients. watcher: may be NULL.
 *
 * Errors: CL_ERR_FILE, also if another process has the folder, or contents cannot be examined or renamed; CL_ERR_FORMAT if an
 * earlier version wrote the folder, or a damaged index cannot be renamed; CL_ERR_UNSUPPORTED if a later version wrote it;
 * CL_ERR_NOMEM.
 */
cl_status store_open(const char *path, const store_watcher *watcher, batch_store **s, cl_error *error);
void store_close(batch_store **s);

/* To whom a file or batch belongs. */
typedef struct store_owner {
    const char *tenant;
    uint32_t domain; /* of the tenant */
} store_owner;

/* ---- What clients see ---- */

/* Write the object of a file or batch. */
bool store_get(batch_store *s, store_kind kind, uint32_t domain, const char *id, openai_writer *w, openai_error *error);

/* Which objects a list has. */
typedef struct store_query {
    const char *after;   /* those behind the object of this id in the list; NULL: from the first one on */
    int64_t limit;       /* at most this many */
    bool oldest_first;   /* otherwise the newest come first */
    const char *purpose; /* files of this purpose; NULL: all */
} store_query;

/* Write OpenAI's list of a tenant's files or batches. */
bool store_list(batch_store *s, store_kind kind, uint32_t domain, const store_query *query, openai_writer *w,
                openai_error *error);

/* ---- Files ---- */

/* Open the contents of a file: a file descriptor for reading, of which [*bytes] count; -1: *error says why not. */
int store_open_file(batch_store *s, uint32_t domain, const char *id, int64_t *bytes, openai_error *error);

/* Remove a file. It is refused while a batch reads it. */
bool store_remove_file(batch_store *s, uint32_t domain, const char *id, openai_error *error);

/* Contents that are being written, on one thread at a time: they become a file, or nothing. */
typedef struct batch_content {
    batch_store *store; /* borrowed */
    char id[STORE_ID];  /* of the file that they become; "": nothing was written yet */
    int fd;             /* -1: nothing was written yet */
    int64_t bytes;
    bool kept; /* they are a file's */
} batch_content;

batch_content content_begin(batch_store *s);
bool content_write(batch_content *c, const char *data, size_t size, openai_error *error);

/* Close the contents, and remove them unless they are a file's. */
void content_end(batch_content *c);

/* Make the contents a file, and write its object. */
bool store_add_file(batch_content *c, const store_owner *owner, const char *name, const char *purpose, openai_writer *w,
                    openai_error *error);

#endif
