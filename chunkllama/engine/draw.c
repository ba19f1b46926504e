/* Draws the tokens of a step: see draw.h. */
#include "draw.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "beam.h"
#include "constraint.h"

bool cl_draw_list_init(cl_draw_list *list, ca_pool *pool, const cl_tokenizer *tok, int32_t n_vocab, int32_t max_draws) {
    *list = (cl_draw_list){
        .pool = pool,
        .tok = tok,
        .samplers = cl_samplers_create(ca_pool_size(pool), n_vocab),
        .draws = calloc((size_t)max_draws, sizeof *list->draws),
        .runs = calloc((size_t)max_draws, sizeof *list->runs),
        .foreseen = calloc((size_t)max_draws, sizeof *list->foreseen),
        .candidates = calloc((size_t)max_draws, sizeof *list->candidates),
    };
    return cl_constraint_scratch_init(&list->constraints, tok, n_vocab, ca_pool_size(pool)) && list->samplers && list->draws &&
           list->runs && list->foreseen && list->candidates;
}

void cl_draw_list_free(cl_draw_list *list) {
    if (list->samplers) cl_samplers_free(&list->samplers, ca_pool_size(list->pool));
    cl_constraint_scratch_free(&list->constraints);
    free(list->draws);
    free(list->runs);
    free(list->foreseen);
    free(list->candidates);
    memset(list, 0, sizeof *list);
}

void cl_draw_list_clear(cl_draw_list *list) { list->n = list->n_runs = 0; }

/* ---- Listing ---- */

static cl_draw *add(cl_draw_list *list, cl_choice *c, int64_t position, const float *logits) {
    cl_draw *d = &list->draws[list->n++];
    d->choice = c;
    d->logits = logits;
    d->position = position;
    d->n_ahead = d->token = 0;
    d->drafted = d->completes = false;
    d->chosen = (cl_sampler_logprob){.id = -1};
    d->n_top = d->rank = 0;
    d->emptied_by = NULL;
    return d;
}

/*
 * List the draw of a choice's next token (n_ahead is 0), or of the token after n_ahead drafted ones. The draws of a choice are
 * listed one after the other, in ascending order of n_ahead.
 */
static void add_next(cl_draw_list *list, cl_choice *c, int32_t n_ahead, const float *logits) {
    if (n_ahead == 0) list->runs[list->n_runs++] = list->n;
    cl_draw *d = add(list, c, c->n_tokens + n_ahead, logits);
    d->prompt = false;
    d->n_ahead = n_ahead;
}

/* List the logprob of the prompt's token at `position`. */
static void add_prompt(cl_draw_list *list, cl_choice *c, int64_t position, const float *logits) {
    list->runs[list->n_runs++] = list->n;
    cl_draw *d = add(list, c, position, logits);
    d->prompt = true;
    d->token = c->tokens[position];
}

/* The leader has computed the prompt: all choices that wait for it draw their first token. */
static void add_first(cl_draw_list *list, cl_request *r, const float *logits) {
    const int32_t n = r->beams ? 1 : r->params.n; /* all beams continue the first one */
    for (int32_t i = 0; i < n; i++) {
        cl_choice *c = &r->choices[i];
        if (c->seq != 0 && c->n_tokens == r->params.n_prompt && !cl_constraint_sits_out(c)) add_next(list, c, 0, logits);
    }
}

/* List the logprob of the prompt's token at `position`, if it is the next one to report. */
static void add_score(cl_draw_list *list, cl_choice *c, int64_t position, const float *logits) {
    cl_request *r = c->owner;
    if (position != r->n_scored || position >= r->params.n_prompt) return;
    add_prompt(list, c, position, logits);
    r->n_scored++;
}

/* List the logprobs of the prompt from an entry's rows: the logits of a row are those of the token after it. */
static void add_scores(cl_draw_list *list, const cl_step *st, const cl_step_entry *e) {
    if (e->first_pos == 0 && e->n_rows > 0) add_score(list, e->choice, 0, NULL);
    for (int32_t i = 0; i < e->n_rows; i++)
        add_score(list, e->choice, e->first_pos + i + 1, cl_step_logits(st, e->first_row + i));
}

void cl_draw_list_fill(cl_draw_list *list, const cl_step *st) {
    for (int32_t i = 0; i < st->n_entries; i++) {
        const cl_step_entry *e = &st->entries[i];
        cl_choice *c = e->choice;
        if (cl_step_scores(c)) add_scores(list, st, e);
        if (e->last_row < 0 || (!c->decoding && cl_step_n_missing(st, c) > 0)) continue;
        c->decoding = true;
        if (c->owner->params.max_tokens == 0) continue;
        if (c->n_tokens == c->owner->params.n_prompt)
            add_first(list, c->owner, cl_step_logits(st, e->last_row));
        else
            for (int32_t k = 0; k < e->n_drawn; k++) add_next(list, c, k, cl_step_logits(st, e->last_row + k));
    }
}

void cl_draw_list_resume(cl_draw_list *list, cl_choice *const *choices, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (cl_constraint_may_go_on(choices[i])) add_next(list, choices[i], 0, choices[i]->constraint->kept);
}

/* ---- Computing ---- */

/* The tokens [*n] that end the choice's reasoning and must come at a draw, given those before it. */
static const int32_t *find_ending(const cl_draw_list *list, const cl_draw *d, int32_t *n) {
    const cl_choice *c = d->choice;
    const cl_engine_request *params = &c->owner->params;
    cl_reasoning r = c->reasoning;
    for (int32_t i = 0; i < d->n_ahead; i++) cl_reasoning_add(&r, params, list->tok, c->tokens[c->n_tokens + i]);
    return cl_reasoning_forced(&r, params, n);
}

/* The logits of a draw, after the request's on_logits. A token that is forced is not drawn. */
static const float *logits_of(const cl_draw_list *list, cl_sampler *s, cl_draw *d) {
    const cl_choice *c = d->choice;
    const cl_request *r = c->owner;
    if (!r->params.on_logits || !d->logits || cl_constraint_n_forced(c) > 0) return d->logits;
    const cl_logits shown = {.struct_size = sizeof shown,
                             .request = r->id,
                             .choice = c->index,
                             .n_vocab = list->constraints.n_vocab,
                             .logits = cl_sampler_copy(s, d->logits),
                             .tokens = c->tokens,
                             .n_tokens = d->position,
                             .n_prompt = r->params.n_prompt};
    r->params.on_logits(r->params.ctx, &shown);
    if (cl_sampler_is_empty(s, shown.logits)) d->emptied_by = "on_logits";
    return shown.logits;
}

/* Draw without a constraint. -1: the request's biases exclude every token. */
static int32_t draw_free(cl_sampler *s, cl_draw *d, const float *logits) {
    const cl_choice *c = d->choice;
    const cl_engine_request *params = &c->owner->params;
    logits = cl_sampler_restrict(s, &c->owner->rules, logits, c->tokens, params->n_prompt, d->position);
    const int32_t token =
        cl_sampler_draw(s, &params->sampling, &params->cuts, logits, cl_choice_history(c, d->position), c->index, d->position);
    if (params->n_logit_bias == 0 || logits[token] > -INFINITY || cl_sampler_is_empty(s, d->logits)) return token;
    d->emptied_by = "logit_bias";
    return -1;
}

static int32_t draw_next(const cl_draw_list *list, int32_t worker, cl_draw *d) {
    cl_sampler *s = list->samplers[worker];
    cl_choice *c = d->choice;
    int32_t n_ending;
    const int32_t *ending = find_ending(list, d, &n_ending);
    if (n_ending > 0 && !c->constraint) return *ending;
    const float *logits = logits_of(list, s, d);
    if (d->emptied_by) return -1;
    /* What is shown to on_logits is shown once. */
    const double until = c->owner->params.on_logits ? INFINITY : list->until;
    if (c->constraint)
        return cl_constraint_draw(&list->constraints, worker, s, c, logits, ending, n_ending, d->position, until,
                                  &d->completes);
    return draw_free(s, d, logits);
}

static void compute(const cl_draw_list *list, int32_t worker, cl_draw *d) {
    cl_sampler *s = list->samplers[worker];
    cl_choice *c = d->choice;
    const cl_engine_request *params = &c->owner->params;
    if (c->owner->beams && !d->prompt) {
        cl_beams_expand(s, c, d->logits);
        return;
    }
    if (!d->prompt) d->token = draw_next(list, worker, d);
    if (!d->logits || d->token < 0 || !(d->prompt || params->logprobs)) return;
    d->n_top = params->n_top;
    cl_sampler_logprobs(s, d->logits, d->token, &d->chosen, params->top_tokens ? 0 : d->n_top, d->top);
    for (int32_t i = 0; params->top_tokens && i < d->n_top; i++)
        cl_sampler_logprobs(s, d->logits, params->top_tokens[i], &d->top[i], 0, NULL);
    if (d->prompt) d->rank = cl_sampler_rank(d->logits, list->constraints.n_vocab, d->token);
}

/* Whether a run begins with a question to a grammar that is better asked with those of other runs. */
static bool foresees(const cl_draw_list *list, const cl_draw *d) {
    int32_t n_ending;
    const cl_request *r = d->choice->owner;
    if (d->prompt || r->beams || r->params.on_logits || !cl_constraint_foresees(d->choice)) return false;
    find_ending(list, d, &n_ending);
    return n_ending == 0;
}

static void foresee_run(void *arg, int32_t task, int32_t worker) {
    cl_draw_list *list = arg;
    const cl_draw *d = &list->draws[list->runs[task]];
    list->foreseen[task] = NULL;
    if (!foresees(list, d) ||
        !cl_constraint_foresee(&list->constraints, list->samplers[worker], d->choice, d->logits, d->position, list->until))
        return;
    list->foreseen[task] = d->choice->constraint->matcher;
    list->candidates[task] = d->choice->constraint->candidate;
}

/* Draw the first candidates of all runs with grammars, and ask about all of them together. */
static void foresee(cl_draw_list *list) {
    int32_t n = 0, n_asking = 0;
    for (int32_t i = 0; i < list->n_runs; i++) n_asking += foresees(list, &list->draws[list->runs[i]]);
    if (n_asking < 2) return;
    ca_pool_run(list->pool, list->n_runs, foresee_run, list);
    for (int32_t i = 0; i < list->n_runs; i++) {
        if (!list->foreseen[i]) continue;
        list->foreseen[n] = list->foreseen[i];
        list->candidates[n++] = list->candidates[i];
    }
    if (n > 0) list->foreseen[0]->foresee(list->foreseen, list->candidates, n);
}

/*
 * A draw is late. Its choice sits out; or, if tokens of a draft come before it, the draft ends with them, so that the next step
 * computes the logits again.
 */
static void put_off(const cl_draw_list *list, cl_draw *d) {
    if (d->n_ahead > 0)
        d[-1].drafted = false;
    else if (!cl_constraint_sits_out(d->choice)) {
        cl_constraint_sit_out(&list->constraints, d->choice, d->logits);
        if (!cl_constraint_sits_out(d->choice)) d->token = CL_NO_TOKEN;
    }
}

/* Compute the draws of one run, one after the other as long as they equal the draft. */
static void compute_run(void *arg, int32_t task, int32_t worker) {
    cl_draw_list *list = arg;
    cl_draw *d = &list->draws[list->runs[task]];
    const cl_draw *end = &list->draws[task + 1 < list->n_runs ? list->runs[task + 1] : list->n];
    for (compute(list, worker, d); d + 1 < end; compute(list, worker, ++d)) {
        d->drafted = d->token == d->choice->tokens[d->position] && !d->completes &&
                     !cl_choice_would_end(d->choice, list->tok, d->n_ahead + 1);
        if (!d->drafted) break;
    }
    if (!d->prompt && d->token == CL_LATE)
        put_off(list, d);
    else if (!d->prompt)
        cl_constraint_go_on(d->choice);
}

/* Remove the draws that were not computed, or were put off. */
static void remove_undrawn(cl_draw_list *list) {
    int32_t n = 0;
    for (int32_t i = 0; i < list->n; i++) {
        const cl_draw *d = &list->draws[i];
        if (!d->prompt && d->n_ahead == 0 && d->token == CL_LATE) continue;
        if (d->n_ahead > 0 && !(n > 0 && list->draws[n - 1].drafted && list->draws[n - 1].choice == d->choice)) continue;
        if (n < i) list->draws[n] = *d;
        n++;
    }
    list->n = n;
    list->n_runs = 0;
}

void cl_draw_list_run(cl_draw_list *list, double until) {
    list->until = until;
    foresee(list);
    if (list->n_runs == 1)
        compute_run(list, 0, 0);
    else if (list->n_runs > 1)
        ca_pool_run(list->pool, list->n_runs, compute_run, list);
    remove_undrawn(list);
}
