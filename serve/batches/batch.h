/*
 * The records of batches: what a client may request, and the states that a batch passes through.
 *
 *     validating -> in_progress -> finalizing -> completed
 *          |             |             |
 *          v             +-------------+--> expired
 *        failed
 *
 * A batch that has not ended may be cancelled: it is `cancelling` until its output is complete, then `cancelled`. The state and
 * the time of each change are on disk; the counts of requests follow from the records in its output (output.h).
 */
#ifndef SERVE_BATCHES_BATCH_H
#define SERVE_BATCHES_BATCH_H

#include "store.h"

enum {
    BATCH_MAX_REQUESTS = 50000,
    BATCH_MAX_ERRORS = 100, /* of the input that are listed */
    BATCH_MAX_METADATA = 16,
};

/*
 * Read the body of POST /v1/batches, and add the batch. False: *error says why; *record is the new record otherwise, a
 * copy.
 */
bool batch_create(store *s, const store_owner *owner, const json_t *body, json_t **record, openai_error *error);

/* Request that a batch be cancelled. False: *error says why. *record is as in batch_create. */
bool batch_cancel(store *s, uint32_t domain, const char *id, json_t **record, openai_error *error);

/* Remove a file of a tenant. False: *error says why, such as that a batch reads it. */
bool batch_remove_file(store *s, uint32_t domain, const char *id, openai_error *error);

/* The error of status 404 that a tenant has no file or batch of this id. Returns false. */
bool batch_not_found(store_kind kind, const char *id, openai_error *error);

/* As store_get. NULL: *error says that there is none, or that memory is lacking. */
json_t *batch_find(store *s, store_kind kind, uint32_t domain, const char *id, openai_error *error);

const char *batch_status(const json_t *record);
bool batch_has_status(const json_t *record, const char *status);

/* Numbers of requests. */
typedef struct batch_counts {
    int64_t total, completed, failed;
} batch_counts;

/* What changes in a batch's object; NULL: nothing. */
typedef struct batch_change {
    const char *status;         /* also sets the time "STATUS_at" */
    const batch_counts *counts; /* borrowed */
    json_t *errors;             /* array of errors of the input, borrowed */
    const char *output_file_id, *error_file_id;
} batch_change;

/*
 * Change a batch. One that is `cancelling` gets no other status than `cancelled`, and one that has ended does not change.
 * to_disk, *record and errors as in store_change.
 */
cl_status batch_set(store *s, const char *id, const batch_change *change, bool to_disk, json_t **record, cl_error *error);

/*
 * Check a batch's input: at most BATCH_MAX_REQUESTS lines, each {"custom_id", "method", "url", "body"} with a custom_id of its
 * own and the batch's endpoint. fd: the open file, read from its beginning. Blank lines do not count.
 *
 * *errors: an array, empty if the input is right, for the caller to free. *n is the number of requests. Where `stop` returns
 * true, which is called for each line, the check ends early as if the input ended there. Errors: CL_ERR_FILE, CL_ERR_NOMEM.
 */
cl_status batch_check(int fd, const char *endpoint, size_t max_line, bool (*stop)(void *ctx), void *ctx, int64_t *n,
                      json_t **errors, cl_error *error);

#endif
