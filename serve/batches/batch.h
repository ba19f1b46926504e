/*
 * Batches: a client's calls about them, and the states that a batch passes through.
 *
 *     validating -> in_progress -> finalizing -> completed
 *          |             |             |
 *          v             +-------------+--> expired
 *        failed
 *
 * A batch that has not ended may be cancelled: it is `cancelling` until its output is complete, then `cancelled`.
 */
#ifndef SERVE_BATCHES_BATCH_H
#define SERVE_BATCHES_BATCH_H

#include "store.h"

enum { BATCH_MAX_METADATA = 16 };

/* Read the body of POST /v1/batches, add the batch, and write its object. False: *error says why not. */
bool batch_create(batch_store *s, const store_owner *owner, const json_t *body, openai_writer *w, openai_error *error);

/* Remove a batch that has ended; its files stay. False: *error says why not. */
bool batch_remove(batch_store *s, uint32_t domain, const char *id, openai_error *error);

/* Request that a batch be cancelled, and write its object. False: *error says why not. */
bool batch_cancel(batch_store *s, uint32_t domain, const char *id, openai_writer *w, openai_error *error);

#endif
