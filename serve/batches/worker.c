/* The worker's thread: which batches run, and when it waits. */
#include <stdlib.h>

#include "worker_state.h"

/* ---- A turn ---- */

/* Remove the run of a batch from a list; NULL: there is none. */
static run *unlink_run(run **list, int64_t sequence) {
    while (*list && (*list)->batch.sequence != sequence) list = &(*list)->next;
    run *r = *list;
    if (r) *list = r->next;
    return r;
}

/* Run the batches that are open, and no others. */
static void look(worker *w) {
    batch open[WORKER_MAX_RUNS];
    int n;
    w->blind = !batch_list_open(w->config.store, open, WORKER_MAX_RUNS, &n);
    if (w->blind) return;
    run *before = w->runs, **end = &w->runs;
    for (int i = 0; i < n; i++) {
        run *r = unlink_run(&before, open[i].sequence);
        if (!r) r = run_create(w, &open[i]);
        w->blind |= !r;
        if (!r) continue;
        r->batch = open[i];
        *end = r;
        end = &r->next;
    }
    *end = NULL;
    for (run *next; before; before = next) {
        next = before->next;
        run_free(before);
    }
}

/* Submit requests, one of each batch in turn, until none can be submitted. */
static void submit_all(worker *w) {
    bool submitted = true;
    while (submitted && !atomic_load(&w->stopping) && !atomic_load(&w->draining)) {
        submitted = false;
        for (run *r = w->runs; r; r = r->next) submitted |= run_submit(r);
    }
}

/* Write records and move the batch, unless its status is not known. Returns whether the next turn has more to do. */
static bool advance(const worker *w, run *r) {
    const size_t n = r->n;
    if (!run_write(r)) return false;
    const bool moved = !w->blind && run_move(r);
    return moved || r->n < n; /* a smaller window takes more requests */
}

/* Requests are submitted before records are written, so that the engine need not wait for the disk. */
bool worker_turn(worker *w) {
    bool more = false;
    look(w);
    for (run *r = w->runs; r; r = r->next) run_update(r);
    submit_all(w);
    for (run *r = w->runs; r; r = r->next) more |= advance(w, r);
    return more;
}

/* ---- The thread ---- */

/* Cancel what runs, write what is done, and free all runs. */
static void end_all(worker *w) {
    for (run *r = w->runs; r; r = r->next) run_cut(r, RUN_STOPPED);
    for (;; gate_wait(&w->gate, -1)) {
        for (run *r = w->runs; r; r = r->next) run_update(r);
        if (w->gate.n_choices == 0) break;
    }
    for (run *r = w->runs, *next; r; r = next) {
        next = r->next;
        run_write(r);
        run_free(r);
    }
    w->runs = NULL;
}

/* What comes without a wake-up, such as the end of a batch's time, is noticed after retry_s. */
static void *work(void *arg) {
    worker *w = arg;
    while (!atomic_load(&w->serving) && !atomic_load(&w->stopping)) gate_wait(&w->gate, -1);
    while (!atomic_load(&w->stopping))
        if (!worker_turn(w) && !atomic_load(&w->stopping)) gate_wait(&w->gate, w->runs || w->blind ? w->config.retry_s : -1);
    end_all(w);
    return NULL;
}

/* ---- Beginning and end ---- */

cl_status worker_create(const worker_config *config, worker **created, cl_error *error) {
    worker *w = calloc(1, sizeof *w);
    *created = NULL;
    if (!w) return cl_fail(error, CL_ERR_NOMEM, "no memory for the batches");
    w->config = *config;
    w->gate.waits = true;
    w->gate.context = &w->context;
    gate_init(&w->gate);
    if (pthread_create(&w->thread, NULL, work, w) != 0) {
        gate_destroy(&w->gate);
        free(w);
        return cl_fail(error, CL_ERR_NOMEM, "cannot start a thread for the batches");
    }
    *created = w;
    return CL_OK;
}

void worker_serve(worker *w, cl_engine *e, const openai_context *context) {
    w->gate.engine = e;
    w->context = *context;
    w->context.timeout_s = w->context.queue_timeout_s = 0; /* a batch waits as long as others have requests */
    w->context.can_pin = false;                            /* nobody lists what its lines would pin, nor ends it */
    atomic_store(&w->serving, true);
    gate_wake(&w->gate);
}

void worker_wake(worker *w) { gate_wake(&w->gate); }

void worker_drain(worker *w) { atomic_store(&w->draining, true); }

void worker_destroy(worker **address) {
    worker *w = address ? *address : NULL;
    if (!w) return;
    *address = NULL;
    atomic_store(&w->stopping, true);
    gate_wake(&w->gate);
    pthread_join(w->thread, NULL);
    gate_destroy(&w->gate);
    free(w);
}
