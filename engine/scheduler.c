/* Decides which requests run, and runs their steps: see scheduler.h. */
#include "scheduler.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "admission.h"
#include "draw.h"
#include "pace.h"
#include "queue.h"
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
    cl_queue queue;
    cl_request_list finished;
    cl_admission admission;
    cl_pace pace;
    int32_t max_rows;       /* of the current step */
    cl_choice **prefills;   /* [max_seqs] owned; the choices of a step whose prompts lack rows */
    double first_deadline;  /* no request has an earlier one */
    int64_t waiting_tokens; /* of prompts that have not been admitted */
    /* Tokens of admitted prompts, and seconds of steps: those of the last minute, since older ones decay. */
    double recent_tokens, recent_seconds;
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

static bool create_queue(cl_scheduler *s, const cl_engine_config *config) {
    s->prefills = calloc((size_t)config->max_seqs, sizeof(cl_choice *));
    if (!s->prefills || !cl_admission_init(&s->admission, s->runner.cache, s->speculation, config)) return false;
    for (int32_t i = 0; i < config->n_weights; i++)
        if (!cl_queue_set_weight(&s->queue, config->weights[i].domain, (double)config->weights[i].weight)) return false;
    return true;
}

cl_status cl_scheduler_create(const cl_model *m, ca_pool *pool, const cl_engine_config *config, cl_scheduler **out,
                              cl_error *error) {
    *out = NULL;
    cl_scheduler *s = calloc(1, sizeof *s);
    if (!s) return cl_fail(error, CL_ERR_NOMEM, "no memory for the scheduler");
    s->model = m;
    s->first_deadline = INFINITY;
    cl_pace_init(&s->pace, config->target_itl_s, config->max_step_rows);
    s->config = *config;
    s->config.level = NULL; /* borrowed for the call only, like the weights */
    s->config.weights = NULL;
    cl_status status = cl_runner_init(&s->runner, m, pool, config, config->kv_budget_bytes, config->max_seqs,
                                      config->max_step_rows, cl_step_max_logits(config->max_seqs), error);
    if (status == CL_OK &&
        !(cl_step_init(&s->step, &s->runner, config->max_seqs) &&
          cl_draw_list_init(&s->draws, pool, m->tok, m->params.n_vocab, cl_step_max_logits(config->max_seqs))))
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for the logits of %d sequences", config->max_seqs);
    if (status == CL_OK && config->speculate) status = create_speculation(s, pool, config, error);
    if (status == CL_OK && !create_queue(s, config))
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for %d sequences", config->max_seqs);
    if (status == CL_OK)
        *out = s;
    else
        cl_scheduler_free(&s);
    return status;
}

void cl_scheduler_free(cl_scheduler **sp) {
    cl_scheduler *s = *sp;
    if (!s) return;
    assert(cl_scheduler_idle(s) && s->finished.n == 0);
    cl_queue_free(&s->queue);
    cl_admission_free(&s->admission);
    free((void *)s->prefills);
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
        .max_seqs = s->config.max_seqs,
        .max_queued_requests = s->config.max_queued_requests,
        .max_queued_tokens = s->config.max_queued_tokens,
        .n_ctx = s->config.n_ctx,
        .cache = s->runner.cache,
        .kv_headroom_bytes = s->config.kv_budget_bytes / 8,
    };
}

void cl_scheduler_get_stats(const cl_scheduler *s, cl_engine_stats *stats, cattn_stats *kv_stats) {
    *stats = s->stats;
    stats->struct_size = sizeof *stats;
    stats->n_running = s->admission.n_requests;
    stats->n_waiting = (int64_t)s->queue.n_live - stats->n_running;
    stats->waiting_tokens = s->waiting_tokens;
    if (s->recent_tokens > 0) stats->retry_after_s = (double)s->waiting_tokens * s->recent_seconds / s->recent_tokens;
    if (s->speculation) stats->drafts = cl_speculation_get_counts(s->speculation);
    *kv_stats = (cattn_stats){.struct_size = sizeof *kv_stats};
    cattn_cache_stats(s->runner.cache, kv_stats);
}

bool cl_scheduler_idle(const cl_scheduler *s) { return s->queue.n_live == 0; }

cl_request_list *cl_scheduler_finished(cl_scheduler *s) { return &s->finished; }

/*
 * An eighth of the budget: it is resident when a burst of prompts arrives, and an idle engine does not hold memory that it may
 * never need.
 */
bool cl_scheduler_prefault(cl_scheduler *s) { return cattn_cache_prefault(s->runner.cache, s->admission.n_chunks / 8) > 0; }

/* ---- Leaving ---- */

static void finish(cl_scheduler *s, cl_request *r) {
    cl_request_list_add(&s->finished, r);
    s->stats.requests_finished++;
}

/* A choice has ended: it leaves the cache, and its request is finished with its last choice. */
static void let_go(cl_scheduler *s, cl_choice *c) {
    cl_admission_leave(&s->admission, c);
    if (c->owner->n_unfinished > 0) return;
    if (!c->owner->admitted) s->waiting_tokens -= c->owner->params.n_prompt;
    cl_queue_forget(&s->queue, c->owner);
    finish(s, c->owner);
}

static void end_choice(cl_scheduler *s, cl_choice *c, cl_engine_finish why, const cl_error *error) {
    cl_choice_end(c, why, error);
    let_go(s, c);
}

/* End the choices of a request that have not ended. */
static void end_request(cl_scheduler *s, cl_request *r, cl_engine_finish why, const cl_error *error) {
    if (cl_request_n_waiting(r) > 0) cl_queue_remove(&s->queue, r);
    for (int32_t i = 0; i < r->params.n; i++)
        if (r->choices[i].finish == CL_ENGINE_RUNNING) end_choice(s, &r->choices[i], why, error);
}

void cl_scheduler_add(cl_scheduler *s, cl_request *r) {
    if (cl_queue_add(&s->queue, r)) {
        s->waiting_tokens += r->params.n_prompt;
        if (r->deadline < s->first_deadline) s->first_deadline = r->deadline;
        return;
    }
    cl_error error;
    cl_fail(&error, CL_ERR_NOMEM, "no memory for another request in the queue");
    for (int32_t i = 0; i < r->params.n; i++) cl_choice_end(&r->choices[i], CL_ENGINE_ERROR, &error);
    finish(s, r);
}

/* Whether a request is cancelled or late; one that is neither lowers first_deadline to its own. */
static bool is_dropped(cl_scheduler *s, const cl_request *r, bool all, double now) {
    if (all || atomic_load_explicit(&r->cancelled, memory_order_relaxed) || r->deadline <= now) return true;
    if (r->deadline < s->first_deadline) s->first_deadline = r->deadline;
    return false;
}

static void drop(cl_scheduler *s, cl_request *r, double now) {
    cl_error error;
    const bool late = r->deadline <= now;
    if (late) cl_fail(&error, CL_ERR_TIMEOUT, "the request did not end within timeout_s, %g s", r->params.timeout_s);
    end_request(s, r, late ? CL_ENGINE_ERROR : CL_ENGINE_CANCELLED, late ? &error : NULL);
}

void cl_scheduler_drop(cl_scheduler *s, bool cancels, bool all) {
    const double now = isinf(s->first_deadline) ? 0 : cl_now();
    if (!cancels && !all && now < s->first_deadline) return;
    s->first_deadline = INFINITY;
    cl_request_list dropped = {0};
    for (int32_t i = 0; i < s->admission.n_seqs;) {
        cl_request *r = s->admission.choices[i]->owner;
        if (is_dropped(s, r, all, now))
            drop(s, r, now); /* its choices are neighbours */
        else
            i++;
    }
    for (size_t i = 0; i < s->queue.n_tenants; i++) {
        const cl_tenant *t = s->queue.tenants[i];
        for (size_t k = 0; k < t->n_waiting; k++)
            if (is_dropped(s, t->waiting[k], all, now)) cl_request_list_add(&dropped, t->waiting[k]);
    }
    while (dropped.n > 0) drop(s, cl_request_list_take(&dropped), now);
}

/* ---- Who is in the cache ---- */

static void preempt(cl_scheduler *s, cl_choice *c) {
    if (cl_request_n_waiting(c->owner) == 0) cl_queue_put(&s->queue, c->owner);
    cl_admission_preempt(&s->admission, c);
    s->stats.preemptions++;
}

/* Room is lacking: the worst choice leaves the cache. One that is alone and shares none cannot continue, and ends. */
static void make_room(cl_scheduler *s, const cl_error *error) {
    cl_choice *worst = cl_admission_worst(&s->admission);
    if (s->admission.n_seqs == 1 && worst->shares_none)
        end_request(s, worst->owner, CL_ENGINE_ERROR, error);
    else
        preempt(s, worst);
}

/* Reserve room for the next tokens of all choices, the best first. */
static void extend_room(cl_scheduler *s) {
    cl_error error;
    for (int32_t i = 0; i < s->admission.n_seqs;) {
        if (cl_admission_extend(&s->admission, s->admission.choices[i], &error)) {
            i++;
            continue;
        }
        make_room(s, &error);
        i = 0;
    }
}

/*
 * Preempt a choice of the tenant with the largest share of the cache, if its share stays larger than that of t with one choice
 * more. So a flood of one tenant does not keep the others waiting, and no two tenants preempt each other in turns.
 */
static bool make_place(cl_scheduler *s, const cl_tenant *t) {
    cl_choice *worst = cl_admission_worst(&s->admission);
    const cl_tenant *largest = worst->owner->tenant;
    if (largest->n_in_cache < 2 || cl_tenant_share(largest, largest->n_in_cache) <= cl_tenant_share(t, t->n_in_cache + 1))
        return false;
    preempt(s, worst);
    s->admission.full = false;
    return true;
}

static void note_admission(cl_scheduler *s, cl_request *r) {
    if (cl_request_n_waiting(r) == 0) cl_queue_remove(&s->queue, r);
    if (r->admitted) return;
    r->admitted = true;
    s->waiting_tokens -= r->params.n_prompt;
    s->recent_tokens += (double)r->params.n_prompt;
    s->stats.prompt_tokens += r->params.n_prompt;
    s->stats.cached_tokens += r->n_cached;
}

/* Admit the choice that is next, or end its request if it can never run. False: it goes on waiting, or there is none. */
static bool admit_next(cl_scheduler *s) {
    cl_request *r = cl_queue_first(&s->queue);
    if (!r) return false;
    cl_choice *c = cl_request_first_waiting(r);
    cl_admission_answer answer;
    cl_error error;
    do answer = cl_admission_join(&s->admission, c, &error);
    while (answer == CL_ADMISSION_WAITS && make_place(s, r->tenant));
    if (answer == CL_ADMISSION_JOINED) note_admission(s, r);
    if (answer == CL_ADMISSION_NEVER) end_request(s, r, CL_ENGINE_ERROR, &error);
    return answer != CL_ADMISSION_WAITS;
}

/* ---- A step ---- */

static int64_t prefill_piece(const cl_scheduler *s) {
    return s->config.prefill_piece > 0 ? s->config.prefill_piece : s->config.max_step_rows;
}

/* Whether a step computes rows of a choice in the cache, and not its leader for both. */
static bool computes(const cl_choice *c) { return c->n_tokens > c->owner->params.n_prompt || cl_request_leader(c->owner) == c; }

static int32_t count_decoding(const cl_scheduler *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->admission.n_seqs; i++) n += s->admission.choices[i]->decoding;
    return n;
}

/* Draft for the choices that decode, in rows that neither decoding nor prefill needs. */
static void draft_tokens(cl_scheduler *s) {
    if (!s->speculation) return;
    cl_speculation_clear(s->speculation);
    int32_t n_decoding = 0;
    int64_t n_left = s->max_rows;
    for (int32_t i = 0; i < s->admission.n_seqs; i++) {
        cl_choice *c = s->admission.choices[i];
        if (c->decoding) {
            cl_speculation_add(s->speculation, c);
            n_decoding++;
            n_left--;
        } else if (computes(c)) {
            const int64_t n_missing = cl_step_n_missing(&s->step, c), piece = prefill_piece(s);
            n_left -= n_missing < piece ? n_missing : piece;
        }
    }
    if (n_left > 0) cl_speculation_draft(s->speculation, n_decoding, (int32_t)n_left);
}

/* List the choices whose prompts lack rows by their tenants' counters, then by rank. */
static int32_t list_prefills(cl_scheduler *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->admission.n_seqs; i++) {
        cl_choice *c = s->admission.choices[i];
        if (c->decoding || !computes(c)) continue;
        int32_t k = n++;
        for (; k > 0 && c->owner->tenant->served < s->prefills[k - 1]->owner->tenant->served; k--)
            s->prefills[k] = s->prefills[k - 1];
        s->prefills[k] = c;
    }
    return n;
}

static void list_entries(cl_scheduler *s) {
    const cl_admission *a = &s->admission;
    for (int32_t i = 0; i < a->n_seqs; i++)
        if (a->choices[i]->decoding) cl_step_add(&s->step, a->choices[i], 1 + a->choices[i]->n_drafted);
    const int32_t n_prefills = list_prefills(s);
    for (int32_t i = 0; i < n_prefills; i++) cl_step_add(&s->step, s->prefills[i], prefill_piece(s));
}

/* The leader has computed the prompt: all choices that wait for it draw their first token. */
static void draw_first(cl_scheduler *s, cl_request *r, const float *logits) {
    for (int32_t i = 0; i < r->params.n && r->params.max_tokens > 0; i++) {
        cl_choice *c = &r->choices[i];
        if (c->seq != 0 && c->n_tokens == r->params.n_prompt) cl_draw_list_add(&s->draws, c, 0, logits);
    }
}

/* List the logprob of the prompt's token at `position`, unless it was before the choice was preempted. */
static void score(cl_scheduler *s, cl_choice *c, int64_t position, const float *logits) {
    cl_request *r = c->owner;
    if (position != r->n_scored || position >= r->params.n_prompt) return;
    cl_draw_list_add_prompt(&s->draws, c, position, logits);
    r->n_scored++;
}

/* List the logprobs of the prompt from an entry's rows: the logits of a row are those of the token after it. */
static void score_prompt(cl_scheduler *s, const cl_step_entry *e) {
    if (e->first_pos == 0 && e->n_rows > 0) score(s, e->choice, 0, NULL);
    for (int32_t i = 0; i < e->n_rows; i++)
        score(s, e->choice, e->first_pos + i + 1, cl_step_logits(&s->step, e->first_row + i));
}

/* Compute the next tokens and the logprobs of prompts, from the logits of the step. */
static void draw_tokens(cl_scheduler *s) {
    for (int32_t i = 0; i < s->step.n_entries; i++) {
        const cl_step_entry *e = &s->step.entries[i];
        cl_choice *c = e->choice;
        if (cl_step_scores(c)) score_prompt(s, e);
        if (e->last_row < 0 || (!c->decoding && cl_step_n_missing(&s->step, c) > 0)) continue;
        c->decoding = true;
        if (c->n_tokens == c->owner->params.n_prompt)
            draw_first(s, c->owner, cl_step_logits(&s->step, e->last_row));
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
    end_choice(s, c, CL_ENGINE_ERROR, &error);
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

/* The number of an entry's rows at positions below `end`. */
static int64_t rows_below(const cl_step_entry *e, int64_t end) {
    const int64_t n = end - e->first_pos;
    return n < 0 ? 0 : n < e->n_rows ? n : e->n_rows;
}

static void count_step(cl_scheduler *s, double seconds, int32_t n_decoding) {
    cl_engine_stats *stats = &s->stats;
    int64_t n_prompt = 0, n_recomputed = 0;
    for (int32_t i = 0; i < s->step.n_entries; i++) {
        const cl_step_entry *e = &s->step.entries[i];
        const int64_t n_again = rows_below(e, e->choice->n_lost), n_below = rows_below(e, e->choice->owner->params.n_prompt);
        n_recomputed += n_again;
        const int64_t n_first = n_below > n_again ? n_below - n_again : 0;
        n_prompt += n_first;
        cl_tenant_charge(e->choice->owner->tenant, n_first);
    }
    const double share = (double)(n_prompt + n_recomputed) / (double)s->step.n_rows;
    cl_pace_learn(&s->pace, seconds, n_decoding, (int32_t)(n_prompt + n_recomputed));
    const double decay = exp(-seconds / 60);
    s->recent_tokens *= decay;
    s->recent_seconds = s->recent_seconds * decay + seconds;
    stats->steps++;
    stats->prefill_tokens_computed += n_prompt;
    stats->recomputed_tokens += n_recomputed;
    stats->prefill_s += seconds * share;
    stats->decode_s += seconds * (1 - share);
    if (s->step.n_entries > stats->batch_peak) stats->batch_peak = s->step.n_entries;
    for (int32_t i = 0; i < s->draws.n; i++) {
        if (s->draws.draws[i].prompt) continue;
        stats->completion_tokens++;
        cl_tenant_charge(s->draws.draws[i].choice->owner->tenant, 1);
    }
}

void cl_scheduler_step(cl_scheduler *s) {
    cl_step_clear(&s->step);
    cl_draw_list_clear(&s->draws);
    extend_room(s);
    while (admit_next(s)) {
    }
    if (s->admission.n_seqs == 0) return;
    const double start = cl_now();
    const int32_t n_decoding = count_decoding(s);
    s->max_rows = cl_pace_rows(&s->pace, n_decoding);
    draft_tokens(s);
    list_entries(s);
    cl_error error;
    cl_status status = cl_step_run(&s->step, s->max_rows, &error);
    if (status != CL_OK) drop_drafts(s);
    for (int32_t rows = s->max_rows / 2; status == CL_ERR_LIMIT && rows > 0 && s->step.n_entries > 0; rows /= 2)
        status = cl_step_run(&s->step, rows, &error); /* fewer rows need less workspace */
    if (status != CL_OK) {
        cl_step_clear(&s->step);
        make_room(s, &error); /* without the worst choice, the next step may succeed */
        return;
    }
    draw_tokens(s);
    settle_drafts(s);
    count_step(s, cl_now() - start, n_decoding);
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
        let_go(s, c);
        return;
    }
    cattn_error cause;
    if (!d->drafted && cattn_seq_append(s->runner.cache, c->seq, &d->token, 1, &cause) != CATTN_OK) fail_choice(s, c, &cause);
}

void cl_scheduler_report(cl_scheduler *s) {
    for (int32_t i = 0; i < s->draws.n; i++) report(s, &s->draws.draws[i]);
    for (int32_t i = 0; i < s->step.n_entries; i++) {
        const cl_choice *c = s->step.entries[i].choice;
        if (c->decoding && c->owner->params.max_tokens == 0) end_request(s, c->owner, CL_ENGINE_LENGTH, NULL);
    }
}
