/* The state of the worker, which its source files share. */
#ifndef SERVE_BATCHES_WORKER_STATE_H
#define SERVE_BATCHES_WORKER_STATE_H

#include <stdatomic.h>

#include "errand.h"
#include "requests.h"
#include "worker.h"

enum { WORKER_MAX_RUNS = 8 }; /* batches that are computed at once */

/* Why a batch takes no more requests before its last one. */
typedef enum run_end { RUN_GOES_ON, RUN_CANCELLED, RUN_EXPIRED, RUN_STOPPED } run_end;

/* A batch that is computed. */
typedef struct batch_run {
    batch_worker *w; /* borrowed */
    struct batch_run *next;
    batch_info batch; /* as it was at the beginning of the turn */
    run_end end;
    int input;       /* file descriptor; -1: not open */
    int64_t n_taken; /* the number of the request that was taken last */
    bool all_taken;
    double retry_at;       /* clock_seconds() before which it neither submits nor moves, because the last attempt failed */
    batch_errand *pending; /* a list: the requests between the input and their output lines; owned */
    batch_errand *waiting; /* the one of them that is to be submitted next; NULL: none */
    size_t n;              /* of those pending */
    size_t n_bytes;        /* of its lines: at most config.max_line, or those of one line */
    char *text;            /* [capacity] owned; a line that is read */
    size_t capacity;       /* bytes */
} batch_run;

struct batch_worker {
    worker_config config;
    pthread_t thread;
    openai_context context; /* set by worker_serve before `serving`, with gate.engine */
    batch_gate gate;
    batch_run *runs; /* a list, in the order of creation; of the thread */
    bool blind;      /* the disk or memory was lacking to see how all batches are; of the thread */
    atomic_bool serving, stopping, draining;
};

/* ---- run_batch.c: one batch ---- */

/* A run of this batch; NULL: memory is lacking. */
batch_run *run_create(batch_worker *w, const batch_info *b);

/* None of its requests may be in the engine. */
void run_free(batch_run *r);

/* Bring the requests up to date, and cancel them if the batch was cancelled or has expired. */
void run_update(batch_run *r);

/* Submit the next request. False: there is none, or the engine does not take it now. */
bool run_submit(batch_run *r);

/* Take no more requests, and cancel those in the engine. */
void run_cut(batch_run *r, run_end end);

/* Write output lines of the requests that are done. False: try again later. */
bool run_write(batch_run *r);

/* Check the batch's input, or end the batch, if it is time for that. Returns whether the batch has changed. */
bool run_move(batch_run *r);

/* ---- worker.c: all of them ---- */

/* Take the next steps that need no waiting. Returns whether more of them are due at once. */
bool worker_turn(batch_worker *w);

#endif
