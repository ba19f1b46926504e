/* A folder that is removed after the test, a disk whose calls fail, and files and batches in a store. */
#ifndef TESTS_SERVE_BATCHES_BATCHES_FIXTURE_H
#define TESTS_SERVE_BATCHES_BATCHES_FIXTURE_H

#include <stdbool.h>

#include "serve/batches/store_index.h"

/* cmocka's set-up: *state is the path of an empty folder. */
int set_up_folder(void **state);
int tear_down_folder(void **state);

/* How many files the folder has whose names end so. */
int count_files(const char *path, const char *suffix);

/*
 * From now on the n-th call that writes to the disk fails, n >= 1, and `times` calls in all, on any thread, of this program or
 * of SQLite. A call that fails has written half of its bytes, if it has more than one.
 */
void fail_disk(int n, int times);

/* Let all calls succeed again. Returns whether one has failed. */
bool mend_disk(void);

/* ---- Files and batches. Objects are copies, for the caller to free. ---- */

static const store_owner nobody = {"default", 0}, alice = {"alice", 7};

/* Open the store in a folder, which must succeed. */
batch_store *open_store(const char *path);

/* Add a file of this text; its id goes to id [STORE_ID]. False with *error: the store refused it. */
bool add_file(batch_store *s, const store_owner *owner, const char *text, char *id, openai_error *error);

/* The body of a request for a batch of a file with a completion_window. */
json_t *batch_body(const char *file, const char *window);

/* Add a batch of requests for completions; its id goes to id [STORE_ID]. */
void add_batch(batch_store *s, const store_owner *owner, const char *text, const char *window, char *id);

/* The object of a file or batch. */
json_t *object_of(batch_store *s, store_kind kind, uint32_t domain, const char *id);

/* A tenant's list of up to 1000 files or batches. */
json_t *list_of(batch_store *s, store_kind kind, uint32_t domain);
int count_of(batch_store *s, store_kind kind, uint32_t domain);

bool has_status(const json_t *batch, const char *status);
bool has_ended(const json_t *batch);

/* How many requests of a batch are "total", "completed" or "failed". */
int64_t n_requests(const json_t *batch, const char *which);

/* The contents of a file, allocated; NULL: they cannot be read. */
char *read_file(batch_store *s, uint32_t domain, const char *id);

#endif
