/* The state of the worker, which its source files share. */
#ifndef SERVE_BATCHES_WORKER_STATE_H
#define SERVE_BATCHES_WORKER_STATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "lines.h"
#include "output.h"
#include "serve/protocol/batch_line.h"
#include "worker.h"

enum { WORKER_MAX_RUNS = 8 }; /* batches that are computed at once */

/* How far a request of the window is. */
typedef enum slot_state {
    SLOT_READY,   /* to be submitted */
    SLOT_RUNNING, /* submitted; done once n_open is 0 */
    SLOT_REFUSED, /* the engine's queue was full, or memory was lacking; READY again once n_open is 0 */
    SLOT_DONE,
} slot_state;

/* A request in the window. */
typedef struct slot {
    worker *w; /* borrowed */
    batch_line line;
    slot_state state;
    openai_job *prompts; /* [line.request.n_prompts] */
    size_t n_submitted;  /* of these */
    size_t n_open;       /* prompts whose last event has not come; guarded by w->lock */
    bool cut;            /* it was cancelled before it had ended */
    size_t size;         /* bytes of its line */
} slot;

/* Why a batch ends before its last request. */
typedef enum run_end { RUN_GOES_ON, RUN_CANCELLED, RUN_EXPIRED, RUN_STOPPED } run_end;

/* A batch that is computed. */
typedef struct run {
    worker *w; /* borrowed */
    struct run *next;
    json_t *record; /* as it was when the run began; owned */
    char id[STORE_ID];
    int64_t expires_at; /* seconds since 1970 */
    uint32_t domain;
    int input; /* file descriptor; -1: not open */
    lines in;
    output out;
    bool opened; /* the files are open, and the input is known to be right */
    batch_counts counts;
    int64_t n_read, n_written; /* requests */
    bool all_read;
    run_end end;
    slot **window; /* ring [capacity]; the oldest is at `first` */
    size_t first, n, capacity;
    size_t n_bytes;  /* of the window's lines: at most config.max_line, or those of one line */
    double retry_at; /* clock_seconds() before which nothing is tried, because something failed */
} run;

struct worker {
    worker_config config;
    pthread_t thread;

    /* Set by worker_serve before `serving`. */
    cl_engine *engine;
    openai_context context;

    /* Of the thread. */
    run *runs;
    int32_t n_choices; /* of all slots that are RUNNING or REFUSED */

    atomic_bool stopping, draining;
    pthread_mutex_t lock; /* guards what follows, and the slots' n_open */
    pthread_cond_t changed;
    bool serving, woken;
};

/* ---- run.c: one batch, on the worker's thread ---- */

/* A run of this batch; NULL: memory is lacking. */
run *run_create(worker *w, const json_t *record);
void run_free(run *r);

/* Do what can be done without waiting but for submitting. *progress: something was done. False: the batch has ended. */
bool run_advance(run *r, bool *progress);

/* Submit the next request if there is one and the engine takes it. False: nothing can be submitted now. */
bool run_submit(run *r);

/* End the run before its last request: cancel what the engine computes. */
void run_cut(run *r, run_end end);

/* Bring all slots up to date. Returns whether no request is in the engine. */
bool run_update(run *r);

/* Write what is done, as far as nothing before it is missing. */
void run_write(run *r, bool *progress);

/* ---- slot.c: one request ---- */

/* A request from a line of the input; NULL: memory is lacking. */
slot *slot_create(run *r, int64_t number, const char *text, size_t size);
void slot_free(slot *s);

/* Submit a READY slot. False: the engine's queue is full, or memory is lacking. */
bool slot_submit(slot *s);

/* Bring the state up to date. */
void slot_update(slot *s);

/* Cancel what the engine computes. */
void slot_cancel(slot *s);

#endif
