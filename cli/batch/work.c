/* Submits the lines of a job and writes their records. */
#include "work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "chunkattn/base/clock.h"
#include "cli/interrupt.h"

static const double LOOK_S = 0.2; /* a signal is seen, and progress is shown, at least this often */

/* A line in memory. */
struct pending_line {
    batch_work *work; /* borrowed */
    size_t index;     /* in the plan */
    batch_line line;
    openai_job *prompts; /* [line.request.n_prompts] owned */
    size_t n_open;       /* prompts whose last event has not come yet, and 1 while add_line uses it; guarded by work->lock */
    pending_line *before, *after, *next_done;
};

/* ---- Reading: the main thread ---- */

/* The last events of n prompts of a line have come, or never will. */
static void close_prompts(pending_line *p, size_t n) {
    batch_work *w = p->work;
    pthread_mutex_lock(&w->lock);
    p->n_open -= n;
    if (p->n_open == 0) {
        *w->after_done = p;
        w->after_done = &p->next_done;
        pthread_cond_signal(&w->done);
    }
    pthread_mutex_unlock(&w->lock);
}

/* On the engine's thread, the only one that uses a line's result until the last event has come. */
static void on_event(void *ctx, const cl_engine_event *event) {
    const openai_job *prompt = ctx;
    pending_line *p = prompt->owner;
    openai_result_add(&p->line.result, prompt->prompt, event, clock_seconds());
    if (event->last) close_prompts(p, 1);
}

/* Submit all prompts of a valid line. If the engine refuses one, the line fails, and the prompts before it run to their end. */
static void submit(pending_line *p) {
    const openai_request *request = &p->line.request;
    const size_t n = request->n_prompts;
    size_t n_submitted = 0;
    p->prompts = calloc(n, sizeof *p->prompts);
    if (p->prompts)
        n_submitted = openai_submit(request, p->work->engine, p, on_event, p->prompts, &p->line.error);
    else
        openai_fail_memory(&p->line.error);
    if (n_submitted == n) return;
    p->line.failed = true;
    close_prompts(p, n - n_submitted);
}

/*
 * The ids and the time of an answer depend on the input alone, so that the output of a job that was stopped and resumed is that
 * of one that was not.
 */
static void name_result(pending_line *p, const char *text, size_t size) {
    openai_result *result = &p->line.result;
    const XXH128_hash_t hash = XXH3_128bits_withSeed(text, size, p->line.number);
    result->created = p->work->output->made_at;
    result->call_key = hash.low64 ^ hash.high64;
    if (p->line.request.id) return;
    snprintf(result->id, sizeof result->id, "%s%012" PRIx64 "%012" PRIx64, p->line.request.id_prefix, hash.low64 >> 16,
             hash.high64 >> 16);
}

static void link_line(batch_work *w, pending_line *p) {
    pthread_mutex_lock(&w->lock);
    p->after = w->pending;
    if (p->after) p->after->before = p;
    w->pending = p;
    w->n_pending++;
    pthread_mutex_unlock(&w->lock);
}

/* Parse a line and submit its prompts. */
static cl_status add_line(batch_work *w, size_t index, const char *text, size_t size, cl_error *error) {
    const size_t number = w->plan->lines[index].number;
    pending_line *p = calloc(1, sizeof *p);
    if (!p) return cl_fail(error, CL_ERR_NOMEM, "no memory for line %zu", number);
    p->work = w;
    p->index = index;
    const bool valid = batch_line_parse(&p->line, number, text, size, w->context, w->tenants);
    p->n_open = 1 + (valid ? p->line.request.n_prompts : 0);
    link_line(w, p);
    if (valid) {
        name_result(p, text, size);
        submit(p);
    }
    close_prompts(p, 1); /* from here on the writing thread may free it */
    return CL_OK;
}

/* Without the lock. */
static void show_progress(batch_work *w) {
    cl_engine_stats stats = {.struct_size = sizeof stats};
    cl_engine_get_stats(w->engine, &stats);
    pthread_mutex_lock(&w->lock);
    const progress_state state = {
        .done = w->plan->n_order - w->n_todo + w->n_written,
        .total = w->plan->n_order,
        .tokens = (long long)stats.completion_tokens,
        .seconds = clock_seconds() - w->start,
        .part = w->whole_cost > 0 ? w->written_cost / w->whole_cost : 0,
    };
    pthread_mutex_unlock(&w->lock);
    progress_show(&w->progress, &state);
}

/* Wait until at most n lines are in memory. False: the job stops, because of a signal or an error. */
static bool wait_for_lines(batch_work *w, size_t n) {
    pthread_mutex_lock(&w->lock);
    while (w->n_pending > n && w->error.code == CL_OK && !interrupted) {
        const struct timespec until = clock_deadline(LOOK_S);
        pthread_cond_timedwait(&w->written, &w->lock, &until);
        pthread_mutex_unlock(&w->lock);
        show_progress(w);
        pthread_mutex_lock(&w->lock);
    }
    const bool ok = w->error.code == CL_OK && !interrupted;
    pthread_mutex_unlock(&w->lock);
    return ok;
}

static cl_status submit_lines(batch_work *w, cl_error *error) {
    char *text = NULL;
    size_t capacity = 0;
    cl_status status = CL_OK;
    for (size_t i = 0; status == CL_OK && i < w->n_todo; i++) {
        const plan_line *line = &w->plan->lines[w->todo[i]];
        if (!wait_for_lines(w, w->capacity - 1)) break;
        status = batch_input_read(w->input, line->offset, line->size, &text, &capacity, error);
        if (status == CL_OK) status = add_line(w, w->todo[i], text, line->size, error);
    }
    free(text);
    if (status == CL_OK) wait_for_lines(w, 0);
    return status;
}

/* ---- Writing: a thread of its own ---- */

static void pending_line_free(pending_line *p) {
    batch_line_free(&p->line);
    free(p->prompts);
    free(p);
}

/* Remove a line that is written from memory. */
static void unlink_line(batch_work *w, pending_line *p) {
    if (p->before) p->before->after = p->after;
    if (p->after) p->after->before = p->before;
    if (w->pending == p) w->pending = p->after;
    w->n_pending--;
}

/* Wait until a line is done. NULL: the thread ends. */
static pending_line *take_done(batch_work *w) {
    pthread_mutex_lock(&w->lock);
    while (!w->first_done && !w->ends) pthread_cond_wait(&w->done, &w->lock);
    pending_line *p = w->first_done;
    if (p) {
        w->first_done = p->next_done;
        if (!w->first_done) w->after_done = &w->first_done;
    }
    pthread_mutex_unlock(&w->lock);
    return p;
}

/* What the cache had when a prompt came depends on the run; the record shows what the plan knows. */
static void set_cached_tokens(pending_line *p) {
    const plan_line *line = &p->work->plan->lines[p->index];
    if (!p->line.has_result) return;
    for (size_t i = 0; i < p->line.request.n_prompts && i < (size_t)line->n_prompts; i++)
        p->line.result.usage[i].cached_tokens = p->work->plan->prompts[line->first_prompt + i].n_common;
}

/* It stops at the first record that it cannot write. */
static void *write_lines(void *arg) {
    batch_work *w = arg;
    bool written = true;
    for (pending_line *p; written && (p = take_done(w)) != NULL;) {
        set_cached_tokens(p);
        written = batch_output_add(w->output, p->index, &p->line);
        const int cause = errno;
        pthread_mutex_lock(&w->lock);
        if (!written) cl_fail(&w->error, CL_ERR_FILE, "cannot write the output: %s", strerror(cause));
        w->n_written += written;
        w->written_cost += (double)w->plan->lines[p->index].cost;
        unlink_line(w, p);
        pthread_cond_signal(&w->written);
        pthread_mutex_unlock(&w->lock);
        pending_line_free(p);
    }
    return NULL;
}

/* ---- The job ---- */

static bool list_todo(batch_work *w) {
    const batch_plan *plan = w->plan;
    w->todo = calloc(plan->n_order + 1, sizeof *w->todo);
    for (size_t i = 0; w->todo && i < plan->n_order; i++) {
        if (batch_output_has(w->output, plan->order[i])) continue;
        w->todo[w->n_todo++] = plan->order[i];
        w->whole_cost += (double)plan->lines[plan->order[i]].cost;
    }
    return w->todo;
}

cl_status batch_work_run(batch_work *w, size_t capacity, cl_error *error) {
    pthread_t writer;
    w->plan = w->output->plan;
    w->capacity = capacity;
    w->after_done = &w->first_done;
    pthread_mutex_init(&w->lock, NULL);
    clock_cond_init(&w->written);
    clock_cond_init(&w->done);
    progress_begin(&w->progress);
    w->start = clock_seconds();
    if (!list_todo(w)) return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu lines", w->plan->n_order);
    if (pthread_create(&writer, NULL, write_lines, w)) return cl_fail(error, CL_ERR_NOMEM, "cannot start a thread");
    cl_status status = submit_lines(w, error);
    pthread_mutex_lock(&w->lock);
    w->ends = true;
    pthread_cond_signal(&w->done);
    pthread_mutex_unlock(&w->lock);
    pthread_join(writer, NULL);
    progress_clear(&w->progress);
    if (status == CL_OK && w->error.code != CL_OK) {
        *error = w->error;
        status = error->code;
    }
    return status;
}

void batch_work_free(batch_work *w) {
    for (pending_line *p = w->pending, *after; p; p = after) {
        after = p->after;
        pending_line_free(p);
    }
    free(w->todo);
    if (w->capacity == 0) return;
    pthread_cond_destroy(&w->done);
    pthread_cond_destroy(&w->written);
    pthread_mutex_destroy(&w->lock);
}
