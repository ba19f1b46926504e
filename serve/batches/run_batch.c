/* A batch that is computed: from its input to its last record. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "chunkattn/base/clock.h"
#include "lines.h"
#include "worker_state.h"

run *run_create(worker *w, const batch *b) {
    run *r = calloc(1, sizeof *r);
    if (r) *r = (run){.w = w, .batch = *b, .input = -1};
    return r;
}

/* Whether the batch's input was not checked yet. */
static bool is_new(const run *r) { return strcmp(r->batch.status, "validating") == 0; }

/* Remove the errands that are done, or all, from the window. */
static void shrink(run *r, bool all) {
    for (errand **at = &r->window; *at;) {
        errand *e = *at;
        if (!all && e->state != ERRAND_DONE) {
            at = &e->next;
            continue;
        }
        *at = e->next;
        r->n--;
        r->n_bytes -= e->size;
        errand_free(e);
    }
}

void run_free(run *r) {
    shrink(r, true);
    free(r->text);
    if (r->input >= 0) close(r->input);
    free(r);
}

/* The disk, memory or room in the engine is lacking: neither submit nor move before a while has passed. */
static void retry(run *r) { r->retry_at = clock_seconds() + r->w->config.retry_s; }

/* ---- The engine ---- */

/* How many requests may be in the window: enough to keep the engine busy while records are written. */
static size_t most(const run *r) { return 4 * (size_t)r->w->config.max_choices + 16; }

/* Open the input, unless there is none. False: try again later. */
static bool open_input(run *r) {
    openai_error error;
    if (r->input < 0) r->input = content_open(r->w->config.store, r->batch.input, &error);
    return r->input >= 0 || error.status == 404;
}

/* Take the next request into the window. NULL: there is none, or no room, or the disk or memory is lacking. */
static errand *take(run *r) {
    worker *w = r->w;
    batch_request next;
    if (r->all_taken || r->n >= most(r) || !batch_next(w->config.store, &r->batch, r->n_taken, &next)) return NULL;
    r->all_taken = next.number == 0;
    if (r->all_taken || (r->n > 0 && r->n_bytes + next.size > w->config.max_line)) return NULL;
    if (!open_input(r) || lines_read(r->input, next.place, next.size, &r->text, &r->capacity, NULL) != CL_OK) return NULL;
    errand *e = errand_create(&w->gate, next.number, r->text, next.size, NULL);
    if (!e) return NULL;
    /* The line may not choose its tenant, nor come before the requests of interactive clients. */
    e->line.request.params.domain = r->batch.domain;
    e->line.request.params.priority = CL_ENGINE_MAX_PRIORITY;
    e->next = r->window;
    r->window = e;
    r->n_taken = next.number;
    r->n++;
    r->n_bytes += next.size;
    return e;
}

bool run_submit(run *r) {
    const worker_config *c = &r->w->config;
    gate *g = &r->w->gate;
    if (r->end != RUN_GOES_ON || is_new(r) || clock_seconds() < r->retry_at) return false;
    if (!r->waiting) r->waiting = take(r);
    errand *e = r->waiting;
    if (!e) return false;
    if (e->state == ERRAND_READY) {
        /* One that is in the engine in part waits for nothing but the engine. */
        if (e->n_submitted == 0 && g->n_choices > 0 && g->n_choices + errand_choices(e) > c->max_choices) return false;
        if (!errand_submit(e)) {
            retry(r);
            return false;
        }
    }
    r->waiting = NULL;
    return true;
}

void run_cut(run *r, run_end end) {
    r->end = end;
    r->waiting = NULL;
    for (errand *e = r->window; e; e = e->next) errand_cancel(e);
}

void run_update(run *r) {
    if (r->end == RUN_GOES_ON && strcmp(r->batch.status, "cancelling") == 0) run_cut(r, RUN_CANCELLED);
    if (r->end == RUN_GOES_ON && !is_new(r) && (int64_t)time(NULL) >= r->batch.expires_at) run_cut(r, RUN_EXPIRED);
    for (errand *e = r->window; e; e = e->next) {
        errand_update(e);
        if (r->end != RUN_GOES_ON && e->state == ERRAND_READY) errand_cancel(e);
    }
}

/* ---- The index ---- */

static bool has_record(const errand *e) { return e->state == ERRAND_DONE && !e->cut; }

static bool add_record(sqlite3 *db, const run *r, const errand *e) {
    size_t size = 0;
    char *record = batch_line_record(&e->line, &size);
    const bool ok =
        record && batch_add_record(db, &r->batch, (int64_t)e->line.number, batch_line_has_error(&e->line), record, size);
    free(record);
    return ok;
}

bool run_write(run *r) {
    openai_error error;
    bool any = false;
    for (const errand *e = r->window; e; e = e->next) any |= has_record(e);
    if (any) {
        sqlite3 *db = store_begin(r->w->config.store, &error);
        bool ok = db;
        for (const errand *e = r->window; ok && e; e = e->next) ok = !has_record(e) || add_record(db, r, e);
        if (!store_end(r->w->config.store, ok, &error)) return false;
    }
    shrink(r, false);
    return true;
}

static bool stops(void *ctx) { return atomic_load(&((worker *)ctx)->stopping); }

/* Whether the input is to be checked, or all records are written. */
static bool is_due(const run *r) {
    if (r->end == RUN_GOES_ON && is_new(r)) return true;
    return r->n == 0 && (r->all_taken || r->end != RUN_GOES_ON);
}

static bool move(run *r) {
    const worker_config *c = &r->w->config;
    if (r->end != RUN_GOES_ON || !is_new(r)) return batch_end(c->store, &r->batch, r->end == RUN_EXPIRED);
    return open_input(r) && batch_check(c->store, &r->batch, r->input, c->max_line, stops, r->w);
}

bool run_move(run *r) {
    if (!is_due(r) || clock_seconds() < r->retry_at) return false;
    const bool moved = move(r);
    if (!moved) retry(r);
    return moved;
}
