/* The connection's thread: writes the answer, whole or as a stream, and suspends the connection while there is none. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "generation_state.h"

/* What the connection does next. */
typedef enum action {
    ACTION_WRITE,     /* what it waited for is available */
    ACTION_WAIT,      /* it is suspended */
    ACTION_STOP,      /* the server stops: report that */
    ACTION_NO_MEMORY, /* an event was lost: report that */
    ACTION_HANG_UP,   /* close the connection: no one waits for the answer */
} action;

/* Decide, and suspend the connection if the condition `awaited` is not met yet. */
static action next_action(generation *g, bool (*awaited)(const generation *)) {
    action next = ACTION_WRITE;
    pthread_mutex_lock(&g->lock);
    if (g->abandoned) {
        next = ACTION_HANG_UP;
    } else if (g->stopped) {
        next = ACTION_STOP;
        g->told_of_stop = true;
    } else if (g->lost_event) {
        next = ACTION_NO_MEMORY;
    } else if (!awaited(g)) {
        next = ACTION_WAIT;
        g->awaited = awaited;
        MHD_suspend_connection(g->connection);
    }
    pthread_mutex_unlock(&g->lock);
    return next;
}

/*
 * Why the request failed. The engine accepted it, so if it was busy, the request has waited too long: that is an option's limit
 * here.
 */
static const openai_error *error_of(generation *g) {
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

/* ---- Whole answers ---- */

static enum MHD_Result reply_whole(exchange *x) {
    generation *g = x->gen;
    queued_event *events = generation_take_events(g);
    for (const queued_event *e = events; e; e = e->next) openai_result_add(&g->result, e->prompt, &e->event, e->at);
    generation_free_events(events);
    if (g->result.failed) return http_reply_error(x, error_of(g));
    if (!g->kind->write) return http_reply_json(x, MHD_HTTP_OK, &g->answer);
    openai_writer w = {0};
    return g->kind->write(g, &w) ? http_reply_json(x, MHD_HTTP_OK, &w) : http_reply_no_memory(x);
}

/* ---- Streams ---- */

/* End the stream, with an error unless that is NULL. */
static void put_end(generation *g, const openai_error *error) {
    g->out_ended = true;
    g->dialect->stream_end(&g->out, &g->result, error);
}

static void put_event(generation *g, const queued_event *e) {
    openai_result_add(&g->result, e->prompt, &e->event, e->at);
    if (!g->result.failed) g->dialect->stream_event(&g->out, &g->result, e->prompt, &e->event);
}

/* Append what all queued events add to the stream, and the end after the last event or an error. */
static void put_events(generation *g) {
    queued_event *events = generation_take_events(g);
    for (const queued_event *e = events; e && !g->result.failed; e = e->next) put_event(g, e);
    generation_free_events(events);
    if (g->result.failed)
        put_end(g, error_of(g));
    else if (openai_result_done(&g->result))
        put_end(g, NULL);
}

static bool has_events(const generation *g) { return g->events; }

/* Send what `out` holds; if memory was lacking for it, the stream ends with an error in its place. */
static void send_out(generation *g) {
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
static void hang_up(generation *g) {
    shutdown(g->fd, SHUT_WR);
    g->unsent = "\n";
    g->n_unsent = 1;
}

/* libmicrohttpd's callback: copy up to max bytes of the stream into buf. Returning 0 means that the connection is suspended. */
static ssize_t read_stream(void *cls, uint64_t position, char *buf, size_t max) {
    (void)position;
    generation *g = cls;
    while (g->n_unsent == 0) {
        if (g->out_ended) return MHD_CONTENT_READER_END_OF_STREAM;
        openai_error error;
        writer_clear(&g->out);
        switch (next_action(g, has_events)) {
        case ACTION_WAIT: return 0;
        case ACTION_HANG_UP: hang_up(g); continue;
        case ACTION_STOP: put_end(g, generation_stopped_error(&error)); break;
        case ACTION_NO_MEMORY: writer_fail(&g->out); break;
        case ACTION_WRITE: put_events(g); break;
        }
        send_out(g);
    }
    const size_t size = g->n_unsent < max ? g->n_unsent : max;
    memcpy(buf, g->unsent, size);
    g->unsent += size;
    g->n_unsent -= size;
    return (ssize_t)size;
}

static enum MHD_Result begin_stream(exchange *x) {
    generation *g = x->gen;
    g->dialect->stream_begin(&g->out, &g->result);
    send_out(g);
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, g, NULL);
    if (!response) return http_reply_no_memory(x);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(response, "X-Accel-Buffering", "no"); /* otherwise nginx as a proxy would hold tokens back */
    return http_queue(x, MHD_HTTP_OK, "text/event-stream; charset=utf-8", response);
}

/* ---- Beginning of the answer ---- */

/*
 * A stream begins once its request is accepted, before the first token, so that the client learns of it. Where a request may
 * wait too long it begins with the first event instead, so that the answer's status can say that.
 */
static bool can_begin(const generation *g) {
    if (!g->prepared) return false; /* until then the request is the preparer's */
    const bool begins = g->request.stream && (g->events || g->srv->context.queue_timeout_s == 0);
    return g->refused || begins || g->n_ended == g->n_jobs;
}

/* Whether the first event is that the request has waited too long. */
static bool was_not_begun(generation *g) {
    pthread_mutex_lock(&g->lock);
    const cl_error *error = g->events ? g->events->event.error : NULL;
    pthread_mutex_unlock(&g->lock);
    return error && error->code == CL_ERR_BUSY;
}

enum MHD_Result generation_resumed(exchange *x) {
    generation *g = x->gen;
    openai_error error;
    switch (next_action(g, can_begin)) {
    case ACTION_WAIT: return MHD_YES;
    case ACTION_HANG_UP: return MHD_NO;
    case ACTION_NO_MEMORY: return http_reply_no_memory(x);
    case ACTION_STOP: return http_reply_error(x, generation_stopped_error(&error));
    case ACTION_WRITE: break;
    }
    x->quota = g->quota;
    if (g->refused) return http_reply_error(x, &g->error);
    if (g->kind->reply) return g->kind->reply(x, g);
    return g->request.stream && !was_not_begun(g) ? begin_stream(x) : reply_whole(x);
}
