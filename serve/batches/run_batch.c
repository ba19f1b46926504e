/* A batch that is computed: from its input to its last output line. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "chunkattn/base/clock.h"
#include "lines.h"
#include "worker_state.h"

batch_run *run_create(batch_worker *w, const batch_info *b) {
    batch_run *r = calloc(1, sizeof *r);
    if (r) *r = (batch_run){.w = w, .batch = *b, .input = -1};
    return r;
}

/* Whether the batch's input was not checked yet. */
static bool is_new(const batch_run *r) { return strcmp(r->batch.status, "validating") == 0; }

/* Remove the errands that are done, or all, from those pending. */
static void shrink(batch_run *r, bool all) {
    for (batch_errand **at = &r->pending; *at;) {
        batch_errand *e = *at;
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

void run_free(batch_run *r) {
    shrink(r, true);
    free(r->text);
    if (r->input >= 0) close(r->input);
    free(r);
}

/* The disk, memory or the engine's capacity is lacking: neither submit nor move before a while has passed. */
static void retry(batch_run *r) { r->retry_at = clock_seconds() + r->w->config.retry_s; }

/* ---- The engine ---- */

/* How many requests may be pending: enough to keep the engine busy while output lines are written. */
static size_t most(const batch_run *r) { return 4 * (size_t)r->w->config.max_choices + 16; }

/* Open the input, unless there is none. False: try again later. */
static bool open_input(batch_run *r) {
    openai_error error;
    if (r->input < 0) r->input = content_open(r->w->config.store, r->batch.input, &error);
    return r->input >= 0 || error.status == 404;
}

/* Take the next request into the pending ones. NULL: there is none, or as many are pending as may be, or the disk or memory is
 * lacking. */
static batch_errand *take(batch_run *r) {
    batch_worker *w = r->w;
    batch_request next;
    if (r->all_taken || r->n >= most(r) || !batch_next(w->config.store, &r->batch, r->n_taken, &next)) return NULL;
    r->all_taken = next.number == 0;
    if (r->all_taken || (r->n > 0 && r->n_bytes + next.size > w->config.max_line)) return NULL;
    if (!open_input(r) || lines_read(r->input, next.place, next.size, &r->text, &r->capacity, NULL) != CL_OK) return NULL;
    batch_errand *e = errand_create(&w->gate, next.number, r->text, next.size, NULL);
    if (!e) return NULL;
    /* The line may not choose its tenant, nor come before the requests of interactive clients. */
    e->line.request.params.domain = r->batch.domain;
    e->line.request.params.priority = CL_ENGINE_MAX_PRIORITY;
    e->next = r->pending;
    r->pending = e;
    r->n_taken = next.number;
    r->n++;
    r->n_bytes += next.size;
    return e;
}

bool run_submit(batch_run *r) {
    const worker_config *c = &r->w->config;
    batch_gate *g = &r->w->gate;
    if (r->end != RUN_GOES_ON || is_new(r) || clock_seconds() < r->retry_at) return false;
    if (!r->waiting) r->waiting = take(r);
    batch_errand *e = r->waiting;
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

void run_cut(batch_run *r, run_end end) {
    r->end = end;
    r->waiting = NULL;
    for (batch_errand *e = r->pending; e; e = e->next) errand_cancel(e);
}

void run_update(batch_run *r) {
    if (r->end == RUN_GOES_ON && strcmp(r->batch.status, "cancelling") == 0) run_cut(r, RUN_CANCELLED);
    if (r->end == RUN_GOES_ON && !is_new(r) && (int64_t)time(NULL) >= r->batch.expires_at) run_cut(r, RUN_EXPIRED);
    for (batch_errand *e = r->pending; e; e = e->next) {
        errand_update(e);
        if (r->end != RUN_GOES_ON && e->state == ERRAND_READY) errand_cancel(e);
    }
}

/* ---- The index ---- */

static bool has_output(const batch_errand *e) { return e->state == ERRAND_DONE && !e->cut; }

static bool add_output(sqlite3 *db, const batch_run *r, const batch_errand *e) {
    size_t size = 0;
    char *output = batch_line_output(&e->line, &size);
    const bool ok =
        output && batch_add_output(db, &r->batch, (int64_t)e->line.number, batch_line_has_error(&e->line), output, size);
    free(output);
    return ok;
}

bool run_write(batch_run *r) {
    openai_error error;
    bool any = false;
    for (const batch_errand *e = r->pending; e; e = e->next) any |= has_output(e);
    if (any) {
        sqlite3 *db = store_begin(r->w->config.store, &error);
        bool ok = db;
        for (const batch_errand *e = r->pending; ok && e; e = e->next) ok = !has_output(e) || add_output(db, r, e);
        if (!store_end(r->w->config.store, ok, &error)) return false;
    }
    shrink(r, false);
    return true;
}

static bool stops(void *ctx) { return atomic_load(&((batch_worker *)ctx)->stopping); }

/* Whether the input is to be checked, or all output lines are written. */
static bool is_due(const batch_run *r) {
    if (r->end == RUN_GOES_ON && is_new(r)) return true;
    return r->n == 0 && (r->all_taken || r->end != RUN_GOES_ON);
}

static bool move(batch_run *r) {
    const worker_config *c = &r->w->config;
    if (r->end != RUN_GOES_ON || !is_new(r)) return batch_end(c->store, &r->batch, r->end == RUN_EXPIRED);
    return open_input(r) && batch_check(c->store, &r->batch, r->input, c->max_line, stops, r->w);
}

bool run_move(batch_run *r) {
    if (!is_due(r) || clock_seconds() < r->retry_at) return false;
    const bool moved = move(r);
    if (!moved) retry(r);
    return moved;
}
