/* A completion under way. */
#include "generation.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "event_queue.h"

/* One prompt of the request, as the engine's thread sees it. */
typedef struct job {
    generation *generation;
    size_t prompt;
    uint64_t id;     /* the engine's */
    bool first_told; /* some choice's first token has come */
} job;

struct generation {
    server *server;
    struct MHD_Connection *connection;
    int fd; /* the connection's socket */
    openai_request request;
    openai_result result; /* of the connection's thread */
    double began;
    job *jobs; /* [n_jobs], one a prompt that the engine has taken */
    size_t n_jobs;
    double *told_at; /* [choices of all prompts]: when the last token came; of the engine's thread */

    /* Guarded by server->lock. */
    size_t n_owners; /* the connection, and each prompt until its last event */
    generation *previous, *next;

    pthread_mutex_t lock; /* of what follows */
    event_queue events;
    size_t n_ended; /* jobs whose last event came */
    bool suspended; /* the connection; an event wakes it */
    bool gone;      /* the client hung up, or there was no memory for an event */
    bool stopped;   /* by the server's end */

    /* A stream's bytes that wait to be taken. Of the connection's thread. */
    char *out;
    size_t out_at, out_size, out_capacity;
    bool out_ended;
};

/* Where a thread holds several locks it took them in this order: server's or watch's, generation's, the daemon's. */

/* ---- Life ---- */

static void generation_free(generation *g) {
    if (g->result.request) openai_result_free(&g->result);
    openai_request_free(&g->request);
    event_list_free(event_queue_take(&g->events));
    pthread_mutex_destroy(&g->lock);
    free(g->jobs);
    free(g->told_at);
    free(g->out);
    free(g);
}

static void drop_owners(generation *g, size_t n) {
    server *s = g->server;
    pthread_mutex_lock(&s->lock);
    g->n_owners -= n;
    const bool free_it = g->n_owners == 0;
    if (free_it) {
        if (g->next) g->next->previous = g->previous;
        *(g->previous ? &g->previous->next : &s->generations) = g->next;
        pthread_cond_broadcast(&s->freed);
    }
    pthread_mutex_unlock(&s->lock); /* the server may go now */
    if (free_it) generation_free(g);
}

/* An error of the server's own. */
static const openai_error *server_error(openai_error *error, int status, const char *message) {
    openai_fail(error, NULL, "%s", message);
    error->status = status;
    error->type = "server_error";
    return error;
}

static const openai_error *stopped_error(openai_error *error) {
    return server_error(error, MHD_HTTP_SERVICE_UNAVAILABLE, "the server is shutting down");
}

/* Add to the server's list, unless it is stopping. */
static bool enlist(generation *g) {
    server *s = g->server;
    pthread_mutex_lock(&s->lock);
    const bool ok = !s->stopping;
    if (ok) {
        g->next = s->generations;
        if (g->next) g->next->previous = g;
        s->generations = g;
        g->n_owners = 1 + g->request.n_prompts;
    }
    pthread_mutex_unlock(&s->lock);
    return ok;
}

void generation_close(generation *g) {
    watch_remove(g->server->watch, g->fd);
    for (size_t i = 0; i < g->n_jobs; i++) engine_cancel(g->server->engine, g->jobs[i].id); /* done ones are unknown to it */
    drop_owners(g, 1 + g->request.n_prompts - g->n_jobs);
}

/* ---- On the engine's thread ---- */

/* g->lock is held. */
static void wake(generation *g) {
    if (!g->suspended) return;
    g->suspended = false;
    MHD_resume_connection(g->connection);
}

static void measure(job *j, const engine_event *event) {
    generation *g = j->generation;
    const double now = metrics_now();
    if (event->token >= 0 && !event->prompt) {
        double *told_at = &g->told_at[j->prompt * (size_t)g->request.params.n + (size_t)event->choice];
        if (*told_at > 0) metrics_inter_token(&g->server->metrics, now - *told_at);
        if (!j->first_told) metrics_first_token(&g->server->metrics, now - g->began);
        j->first_told = true;
        *told_at = now;
    }
    if (event->last) metrics_finished(&g->server->metrics, event->finish, now - g->began);
}

static void on_event(void *ctx, const engine_event *event) {
    job *j = ctx;
    generation *g = j->generation;
    measure(j, event);
    queued_event *copy = event_copy(j->prompt, event);
    pthread_mutex_lock(&g->lock);
    if (copy)
        event_queue_add(&g->events, copy);
    else
        g->gone = true;
    if (event->last) g->n_ended++;
    if (g->gone || g->request.stream || g->n_ended == g->n_jobs) wake(g);
    pthread_mutex_unlock(&g->lock);
    if (event->last) drop_owners(g, 1);
}

/* ---- On other threads that wake the connection ---- */

void generation_gone(void *owner) {
    generation *g = owner;
    for (size_t i = 0; i < g->n_jobs; i++) engine_cancel(g->server->engine, g->jobs[i].id);
    pthread_mutex_lock(&g->lock);
    g->gone = true;
    wake(g);
    pthread_mutex_unlock(&g->lock);
}

void generation_stop_all(server *s) {
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    for (generation *g = s->generations; g; g = g->next) {
        pthread_mutex_lock(&g->lock);
        g->stopped = true;
        wake(g);
        pthread_mutex_unlock(&g->lock);
    }
    pthread_mutex_unlock(&s->lock);
}

void generation_wait_all(server *s, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until); /* what pthread_cond_timedwait goes by */
    until.tv_sec += (time_t)seconds;
    pthread_mutex_lock(&s->lock);
    int timed_out = 0;
    while (s->generations && timed_out != ETIMEDOUT)
        timed_out = seconds < 0 ? pthread_cond_wait(&s->freed, &s->lock) : pthread_cond_timedwait(&s->freed, &s->lock, &until);
    pthread_mutex_unlock(&s->lock);
}

/* ---- The answer, on the connection's thread ---- */

typedef enum turn { TURN_WRITE, TURN_SLEEP, TURN_STOPPED, TURN_GONE } turn;

/* What the connection is to do next: write with the events in *events, sleep (it is suspended then), or end. */
static turn next_turn(generation *g, bool whole, queued_event **events) {
    turn t = TURN_WRITE;
    pthread_mutex_lock(&g->lock);
    if (g->gone) {
        t = TURN_GONE;
    } else if (g->stopped) {
        t = TURN_STOPPED;
    } else if (whole ? g->n_ended < g->n_jobs : !g->events.first) {
        t = TURN_SLEEP;
        g->suspended = true;
        MHD_suspend_connection(g->connection);
    } else {
        *events = event_queue_take(&g->events);
    }
    pthread_mutex_unlock(&g->lock);
    return t;
}

enum MHD_Result generation_resumed(exchange *x) {
    generation *g = x->generation;
    queued_event *events = NULL;
    openai_error error;
    switch (next_turn(g, true, &events)) {
    case TURN_SLEEP: return MHD_YES;
    case TURN_GONE: return MHD_NO;
    case TURN_STOPPED: return http_reply_error(x, stopped_error(&error));
    case TURN_WRITE: break;
    }
    for (const queued_event *e = events; e; e = e->next) openai_result_add(&g->result, e->prompt, &e->event);
    event_list_free(events);
    if (g->result.failed) return http_reply_error(x, &g->result.error);
    return http_reply_json(x, MHD_HTTP_OK, openai_result_json(&g->result));
}

/* Append "data: TEXT" as an event of the stream. */
static bool put_text(generation *g, const char *text) {
    const size_t need = g->out_size + strlen(text) + sizeof "data: \n\n";
    if (need > g->out_capacity) {
        char *grown = realloc(g->out, 2 * need);
        if (!grown) return false;
        g->out = grown;
        g->out_capacity = 2 * need;
    }
    g->out_size += (size_t)sprintf(g->out + g->out_size, "data: %s\n\n", text);
    return true;
}

static bool put_json(generation *g, json_t *json) {
    char *text = json_is_null(json) ? NULL : json_dumps(json, JSON_COMPACT);
    const bool ok = json_is_null(json) || (text && put_text(g, text));
    free(text);
    json_decref(json);
    return ok;
}

static bool put_end(generation *g, const openai_error *error) {
    g->out_ended = true;
    if (error && !put_json(g, openai_error_json(error))) return false;
    if (!error && g->request.include_usage && !put_json(g, openai_chunk_usage_json(&g->result))) return false;
    return put_text(g, "[DONE]");
}

static bool put_events(generation *g, const queued_event *events) {
    for (const queued_event *e = events; e; e = e->next) {
        openai_result_add(&g->result, e->prompt, &e->event);
        if (g->result.failed) return put_end(g, &g->result.error);
        if (!put_json(g, openai_chunk_json(&g->result, e->prompt, &e->event))) return false;
    }
    return !openai_result_done(&g->result) || put_end(g, NULL);
}

/* The daemon wants up to max bytes of a stream. */
static ssize_t read_stream(void *cls, uint64_t position, char *buf, size_t max) {
    (void)position;
    generation *g = cls;
    while (g->out_at == g->out_size) {
        if (g->out_ended) return MHD_CONTENT_READER_END_OF_STREAM;
        g->out_at = g->out_size = 0;
        queued_event *events = NULL;
        openai_error error;
        bool ok = false;
        switch (next_turn(g, false, &events)) {
        case TURN_SLEEP: return 0;
        case TURN_GONE: break;
        case TURN_STOPPED: ok = put_end(g, stopped_error(&error)); break;
        case TURN_WRITE: ok = put_events(g, events); break;
        }
        event_list_free(events);
        if (!ok) return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    const size_t left = g->out_size - g->out_at, size = left < max ? left : max;
    memcpy(buf, g->out + g->out_at, size);
    g->out_at += size;
    return (ssize_t)size;
}

static enum MHD_Result begin_stream(exchange *x) {
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, x->generation, NULL);
    if (!response) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(response, "X-Accel-Buffering", "no"); /* or nginx before us would hold tokens back */
    return http_queue(x, MHD_HTTP_OK, "text/event-stream; charset=utf-8", response);
}

/* ---- The request ---- */

/* The body as JSON; NULL with *error. */
static json_t *parse_body(const exchange *x, openai_error *error) {
    json_error_t at;
    json_t *body = json_loadb(x->body ? x->body : "", x->body_size, JSON_ALLOW_NUL, &at);
    if (!body)
        openai_fail(error, NULL, "the body is not valid JSON: %s at line %d, column %d (byte %d)", at.text, at.line, at.column,
                    at.position);
    return body;
}

/* A generation with its request read; NULL with *error. */
static generation *generation_create(exchange *x, openai_endpoint endpoint, const json_t *body, openai_error *error) {
    const openai_context *context = &x->server->context;
    generation *g = calloc(1, sizeof *g);
    if (!g) goto no_memory;
    pthread_mutex_init(&g->lock, NULL);
    g->server = x->server;
    g->connection = x->connection;
    g->fd = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    g->began = metrics_now();
    if (!openai_request_parse(context, endpoint, body, &g->request, error)) goto fail;
    g->jobs = calloc(g->request.n_prompts, sizeof *g->jobs);
    g->told_at = calloc(g->request.n_prompts * (size_t)g->request.params.n, sizeof *g->told_at);
    if (g->jobs && g->told_at && openai_result_init(&g->result, context, &g->request)) return g;
no_memory:
    server_error(error, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
fail:
    if (g) generation_free(g);
    return NULL;
}

/* Give all prompts to the engine. */
static bool submit(generation *g, openai_error *error) {
    const size_t n = g->request.n_prompts;
    for (size_t i = 0; i < n; i++) {
        job *j = &g->jobs[i];
        *j = (job){.generation = g, .prompt = i};
        const engine_request request = openai_engine_request(&g->request, i, on_event, j);
        cl_error cause;
        if (engine_submit(g->server->engine, &request, &j->id, &cause) != CL_OK) return openai_fail_from(error, NULL, &cause);
        pthread_mutex_lock(&g->lock);
        g->n_jobs++;
        pthread_mutex_unlock(&g->lock);
    }
    return true;
}

enum MHD_Result generation_begin(exchange *x, openai_endpoint endpoint) {
    openai_error error;
    json_t *body = parse_body(x, &error);
    generation *g = body ? generation_create(x, endpoint, body, &error) : NULL;
    json_decref(body);
    if (!g) return http_reply_error(x, &error);
    if (!enlist(g)) {
        generation_free(g);
        return http_reply_error(x, stopped_error(&error));
    }
    if (!submit(g, &error)) {
        generation_close(g);
        return http_reply_error(x, &error);
    }
    x->generation = g;
    if (!watch_add(x->server->watch, g->fd, g)) return MHD_NO;
    return g->request.stream ? begin_stream(x) : generation_resumed(x);
}
