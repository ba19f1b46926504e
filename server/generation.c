/* A completion under way. */
#include "generation.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "event_queue.h"

/* One prompt of the request, as the engine's thread sees it. */
typedef struct job {
    generation *generation;
    size_t prompt;
    uint64_t id;     /* the engine's */
    bool first_told; /* some choice's first token has come */
} job;

struct generation {
    preparer_task task;
    server *server;
    struct MHD_Connection *connection;
    int fd; /* the connection's socket */
    openai_endpoint endpoint;
    char *body; /* until it is read */
    size_t body_size;
    double began;

    /* Of the preparer's thread until `prepared`. */
    openai_request request;
    openai_result result; /* afterwards of the connection's thread */
    job *jobs;            /* [n_jobs], one a prompt that the engine has taken */
    size_t n_jobs;
    double *told_at;    /* [choices of all prompts]: when the last token came; of the engine's thread */
    openai_error error; /* why the request was refused */

    /* Guarded by server->lock. */
    size_t n_owners; /* the connection, the preparer until it is done, and each prompt until its last event */
    generation *previous, *next;

    pthread_mutex_t lock; /* of what follows */
    event_queue events;
    size_t n_ended;                      /* jobs whose last event came */
    bool (*awaited)(const generation *); /* what the connection is suspended for; NULL: it is not */
    bool prepared;                       /* all jobs are the engine's, or the request was refused */
    bool refused;
    bool gone;    /* the connection or its client, or there was no memory for an event */
    bool stopped; /* by the server's end */

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
    free(g->body);
    free(g->out);
    free(g);
}

static void add_owners(generation *g, size_t n) {
    pthread_mutex_lock(&g->server->lock);
    g->n_owners += n;
    pthread_mutex_unlock(&g->server->lock);
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

static const openai_error *no_memory(openai_error *error) {
    return server_error(error, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
}

/* Add to the server's list, owned by the connection, unless the server is stopping. */
static bool enlist(generation *g) {
    server *s = g->server;
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

/* g->lock is held: wake the connection if what it sleeps for is there, or will never be. */
static void wake_if_due(generation *g) {
    if (!g->awaited || !(g->gone || g->stopped || g->awaited(g))) return;
    g->awaited = NULL;
    MHD_resume_connection(g->connection);
}

static void cancel_jobs(generation *g) {
    for (size_t i = 0; i < g->n_jobs; i++) cl_engine_cancel(g->server->engine, g->jobs[i].id); /* done ones are unknown to it */
}

/* Nobody wants the answer any more. What is still being prepared is cancelled by the preparer, which sees `gone` then. */
static void give_up(generation *g) {
    pthread_mutex_lock(&g->lock);
    g->gone = true;
    wake_if_due(g);
    const bool prepared = g->prepared;
    pthread_mutex_unlock(&g->lock);
    if (prepared) cancel_jobs(g);
}

void generation_close(generation *g) {
    watch_remove(g->server->watch, g->fd);
    give_up(g);
    drop_owners(g, 1);
}

/* ---- On the engine's thread ---- */

static void measure(job *j, const cl_engine_event *event) {
    generation *g = j->generation;
    const double now = clock_seconds();
    if (event->token >= 0 && !event->prompt) {
        double *told_at = &g->told_at[j->prompt * (size_t)g->request.params.n + (size_t)event->choice];
        if (*told_at > 0) metrics_inter_token(&g->server->metrics, now - *told_at);
        if (!j->first_told) metrics_first_token(&g->server->metrics, now - g->began);
        j->first_told = true;
        *told_at = now;
    }
    if (event->last) metrics_finished(&g->server->metrics, event->finish, now - g->began);
}

static void on_event(void *ctx, const cl_engine_event *event) {
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
    wake_if_due(g);
    pthread_mutex_unlock(&g->lock);
    if (event->last) drop_owners(g, 1);
}

/* ---- On other threads that wake the connection ---- */

void generation_gone(void *g) { give_up(g); }

void generation_stop_all(server *s) {
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    for (generation *g = s->generations; g; g = g->next) {
        pthread_mutex_lock(&g->lock);
        g->stopped = true;
        wake_if_due(g);
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

static bool has_events(const generation *g) { return g->events.first; }

/* The answer can begin: a stream's at once, so that the client knows that it was accepted. */
static bool has_answer(const generation *g) {
    return g->prepared && (g->refused || g->request.stream || g->n_ended == g->n_jobs);
}

/* What the connection is to do next: write what it awaits, sleep (it is suspended then), or end. */
static turn next_turn(generation *g, bool (*awaited)(const generation *)) {
    turn t = TURN_WRITE;
    pthread_mutex_lock(&g->lock);
    if (g->gone) {
        t = TURN_GONE;
    } else if (g->stopped) {
        t = TURN_STOPPED;
    } else if (!awaited(g)) {
        t = TURN_SLEEP;
        g->awaited = awaited;
        MHD_suspend_connection(g->connection);
    }
    pthread_mutex_unlock(&g->lock);
    return t;
}

static queued_event *take_events(generation *g) {
    pthread_mutex_lock(&g->lock);
    queued_event *events = event_queue_take(&g->events);
    pthread_mutex_unlock(&g->lock);
    return events;
}

static enum MHD_Result reply_whole(exchange *x) {
    generation *g = x->generation;
    queued_event *events = take_events(g);
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

static bool put_event(generation *g, const queued_event *e) {
    openai_result_add(&g->result, e->prompt, &e->event);
    return g->result.failed || put_json(g, openai_chunk_json(&g->result, e->prompt, &e->event));
}

static bool put_events(generation *g) {
    queued_event *events = take_events(g);
    bool ok = true;
    for (const queued_event *e = events; ok && e && !g->result.failed; e = e->next) ok = put_event(g, e);
    event_list_free(events);
    if (!ok) return false;
    if (g->result.failed) return put_end(g, &g->result.error);
    return !openai_result_done(&g->result) || put_end(g, NULL);
}

/* The daemon wants up to max bytes of a stream. */
static ssize_t read_stream(void *cls, uint64_t position, char *buf, size_t max) {
    (void)position;
    generation *g = cls;
    while (g->out_at == g->out_size) {
        if (g->out_ended) return MHD_CONTENT_READER_END_OF_STREAM;
        g->out_at = g->out_size = 0;
        openai_error error;
        bool ok = false;
        switch (next_turn(g, has_events)) {
        case TURN_SLEEP: return 0;
        case TURN_GONE: break;
        case TURN_STOPPED: ok = put_end(g, stopped_error(&error)); break;
        case TURN_WRITE: ok = put_events(g); break;
        }
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

enum MHD_Result generation_resumed(exchange *x) {
    generation *g = x->generation;
    openai_error error;
    switch (next_turn(g, has_answer)) {
    case TURN_SLEEP: return MHD_YES;
    case TURN_GONE: return MHD_NO;
    case TURN_STOPPED: return http_reply_error(x, stopped_error(&error));
    case TURN_WRITE: break;
    }
    if (g->refused) return http_reply_error(x, &g->error);
    return g->request.stream ? begin_stream(x) : reply_whole(x);
}

/* ---- The request, on the preparer's thread ---- */

/* Bytes of a body after which memory is given back to the system: that means to walk the whole heap. */
enum { LARGE_BODY = 1 << 20 };

/* The body as JSON; NULL with *error. */
static json_t *parse_body(const generation *g, openai_error *error) {
    json_error_t at;
    json_t *body = json_loadb(g->body ? g->body : "", g->body_size, JSON_ALLOW_NUL, &at);
    if (!body)
        openai_fail(error, NULL, "the body is not valid JSON: %s at line %d, column %d (byte %d)", at.text, at.line, at.column,
                    at.position);
    return body;
}

/*
 * The body to g->request. Neither it nor its JSON is kept: "[]" in it takes forty times its bytes, and the allocator would keep
 * them for a next one.
 */
static bool read_request(generation *g) {
    json_t *body = parse_body(g, &g->error);
    free(g->body);
    g->body = NULL;
    const bool ok = body && openai_request_parse(&g->server->context, g->endpoint, body, &g->request, &g->error);
    json_decref(body);
    if (g->body_size > LARGE_BODY) malloc_trim(0);
    return ok;
}

static bool make_room(generation *g) {
    const size_t n = g->request.n_prompts;
    g->jobs = calloc(n, sizeof *g->jobs);
    g->told_at = calloc(n * (size_t)g->request.params.n, sizeof *g->told_at);
    if (g->jobs && g->told_at && openai_result_init(&g->result, &g->server->context, &g->request)) return true;
    no_memory(&g->error);
    return false;
}

/* Give prompt i to the engine. */
static bool submit(generation *g, size_t i) {
    job *j = &g->jobs[i];
    *j = (job){.generation = g, .prompt = i};
    const cl_engine_request request = openai_engine_request(&g->request, i, on_event, j);
    cl_error cause;
    if (cl_engine_submit(g->server->engine, &request, &j->id, &cause) != CL_OK)
        return openai_fail_from(&g->error, NULL, &cause);
    pthread_mutex_lock(&g->lock);
    g->n_jobs++;
    pthread_mutex_unlock(&g->lock);
    return true;
}

static bool is_wanted(generation *g) {
    pthread_mutex_lock(&g->lock);
    const bool wanted = !g->gone && !g->stopped;
    pthread_mutex_unlock(&g->lock);
    return wanted;
}

void generation_prepare(preparer_task *task) {
    generation *g = (generation *)task;
    bool ok = is_wanted(g) && read_request(g);
    const size_t n = g->request.n_prompts; /* none unless it was read */
    add_owners(g, n);
    ok = ok && make_room(g);
    for (size_t i = 0; ok && i < n; i++) ok = is_wanted(g) && submit(g, i);
    pthread_mutex_lock(&g->lock);
    g->prepared = true;
    g->refused = !ok; /* where it is unwanted nobody is told */
    const bool useless = g->refused || g->gone;
    wake_if_due(g);
    pthread_mutex_unlock(&g->lock);
    if (useless) cancel_jobs(g);
    drop_owners(g, 1 + n - g->n_jobs);
}

/* ---- Its beginning, on the connection's thread ---- */

/* With x's body taken over; NULL without memory. */
static generation *generation_create(exchange *x, openai_endpoint endpoint) {
    generation *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    pthread_mutex_init(&g->lock, NULL);
    g->server = x->server;
    g->connection = x->connection;
    g->fd = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    g->endpoint = endpoint;
    g->body = x->body;
    g->body_size = x->body_size;
    g->began = clock_seconds();
    x->body = NULL;
    x->body_size = x->body_capacity = 0;
    return g;
}

enum MHD_Result generation_begin(exchange *x, openai_endpoint endpoint) {
    openai_error error;
    generation *g = generation_create(x, endpoint);
    if (!g) return http_reply_error(x, no_memory(&error));
    if (!enlist(g)) {
        generation_free(g);
        return http_reply_error(x, stopped_error(&error));
    }
    x->generation = g;
    if (!watch_add(x->server->watch, g->fd, g)) return MHD_NO;
    add_owners(g, 1);
    preparer_add(x->server->preparer, &g->task);
    return generation_resumed(x);
}
