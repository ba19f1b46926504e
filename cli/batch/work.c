/* Submits the lines of a job and writes their answers. */
#include "work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "cli/interrupt.h"
#include "serve/batches/lines.h"

static const double LOOK_S = 0.2; /* a signal is seen, and progress is shown, at least this often */

/* ---- Reading ---- */

/*
 * The ids and the time of an answer depend on the input alone, so that the output of a job that was stopped and resumed is that
 * of one that was not.
 */
static void name_result(batch_errand *e, int64_t made_at, const char *text) {
    openai_result *result = &e->line.result;
    const XXH128_hash_t hash = XXH3_128bits_withSeed(text, e->size, e->line.number);
    result->created = made_at;
    result->call_key = hash.low64 ^ hash.high64;
    if (e->line.request.id) return;
    snprintf(result->id, sizeof result->id, "%s%012" PRIx64 "%012" PRIx64, e->line.request.id_prefix, hash.low64 >> 16,
             hash.high64 >> 16);
}

static void append(batch_work *w, batch_errand *e) {
    batch_errand **end = &w->pending;
    while (*end) end = &(*end)->next;
    *end = e;
    w->n_pending++;
}

/* Submit lines until `capacity` are in memory. */
static cl_status submit_lines(batch_work *w, size_t capacity, cl_error *error) {
    char *text = NULL;
    size_t allocated = 0;
    cl_status status = CL_OK;
    while (status == CL_OK && w->n_taken < w->plan->n_order && w->n_pending < capacity) {
        const size_t index = w->plan->order[w->n_taken++];
        if (batch_output_has(w->output, index)) continue;
        const plan_line *line = &w->plan->lines[index];
        status = lines_read(w->input->fd, line->place, line->size, &text, &allocated, error);
        if (status != CL_OK) break;
        batch_errand *e = errand_create(&w->gate, (int64_t)line->number, text, line->size, w->tenants);
        if (!e) {
            status = cl_fail(error, CL_ERR_NOMEM, "no memory for line %zu", line->number);
            break;
        }
        e->index = index;
        append(w, e);
        if (e->state != ERRAND_READY) continue;
        name_result(e, w->output->made_at, text);
        errand_submit(e);
    }
    free(text);
    return status;
}

/* ---- Writing ---- */

/* What the cache had when a prompt came depends on the run; the answer shows what the plan knows. */
static void set_cached_tokens(const batch_work *w, batch_errand *e) {
    const plan_line *line = &w->plan->lines[e->index];
    if (!e->line.has_result) return;
    for (size_t i = 0; i < e->line.request.n_prompts && i < (size_t)line->n_prompts; i++)
        e->line.result.usage[i].cached_tokens = w->plan->prompts[line->first_prompt + i].n_common;
}

/* Write the answers of the lines that are done, up to the first that cannot be written. */
static cl_status write_lines(batch_work *w, cl_error *error) {
    for (batch_errand **at = &w->pending; *at;) {
        batch_errand *e = *at;
        errand_update(e);
        if (e->state != ERRAND_DONE) {
            at = &e->next;
            continue;
        }
        set_cached_tokens(w, e);
        w->failed = !batch_output_add(w->output, e->index, &e->line);
        if (w->failed) return cl_fail(error, CL_ERR_FILE, "cannot write the output: %s", strerror(errno));
        w->n_written++;
        w->progress.done++;
        w->progress.work_done += (double)w->plan->lines[e->index].cost;
        w->n_pending--;
        *at = e->next;
        errand_free(e);
    }
    return CL_OK;
}

/* ---- The job ---- */

static void show_progress(batch_work *w) {
    cl_engine_stats stats = {.struct_size = sizeof stats};
    cl_engine_get_stats(w->gate.engine, &stats);
    w->progress.tokens = (long long)stats.completion_tokens;
    progress_show(&w->progress);
}

/* Begin with what is there and what is to be computed. */
static void begin_progress(batch_work *w) {
    const batch_plan *plan = w->plan;
    w->progress = progress_begin("requests", plan->n_order, 0);
    for (size_t i = 0; i < plan->n_order; i++) {
        if (batch_output_has(w->output, plan->order[i]))
            w->progress.done++;
        else
            w->progress.work += (double)plan->lines[plan->order[i]].cost;
    }
}

cl_status batch_work_run(batch_work *w, size_t capacity, cl_error *error) {
    cl_status status = CL_OK;
    w->plan = w->output->plan;
    gate_init(&w->gate);
    begin_progress(w);
    while (status == CL_OK && w->progress.done < w->progress.total && !interrupted) {
        status = submit_lines(w, capacity, error);
        if (status == CL_OK) status = write_lines(w, error);
        show_progress(w);
        if (w->n_pending > 0 && (w->n_pending == capacity || w->n_taken == w->plan->n_order)) gate_wait(&w->gate, LOOK_S);
    }
    progress_clear(&w->progress);
    if (w->failed) return status;
    const cl_status last = write_lines(w, status == CL_OK ? error : NULL); /* what was done when a signal came */
    return status == CL_OK ? last : status;
}

void batch_work_free(batch_work *w) {
    for (batch_errand *e = w->pending, *next; e; e = next) {
        next = e->next;
        errand_free(e);
    }
    if (w->plan) gate_destroy(&w->gate);
}
