/* Creates, abandons, stops and frees generations. generation.h describes threads, ownership and the lock order. */
#include "generation_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/clock.h"

/* ---- The server's own errors ---- */

static const openai_error *server_error(openai_error *error, int status, const char *message) {
    openai_fail(error, NULL, "%s", message);
    error->status = status;
    error->type = "server_error";
    return error;
}

/* Nobody knows when another server takes over. */
const openai_error *generation_stopped_error(openai_error *error) {
    server_error(error, MHD_HTTP_SERVICE_UNAVAILABLE, "the server is shutting down; send the request again later");
    error->retry_after_s = 5;
    return error;
}

const openai_error *generation_memory_error(openai_error *error) {
    return server_error(error, MHD_HTTP_SERVICE_UNAVAILABLE, "out of memory; send the request again later");
}

/* ---- Ownership ---- */

static void release(const generation_kind *kind, void *own) { (kind->release ? kind->release : free)(own); }

static void generation_free(generation *g) {
    if (g->result.request) openai_result_free(&g->result);
    openai_request_free(&g->request);
    generation_free_events(g->events);
    pthread_mutex_destroy(&g->lock);
    free(g->jobs);
    free(g->token_at);
    free(g->n_tokens);
    free(g->first_at);
    free(g->body);
    if (g->own) release(g->kind, g->own);
    writer_free(&g->answer);
    writer_free(&g->out);
    free(g);
}

void generation_add_owners(generation *g, size_t n) {
    pthread_mutex_lock(&g->srv->lock);
    g->n_owners += n;
    pthread_mutex_unlock(&g->srv->lock);
}

void generation_drop_owners(generation *g, size_t n) {
    server *s = g->srv;
    pthread_mutex_lock(&s->lock);
    g->n_owners -= n;
    const bool is_last = g->n_owners == 0;
    if (is_last) {
        if (g->next) g->next->previous = g->previous;
        *(g->previous ? &g->previous->next : &s->generations) = g->next;
        pthread_cond_broadcast(&s->freed);
    }
    pthread_mutex_unlock(&s->lock); /* from here on the server may be freed, but not g */
    if (is_last) generation_free(g);
}

/* Add g to the server's list with the connection as its owner. False: the server stops. */
static bool enlist(generation *g) {
    server *s = g->srv;
    pthread_mutex_lock(&s->lock);
    const bool ok = !s->stopping;
    if (ok) {
        g->next = s->generations;
        if (g->next) g->next->previous = g;
        s->generations = g;
        g->n_owners = 1;
    }
    pthread_mutex_unlock(&s->lock);
    return ok;
}

/* ---- Beginning and end, on the connection's thread ---- */

/* A new generation, which takes over x's body; NULL if memory is lacking. */
static generation *generation_create(exchange *x, const generation_kind *kind) {
    generation *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    pthread_mutex_init(&g->lock, NULL);
    g->srv = x->srv;
    g->kind = kind;
    g->dialect = x->dialect;
    g->connection = x->connection;
    g->fd = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    g->task.domain = x->domain;
    g->arrived_at = clock_seconds();
    const char *id = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, "X-Request-Id");
    if (id && strlen(id) < sizeof g->request_id) snprintf(g->request_id, sizeof g->request_id, "%s", id);
    g->body = x->body;
    g->body_size = x->body_size;
    x->body = NULL;
    x->body_size = x->body_capacity = 0;
    return g;
}

/* Queue a new generation; NULL: memory was lacking for it. */
static enum MHD_Result begin(exchange *x, generation *g) {
    openai_error error;
    if (!g) return http_reply_error(x, generation_memory_error(&error));
    if (!enlist(g)) {
        generation_free(g);
        return http_reply_error(x, generation_stopped_error(&error));
    }
    x->gen = g;
    if (!watch_add(x->srv->hangups, g->fd, g)) return MHD_NO;
    generation_add_owners(g, 1);
    if (!g->kind->prepare)
        generation_prepare(&g->task);
    else
        preparer_add(g->kind->on_disk && x->srv->disk ? x->srv->disk : x->srv->requests, &g->task);
    return generation_resumed(x);
}

enum MHD_Result generation_begin(exchange *x, const generation_kind *kind) { return begin(x, generation_create(x, kind)); }

enum MHD_Result generation_begin_with(exchange *x, const generation_kind *kind, void *own) {
    generation *g = own ? generation_create(x, kind) : NULL;
    if (g)
        g->own = own;
    else if (own)
        release(kind, own);
    return begin(x, g);
}

void generation_cancel_jobs(generation *g) {
    for (size_t i = 0; g->jobs && i < g->n_jobs; i++) cl_engine_cancel(g->srv->engine, g->jobs[i].id);
    if (g->kind->undo) g->kind->undo(g);
}

/* Stop all work for an answer that no client waits for. If the preparer still works on it, the preparer cancels the prompts. */
static void abandon(generation *g) {
    pthread_mutex_lock(&g->lock);
    g->abandoned = true;
    generation_wake_if_due(g);
    const bool prepared = g->prepared;
    pthread_mutex_unlock(&g->lock);
    if (prepared) generation_cancel_jobs(g);
}

void generation_close(generation *g) {
    watch_remove(g->srv->hangups, g->fd);
    abandon(g);
    generation_drop_owners(g, 1);
}

/* ---- Waking the connection, on any thread ---- */

void generation_wake_if_due(generation *g) {
    if (!g->awaited || !(g->abandoned || g->stopped || g->lost_event || g->awaited(g))) return;
    g->awaited = NULL;
    MHD_resume_connection(g->connection);
}

void generation_hung_up(void *g) { abandon(g); }

void generation_stop_all(server *s) {
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    for (generation *g = s->generations; g; g = g->next) {
        pthread_mutex_lock(&g->lock);
        g->stopped = true;
        generation_wake_if_due(g);
        pthread_mutex_unlock(&g->lock);
    }
    pthread_mutex_unlock(&s->lock);
}

void generation_wait_all(server *s, double seconds) {
    const struct timespec until = clock_deadline(seconds < 0 ? 0 : seconds);
    pthread_mutex_lock(&s->lock);
    int timed_out = 0;
    while (s->generations && timed_out != ETIMEDOUT)
        timed_out = seconds < 0 ? pthread_cond_wait(&s->freed, &s->lock) : pthread_cond_timedwait(&s->freed, &s->lock, &until);
    pthread_mutex_unlock(&s->lock);
}
