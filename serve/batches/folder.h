/*
 * A folder whose files survive a crash: what is written as a whole is there as a whole or not at all, once a call has returned.
 *
 * One process at a time has the folder. Calls on different names may be made on several threads at once.
 */
#ifndef SERVE_BATCHES_FOLDER_H
#define SERVE_BATCHES_FOLDER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "chunkllama/common/error.h"

typedef struct folder {
    int fd; /* of the folder, which is locked; owned */
} folder;

/*
 * Create the folder if it does not exist, and lock it. Errors: CL_ERR_FILE if it cannot be created, opened or read, or if
 * another process has it.
 */
cl_status folder_open(folder *f, const char *path, cl_error *error);
void folder_close(folder *f);

/* Call `use` with each name in the folder but "." and "..", in no order. CL_ERR_FILE: it cannot be read. */
cl_status folder_list(const folder *f, void (*use)(void *ctx, const char *name), void *ctx, cl_error *error);

/* Replace the file by this JSON. CL_ERR_FILE: the file is as before; CL_ERR_NOMEM. */
cl_status folder_write_json(const folder *f, const char *name, const json_t *value, cl_error *error);

/* Read the file's JSON, a new reference. Errors: CL_ERR_FILE, that of folder_damaged, CL_ERR_NOMEM. */
cl_status folder_read_json(const folder *f, const char *name, json_t **value, cl_error *error);

/* The error that the file's contents are not what they should be: CL_ERR_FORMAT. */
cl_status folder_damaged(const char *name, cl_error *error);

/* A new file, or an existing one that is appended to, open for reading and writing; -1: *error says why (CL_ERR_FILE). */
int folder_append(const folder *f, const char *name, cl_error *error);

/* Open a file for reading; -1: it cannot be opened. */
int folder_read(const folder *f, const char *name);

/* Write bytes at the end of a file that folder_append has opened. False: errno says why; a part may be written. */
bool folder_write(int fd, const char *data, size_t size);

/* Make the contents of the open file durable, and give it the name `to` in place of `from`. CL_ERR_FILE. */
cl_status folder_keep(const folder *f, int fd, const char *from, const char *to, cl_error *error);

/* Remove a file if it is there. False: it is there and cannot be removed. */
bool folder_remove(const folder *f, const char *name);

#endif
