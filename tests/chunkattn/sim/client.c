/* The requests of a plan: submits them, follows their events and cancels them; see world_internal.h. */
#include <math.h>
#include <string.h>

#include "world_internal.h"

/* ---- Events ---- */

void client_cancel(client *c) {
    if (!c->r) return;
    atomic_store_explicit(&c->r->cancelled, true, memory_order_relaxed);
    c->cancelled = c->world->cancels = true;
}

static void note_end(client *c, int32_t choice, const cl_event_end *end) {
    world *w = c->world;
    if (end->finish == CL_ENGINE_CANCELLED && !c->cancelled) sim_fail(w, "request %d was not cancelled", client_number(c));
    if (end->finish == CL_ENGINE_ERROR) {
        w->counts->errors++;
        const bool late = end->error->code == CL_ERR_TIMEOUT && c->r->deadline <= sim_time;
        if (!late && !fault_fired(w) && !w->is_short)
            sim_fail(w, "request %d ended without a reason: %s", client_number(c), end->error->message);
    }
    w->counts->cancelled += end->finish == CL_ENGINE_CANCELLED;
    if (end->finish == CL_ENGINE_STOP || end->finish == CL_ENGINE_LENGTH)
        c->is_retained = !c->request.prompt_logprobs && !c->r->choices[choice].shares_none;
}

static void on_event(void *ctx, const cl_engine_event *event) {
    client *c = ctx;
    world *w = c->world;
    faults_disarm();
    w->counts->events++;
    c->n_events++;
    const char *wrong = oracle_check(c->oracle, event);
    if (wrong) sim_fail(w, "request %d, event %lld: %s", client_number(c), (long long)c->n_events, wrong);
    if (event->kind == CL_EVENT_END) note_end(c, event->choice, &event->end);
    if (event->kind == CL_EVENT_TOKEN) w->n_completion++;
    if (c->n_events == c->planned->cancel_at_event) client_cancel(c);
    faults_arm();
}

/* ---- Submission ---- */

static int32_t token_at(int64_t key, int64_t position) {
    uint64_t x = ((uint64_t)key << 32 ^ (uint64_t)position) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return (int32_t)((x >> 33) % SIM_VOCAB);
}

static int64_t make_prompt(client *c) {
    const plan_request *q = c->planned;
    int64_t n = 0;
    const oracle *before = q->turn_of >= 0 ? c->world->clients[q->turn_of].oracle : NULL;
    if (before) {
        const int32_t *tokens = oracle_tokens(before, 0, &n);
        memcpy(c->prompt, tokens, (size_t)n * sizeof *tokens);
    }
    for (int64_t i = 0; i < q->n_prompt && n < SIM_CONTEXT - 1; i++, n++)
        c->prompt[n] = token_at(i < q->n_family ? -q->family : q->own, i);
    return n;
}

/* Stop strings of different lengths, which the model is likely to begin, so that text is held back. */
static void make_stops(client *c) {
    static const int lengths[] = {1, 2, 5, MAX_STOP_BYTES};
    for (int i = 0; i < MAX_STOP; i++) {
        int32_t token = token_at(c->planned->own, 2000 + i);
        const int length = lengths[token_at(c->planned->own, 3000 + i) % 4];
        for (int k = 0; k < length; k++, token = sim_next(token)) c->stop_strings[i][k] = (char)('a' + token);
        c->stop[i] = c->stop_strings[i];
    }
    for (int i = 0; i < MAX_STOP_TOKENS; i++) c->stop_tokens[i] = token_at(c->planned->own, 1000 + i);
}

/* Rules that the model's likely tokens meet; words of one token to three. */
static void make_rules(client *c) {
    const plan_request *q = c->planned;
    cl_engine_request *to = &c->request;
    int32_t n = 0;
    for (int i = 0; i < SIM_RULES; i++) {
        const int32_t token = token_at(q->own, 4000 + i);
        const int32_t bias = token_at(q->own, 5000 + i) - SIM_VOCAB / 2;
        c->bias[i] = (cl_logit_bias){token, i == 0 ? -INFINITY : (float)bias};
        c->allowed[i] = token_at(q->own, 6000 + i);
        c->bad_word_sizes[i] = 1 + token_at(q->own, 7000 + i) % 3;
        for (int32_t k = 0, word = token_at(q->own, 8000 + i); k < c->bad_word_sizes[i]; k++, word = sim_next(word))
            c->bad_words[n++] = word;
    }
    to->logit_bias = c->bias;
    to->n_logit_bias = (int32_t)q->n_bias;
    to->allowed_tokens = c->allowed;
    to->n_allowed_tokens = (int32_t)q->n_allowed;
    to->bad_words = c->bad_words;
    to->bad_word_sizes = c->bad_word_sizes;
    to->n_bad_words = (int32_t)q->n_bad_words;
    to->min_tokens = q->min_tokens;
}

static void make_request(client *c) {
    const plan_request *q = c->planned;
    cl_engine_request *to = &c->request;
    cl_engine_request_init(to);
    make_stops(c);
    to->prompt = c->prompt;
    to->n_prompt = make_prompt(c);
    to->domain = (uint32_t)q->domain;
    to->priority = (int32_t)q->priority;
    to->timeout_s = (double)q->timeout_ms / 1000;
    to->max_tokens = q->max_tokens;
    to->n = (int32_t)q->n;
    to->sampling.temperature = (float)q->temperature / 1000;
    to->sampling.repetition_penalty = (float)q->repetition_penalty / 1000;
    to->sampling.top_k = (int32_t)q->top_k;
    to->sampling.seed = (uint64_t)q->seed;
    to->stop_tokens = c->stop_tokens;
    to->n_stop_tokens = (int32_t)q->n_stop_tokens;
    to->stop = c->stop;
    to->n_stop = (int32_t)q->n_stop;
    to->ignore_eos = q->ignore_eos;
    to->logprobs = q->logprobs;
    to->prompt_logprobs = q->prompt_logprobs;
    to->prompt_logprobs_from = q->prompt_logprobs_from;
    to->n_top = (int32_t)q->n_top;
    to->beam_search = q->beam_search;
    to->early_stopping = q->early_stopping;
    to->length_penalty = (float)q->length_penalty;
    to->include_stop = q->include_stop;
    c->salt = (char)q->salt;
    to->salt = &c->salt;
    to->salt_size = q->salt != 0;
    make_rules(c);
    if (q->beam_search) {
        to->sampling.repetition_penalty = 1;
        to->n_stop = to->n_logit_bias = to->n_allowed_tokens = to->n_bad_words = 0;
        to->min_tokens = 0;
        if (to->n > c->world->config.max_seqs) to->n = c->world->config.max_seqs;
    }
    to->on_event = on_event;
    to->ctx = c;
}

/* Whether the queue has room, by the engine's statistics and, as it must agree, by the clients. */
static cl_status check_queue(const world *w, const cl_engine_limits *limits, int64_t n_prompt) {
    cl_engine_stats stats;
    cattn_stats kv;
    cl_scheduler_get_stats(w->scheduler, &stats, &kv);
    int64_t n_waiting = 0, n_tokens = 0, n_in_cache = 0, n_choices = 0;
    for (int64_t i = 0; i < w->n_submitted; i++) {
        const cl_request *r = w->clients[i].r;
        if (!r || r->n_unfinished == 0) continue; /* it may have ended for lack of memory when it was added */
        n_waiting += r->n_in_cache == 0;
        n_choices += cl_request_n_waiting(r);
        n_in_cache += r->n_in_cache;
        if (!r->admitted) n_tokens += r->params.n_prompt;
    }
    const int32_t n_free = cl_scheduler_n_free(w->scheduler);
    CHECK(w, n_free == (n_choices > 0 ? 0 : limits->max_seqs - n_in_cache));
    if (n_free > 0) return CL_OK;
    const cl_queue_load load = {
        .n_queued = stats.n_waiting, .n_queued_tokens = stats.waiting_tokens, .retry_after_s = stats.retry_after_s};
    const cl_status status = cl_check_queue(limits, &load, n_prompt, NULL);
    const bool full = limits->max_queued_requests > 0 && n_waiting >= limits->max_queued_requests;
    const bool is_long = limits->max_queued_tokens > 0 && n_waiting > 0 && n_tokens + n_prompt > limits->max_queued_tokens;
    if ((status == CL_ERR_BUSY) != (full || is_long)) sim_fail(w, "a request is queued or refused against the queue's limits");
    if (n_waiting == 0 && status != CL_OK) sim_fail(w, "a request is refused although none waits");
    return status;
}

void client_submit(client *c) {
    world *w = c->world;
    make_request(c);
    const cl_engine_limits limits = cl_scheduler_limits(w->scheduler);
    cl_engine_request checked;
    enter_engine(w);
    cl_status status = cl_check_request(&limits, &c->request, &checked, NULL);
    if (status == CL_OK) status = check_queue(w, &limits, checked.n_prompt);
    cl_request *r = status == CL_OK ? cl_request_create(&checked) : NULL;
    leave_engine();
    if (!r) {
        if (status != CL_ERR_LIMIT && status != CL_ERR_BUSY && !fault_fired(w))
            sim_fail(w, "request %d is refused without a reason", client_number(c));
        w->counts->refused++;
        return;
    }
    w->counts->requests++;
    c->request.max_tokens = checked.max_tokens;
    c->oracle = oracle_create(&c->request);
    c->r = r;
    c->submitted_at = w->step;
    c->waits_before = w->n_waits;
    c->waited_before = w->seconds_waited;
    c->work_before = -w->work_ended;
    w->work_submitted += client_work(c);
    r->id = ++w->last_id;
    r->due = cl_request_due(sim_time, checked.priority);
    r->deadline = checked.timeout_s > 0 ? sim_time + checked.timeout_s : INFINITY;
    r->queue_deadline = INFINITY;
    enter_engine(w);
    cl_scheduler_add(w->scheduler, r);
    leave_engine();
}
