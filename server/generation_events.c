/* The engine's thread: measures each event, queues a copy of it, and wakes the connection. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
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

static void measure(generation *g, size_t prompt, const cl_engine_event *event) {
    server_metrics *m = &g->srv->metrics;
    const double now = clock_seconds();
    if (event->token >= 0 && !event->prompt) {
        double *token_at = &g->token_at[prompt * (size_t)g->request.params.n + (size_t)event->choice];
        if (*token_at > 0) metrics_inter_token(m, now - *token_at);
        if (!g->first_token[prompt]) metrics_first_token(m, now - g->arrived_at);
        g->first_token[prompt] = true;
        *token_at = now;
    }
    if (event->last) metrics_finished(m, event->finish, now - g->arrived_at);
}

void generation_on_event(void *ctx, const cl_engine_event *event) {
    const openai_job *job = ctx;
    generation *g = job->owner;
    measure(g, job->prompt, event);
    generation_mark_event(g, event);
    queued_event *copy = copy_event(job->prompt, event);
    pthread_mutex_lock(&g->lock);
    if (copy)
        add_event(g, copy);
    else
        g->lost_event = true;
    if (event->last) g->n_ended++;
    generation_wake_if_due(g);
    pthread_mutex_unlock(&g->lock);
    if (event->last) generation_drop_owners(g, 1);
}
