/* The worker's thread: which batches run, and when it waits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/deadline.h"
#include "worker_state.h"

/* ---- A turn ---- */

/* Remove the run of a batch from a list; NULL: there is none. A batch may have the sequence of one that was removed. */
static batch_run *unlink_run(batch_run **list, const char *id) {
    while (*list && strcmp((*list)->batch.id, id) != 0) list = &(*list)->next;
    batch_run *r = *list;
    if (r) *list = r->next;
    return r;
}

/* Run the batches that are open, and no others. */
static void look(batch_worker *w) {
    batch_info open[WORKER_MAX_RUNS];
    int n;
    w->blind = !batch_list_open(w->config.store, open, WORKER_MAX_RUNS, &n);
    if (w->blind) return;
    batch_run *before = w->runs, **end = &w->runs;
    for (int i = 0; i < n; i++) {
        batch_run *r = unlink_run(&before, open[i].id);
        if (!r) r = run_create(w, &open[i]);
        w->blind |= !r;
        if (!r) continue;
        r->batch = open[i];
        *end = r;
        end = &r->next;
    }
    *end = NULL;
    for (batch_run *next; before; before = next) {
        next = before->next;
        run_free(before);
    }
}

/* Submit requests, one of each batch in turn, until none can be submitted. */
static void submit_all(batch_worker *w) {
    bool submitted = true;
    while (submitted && !atomic_load(&w->stopping) && !atomic_load(&w->draining)) {
        submitted = false;
        for (batch_run *r = w->runs; r; r = r->next) submitted |= run_submit(r);
    }
}

/* Write output lines and move the batch, unless its status is not known. Returns whether the next turn has more to do. */
static bool advance(const batch_worker *w, batch_run *r) {
    const size_t n = r->n;
    if (!run_write(r)) return false;
    const bool moved = !w->blind && run_move(r);
    return moved || r->n < n; /* with fewer pending there is place for more */
}

/* Requests are submitted before output lines are written, so that the engine need not wait for the disk. */
bool worker_turn(batch_worker *w) {
    bool more = false;
    look(w);
    for (batch_run *r = w->runs; r; r = r->next) run_update(r);
    submit_all(w);
    for (batch_run *r = w->runs; r; r = r->next) more |= advance(w, r);
    return more;
}

/* ---- The thread ---- */

/* Cancel running requests, write the output of those that are done, and free all runs. */
static void end_all(batch_worker *w) {
    for (batch_run *r = w->runs; r; r = r->next) run_cut(r, RUN_STOPPED);
    for (;; gate_wait(&w->gate, -1)) {
        for (batch_run *r = w->runs; r; r = r->next) run_update(r);
        if (w->gate.n_choices == 0) break;
    }
    for (batch_run *r = w->runs, *next; r; r = next) {
        next = r->next;
        run_write(r);
        run_free(r);
    }
    w->runs = NULL;
}

/* What comes without a wake-up, such as the end of a batch's time, is noticed after retry_s. */
static void *work(void *arg) {
    batch_worker *w = arg;
    const cl_deadline until_stop = {.at = INFINITY, .stop = &w->stopping};
    cl_deadline_set(&until_stop);
    while (!atomic_load(&w->serving) && !atomic_load(&w->stopping)) gate_wait(&w->gate, -1);
    while (!atomic_load(&w->stopping))
        if (!worker_turn(w) && !atomic_load(&w->stopping)) gate_wait(&w->gate, w->runs || w->blind ? w->config.retry_s : -1);
    end_all(w);
    return NULL;
}

/* ---- Beginning and end ---- */

cl_status worker_create(const worker_config *config, batch_worker **created, cl_error *error) {
    batch_worker *w = calloc(1, sizeof *w);
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

void worker_serve(batch_worker *w, cl_engine *e, const openai_context *context) {
    w->gate.engine = e;
    w->context = *context;
    w->context.timeout_s = w->context.queue_timeout_s = 0; /* a batch waits as long as others have requests */
    w->context.can_pin = false;                            /* nobody lists or ends the pins of its lines */
    atomic_store(&w->serving, true);
    gate_wake(&w->gate);
}

void worker_wake(batch_worker *w) { gate_wake(&w->gate); }

void worker_drain(batch_worker *w) { atomic_store(&w->draining, true); }

void worker_destroy(batch_worker **address) {
    batch_worker *w = address ? *address : NULL;
    if (!w) return;
    *address = NULL;
    atomic_store(&w->stopping, true);
    gate_wake(&w->gate);
    pthread_join(w->thread, NULL);
    gate_destroy(&w->gate);
    free(w);
}
