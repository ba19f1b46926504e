/* Decides which requests run, and runs their steps: see scheduler.h. */
#include "scheduler.h"

#include <assert.h>
#include <stdlib.h>

#include "admission.h"
#include "base/clock.h"
#include "draw.h"
#include "runner.h"
#include "speculation.h"
#include "step.h"

struct cl_scheduler {
    const cl_model *model;
    cl_engine_config config;
    cl_runner runner;
    cl_step step;
    cl_draw_list draws;          /* of the current step */
    cl_speculation *speculation; /* NULL: off */
    cl_request_queue waiting, running, finished;
    cl_admission admission;
    cl_engine_stats stats;
};

/* ---- Life ---- */

static cl_status create_speculation(cl_scheduler *s, ca_pool *pool, const cl_engine_config *config, cl_error *error) {
    cl_drafter *d = NULL;
    if (config->draft_model) {
        const cl_status status = cl_draft_model_create(config->draft_model, s->model, pool, config, &d, error);
        if (status != CL_OK) return status;
    } else
        d = cl_draft_lookup_create();
    s->speculation = d ? cl_speculation_create(s->runner.cache, d, config->max_seqs, config->row_cost) : NULL;
    return s->speculation ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "no memory for drafts");
}

cl_status cl_scheduler_create(const cl_model *m, ca_pool *pool, const cl_engine_config *config, cl_scheduler **out,
                              cl_error *error) {
    *out = NULL;
    cl_scheduler *s = calloc(1, sizeof *s);
    if (!s) return cl_fail(error, CL_ERR_NOMEM, "no memory for the scheduler");
    s->model = m;
    s->config = *config;
    s->config.level = NULL; /* borrowed for the call only */
    cl_status status = cl_runner_init(&s->runner, m, pool, config, config->kv_budget_bytes, config->max_seqs,
                                      config->max_step_rows, cl_step_max_logits(config->max_seqs), error);
    if (status == CL_OK &&
        !(cl_step_init(&s->step, &s->runner, config->max_seqs) &&
          cl_draw_list_init(&s->draws, pool, m->tok, m->params.n_vocab, cl_step_max_logits(config->max_seqs))))
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for the logits of %d sequences", config->max_seqs);
    if (status == CL_OK && config->speculate) status = create_speculation(s, pool, config, error);
    if (status != CL_OK) {
        cl_scheduler_free(&s);
        return status;
    }
    cl_admission_init(&s->admission, s->runner.cache, s->speculation, config->max_seqs);
    *out = s;
    return CL_OK;
}

void cl_scheduler_free(cl_scheduler **sp) {
    cl_scheduler *s = *sp;
    if (!s) return;
    assert(cl_scheduler_idle(s) && s->finished.n == 0);
    cl_speculation_free(&s->speculation);
    cl_step_free(&s->step);
    cl_draw_list_free(&s->draws);
    cl_runner_free(&s->runner);
    free(s);
    *sp = NULL;
}

cl_engine_limits cl_scheduler_limits(const cl_scheduler *s) {
    return (cl_engine_limits){
        .n_vocab = s->model->params.n_vocab,
        .n_ctx = s->config.n_ctx,
        .max_seqs = s->config.max_seqs,
        .cache = s->runner.cache,
        .kv_headroom_bytes = s->config.kv_budget_bytes / 8,
    };
}

void cl_scheduler_get_stats(const cl_scheduler *s, cl_engine_stats *stats, cattn_stats *kv_stats) {
    *stats = s->stats;
    stats->struct_size = sizeof *stats;
    stats->n_waiting = s->waiting.n;
    stats->n_running = s->running.n;
    if (s->speculation) stats->drafts = cl_speculation_get_counts(s->speculation);
    *kv_stats = (cattn_stats){.struct_size = sizeof *kv_stats};
    cattn_cache_stats(s->runner.cache, kv_stats);
}

void cl_scheduler_add(cl_scheduler *s, cl_request *r) { cl_request_queue_add(&s->waiting, r); }

bool cl_scheduler_idle(const cl_scheduler *s) { return s->waiting.n == 0 && s->running.n == 0; }

cl_request_queue *cl_scheduler_finished(cl_scheduler *s) { return &s->finished; }

/*
 * An eighth of the budget: it is resident when a burst of prompts arrives, and an idle engine does not hold memory that it may
 * never need.
 */
bool cl_scheduler_prefault(cl_scheduler *s) { return cattn_cache_prefault(s->runner.cache, s->admission.n_chunks / 8) > 0; }

/* ---- Leaving ---- */

/* End the choices of a request that still run. */
static void end_request(cl_scheduler *s, cl_request *r, cl_engine_finish finish, const cl_error *error) {
    cl_admission_leave_all(&s->admission, r);
    for (int32_t i = 0; i < r->params.n; i++)
        if (r->choices[i].finish == CL_ENGINE_RUNNING) cl_choice_end(&r->choices[i], finish, error);
}

/* Move the request after `before`, which has ended, to the finished ones. */
static void retire(cl_scheduler *s, cl_request_queue *q, cl_request *before) {
    cl_request_queue_add(&s->finished, cl_request_queue_take(q, before));
    s->stats.requests_finished++;
}

static void drop_cancelled(cl_scheduler *s, cl_request_queue *q, bool all) {
    cl_request *before = NULL;
    for (cl_request *r = q->first; r; r = before ? before->next : q->first) {
        if (all || atomic_load_explicit(&r->cancelled, memory_order_relaxed)) {
            end_request(s, r, CL_ENGINE_CANCELLED, NULL);
            retire(s, q, before);
        } else
            before = r;
    }
}

void cl_scheduler_drop_cancelled(cl_scheduler *s, bool all) {
    drop_cancelled(s, &s->running, all);
    drop_cancelled(s, &s->waiting, all);
    cl_admission_retry(&s->admission);
}

static void retire_finished(cl_scheduler *s) {
    cl_request *before = NULL;
    for (cl_request *r = s->running.first; r; r = before ? before->next : s->running.first) {
        if (r->n_unfinished == 0)
            retire(s, &s->running, before);
        else
            before = r;
    }
}

/* ---- A step ---- */

/* Admit the first that waits, or end it if it can never run. False: it goes on waiting. */
static bool admit_first(cl_scheduler *s) {
    cl_request *r = s->waiting.first;
    cl_error error;
    const cl_admission_answer answer = cl_admission_join(&s->admission, r, s->running.n == 0, &error);
    if (answer == CL_ADMISSION_JOINED) {
        s->stats.prompt_tokens += r->params.n_prompt;
        s->stats.cached_tokens += r->n_cached;
        cl_request_queue_add(&s->running, cl_request_queue_take(&s->waiting, NULL));
    } else if (answer == CL_ADMISSION_NEVER) {
        end_request(s, r, CL_ENGINE_ERROR, &error);
        retire(s, &s->waiting, NULL);
    }
    return answer != CL_ADMISSION_WAITS;
}

static int64_t prefill_piece(const cl_scheduler *s) {
    return s->config.prefill_piece > 0 ? s->config.prefill_piece : s->config.max_step_rows;
}

/* Draft for the choices that decode, in rows that neither decoding nor prefill needs. */
static void draft_tokens(cl_scheduler *s) {
    if (!s->speculation) return;
    cl_speculation_clear(s->speculation);
    int32_t n_decoding = 0;
    int64_t n_left = s->config.max_step_rows;
    for (cl_request *r = s->running.first; r; r = r->next)
        for (int32_t i = 0; i < (r->prompt_done ? r->params.n : 1); i++) {
            cl_choice *c = &r->choices[i];
            if (c->finish != CL_ENGINE_RUNNING) continue;
            if (c->decoding) {
                cl_speculation_add(s->speculation, c);
                n_decoding++;
                n_left--;
            } else {
                const int64_t n_missing = cl_step_n_missing(&s->step, c), piece = prefill_piece(s);
                n_left -= n_missing < piece ? n_missing : piece;
            }
        }
    if (n_left > 0) cl_speculation_draft(s->speculation, n_decoding, (int32_t)n_left);
}

static void list_entries(cl_scheduler *s) {
    const int64_t piece = prefill_piece(s);
    for (cl_request *r = s->running.first; r; r = r->next)
        for (int32_t i = 0; i < r->params.n; i++)
            if (r->choices[i].finish == CL_ENGINE_RUNNING && r->choices[i].decoding)
                cl_step_add(&s->step, &r->choices[i], 1 + r->choices[i].n_drafted);
    for (cl_request *r = s->running.first; r; r = r->next)
        for (int32_t i = 0; i < (r->prompt_done ? r->params.n : 1); i++)
            if (r->choices[i].finish == CL_ENGINE_RUNNING && !r->choices[i].decoding)
                cl_step_add(&s->step, &r->choices[i], piece);
}

/* The prompt is computed: each choice draws its own tokens from now on. */
static void start_choices(cl_scheduler *s, cl_request *r, const float *logits) {
    r->prompt_done = true;
    for (int32_t i = 0; i < r->params.n && r->params.max_tokens > 0; i++)
        cl_draw_list_add(&s->draws, &r->choices[i], 0, logits);
}

/* List the logprobs of the prompt from an entry's rows: the logits of a row are those of the token after it. */
static void score_prompt(cl_scheduler *s, const cl_step_entry *e) {
    if (e->first_pos == 0 && e->n_rows > 0) cl_draw_list_add_prompt(&s->draws, e->choice, 0, NULL);
    for (int32_t i = 0; i < e->n_rows; i++) {
        const int64_t next = e->first_pos + i + 1;
        if (next < e->choice->owner->params.n_prompt)
            cl_draw_list_add_prompt(&s->draws, e->choice, next, cl_step_logits(&s->step, e->first_row + i));
    }
}

/* Compute the next tokens and the logprobs of prompts, from the logits of the step. */
static void draw_tokens(cl_scheduler *s) {
    for (int32_t i = 0; i < s->step.n_entries; i++) {
        const cl_step_entry *e = &s->step.entries[i];
        cl_choice *c = e->choice;
        if (cl_step_scores(c)) score_prompt(s, e);
        if (e->last_row < 0 || (!c->decoding && cl_step_n_missing(&s->step, c) > 0)) continue;
        c->decoding = true;
        if (!c->owner->prompt_done)
            start_choices(s, c->owner, cl_step_logits(&s->step, e->last_row));
        else
            for (int32_t k = 0; k < e->n_drawn; k++)
                cl_draw_list_add(&s->draws, c, k, cl_step_logits(&s->step, e->last_row + k));
    }
    cl_draw_list_run(&s->draws);
}

/* End a choice because the cache failed. */
static void fail_choice(cl_scheduler *s, cl_choice *c, const cattn_error *cause) {
    cl_error error;
    cl_fail(&error, CL_ERR_NOMEM, "K/V cache: %s", cause->message);
    cl_admission_leave(&s->admission, c);
    cl_choice_end(c, CL_ENGINE_ERROR, &error);
}

static void settle_draft(cl_scheduler *s, cl_choice *c, const cl_draw *draws, int32_t n) {
    cattn_error cause;
    if (c->n_drafted > 0 && cl_speculation_settle(s->speculation, c, draws, n, &cause) != CATTN_OK) fail_choice(s, c, &cause);
}

/* Keep the drafted tokens that the draws agree with. */
static void settle_drafts(cl_scheduler *s) {
    for (int32_t i = 0, n; i < s->draws.n; i += n) {
        for (n = 1; s->draws.draws[i + n - 1].drafted;) n++;
        settle_draft(s, s->draws.draws[i].choice, &s->draws.draws[i], n);
    }
}

/* List the step again, without drafts. */
static void drop_drafts(cl_scheduler *s) {
    for (int32_t i = 0; i < s->step.n_entries; i++) settle_draft(s, s->step.entries[i].choice, NULL, 0);
    cl_step_clear(&s->step);
    list_entries(s);
}

static int64_t count_prefill_rows(const cl_step *st) {
    int64_t n = 0;
    for (int32_t i = 0; i < st->n_entries; i++) {
        const cl_step_entry *e = &st->entries[i];
        const int64_t prompt_left = e->choice->owner->params.n_prompt - e->first_pos;
        if (prompt_left > 0) n += e->n_rows < prompt_left ? e->n_rows : prompt_left;
    }
    return n;
}

static void count_step(cl_scheduler *s, double seconds) {
    cl_engine_stats *stats = &s->stats;
    const int64_t n_prefill_rows = count_prefill_rows(&s->step);
    const double share = (double)n_prefill_rows / (double)s->step.n_rows;
    stats->steps++;
    stats->prefill_tokens_computed += n_prefill_rows;
    stats->prefill_s += seconds * share;
    stats->decode_s += seconds * (1 - share);
    if (s->step.n_entries > stats->batch_peak) stats->batch_peak = s->step.n_entries;
    for (int32_t i = 0; i < s->draws.n; i++) stats->completion_tokens += !s->draws.draws[i].prompt;
}

/* End the request that was admitted last, so that the others can continue. */
static void end_youngest(cl_scheduler *s, const cl_error *error) {
    cl_request *before = NULL;
    for (cl_request *r = s->running.first; r->next; r = r->next) before = r;
    end_request(s, before ? before->next : s->running.first, CL_ENGINE_ERROR, error);
    retire(s, &s->running, before);
}

void cl_scheduler_step(cl_scheduler *s) {
    cl_step_clear(&s->step);
    cl_draw_list_clear(&s->draws);
    while (s->waiting.n > 0 && admit_first(s)) {
    }
    if (s->running.n == 0) return;
    const double start = clock_seconds();
    draft_tokens(s);
    list_entries(s);
    cl_error error;
    cl_status status = cl_step_run(&s->step, s->config.max_step_rows, &error);
    if (status != CL_OK) drop_drafts(s);
    for (int32_t rows = s->config.max_step_rows / 2; status == CL_ERR_LIMIT && rows > 0 && s->step.n_entries > 0; rows /= 2)
        status = cl_step_run(&s->step, rows, &error); /* fewer rows need less workspace */
    if (status != CL_OK) {
        cl_step_clear(&s->step);
        end_youngest(s, &error);
        return;
    }
    draw_tokens(s);
    settle_drafts(s);
    count_step(s, clock_seconds() - start);
}

/* ---- Reporting ---- */

static void report(cl_scheduler *s, const cl_draw *d) {
    cl_choice *c = d->choice;
    if (d->prompt) {
        cl_choice_report_prompt(c, d);
        return;
    }
    /* The choice ended or was cancelled at an earlier token, so a step without drafts would not have drawn this one. */
    if (c->finish != CL_ENGINE_RUNNING || (d->n_ahead > 0 && atomic_load_explicit(&c->owner->cancelled, memory_order_relaxed)))
        return;
    cl_choice_add(c, s->model->tok, d);
    if (c->finish != CL_ENGINE_RUNNING) {
        cl_admission_leave(&s->admission, c);
        return;
    }
    cattn_error cause;
    if (!d->drafted && cattn_seq_append(s->runner.cache, c->seq, &d->token, 1, &cause) != CATTN_OK) fail_choice(s, c, &cause);
}

void cl_scheduler_report(cl_scheduler *s) {
    for (int32_t i = 0; i < s->draws.n; i++) report(s, &s->draws.draws[i]);
    for (int32_t i = 0; i < s->step.n_entries; i++) {
        cl_request *r = s->step.entries[i].choice->owner;
        if (r->prompt_done && r->params.max_tokens == 0) end_request(s, r, CL_ENGINE_LENGTH, NULL);
    }
    retire_finished(s);
}
