/* The worker's thread: which batches run, and when it waits. */
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/clock.h"
#include "worker_state.h"

/*
 * Seconds after which the thread looks again without being woken: for batches that expire, for a queue that was full, and for
 * what is to be tried again, not much later than it should be.
 */
static double look_again_s(const worker *w) { return w->config.retry_s / 10; }

/* ---- Which batches run ---- */

static bool runs(const worker *w, const char *id, uint32_t domain) {
    for (const run *r = w->runs; r; r = r->next)
        if (r->domain == domain || strcmp(r->id, id) == 0) return true;
    return false;
}

static int32_t count_runs(const worker *w) {
    int32_t n = 0;
    for (const run *r = w->runs; r; r = r->next) n++;
    return n;
}

/* Start a batch unless one of its tenant runs. */
static bool start_run(void *ctx, const json_t *record) {
    worker *w = ctx;
    if (count_runs(w) >= WORKER_MAX_RUNS) return false;
    if (store_batch_ended(store_object(record)) || runs(w, store_id(record), store_owner_of(record).domain)) return true;
    run *r = run_create(w, record);
    if (!r) return false; /* later again */
    run **end = &w->runs;
    while (*end) end = &(*end)->next;
    *end = r;
    return true;
}

/* ---- The thread ---- */

/* Advance all batches, and remove those that have ended. */
static bool advance_all(worker *w) {
    bool progress = false;
    for (run **at = &w->runs; *at;) {
        run *r = *at;
        if (run_advance(r, &progress)) {
            at = &r->next;
            continue;
        }
        *at = r->next;
        run_free(r);
        progress = true;
    }
    return progress;
}

/* Submit requests, one of each batch in turn, until none can be submitted. */
static void submit_all(worker *w) {
    bool submitted = true;
    while (submitted && !atomic_load(&w->stopping) && !atomic_load(&w->draining)) {
        submitted = false;
        for (run *r = w->runs; r; r = r->next) submitted |= run_submit(r);
    }
}

/* Wait until something changes. False: the worker stops. */
static bool wait_for_change(worker *w) {
    const struct timespec until = clock_deadline(look_again_s(w));
    int timed_out = 0;
    pthread_mutex_lock(&w->lock);
    while (!w->woken && !timed_out && !atomic_load(&w->stopping))
        timed_out = w->runs ? pthread_cond_timedwait(&w->changed, &w->lock, &until) : pthread_cond_wait(&w->changed, &w->lock);
    w->woken = false;
    pthread_mutex_unlock(&w->lock);
    return !atomic_load(&w->stopping);
}

/* Wait until there is an engine. False: the worker stops. */
static bool wait_for_engine(worker *w) {
    pthread_mutex_lock(&w->lock);
    while (!w->serving && !atomic_load(&w->stopping)) pthread_cond_wait(&w->changed, &w->lock);
    const bool serving = w->serving;
    pthread_mutex_unlock(&w->lock);
    return serving && !atomic_load(&w->stopping);
}

/* Cancel what runs, write what is done, and free all runs. */
static void end_all(worker *w) {
    bool progress = false;
    for (run *r = w->runs; r; r = r->next) run_cut(r, RUN_STOPPED);
    for (run *r = w->runs; r; r = r->next) {
        pthread_mutex_lock(&w->lock);
        while (true) {
            w->woken = false;
            pthread_mutex_unlock(&w->lock);
            const bool idle = run_update(r);
            pthread_mutex_lock(&w->lock);
            if (idle) break;
            while (!w->woken) pthread_cond_wait(&w->changed, &w->lock);
        }
        pthread_mutex_unlock(&w->lock);
        if (r->opened) run_write(r, &progress);
    }
    while (w->runs) {
        run *next = w->runs->next;
        run_free(w->runs);
        w->runs = next;
    }
}

static void *work(void *arg) {
    worker *w = arg;
    bool on = wait_for_engine(w);
    while (on) {
        store_each_batch(w->config.store, start_run, w);
        const bool progress = advance_all(w);
        submit_all(w);
        on = progress ? !atomic_load(&w->stopping) : wait_for_change(w);
    }
    end_all(w);
    return NULL;
}

/* ---- Beginning and end ---- */

typedef struct begun_batches {
    json_t *records; /* array; copies */
    bool no_memory;
} begun_batches;

static bool collect(void *ctx, const json_t *record) {
    begun_batches *b = ctx;
    const bool begun = !store_batch_ended(store_object(record)) && !batch_has_status(record, "validating");
    b->no_memory = begun && json_array_append_new(b->records, store_copy(record)) != 0;
    return !b->no_memory;
}

/* Set the counts of the batches that have begun from their records. */
static cl_status recover(worker *w, cl_error *error) {
    begun_batches begun = {.records = json_array()};
    json_t *record;
    size_t i;
    begun.no_memory = !begun.records;
    if (begun.records) store_each_batch(w->config.store, collect, &begun);
    cl_status status = begun.no_memory ? cl_fail(error, CL_ERR_NOMEM, "no memory for the batches") : CL_OK;
    json_array_foreach(begun.records, i, record) {
        if (status != CL_OK) break;
        output out;
        batch_counts counts = {0};
        json_unpack(json_object_get(store_object(record), "request_counts"), "{s:I}", "total", &counts.total);
        status = output_open(&out, w->config.store, record, batch_has_status(record, "cancelling"), error);
        if (status != CL_OK) break;
        counts.completed = out.n[OUTPUT_ANSWERS];
        counts.failed = out.n[OUTPUT_ERRORS];
        output_close(&out);
        status = batch_set(w->config.store, store_id(record), &(batch_change){.counts = &counts}, false, NULL, error);
        if (status != CL_OK) break;
    }
    json_decref(begun.records);
    return status;
}

cl_status worker_create(const worker_config *config, worker **created, cl_error *error) {
    worker *w = calloc(1, sizeof *w);
    *created = NULL;
    if (!w) return cl_fail(error, CL_ERR_NOMEM, "no memory for the batches");
    w->config = *config;
    atomic_init(&w->stopping, false);
    atomic_init(&w->draining, false);
    cl_status status = recover(w, error);
    if (status != CL_OK) {
        free(w);
        return status;
    }
    pthread_mutex_init(&w->lock, NULL);
    clock_cond_init(&w->changed);
    if (pthread_create(&w->thread, NULL, work, w) != 0) {
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->lock);
        free(w);
        return cl_fail(error, CL_ERR_NOMEM, "cannot start a thread for the batches");
    }
    *created = w;
    return CL_OK;
}

void worker_serve(worker *w, cl_engine *e, const openai_context *context) {
    w->engine = e;
    w->context = *context;
    w->context.timeout_s = w->context.queue_timeout_s = 0; /* a batch waits as long as others have requests */
    w->context.can_pin = false;                            /* nobody lists what its lines would pin, nor ends it */
    pthread_mutex_lock(&w->lock);
    w->serving = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void worker_drain(worker *w) { atomic_store(&w->draining, true); }

void worker_wake(worker *w) {
    pthread_mutex_lock(&w->lock);
    w->woken = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

void worker_destroy(worker **address) {
    worker *w = address ? *address : NULL;
    if (!w) return;
    *address = NULL;
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->stopping, true);
    w->woken = true;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
