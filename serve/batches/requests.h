/*
 * The requests of batches in the index, and the batches that have not ended: the part of the index that the worker's thread
 * reads and writes.
 *
 * The check of a batch's input notes where each request is. Later each gets its output line, and the batch's counts follow. So
 * a batch goes on with the requests that have none, after any end of the process.
 *
 * Functions that return false lack the disk or memory, and have changed nothing: call them again later.
 */
#ifndef SERVE_BATCHES_REQUESTS_H
#define SERVE_BATCHES_REQUESTS_H

#include "store_index.h"

enum {
    BATCH_MAX_REQUESTS = 50000,
    BATCH_MAX_ERRORS = 100, /* of the input that are listed */
};

/* A batch as it was when it was read. */
typedef struct batch_info {
    int64_t sequence;                   /* its key in the index, and its place in the order of creation */
    char id[STORE_ID], input[STORE_ID]; /* input: the id of its file */
    char endpoint[32], status[16];
    uint32_t domain;    /* of its tenant */
    int64_t expires_at; /* seconds since 1970 */
} batch_info;

/* Read the oldest batch of each tenant that has not ended: the `most` oldest of these, in order, into batches [*n]. */
bool batch_list_open(batch_store *s, batch_info *batches, int most, int *n);

/* Give a batch another status, and note when; without effect if it has ended, and on one that is cancelling but for its end. */
bool batch_set_status(sqlite3 *db, int64_t sequence, const char *status);

/*
 * Check a batch's input: at most BATCH_MAX_REQUESTS lines, each {"custom_id", "method", "url", "body"} with a custom_id of its
 * own and the batch's endpoint. Blank lines do not count. fd: the open file, read from its beginning; -1: it cannot be read.
 * The batch becomes in_progress with its requests, or failed with a list of errors. Where `stop` returns true, which is called
 * for each line, the check ends with false.
 */
bool batch_check(batch_store *s, const batch_info *b, int fd, size_t max_line, bool (*stop)(void *ctx), void *ctx);

/* Where a request is in its batch's input. */
typedef struct batch_request {
    int64_t number; /* of those that are not blank, from 1; 0: there is no request */
    int64_t place;  /* where its line begins, in bytes */
    size_t size;    /* bytes of the line, without its end */
} batch_request;

/* Find the first request behind the number `after` that has no output line. */
bool batch_next(batch_store *s, const batch_info *b, int64_t after, batch_request *next);

/* In a transaction: give a request its output line [size], which ends with a line break. failed: it reports an error. */
bool batch_add_output(sqlite3 *db, const batch_info *b, int64_t number, bool failed, const char *output, size_t size);

/*
 * End a batch: its output lines become files, answers and errors apart, each in the order of the input. If it `expired`,
 * requests without an output line get one before that says so. The batch becomes completed or expired, or cancelled if it is
 * cancelling.
 */
bool batch_end(batch_store *s, const batch_info *b, bool expired);

#endif
