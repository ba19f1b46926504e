/* The connection's thread: writes the answer, whole or as a stream, and suspends the connection while there is none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generation_state.h"

/* What the connection does next. */
typedef enum action {
    ACTION_WRITE,   /* what it waited for is available */
    ACTION_WAIT,    /* it is suspended */
    ACTION_FAIL,    /* the server stops: report that */
    ACTION_HANG_UP, /* close the connection: no one waits for the answer, or an event was lost */
} action;

/* Decide, and suspend the connection if the condition `awaited` is not met yet. */
static action next_action(generation *g, bool (*awaited)(const generation *)) {
    action next = ACTION_WRITE;
    pthread_mutex_lock(&g->lock);
    if (g->abandoned) {
        next = ACTION_HANG_UP;
    } else if (g->stopped) {
        next = ACTION_FAIL;
    } else if (!awaited(g)) {
        next = ACTION_WAIT;
        g->awaited = awaited;
        MHD_suspend_connection(g->connection);
    }
    pthread_mutex_unlock(&g->lock);
    return next;
}

/* ---- Whole answers ---- */

static enum MHD_Result reply_whole(exchange *x) {
    generation *g = x->gen;
    queued_event *events = generation_take_events(g);
    for (const queued_event *e = events; e; e = e->next) openai_result_add(&g->result, e->prompt, &e->event);
    generation_free_events(events);
    if (g->result.failed) return http_reply_error(x, &g->result.error);
    return http_reply_json(x, MHD_HTTP_OK, openai_result_json(&g->result));
}

/* ---- Streams; functions that return bool return false if memory is lacking ---- */

/* Append "data: TEXT" as a server-sent event. */
static bool put_text(generation *g, const char *text) {
    const size_t needed = g->out_size + strlen(text) + sizeof "data: \n\n";
    if (needed > g->out_capacity) {
        char *grown = realloc(g->out, 2 * needed);
        if (!grown) return false;
        g->out = grown;
        g->out_capacity = 2 * needed;
    }
    g->out_size += (size_t)sprintf(g->out + g->out_size, "data: %s\n\n", text);
    return true;
}

/* Append a JSON value, unless it is null. Steals the reference. */
static bool put_json(generation *g, json_t *json) {
    char *text = json_is_null(json) ? NULL : json_dumps(json, JSON_COMPACT);
    const bool ok = json_is_null(json) || (text && put_text(g, text));
    free(text);
    json_decref(json);
    return ok;
}

/* End the stream, with an error unless that is NULL. */
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

/* Append the chunks of all queued events, and the end after the last event or an error. */
static bool put_events(generation *g) {
    queued_event *events = generation_take_events(g);
    bool ok = true;
    for (const queued_event *e = events; ok && e && !g->result.failed; e = e->next) ok = put_event(g, e);
    generation_free_events(events);
    if (!ok) return false;
    if (g->result.failed) return put_end(g, &g->result.error);
    return !openai_result_done(&g->result) || put_end(g, NULL);
}

static bool has_events(const generation *g) { return g->events; }

/* libmicrohttpd's callback: copy up to max bytes of the stream into buf. Returning 0 means that the connection is suspended. */
static ssize_t read_stream(void *cls, uint64_t position, char *buf, size_t max) {
    (void)position;
    generation *g = cls;
    while (g->out_at == g->out_size) {
        if (g->out_ended) return MHD_CONTENT_READER_END_OF_STREAM;
        g->out_at = g->out_size = 0;
        openai_error error;
        bool ok = false;
        switch (next_action(g, has_events)) {
        case ACTION_WAIT: return 0;
        case ACTION_HANG_UP: break;
        case ACTION_FAIL: ok = put_end(g, generation_stopped_error(&error)); break;
        case ACTION_WRITE: ok = put_events(g); break;
        }
        if (!ok) return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    const size_t left = g->out_size - g->out_at, size = left < max ? left : max;
    memcpy(buf, g->out + g->out_at, size);
    g->out_at += size;
    return (ssize_t)size;
}

static enum MHD_Result begin_stream(exchange *x) {
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, read_stream, x->gen, NULL);
    if (!response) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    MHD_add_response_header(response, "X-Accel-Buffering", "no"); /* otherwise nginx as a proxy would hold tokens back */
    return http_queue(x, MHD_HTTP_OK, "text/event-stream; charset=utf-8", response);
}

/* ---- Beginning of the answer ---- */

/* A stream begins once its request is accepted, before the first token, so that the client learns of it. */
static bool can_begin(const generation *g) {
    return g->prepared && (g->refused || g->request.stream || g->n_ended == g->n_jobs);
}

enum MHD_Result generation_resumed(exchange *x) {
    generation *g = x->gen;
    openai_error error;
    switch (next_action(g, can_begin)) {
    case ACTION_WAIT: return MHD_YES;
    case ACTION_HANG_UP: return MHD_NO;
    case ACTION_FAIL: return http_reply_error(x, generation_stopped_error(&error));
    case ACTION_WRITE: break;
    }
    if (g->refused) return http_reply_error(x, &g->error);
    return g->request.stream ? begin_stream(x) : reply_whole(x);
}
