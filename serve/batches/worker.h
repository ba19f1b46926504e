/*
 * Computes the batches of a store with an engine, on a thread of its own.
 *
 * The thread checks the inputs, submits requests and writes output lines; the engine's thread adds the events to the results.
 * Batches of different tenants are computed at the same time, those of a tenant in the order of their creation. The requests of
 * a batch are submitted in the order of its input, and each output line is written once it is done. The requests
 * between input and output line are *pending*: their number and the bytes of their lines are limited, as is the number of
 * choices that all batches have in the engine at once.
 *
 * Requests run in the domain of the batch's tenant, with the lowest priority, and without a limit on their time. Where the
 * engine's queue is full, the worker waits. Where the disk or memory is lacking, it tries again after a while, and the batch
 * expires at last.
 *
 * The index says how to go on after any end of the process (requests.h). The thread holds no lock when it calls the store or
 * the engine.
 */
#ifndef SERVE_BATCHES_WORKER_H
#define SERVE_BATCHES_WORKER_H

#include "store.h"

typedef struct batch_worker batch_worker;

typedef struct worker_config {
    batch_store *store;  /* borrowed */
    int32_t max_choices; /* of batches in the engine at once, >= 1; a single request may have more */
    size_t max_line;     /* bytes of a line of an input */
    double retry_s;      /* seconds, > 0, until a failed action is tried again, and the expiry of batches is checked */
} worker_config;

/* Start the thread, which waits for worker_serve. CL_ERR_NOMEM, also if threads are lacking. */
cl_status worker_create(const worker_config *config, batch_worker **w, cl_error *error);

/* Begin to compute; to be called once. Both are borrowed until worker_destroy, but for the context's time limits and pins. */
void worker_serve(batch_worker *w, cl_engine *e, const openai_context *context);

/* A batch was added or cancelled. From any thread. */
void worker_wake(batch_worker *w);

/* Submit no more requests from now on; those that run go on. From any thread. */
void worker_drain(batch_worker *w);

/*
 * Cancel running requests, wait for the last events, end the thread and free w. Requests without output are computed by a later
 * process. NULL and pointers to NULL are ignored.
 */
void worker_destroy(batch_worker **w);

#endif
