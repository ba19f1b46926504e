/*
 * What is written to the client: the engine's thread queues its events, and the connection's thread writes them as a whole
 * answer or as a stream, and suspends the connection while there are none.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "cache.h"
#include "chunkattn/base/clock.h"
#include "generation_state.h"

/* ---- The queue of events ---- */

/* NULL if memory is lacking. */
static generation_event *copy_event(size_t prompt, const cl_engine_event *event) {
    const cl_event_token *token = event->kind == CL_EVENT_END ? NULL : &event->token;
    const cl_event_end *end = token ? NULL : &event->end;
    const size_t top_bytes = token ? (size_t)token->n_top * sizeof *token->top : 0;
    const size_t error_bytes = end && end->error ? sizeof *end->error : 0;
    const size_t embedding_bytes = end ? (size_t)end->n_embedding * sizeof *end->embedding : 0;
    /* One allocation: the event, then the arrays that it points to, in descending order of alignment. */
    generation_event *copy = malloc(sizeof *copy + top_bytes + error_bytes + embedding_bytes + event->text_size);
    if (!copy) return NULL;
    char *at = (char *)(copy + 1);
    *copy = (generation_event){.prompt = prompt, .at = clock_seconds(), .event = *event};
    if (top_bytes) copy->event.token.top = memcpy(at, token->top, top_bytes);
    at += top_bytes;
    if (error_bytes) copy->event.end.error = memcpy(at, end->error, error_bytes);
    at += error_bytes;
    if (embedding_bytes) copy->event.end.embedding = memcpy(at, end->embedding, embedding_bytes);
    at += embedding_bytes;
    if (event->text_size) copy->event.text = memcpy(at, event->text, event->text_size);
    return copy;
}

/* With g->lock held. */
static void add_event(http_generation *g, generation_event *event) {
    event->next = NULL;
    *(g->events ? g->events_end : &g->events) = event;
    g->events_end = &event->next;
}

/* Take all events out of the queue, oldest first. */
static generation_event *take_events(http_generation *g) {
    pthread_mutex_lock(&g->lock);
    generation_event *list = g->events;
    g->events = NULL;
    pthread_mutex_unlock(&g->lock);
    return list;
}

void generation_free_events(generation_event *list) {
    while (list) {
        generation_event *next = list->next;
        free(list);
        list = next;
    }
}

/* ---- Events, on the engine's thread ---- */

/* Count a request to the engine that has ended: a prompt. */
static void measure_end(http_generation *g, size_t prompt, const cl_engine_event *event, double now) {
    const size_t n = (size_t)g->request.params.n;
    const double admitted_at = g->submitted_at + event->queued_s, first_at = g->first_at[prompt];
    const bool computed = event->end.finish == CL_ENGINE_STOP || event->end.finish == CL_ENGINE_LENGTH;
    double last_at = first_at;
    for (size_t i = 0; i < n; i++) last_at = fmax(last_at, g->token_at[prompt * n + i]);
    /* Without a token, all its time is that of its prompt; one that was cancelled before may have had none. */
    const double prefilled_at = first_at > 0 ? first_at : computed ? now : admitted_at;
    const metrics_request r = {.finish = event->end.finish,
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

static void measure(http_generation *g, size_t prompt, const cl_engine_event *event, double now) {
    server_metrics *m = &g->srv->metrics;
    if (event->kind == CL_EVENT_TOKEN) {
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

/* Add an event to the request's line of the log. first: it is the first one of its prompt that generates or ends. With g->lock
 * held. */
static void add_usage(generation_usage *u, const cl_engine_event *event, bool first, double now) {
    if (first) {
        u->n_prompt += event->n_prompt;
        u->n_cached += event->n_cached;
    }
    if (event->kind == CL_EVENT_TOKEN) {
        if (u->n_tokens++ == 0) u->first_at = now;
        u->last_at = now;
    }
    if (event->n_sharing > u->n_sharing) u->n_sharing = event->n_sharing;
    if (event->kind == CL_EVENT_END) u->finish = event->end.finish;
}

void generation_on_event(void *ctx, const cl_engine_event *event) {
    const openai_submitted *submitted = ctx;
    http_generation *g = submitted->owner;
    const double now = clock_seconds();
    const bool is_token = event->kind == CL_EVENT_TOKEN;
    const bool first = g->first_at[submitted->prompt] == 0 && (is_token || event->last);
    measure(g, submitted->prompt, event, now);
    if (is_token && g->quota.tokens.limit > 0) quota_count(&g->srv->quotas, g->task.domain, 1, now);
    cache_list_mark(g, event);
    generation_event *copy = copy_event(submitted->prompt, event);
    pthread_mutex_lock(&g->lock);
    add_usage(&g->usage, event, first, now);
    if (copy)
        add_event(g, copy);
    else
        generation_become(g, GENERATION_FAILED);
    if (event->last) g->n_ended++;
    generation_wake_if_due(g);
    pthread_mutex_unlock(&g->lock);
    if (event->last) generation_drop_owners(g, 1);
}

/* ---- Waiting, on the connection's thread ---- */

/* Whether the connection goes on, in *state. If not, it is suspended until the condition `awaited` is met or never will be. */
static bool goes_on(http_generation *g, bool (*awaited)(const http_generation *), generation_state *state) {
    pthread_mutex_lock(&g->lock);
    if (atomic_load(&g->srv->stopping)) generation_become(g, GENERATION_STOPPED);
    *state = g->state;
    const bool waits = g->state <= GENERATION_RUNNING && !awaited(g);
    if (waits) {
        g->awaited = awaited;
        MHD_suspend_connection(g->connection);
    }
    pthread_mutex_unlock(&g->lock);
    return !waits;
}

/* ---- Whole answers ---- */

/*
 * Why the request failed. The engine accepted it, so if it was busy, the request has waited too long: that is an option's limit
 * here.
 */
static const openai_error *error_of(http_generation *g) {
    openai_error *error = &g->result.error;
    if (error->status != MHD_HTTP_TOO_MANY_REQUESTS) return error;
    snprintf(
        error->message, sizeof error->message,
        "the request was not admitted within %g seconds, the limit of --queue-timeout: too many others wait; send it again "
        "later",
        g->srv->context.queue_timeout_s);
    error->retry_after_s = openai_retry_after(g->srv->engine);
    return error;
}

static enum MHD_Result reply_whole(http_exchange *x) {
    http_generation *g = x->gen;
    generation_event *events = take_events(g);
    for (const generation_event *e = events; e; e = e->next) openai_result_add(&g->result, e->prompt, &e->event, e->at);
    generation_free_events(events);
    if (g->result.failed) return http_reply_error(x, error_of(g));
    if (!g->kind->write) return http_reply_json(x, MHD_HTTP_OK, &g->answer);
    openai_writer w = {0};
    return g->kind->write(g, &w) ? http_reply_json(x, MHD_HTTP_OK, &w) : http_reply_no_memory(x);
}

/* ---- Streams ---- */

/* End the stream, with an error unless that is NULL. */
static void put_end(http_generation *g, const openai_error *error) {
    g->out_ended = true;
    g->dialect->stream_end(&g->out, &g->result, error);
}

static void put_event(http_generation *g, const generation_event *e) {
    openai_result_add(&g->result, e->prompt, &e->event, e->at);
    if (!g->result.failed) g->dialect->stream_event(&g->out, &g->result, e->prompt, &e->event);
}

/* Append the parts of the stream for all queued events, and its end after the last event or an error. */
static void put_events(http_generation *g) {
    generation_event *events = take_events(g);
    for (const generation_event *e = events; e && !g->result.failed; e = e->next) put_event(g, e);
    generation_free_events(events);
    if (g->result.failed)
        put_end(g, error_of(g));
    else if (openai_result_done(&g->result))
        put_end(g, NULL);
}

static bool has_events(const http_generation *g) { return g->events; }

/* Send the bytes of `out`; if memory was lacking for it, the stream ends with an error in its place. */
static void send_out(http_generation *g) {
    g->unsent = g->out.failed ? g->dialect->no_memory_end : g->out.text;
    g->n_unsent = g->out.failed ? strlen(g->unsent) : g->out.size;
    g->out_ended |= g->out.failed;
}

/*
 * End a stream whose client has gone, in the middle: the byte that is left to send cannot be sent, so libmicrohttpd closes the
 * connection. It would not close it after MHD_CONTENT_READER_END_WITH_ERROR, up to version 1.0 at least: it marks the
 * connection as closed then, and removes it only while it looks for connections that are idle for too long. That look ends at
 * the first connection of the thread that is not, so the socket would stay open for up to config.timeout_s.
 */
static void hang_up(http_generation *g) {
    shutdown(g->fd, SHUT_WR);
    g->unsent = "\n";
    g->n_unsent = 1;
}

/* Send the next bytes of a stream. */
static void send_next(http_generation *g, generation_state state) {
    openai_error error;
    writer_clear(&g->out);
    switch (state) {
    case GENERATION_STOPPED: put_end(g, generation_stopped_error(&error)); break;
    case GENERATION_FAILED: writer_fail(&g->out); break;
    default: put_events(g);
    }
    send_out(g);
}

/* libmicrohttpd's callback: copy up to max bytes of the stream into buf. Returning 0 means that the connection is suspended. */
static ssize_t read_stream(void *cls, uint64_t position, char *buf, size_t max) {
    (void)position;
    http_generation *g = cls;
    while (g->n_unsent == 0) {
        generation_state state;
        if (g->out_ended) return MHD_CONTENT_READER_END_OF_STREAM;
        if (!goes_on(g, has_events, &state)) return 0;
        state == GENERATION_ABANDONED ? hang_up(g) : send_next(g, state);
    }
    const size_t size = g->n_unsent < max ? g->n_unsent : max;
    memcpy(buf, g->unsent, size);
    g->unsent += size;
    g->n_unsent -= size;
    return (ssize_t)size;
}

static enum MHD_Result begin_stream(http_exchange *x) {
    http_generation *g = x->gen;
    g->dialect->stream_begin(&g->out, &g->result);
    send_out(g);
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, g, NULL);
    if (!response) return http_reply_no_memory(x);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(response, "X-Accel-Buffering", "no"); /* otherwise nginx as a proxy would hold tokens back */
    const char *type = g->dialect->stream_type;
    return http_queue(x, MHD_HTTP_OK, type ? type : "text/event-stream; charset=utf-8", response);
}

/* ---- Beginning of the answer ---- */

/*
 * A stream begins once its request is accepted, before the first token, so that the client learns of it. Where a request may
 * wait too long it begins with the first event instead, so that the answer's status can say that.
 */
static bool can_begin(const http_generation *g) {
    if (g->state == GENERATION_PREPARING) return false; /* the request is the preparer's */
    const bool begins = g->request.stream && (g->events || g->srv->context.queue_timeout_s == 0);
    return begins || g->n_ended == g->n_submitted;
}

/* Whether the first event is that the request has waited too long. */
static bool was_not_begun(http_generation *g) {
    pthread_mutex_lock(&g->lock);
    const cl_engine_event *first = g->events ? &g->events->event : NULL;
    const cl_error *error = first && first->kind == CL_EVENT_END ? first->end.error : NULL;
    pthread_mutex_unlock(&g->lock);
    return error && error->code == CL_ERR_BUSY;
}

enum MHD_Result generation_resumed(http_exchange *x) {
    http_generation *g = x->gen;
    openai_error error;
    generation_state state;
    if (!goes_on(g, can_begin, &state)) return MHD_YES;
    if (state <= GENERATION_REFUSED) { /* the request is the connection's */
        x->quota = g->quota;
        http_set_request_id(x, g->request.id);
    }
    switch (state) {
    case GENERATION_REFUSED: return http_reply_error(x, &g->error);
    case GENERATION_FAILED: return http_reply_no_memory(x);
    case GENERATION_STOPPED: return http_reply_error(x, generation_stopped_error(&error));
    case GENERATION_ABANDONED: return MHD_NO;
    default: break;
    }
    if (g->kind->reply) return g->kind->reply(x, g);
    return g->request.stream && !was_not_begun(g) ? begin_stream(x) : reply_whole(x);
}
