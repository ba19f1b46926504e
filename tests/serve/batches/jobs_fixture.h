/* A folder that is removed after the test, and a disk whose calls fail. */
#ifndef TESTS_SERVE_BATCHES_JOBS_FIXTURE_H
#define TESTS_SERVE_BATCHES_JOBS_FIXTURE_H

#include <stdbool.h>

#include "serve/batches/store.h"

/* cmocka's set-up: *state is the path of an empty folder. */
int set_up_folder(void **state);
int tear_down_folder(void **state);

/* Remove all files of a folder. */
void empty_folder(const char *path);

/*
 * From now on the n-th call of write, fsync, renameat or ftruncate fails, n >= 1, and `times` calls in all, on any thread. A
 * write that fails has written half of its bytes, if it has more than one.
 */
void fail_disk(int n, int times);

/* Let all calls succeed again. Returns whether one has failed. */
bool mend_disk(void);

/* Open the store in a folder, which must succeed. */
store *open_store(const char *path);

/* Add a file of this text; its id goes to id [STORE_ID]. False with *error: the store refused it. */
bool add_file(store *s, const store_owner *owner, const char *text, char *id, cl_error *error);

/* The contents of a file, allocated; NULL: they cannot be read. */
char *read_file(store *s, const char *id);

/* How many files the folder has whose names end so. */
int count_files(const char *path, const char *suffix);

#endif
