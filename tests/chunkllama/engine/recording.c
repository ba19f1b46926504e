/* Recordings: see recording.h. */
#include "recording.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

recording *recording_create(void) {
    recording *r = calloc(1, sizeof *r);
    assert(r);
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->changed, NULL);
    return r;
}

void recording_free(recording *r) {
    for (int i = 0; i < RECORDING_CHOICES; i++) free(r->choices[i].log);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}

static void append(recorded_choice *c, const void *data, size_t size) {
    if (size == 0) return;
    if (c->log_size + size > c->log_capacity) {
        c->log_capacity = 2 * (c->log_size + size);
        c->log = realloc(c->log, c->log_capacity);
        assert(c->log);
    }
    memcpy(c->log + c->log_size, data, size);
    c->log_size += size;
}

static void append_logprob(recorded_choice *c, const cl_sampler_logprob *p) {
    append(c, &p->id, sizeof p->id);
    append(c, &p->logprob, sizeof p->logprob);
}

static void keep_token(recording *r, recorded_choice *c, const cl_engine_event *event) {
    const cl_event_token *token = &event->token;
    append(c, &token->id, sizeof token->id);
    append(c, &token->position, sizeof token->position);
    append_logprob(c, &token->chosen);
    for (int32_t i = 0; i < token->n_top; i++) append_logprob(c, &token->top[i]);
    if (event->kind == CL_EVENT_PROMPT) {
        if (r->n_prompt_events++ == 0) r->first_prompt_event = token->position;
        assert(token->position == r->first_prompt_event + r->n_prompt_events - 1);
        r->prompt_logprobs[token->position] = token->chosen.logprob;
    } else {
        assert(c->n_tokens < 1024);
        c->logprobs[c->n_tokens] = token->chosen.logprob;
        c->tokens[c->n_tokens++] = token->id;
    }
}

static void keep_end(recording *r, recorded_choice *c, const cl_event_end *end) {
    append(c, &end->finish, sizeof end->finish);
    append(c, &end->stop, sizeof end->stop);
    append(c, end->embedding, (size_t)end->n_embedding * sizeof *end->embedding);
    assert(end->n_embedding <= RECORDING_EMBEDDING);
    for (int32_t i = 0; i < end->n_embedding; i++) r->embedding[i] = end->embedding[i];
    r->n_embedding = end->n_embedding;
    c->finish = end->finish;
    c->stop = end->stop;
    if (end->error) strcpy(r->error, end->error->message);
}

static void keep(recording *r, const cl_engine_event *event) {
    static atomic_llong order;
    if (r->n_events++ == 0) r->first_event_order = atomic_fetch_add(&order, 1);
    recorded_choice *c = &r->choices[event->choice];
    append(c, &event->kind, sizeof event->kind);
    append(c, event->text, event->text_size);
    if (event->kind == CL_EVENT_END)
        keep_end(r, c, &event->end);
    else
        keep_token(r, c, event);
    assert(c->text_size + event->text_size < sizeof c->text);
    memcpy(c->text + c->text_size, event->text, event->text_size);
    c->text_size += event->text_size;
    r->request = event->request;
    r->n_cached = event->n_cached;
    r->n_pinned = event->n_pinned;
    r->n_completion = event->n_completion;
}

void recording_event(void *ctx, const cl_engine_event *event) {
    recording *r = ctx;
    pthread_mutex_lock(&r->mutex);
    assert(!r->done && r->choices[event->choice].finish == CL_ENGINE_RUNNING);
    keep(r, event);
    pthread_mutex_unlock(&r->mutex);
    if (r->hook) r->hook(r->hook_ctx, event);
    pthread_mutex_lock(&r->mutex);
    r->done = event->last;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->mutex);
}

void recording_wait(recording *r) {
    pthread_mutex_lock(&r->mutex);
    while (!r->done) pthread_cond_wait(&r->changed, &r->mutex);
    pthread_mutex_unlock(&r->mutex);
}

void recording_wait_events(recording *r, int64_t n) {
    pthread_mutex_lock(&r->mutex);
    while (!r->done && r->n_events < n) pthread_cond_wait(&r->changed, &r->mutex);
    pthread_mutex_unlock(&r->mutex);
}

bool recording_equal(const recording *a, const recording *b) {
    for (int i = 0; i < RECORDING_CHOICES; i++) {
        const recorded_choice *x = &a->choices[i], *y = &b->choices[i];
        if (x->log_size != y->log_size || (x->log_size > 0 && memcmp(x->log, y->log, x->log_size) != 0)) return false;
    }
    return true;
}
