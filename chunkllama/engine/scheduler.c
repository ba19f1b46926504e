/* Decides which sequences get rows, and runs the steps: see scheduler.h. */
#include "scheduler.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "beam.h"
#include "chunkattn/base/clock.h"
#include "draw.h"
#include "engine_step.h"
#include "pace.h"
#include "roster.h"
#include "runner.h"
#include "speculation.h"
#include "turns.h"

/* Seconds for which a step waits for K/V from the file tier, or for grammars, if no choice can go on without them. */
static const double MOST_WAIT = 0.01;
/* If other choices can go on, a step waits for grammars for a quarter of the time that it has taken, and for at least 2 ms. */
static const double PATIENCE = 0.25, LEAST_PATIENCE = 0.002;
/* Bounds of the time to retry, in seconds; the rate may be next to nothing after a step that took long. */
static const double LEAST_RETRY = 1, MOST_RETRY = 86400;

/* A choice whose prompt lacks rows. */
typedef struct prefill {
    cl_choice *choice;
    bool has_half; /* cl_turns_has_half */
} prefill;

struct cl_scheduler {
    const cl_model *model;
    cl_engine_config config;
    cl_runner runner;
    cl_step step;
    cl_draw_list draws;          /* of the current step */
    cl_speculation *speculation; /* NULL: off */
    cl_roster roster;
    cl_pace pace;
    int32_t *end_tokens; /* [n_end_tokens] of the vocabulary; owned */
    int32_t n_end_tokens;
    int32_t max_rows;      /* of the current step */
    prefill *prefills;     /* [max_seqs] owned; of a step */
    cl_matcher **late;     /* [max_seqs] scratch, owned */
    double patience_s;     /* for which grammars may still be awaited until rows are computed again */
    double recent_seconds; /* of steps: those of the last minute, since older ones decay, as roster.recent_tokens */
    cl_engine_stats stats;
};

/* ---- Life ---- */

/* Find the tokens of the vocabulary that end a choice. False if memory is lacking. */
static bool find_end_tokens(cl_scheduler *s) {
    const int32_t n_vocab = s->model->params.n_vocab;
    const cl_tokenizer *tok = s->model->tok;
    for (int32_t id = 0; id < n_vocab; id++) s->n_end_tokens += cl_tokenizer_is_end(tok, id);
    s->end_tokens = calloc((size_t)s->n_end_tokens + 1, sizeof *s->end_tokens);
    for (int32_t id = 0, n = 0; id < n_vocab && s->end_tokens; id++)
        if (cl_tokenizer_is_end(tok, id)) s->end_tokens[n++] = id;
    return s->end_tokens;
}

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
    cl_pace_init(&s->pace, config->target_itl_s, config->max_step_rows);
    s->config = *config;
    s->config.level = s->config.kv_tier_dir = NULL; /* borrowed for the call only, like the weights */
    s->config.weights = NULL;
    cl_status status = cl_runner_init(&s->runner, m, pool, config, config->kv_budget_bytes, config->max_seqs,
                                      config->max_step_rows, cl_step_max_logits(config->max_seqs), error);
    if (status == CL_OK &&
        !(cl_step_init(&s->step, &s->runner, config->max_seqs) &&
          cl_draw_list_init(&s->draws, pool, m->tok, m->params.n_vocab, cl_step_max_draws(config->max_seqs))))
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for the logits of %d sequences", config->max_seqs);
    if (status == CL_OK && config->speculate) status = create_speculation(s, pool, config, error);
    s->prefills = calloc((size_t)config->max_seqs, sizeof *s->prefills);
    s->late = calloc((size_t)config->max_seqs, sizeof *s->late);
    if (status == CL_OK && !(s->prefills && s->late && find_end_tokens(s) &&
                             cl_roster_init(&s->roster, s->runner.cache, s->speculation, config, &s->stats)))
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
    assert(cl_scheduler_idle(s) && s->roster.finished.n + s->roster.pinned.n == 0);
    cl_roster_free(&s->roster);
    free(s->prefills);
    free(s->late);
    free(s->end_tokens);
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
        .n_end_tokens = s->n_end_tokens,
        .max_seqs = s->config.max_seqs,
        .max_queued_requests = s->config.max_queued_requests,
        .max_queued_tokens = s->config.max_queued_tokens,
        .n_ctx = s->config.n_ctx,
        .context_reason = "",
        .device_bytes = s->runner.forward->device_bytes,
        .cache = s->runner.cache,
        .kv_budget_bytes = s->config.kv_budget_bytes,
        .kv_headroom_bytes = s->config.kv_budget_bytes / 8 + s->config.pin_bytes,
        .can_pin = s->config.pin_bytes > 0,
        .embeddings_only = s->model->params.embeddings_only,
    };
}

/* Seconds until those that wait are admitted, at the rate of the last minute. */
static double retry_after(const cl_scheduler *s) {
    const double n_recent = s->roster.recent_tokens, n_waiting = (double)s->roster.waiting_tokens;
    const double seconds = n_recent > 0 ? n_waiting * s->recent_seconds / n_recent : 0;
    return fmin(fmax(seconds, LEAST_RETRY), MOST_RETRY);
}

void cl_scheduler_get_stats(const cl_scheduler *s, cl_engine_stats *stats, cattn_stats *kv_stats) {
    *stats = s->stats;
    stats->struct_size = sizeof *stats;
    stats->n_running = s->roster.admission.n_requests;
    stats->n_waiting = (int64_t)s->roster.queue.n_live - s->roster.dropped.n - stats->n_running;
    stats->waiting_tokens = s->roster.waiting_tokens;
    stats->n_pins = s->roster.pinned.n;
    stats->retry_after_s = retry_after(s);
    if (s->speculation) stats->drafts = cl_speculation_get_counts(s->speculation);
    *kv_stats = (cattn_stats){.struct_size = sizeof *kv_stats};
    cattn_cache_stats(s->runner.cache, kv_stats);
}

int32_t cl_scheduler_n_free(const cl_scheduler *s) {
    return cl_queue_first(&s->roster.queue) ? 0 : s->config.max_seqs - s->roster.admission.n_seqs;
}

bool cl_scheduler_idle(const cl_scheduler *s) { return s->roster.queue.n_live == 0; }

void cl_scheduler_add(cl_scheduler *s, cl_request *r) {
    if (r->params.beam_search) r->beams = cl_beams_create(&r->params, s->n_end_tokens);
    if (r->params.pooling) r->embedding = cl_embedding_create(s->model->params.n_embd);
    const bool complete = (r->beams || !r->params.beam_search) && (r->embedding || !r->params.pooling);
    cl_roster_add(&s->roster, r, complete && cl_request_list_ends(r, s->end_tokens, s->n_end_tokens));
}

bool cl_scheduler_drop(cl_scheduler *s, bool cancels, bool all) {
    cl_roster_drop(&s->roster, cancels, all);
    return s->roster.dropped.n > 0;
}

void cl_scheduler_report_dropped(cl_scheduler *s) { cl_roster_report_dropped(&s->roster); }

cl_request_list *cl_scheduler_finished(cl_scheduler *s) { return &s->roster.finished; }

/*
 * An eighth of the budget: it is resident when a burst of prompts arrives, and an idle engine does not hold memory that it may
 * never need.
 */
bool cl_scheduler_prefault(cl_scheduler *s) {
    const cl_admission *a = &s->roster.admission;
    bool more = false;
    if (!cl_admission_is_lowered(a)) cattn_cache_prefault(a->cache, a->n_chunks / 8, &more, NULL);
    return more;
}

void cl_scheduler_set_budget(cl_scheduler *s, uint64_t budget_bytes) {
    cl_admission_set_budget(&s->roster.admission, budget_bytes);
    if (s->speculation) cl_speculation_set_budget(s->speculation, (double)budget_bytes / (double)s->config.kv_budget_bytes);
}

void cl_scheduler_abandon(cl_scheduler *s) { cattn_cache_destroy(&s->runner.cache); }

bool cl_scheduler_has_fingerprint(const cl_scheduler *s) { return s->runner.has_fingerprint; }

const cattn_cache *cl_scheduler_cache(const cl_scheduler *s) { return s->runner.cache; }

cattn_join_options cl_scheduler_join_options(cl_scheduler *s, const cl_engine_request *r) {
    cattn_join_options options = cl_admission_join_options(&s->roster.admission, r);
    options.account = cl_queue_account(&s->roster.queue, r->domain, 0);
    return options;
}

void cl_scheduler_reset_cache(cl_scheduler *s) {
    cattn_cache_drop_retained(s->runner.cache, NULL);
    if (s->speculation) cl_speculation_drop_left(s->speculation);
}

/* ---- A step ---- */

static int64_t prefill_segment(const cl_scheduler *s) {
    return s->config.prefill_segment > 0 ? s->config.prefill_segment : s->config.max_step_rows;
}

/* Whether a step computes rows of a choice in the cache, and not its leader for both. */
static bool computes(const cl_choice *c) {
    return !cl_constraint_sits_out(c) && (c->n_tokens > c->owner->params.n_prompt || cl_request_leader(c->owner) == c);
}

/* Whether a step computes only a choice's last token. */
static bool decodes(const cl_choice *c) { return c->decoding && !cl_beams_awaits(c) && !cl_constraint_sits_out(c); }

static int32_t count_decoding(const cl_scheduler *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->roster.admission.n_seqs; i++) n += decodes(s->roster.admission.choices[i]);
    return n;
}

/*
 * The number of prompts by which the step may become longer (pace.h). A tenant's own prompts may delay its choices that decode,
 * and those of all other tenants count as one. The tenant that allows the fewest decides, so that no flood of prompts delays
 * the tokens of others.
 */
static int32_t count_prompts(cl_scheduler *s) {
    cl_choice *const *choices = s->roster.admission.choices;
    const int32_t n_seqs = s->roster.admission.n_seqs;
    int32_t fewest = n_seqs;
    for (int32_t i = 0; i < n_seqs; i++) choices[i]->owner->tenant->n_prompts = 0;
    for (int32_t i = 0; i < n_seqs; i++) choices[i]->owner->tenant->n_prompts += !choices[i]->decoding && computes(choices[i]);
    for (int32_t i = 0; i < n_seqs; i++)
        if (decodes(choices[i]) && choices[i]->owner->tenant->n_prompts < fewest) fewest = choices[i]->owner->tenant->n_prompts;
    return fewest > 1 ? fewest : 1;
}

static int32_t at_most(int64_t n, int32_t limit) { return n < limit ? (int32_t)n : limit; }

/* Most forced tokens that a step can compute of a choice: the last token of a completion is drawn, and needs no row. */
static int32_t most_forced(const cl_choice *c) {
    const int64_t length = c->owner->params.n_prompt + c->owner->params.max_tokens;
    return at_most((c->reserved_to < length ? c->reserved_to : length) - c->n_tokens - 1, CL_FORCED_MAX);
}

/*
 * Draft the tokens that grammars force, in rows that decoding leaves free: it is as good as drawn, so it comes before prefill.
 * Returns the rows; *n_logits: those of them whose logits are computed.
 */
static int32_t draft_forced(cl_scheduler *s, int32_t n_left, int32_t *n_logits) {
    int32_t n = 0;
    *n_logits = 0;
    n_left = at_most(n_left, CL_STEP_FORCED_ROWS);
    for (int32_t i = 0; i < s->roster.admission.n_seqs; i++) {
        cl_choice *c = s->roster.admission.choices[i];
        if (!decodes(c) || cl_constraint_n_forced(c) == 0) continue;
        const bool logits = c->owner->params.logprobs;
        const int32_t most = at_most(most_forced(c), logits ? CL_STEP_DRAFTED_ROWS - *n_logits : n_left);
        const int32_t n_drafted = cl_constraint_draft(c, s->runner.cache, at_most(most, n_left));
        n += n_drafted;
        n_left -= n_drafted;
        if (logits) *n_logits += n_drafted;
    }
    return n;
}

/* Draft for the choices that decode: forced tokens, and guesses in rows that neither decoding nor prefill needs. */
static void draft_tokens(cl_scheduler *s, int32_t n_decoding) {
    int32_t n_logits;
    int64_t n_left = s->max_rows - n_decoding;
    n_left -= draft_forced(s, (int32_t)n_left, &n_logits);
    if (!s->speculation) return;
    cl_speculation_clear(s->speculation);
    for (int32_t i = 0; i < s->roster.admission.n_seqs; i++) {
        cl_choice *c = s->roster.admission.choices[i];
        if (decodes(c)) {
            if (!c->owner->beams && cl_constraint_n_forced(c) == 0) cl_speculation_add(s->speculation, c);
        } else if (!c->decoding && computes(c)) {
            const int64_t n_missing = cl_step_n_missing(&s->step, c), segment = prefill_segment(s);
            n_left -= n_missing < segment ? n_missing : segment;
        }
    }
    n_left = at_most(n_left, CL_STEP_DRAFTED_ROWS - n_logits);
    if (n_left > 0) cl_speculation_draft(s->speculation, n_decoding, (int32_t)n_left);
}

/*
 * The key by which the prompts of tenants are ordered: the counter, and up to the rows of two steps for the part of the
 * sequences that a tenant has in the cache. So a prompt that takes two steps is not interrupted for those of a flood (14 % of
 * the time to its first token: docs/experiments.md, "Scheduling").
 */
static double turn_of(const cl_scheduler *s, const cl_choice *c) {
    const cl_tenant *t = c->owner->tenant;
    return t->served + 2.0 * s->config.max_step_rows * t->n_in_cache / s->roster.admission.n_seqs;
}

/* Whether the prompt of a gets rows before that of b, which precedes it by rank. */
static bool has_turn_before(const cl_scheduler *s, const prefill *a, const prefill *b) {
    if (a->choice->owner->tenant != b->choice->owner->tenant) return turn_of(s, a->choice) < turn_of(s, b->choice);
    return b->has_half && !a->has_half;
}

/* List the choices whose prompts lack rows by their tenants' turn, then by that of their requests (turns.h), then by rank. */
static int32_t list_prefills(cl_scheduler *s) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->roster.admission.n_seqs; i++) {
        cl_choice *c = s->roster.admission.choices[i];
        if (c->decoding || !computes(c)) continue;
        const prefill p = {c, cl_turns_has_half(&s->roster.admission, c->owner)};
        int32_t k = n++;
        for (; k > 0 && has_turn_before(s, &p, &s->prefills[k - 1]); k--) s->prefills[k] = s->prefills[k - 1];
        s->prefills[k] = p;
    }
    return n;
}

/*
 * The rows of a step whose prefills are listed. Where a prompt ends, and the next one is of a tenant with twice the share, the
 * step ends, too: rows of a flood would delay the first token, and lose no more than the fixed cost of a step if they wait.
 */
static int32_t rows_of_step(const cl_scheduler *s, int32_t n_prefills) {
    int64_t n = 0;
    for (int32_t i = 0; i < s->step.n_entries; i++) n += 1 + s->step.entries[i].choice->n_drafted;
    for (int32_t i = 0; i + 1 < n_prefills; i++) {
        const cl_tenant *t = s->prefills[i].choice->owner->tenant, *next = s->prefills[i + 1].choice->owner->tenant;
        const int64_t n_missing = cl_step_n_missing(&s->step, s->prefills[i].choice), segment = prefill_segment(s);
        n += n_missing < segment ? n_missing : segment;
        if (n >= s->max_rows) break;
        if (n_missing <= segment && cl_tenant_share(next, next->n_in_cache) >= 2 * cl_tenant_share(t, t->n_in_cache))
            return (int32_t)n;
    }
    return s->max_rows;
}

static void list_entries(cl_scheduler *s) {
    const cl_admission *a = &s->roster.admission;
    for (int32_t i = 0; i < a->n_seqs; i++)
        if (decodes(a->choices[i])) cl_step_add(&s->step, a->choices[i], 1 + a->choices[i]->n_drafted);
    const int32_t n_prefills = list_prefills(s);
    s->max_rows = rows_of_step(s, n_prefills);
    for (int32_t i = 0; i < n_prefills; i++) cl_step_add(&s->step, s->prefills[i].choice, prefill_segment(s));
}

/* End a choice because the cache failed. */
static void fail_choice(cl_scheduler *s, cl_choice *c, const cattn_error *cause) {
    cl_error error;
    cl_fail(&error, CL_ERR_NOMEM, "K/V cache: %s", cause->message);
    cl_roster_end_choice(&s->roster, c, CL_ENGINE_ERROR, &error);
}

/*
 * Keep the tokens of a choice's draft that its draws, n >= 1 in a row, agree with; n = 0: nothing was verified. After an error
 * the sequence cannot be used any more.
 */
static void settle_draft(cl_scheduler *s, cl_choice *c, const cl_draw *draws, int32_t n) {
    cattn_error cause;
    const bool all = n == c->n_drafted + 1;
    if (c->n_drafted == 0) return;
    if (!c->drafts_forced) cl_speculation_learn(s->speculation, c, draws, n);
    c->n_drafted = 0;
    if (!all && cattn_seq_truncate(s->runner.cache, c->seq, c->n_tokens + (n > 0 ? n - 1 : 0), &cause) != CATTN_OK)
        fail_choice(s, c, &cause);
}

/* Keep the drafted tokens that the draws agree with; of choices that sit out, nothing was verified. */
static void settle_drafts(cl_scheduler *s) {
    for (int32_t i = 0; i < s->step.n_entries; i++)
        if (cl_constraint_sits_out(s->step.entries[i].choice)) settle_draft(s, s->step.entries[i].choice, NULL, 0);
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

/* Advance the beams of which the step has computed the last tokens. */
static void advance_beams(cl_scheduler *s) {
    for (int32_t i = 0; i < s->draws.n; i++) {
        cl_request *r = s->draws.draws[i].choice->owner;
        if (!r->beams || cl_beams_pending(r) != CL_BEAMS_AWAIT) continue;
        if (cl_beams_select(r, s->model->tok) == CL_BEAMS_END) s->stats.completion_tokens += cl_beams_n_tokens(r);
    }
}

/* The number of an entry's rows at positions below `end`. */
static int64_t rows_below(const cl_step_entry *e, int64_t end) {
    const int64_t n = end - e->first_pos;
    return n < 0 ? 0 : n < e->n_rows ? n : e->n_rows;
}

/*
 * A prompt's token that was taken for cached is computed after all: its record in the file tier is damaged, or the request that
 * was to compute it has left. What events have said of the request stands: a later choice may find less in the cache.
 */
static void correct_cached(const cl_step_entry *e) {
    cl_request *r = e->choice->owner;
    const int64_t first = e->first_pos > e->choice->n_lost ? e->first_pos : e->choice->n_lost;
    if (!r->reported && first < e->first_pos + e->n_rows && first < r->n_cached) r->n_cached = first;
}

/* Note that n tokens of a request's prompt were computed, after which the choice may decode. */
static void note_computed(cl_scheduler *s, const cl_choice *c, int64_t n) {
    cl_request *r = c->owner;
    r->n_computed += n;
    if (c->decoding) cl_roster_count_prompt(&s->roster, r, r->params.n_prompt - r->n_computed);
}

/* The class of a step by its rows: see cl_engine_stats. */
static int size_class(int32_t n_rows) {
    int i = n_rows > 1;
    for (int32_t most = 8; i > 0 && i < CL_STEP_SIZES - 1 && n_rows > most; most *= 2) i++;
    return i;
}

static void count_step(cl_scheduler *s, double seconds, int32_t n_decoding, int32_t n_prompts) {
    cl_engine_stats *stats = &s->stats;
    int64_t n_prompt = 0, n_recomputed = 0;
    for (int32_t i = 0; i < s->step.n_entries; i++) {
        const cl_step_entry *e = &s->step.entries[i];
        const int64_t n_again = rows_below(e, e->choice->n_lost), n_below = rows_below(e, e->choice->owner->params.n_prompt);
        n_recomputed += n_again;
        const int64_t n_first = n_below > n_again ? n_below - n_again : 0;
        correct_cached(e);
        note_computed(s, e->choice, n_first);
        n_prompt += n_first;
        cl_tenant_charge(e->choice->owner->tenant, n_first);
    }
    const double share = (double)(n_prompt + n_recomputed) / (double)s->step.n_rows;
    cl_pace_learn(&s->pace, seconds, n_decoding, n_prompts, (int32_t)(n_prompt + n_recomputed));
    const double decay = exp(-seconds / 60);
    s->roster.recent_tokens *= decay;
    s->recent_seconds = s->recent_seconds * decay + seconds;
    stats->steps++;
    stats->step_rows += s->step.n_rows;
    stats->steps_by_rows[size_class(s->step.n_rows)]++;
    stats->prefill_tokens_computed += n_prompt;
    stats->recomputed_tokens += n_recomputed;
    stats->prefill_s += seconds * share;
    stats->decode_s += seconds * (1 - share);
    if (s->step.n_entries > stats->batch_peak) stats->batch_peak = s->step.n_entries;
}

/* Count the tokens that were drawn. */
static void count_draws(cl_scheduler *s) {
    for (int32_t i = 0; i < s->draws.n; i++) {
        cl_request *r = s->draws.draws[i].choice->owner;
        if (s->draws.draws[i].prompt || s->draws.draws[i].token < 0) continue;
        if (!r->beams) s->stats.completion_tokens++; /* those of beams count when they are reported */
        cl_tenant_charge(r->tenant, 1);
    }
}

void cl_scheduler_admit(cl_scheduler *s) {
    cl_roster_extend(&s->roster);
    cl_roster_admit(&s->roster);
}

/*
 * Run the step. Where its workspace finds no room it has fewer rows, and then the worst choice leaves, so that the next step
 * may succeed. Only where nothing can be freed a step has one row, which needs no room: with others that could leave, it would
 * compute one token while they wait.
 */
static cl_status run_step(cl_scheduler *s) {
    cl_error error;
    cl_status status = cl_step_run(&s->step, s->max_rows, &error);
    if (status != CL_OK) drop_drafts(s);
    for (int32_t rows = s->max_rows / 2; status == CL_ERR_LIMIT && rows > 1 && s->step.n_entries > 0; rows /= 2)
        status = cl_step_run(&s->step, rows, &error);
    if (status == CL_OK || cl_roster_free_chunks(&s->roster)) return status;
    if (status == CL_ERR_LIMIT && s->step.n_entries > 0) status = cl_step_run(&s->step, 1, &error);
    if (status != CL_OK) cl_roster_end_last(&s->roster, &error);
    return status;
}

/* Compute the draws that are listed. */
static void draw(cl_scheduler *s) {
    const double start = clock_seconds();
    cl_draw_list_run(&s->draws, start + s->patience_s);
    s->patience_s = fmax(0, s->patience_s - (clock_seconds() - start));
    settle_drafts(s);
    count_draws(s);
}

/*
 * No token can be computed: all that are due are on the way from the file tier, or wait for grammars. Requests that come or are
 * cancelled meanwhile are seen soon.
 */
static void wait_for_any(cl_scheduler *s) {
    const cl_admission *a = &s->roster.admission;
    int32_t n = 0;
    for (int32_t i = 0; i < a->n_seqs; i++)
        if (cl_constraint_sits_out(a->choices[i])) s->late[n++] = a->choices[i]->constraint->matcher;
    if (n > 0)
        s->late[0]->wait(s->late, n, clock_seconds() + MOST_WAIT);
    else
        cattn_cache_wait(s->runner.cache, MOST_WAIT, NULL, NULL);
}

/* Draw the tokens of choices whose late answers are there, so that the next step computes them. False: there are none. */
static bool resume(cl_scheduler *s) {
    cl_draw_list_resume(&s->draws, s->roster.admission.choices, s->roster.admission.n_seqs);
    if (s->draws.n == 0) return false;
    draw(s);
    return true;
}

void cl_scheduler_step(cl_scheduler *s) {
    cl_step_clear(&s->step);
    cl_draw_list_clear(&s->draws);
    cl_scheduler_admit(s);
    if (s->roster.admission.n_seqs == 0 || resume(s)) return;
    const double start = cl_now();
    const int32_t n_decoding = count_decoding(s);
    const int32_t n_prompts = count_prompts(s);
    s->max_rows = cl_pace_rows(&s->pace, n_decoding, n_prompts);
    draft_tokens(s, n_decoding);
    list_entries(s);
    if (s->step.n_entries > 0 && run_step(s) != CL_OK) {
        cl_step_clear(&s->step);
        return;
    }
    if (s->step.n_entries == 0 || s->step.n_rows == 0) {
        cl_step_clear(&s->step);
        wait_for_any(s);
        return;
    }
    s->patience_s = fmax(PATIENCE * (cl_now() - start), LEAST_PATIENCE);
    cl_draw_list_fill(&s->draws, &s->step);
    draw(s);
    advance_beams(s);
    count_step(s, fmax(0, cl_now() - start), n_decoding, n_prompts); /* the clock may go back */
}

/* ---- Reporting ---- */

/* Why a draw has no token. */
static void explain(const cl_draw *d, cl_error *error) {
    if (d->emptied_by)
        cl_refuse(error, d->emptied_by, "leaves no token to draw: all logits are minus infinity or NaN; leave a finite one");
    else
        cl_constraint_explain(d->choice, error);
}

static void report(cl_scheduler *s, const cl_draw *d) {
    cl_choice *c = d->choice;
    if (d->prompt) {
        cl_choice_report_prompt(c, d);
        return;
    }
    /* The choice ended or was cancelled at an earlier token, so a step without drafts would not have drawn this one. */
    if (c->finish != CL_ENGINE_RUNNING || (d->n_ahead > 0 && atomic_load_explicit(&c->owner->cancelled, memory_order_relaxed)))
        return;
    if (c->owner->beams) return;
    if (d->token < 0) {
        cl_error error;
        explain(d, &error);
        cl_roster_end_choice(&s->roster, c, CL_ENGINE_ERROR, &error);
        return;
    }
    cl_choice_add(c, s->model->tok, d);
    if (c->owner->params.generation_s > 0 && c->finish == CL_ENGINE_RUNNING && cl_choice_is_late(c, cl_now()))
        cl_choice_end(c, CL_ENGINE_LENGTH, NULL);
    if (c->finish != CL_ENGINE_RUNNING) {
        cl_roster_let_go(&s->roster, c);
        return;
    }
    cattn_error cause;
    if (!d->drafted && cattn_seq_append(s->runner.cache, c->seq, &d->token, 1, &cause) != CATTN_OK) fail_choice(s, c, &cause);
}

/* The search of a request has ended: report its completions. */
static void report_beams(cl_scheduler *s, cl_request *r) {
    if (cl_request_is_queued(r)) cl_queue_remove(&s->roster.queue, r);
    for (int32_t i = 0; i < r->params.n; i++) {
        cl_beams_report(r, i, s->model->tok);
        cl_roster_let_go(&s->roster, &r->choices[i]);
    }
}

/* Do the pending action of a request's beams, if it is this one. */
static void follow_beams(cl_scheduler *s, cl_request *r, cl_beams_answer pending) {
    if (!r->beams || cl_beams_pending(r) != pending) return;
    cl_beams_settle(r);
    if (pending == CL_BEAMS_END) report_beams(s, r);
    if (pending == CL_BEAMS_ADVANCE && r->n_in_cache > 0) cl_roster_advance(&s->roster, r);
    cl_error error;
    cl_fail_field(&error, CL_ERR_UNSUPPORTED, "n", "is %d, and the model gives fewer tokens a probability: lower it",
                  r->params.n);
    if (pending == CL_BEAMS_FAIL) cl_roster_end_request(&s->roster, r, CL_ENGINE_ERROR, &error);
}

void cl_scheduler_report(cl_scheduler *s) {
    static const cl_beams_answer order[] = {CL_BEAMS_END, CL_BEAMS_FAIL, CL_BEAMS_ADVANCE}; /* the last may preempt others */
    cl_roster_report_dropped(&s->roster);
    for (int32_t i = 0; i < s->step.n_entries; i++)
        if (s->step.entries[i].choice->decoding) cl_roster_pin_prefix(&s->roster, s->step.entries[i].choice);
    for (int32_t i = 0; i < s->draws.n; i++) report(s, &s->draws.draws[i]);
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        for (int32_t i = 0; i < s->draws.n; i++) follow_beams(s, s->draws.draws[i].choice->owner, order[k]);
    for (int32_t i = 0; i < s->step.n_entries; i++) {
        cl_choice *c = s->step.entries[i].choice;
        if (c->decoding && c->owner->params.max_tokens == 0) cl_roster_end_prompt(&s->roster, c);
    }
}
