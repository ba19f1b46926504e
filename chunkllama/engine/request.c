/* Copies requests, adds tokens to their choices, and reports events: see request.h. */
#include "request.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "beam.h"
#include "chunkattn/base/clock.h"
#include "constraint.h"
#include "draw.h"
#include "params_copy.h"

double cl_now(void) { return clock_seconds(); }

void cl_request_list_add(cl_request_list *list, cl_request *r) {
    r->next = NULL;
    if (list->last)
        list->last->next = r;
    else
        list->first = r;
    list->last = r;
    list->n++;
}

cl_request *cl_request_list_take(cl_request_list *list) {
    cl_request *r = list->first;
    list->first = r->next;
    if (!list->first) list->last = NULL;
    r->next = NULL;
    list->n--;
    return r;
}

cl_request *cl_request_create(const cl_engine_request *params) {
    cl_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->params = *params;
    r->params.grammar = NULL;
    r->n_unfinished = params->n;
    r->n_scored = params->prompt_logprobs_from;
    atomic_init(&r->cancelled, false);
    r->choices = calloc((size_t)params->n, sizeof *r->choices);
    r->copies = cl_params_copy(&r->params);
    if (!r->copies || !r->choices) {
        cl_request_free(r);
        return NULL;
    }
    const cl_engine_request *p = &r->params;
    r->rules = (cl_sampler_rules){.bias = p->logit_bias,
                                  .n_bias = p->n_logit_bias,
                                  .allowed = p->allowed_tokens,
                                  .n_allowed = p->n_allowed_tokens,
                                  .bad_words = p->bad_words,
                                  .bad_word_sizes = p->bad_word_sizes,
                                  .n_bad_words = p->n_bad_words,
                                  .min_tokens = p->min_tokens};
    for (int32_t i = 0; i < params->n; i++) {
        cl_choice *c = &r->choices[i];
        c->owner = r;
        c->index = i;
        c->n_tokens = params->n_prompt;
        c->text.stop = r->params.stop;
        c->text.n_stop = params->n_stop;
        c->text.include_stop = params->include_stop;
        c->text.min_indent = params->min_indent;
        c->text.indent = -1;
        c->reasoning = cl_reasoning_begin(&r->params);
    }
    return r;
}

bool cl_request_list_ends(cl_request *r, const int32_t *end_tokens, int32_t n_end_tokens) {
    const cl_engine_request *p = &r->params;
    const size_t n_ends = p->ignore_eos ? 0 : (size_t)n_end_tokens, n_stop = (size_t)p->n_stop_tokens;
    if (p->min_tokens == 0 || n_ends + n_stop == 0) return true;
    int32_t *ends = malloc((n_ends + n_stop) * sizeof *ends);
    if (!ends) return false;
    if (n_ends > 0) memcpy(ends, end_tokens, n_ends * sizeof *ends);
    if (n_stop > 0) memcpy(ends + n_ends, p->stop_tokens, n_stop * sizeof *ends);
    r->rules.ends = ends;
    r->rules.n_ends = (int32_t)(n_ends + n_stop);
    return true;
}

bool cl_request_set_grammar(cl_request *r, cl_grammar *grammar) {
    r->grammar = grammar;
    r->constraints = calloc((size_t)r->params.n, sizeof *r->constraints);
    for (int32_t i = 0; r->constraints && i < r->params.n; i++) {
        cl_constraint_init(&r->constraints[i]);
        r->choices[i].constraint = &r->constraints[i];
    }
    return r->constraints;
}

bool cl_request_set_events(cl_request *r, cl_event_queue *queue) {
    r->events = queue;
    r->reserve = cl_event_reserve(r->params.n);
    return r->reserve;
}

void cl_request_free(cl_request *r) {
    if (!r) return;
    for (int32_t i = 0; r->choices && i < r->params.n; i++) {
        free(r->choices[i].tokens);
        cl_constraint_end(&r->choices[i]);
        cl_text_free(&r->choices[i].text);
    }
    cl_event_reserve_free(&r->reserve);
    cl_beams_free(&r->beams);
    if (r->grammar) r->grammar->free(r->grammar);
    free(r->constraints);
    cl_embedding_free(&r->embedding);
    free(r->choices);
    free((void *)r->rules.ends);
    free(r->copies);
    free(r);
}

bool cl_choice_start(cl_choice *c) {
    const cl_engine_request *params = &c->owner->params;
    cl_request *r = c->owner;
    if (c->tokens) return true;
    if ((r->embedding && !cl_embedding_start(r->embedding)) || (r->beams && !cl_beams_start(r->beams, params))) return false;
    c->tokens = calloc((size_t)params->n_prompt + (size_t)params->max_tokens, sizeof *c->tokens);
    if (!c->tokens) return false;
    memcpy(c->tokens, params->prompt, (size_t)params->n_prompt * sizeof *c->tokens);
    return true;
}

cl_choice *cl_request_first_waiting(const cl_request *r) {
    cl_choice *c = r->choices;
    while (c->seq != 0 || c->finish != CL_ENGINE_RUNNING) c++;
    return c;
}

cl_choice *cl_request_leader(const cl_request *r) {
    for (cl_choice *c = r->choices; c < r->choices + r->params.n; c++)
        if (c->seq != 0 && c->n_tokens == r->params.n_prompt && !cl_constraint_sits_out(c)) return c;
    return NULL;
}

double cl_request_due(double submitted, int32_t priority) { return submitted + 10.0 * priority; }

bool cl_request_is_before(const cl_request *a, const cl_request *b) {
    return a->due != b->due ? a->due < b->due : a->id < b->id;
}

bool cl_choice_is_before(const cl_choice *a, const cl_choice *b) {
    return a->owner == b->owner ? a->index < b->index : cl_request_is_before(a->owner, b->owner);
}

static cl_engine_event event_of(const cl_choice *c) {
    const cl_request *r = c->owner;
    return (cl_engine_event){
        .struct_size = sizeof(cl_engine_event),
        .request = r->id,
        .choice = c->index,
        .text = "",
        .n_prompt = r->params.n_prompt,
        .n_cached = r->n_cached,
        .n_completion = r->n_completion,
        .n_pinned = r->n_pinned,
        .queued_s = fmax(0, (r->admitted ? r->admitted_at : cl_now()) - r->submitted), /* a virtual clock may go back */
        .n_sharing = r->n_sharing,
        .ctx = r->params.ctx,
    };
}

/* Queue an event, or end the request because it cannot be queued. */
static void queue(cl_request *r, const cl_engine_event *event) {
    if (!r->lost_event && cl_event_queue_add(r->events, event)) return;
    r->lost_event = true;
    if (event->kind == CL_EVENT_END)
        cl_event_queue_add_failure(r->events, event, &r->reserve);
    else
        atomic_store_explicit(&r->cancelled, true, memory_order_relaxed);
    atomic_store(&r->events->lost, true);
}

static void report(cl_request *r, const cl_engine_event *event) {
    r->reported = true;
    if (r->params.on_event)
        r->params.on_event(r->params.ctx, event);
    else
        queue(r, event);
}

static void add_draw(cl_engine_event *event, cl_event_kind kind, const cl_draw *d) {
    event->kind = kind;
    event->token = (cl_event_token){d->token, d->rank, d->position, d->chosen, d->top, d->n_top};
}

static void add_text(cl_engine_event *event, const cl_text *t) {
    if (t->out.size == 0) return;
    event->text = t->out.data;
    event->text_size = t->out.size;
}

bool cl_request_is_end(const cl_request *r, const cl_tokenizer *tok, int32_t token) {
    const cl_engine_request *params = &r->params;
    for (int32_t i = 0; i < params->n_stop_tokens; i++)
        if (params->stop_tokens[i] == token) return true;
    return !params->ignore_eos && cl_tokenizer_is_end(tok, token);
}

/* The bytes of a token that are shown. Special tokens have none unless the request lists them. */
static size_t get_piece(const cl_request *r, const cl_tokenizer *tok, int32_t token, char *buf, size_t size) {
    const cl_engine_request *params = &r->params;
    bool special = params->show_special;
    for (int32_t i = 0; i < params->n_shown_tokens && !special; i++) special = params->shown_tokens[i] == token;
    return cl_tokenizer_piece(tok, token, special, buf, size);
}

/* Whether stop strings count that the n-th next token completes. */
static bool is_stoppable(const cl_choice *c, int32_t n) {
    const cl_engine_request *params = &c->owner->params;
    return c->n_tokens + n > params->n_prompt + params->min_tokens;
}

/* Add the text of the next token to c->text. *stopped: a stop string is complete. False if memory is lacking. */
static bool detokenize(cl_choice *c, const cl_tokenizer *tok, int32_t token, bool *stopped) {
    const size_t n = get_piece(c->owner, tok, token, NULL, 0);
    char *scratch = cl_text_reserve(&c->text, n);
    if (!scratch) return false;
    get_piece(c->owner, tok, token, scratch, n);
    *stopped = cl_text_added(&c->text, n, is_stoppable(c, 1));
    return true;
}

/*
 * Whether the text of the next n tokens completes a stop string. True if memory is lacking, so that these tokens are not
 * drafted and cl_choice_add meets the problem.
 */
static bool completes_stop(cl_choice *c, const cl_tokenizer *tok, const int32_t *tokens, int32_t n) {
    size_t size = 0, used = 0, passed = 0; /* passed: of the tokens that no stop string may end with */
    for (int32_t i = 0; i < n; i++) size += get_piece(c->owner, tok, tokens[i], NULL, 0);
    char *scratch = cl_text_reserve(&c->text, size);
    if (!scratch) return true;
    for (int32_t i = 0; i < n; i++) {
        used += get_piece(c->owner, tok, tokens[i], scratch + used, size - used);
        if (!is_stoppable(c, i + 1)) passed = used;
    }
    return cl_text_completes(&c->text, size, passed);
}

bool cl_choice_would_end(cl_choice *c, const cl_tokenizer *tok, int32_t n) {
    const int32_t *next = c->tokens + c->n_tokens;
    return cl_request_is_end(c->owner, tok, next[n - 1]) ||
           ((c->text.n_stop > 0 || c->text.min_indent > 0) && completes_stop(c, tok, next, n));
}

void cl_choice_add(cl_choice *c, const cl_tokenizer *tok, const cl_draw *d) {
    cl_request *r = c->owner;
    const cl_engine_request *params = &r->params;
    const bool ends = cl_request_is_end(r, tok, d->token);
    const bool has_text = !ends || params->include_stop;
    bool stopped = false;
    if (has_text && !detokenize(c, tok, d->token, &stopped)) {
        cl_error error;
        cl_fail(&error, CL_ERR_NOMEM, "no memory for the text of a token");
        cl_choice_end(c, CL_ENGINE_ERROR, &error);
        return;
    }
    c->tokens[c->n_tokens++] = d->token;
    r->n_completion++;
    cl_reasoning_add(&c->reasoning, params, tok, d->token);
    cl_engine_event event = event_of(c);
    add_draw(&event, CL_EVENT_TOKEN, d);
    if (has_text) add_text(&event, &c->text);
    report(r, &event);
    if ((stopped && !c->text.outdented) || ends || d->completes)
        cl_choice_end(c, CL_ENGINE_STOP, NULL);
    else if (c->text.outdented || c->n_tokens == params->n_prompt + params->max_tokens)
        cl_choice_end(c, CL_ENGINE_LENGTH, NULL);
}

bool cl_choice_is_late(cl_choice *c, double now) {
    const cl_engine_request *params = &c->owner->params;
    const cl_text_bytes *shown = &c->text.out;
    if (c->n_tokens == params->n_prompt + 1) c->first_token_at = now;
    c->has_line_break = c->has_line_break || (shown->size > 0 && memchr(shown->data, '\n', shown->size));
    return c->has_line_break && now - c->first_token_at > params->generation_s;
}

void cl_choice_end(cl_choice *c, cl_engine_finish finish, const cl_error *error) {
    cl_embedding *embedding = c->owner->embedding;
    c->finish = finish;
    c->owner->n_unfinished--;
    cl_constraint_end(c);
    cl_engine_event event = event_of(c);
    event.kind = CL_EVENT_END;
    event.end = (cl_event_end){finish, finish == CL_ENGINE_STOP ? c->text.n_found - 1 : -1, error, NULL, 0};
    if (embedding && finish == CL_ENGINE_LENGTH) {
        event.end.embedding = cl_embedding_value(embedding);
        event.end.n_embedding = embedding->n;
    }
    event.last = c->owner->n_unfinished == 0;
    cl_text_finish(&c->text);
    add_text(&event, &c->text);
    report(c->owner, &event);
}

void cl_choice_report_prompt(cl_choice *c, const cl_draw *d) {
    cl_engine_event event = event_of(c);
    add_draw(&event, CL_EVENT_PROMPT, d);
    report(c->owner, &event);
}
