/* The engine's thread: measures each event, queues a copy of it, and wakes the connection. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/clock.h"
#include "generation_state.h"

/* ---- The queue ---- */

/* NULL if memory is lacking. */
static queued_event *copy_event(size_t prompt, const cl_engine_event *event) {
    const size_t top_bytes = (size_t)event->n_top * sizeof *event->top;
    const size_t error_bytes = event->error ? sizeof *event->error : 0;
    const size_t embedding_bytes = (size_t)event->n_embedding * sizeof *event->embedding;
    /* One allocation: the event, then what it points to, in descending order of alignment. */
    queued_event *copy = malloc(sizeof *copy + top_bytes + error_bytes + embedding_bytes + event->text_size);
    if (!copy) return NULL;
    char *at = (char *)(copy + 1);
    *copy = (queued_event){.prompt = prompt, .at = clock_seconds(), .event = *event};
    if (top_bytes) copy->event.top = memcpy(at, event->top, top_bytes);
    at += top_bytes;
    if (error_bytes) copy->event.error = memcpy(at, event->error, error_bytes);
    at += error_bytes;
    if (embedding_bytes) copy->event.embedding = memcpy(at, event->embedding, embedding_bytes);
    at += embedding_bytes;
    if (event->text_size) copy->event.text = memcpy(at, event->text, event->text_size);
    return copy;
}

/* With g->lock held. */
static void add_event(generation *g, queued_event *event) {
    event->next = NULL;
    *(g->events ? g->events_end : &g->events) = event;
    g->events_end = &event->next;
}

queued_event *generation_take_events(generation *g) {
    pthread_mutex_lock(&g->lock);
    queued_event *list = g->events;
    g->events = NULL;
    pthread_mutex_unlock(&g->lock);
    return list;
}

void generation_free_events(queued_event *list) {
    while (list) {
        queued_event *next = list->next;
        free(list);
        list = next;
    }
}

/* ---- Events ---- */

static bool is_generated(const cl_engine_event *event) { return event->token >= 0 && !event->prompt; }

/* Count a request to the engine that has ended: a prompt. */
static void measure_end(generation *g, size_t prompt, const cl_engine_event *event, double now) {
    const size_t n = (size_t)g->request.params.n;
    const double admitted_at = g->submitted_at + event->queued_s, first_at = g->first_at[prompt];
    const bool computed = event->finish == CL_ENGINE_STOP || event->finish == CL_ENGINE_LENGTH;
    double last_at = first_at;
    for (size_t i = 0; i < n; i++) last_at = fmax(last_at, g->token_at[prompt * n + i]);
    /* Without a token, all its time is that of its prompt; one that was cancelled before may have had none. */
    const double prefilled_at = first_at > 0 ? first_at : computed ? now : admitted_at;
    const metrics_request r = {.finish = event->finish,
                               .total = now - g->arrived_at,
                               .queued = event->queued_s,
                               .prefill = fmax(0, prefilled_at - admitted_at),
                               .decode = last_at - first_at,
                               .n_prompt = event->n_prompt,
                               .n_choices = g->request.params.n,
                               .n_tokens = &g->n_tokens[prompt * n],
                               .max_tokens = g->request.params.max_tokens};
    metrics_finished(&g->srv->metrics, &r);
}

static void measure(generation *g, size_t prompt, const cl_engine_event *event, double now) {
    server_metrics *m = &g->srv->metrics;
    if (is_generated(event)) {
        const size_t choice = prompt * (size_t)g->request.params.n + (size_t)event->choice;
        if (g->n_tokens[choice]++ > 0) metrics_inter_token(m, now - g->token_at[choice]);
        if (g->first_at[prompt] == 0) {
            metrics_first_token(m, now - g->arrived_at);
            g->first_at[prompt] = now;
        }
        g->token_at[choice] = now;
    }
    if (event->last) measure_end(g, prompt, event, now);
}

/* Add an event to what the log reports. first: it is the first one of its prompt that generates or ends. With g->lock held. */
static void add_usage(generation_usage *u, const cl_engine_event *event, bool first, double now) {
    if (first) {
        u->n_prompt += event->n_prompt;
        u->n_cached += event->n_cached;
    }
    if (is_generated(event)) {
        if (u->n_tokens++ == 0) u->first_at = now;
        u->last_at = now;
    }
    if (event->n_sharing > u->n_sharing) u->n_sharing = event->n_sharing;
    if (event->finish != CL_ENGINE_RUNNING) u->finish = event->finish;
}

void generation_on_event(void *ctx, const cl_engine_event *event) {
    const openai_job *job = ctx;
    generation *g = job->owner;
    const double now = clock_seconds();
    const bool first = g->first_at[job->prompt] == 0 && (is_generated(event) || event->last);
    measure(g, job->prompt, event, now);
    if (is_generated(event) && g->quota.tokens.limit > 0) quota_count(&g->srv->quotas, g->task.domain, 1, now);
    generation_mark_event(g, event);
    queued_event *copy = copy_event(job->prompt, event);
    pthread_mutex_lock(&g->lock);
    add_usage(&g->usage, event, first, now);
    if (copy)
        add_event(g, copy);
    else
        g->lost_event = true;
    if (event->last) g->n_ended++;
    generation_wake_if_due(g);
    pthread_mutex_unlock(&g->lock);
    if (event->last) generation_drop_owners(g, 1);
}
