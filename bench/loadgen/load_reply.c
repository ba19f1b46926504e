/* Reads streamed replies. */
#include "load_reply.h"

#include <jansson.h>
#include <stdio.h>

enum { MAX_REFUSAL = 4096, MAX_DETAIL = 160 }; /* bytes */

/* Larger counts are refused: no context is as long, and sums over 2^30 requests do not overflow. */
static const json_int_t max_tokens = (json_int_t)1 << 32;

void load_outcome_free(load_outcome *o) {
    free(o->gaps);
    o->gaps = NULL;
    o->n_gaps = 0;
}

/* Set the outcome's status and message: `what`, then detail [size] as printable ASCII. Returns false. */
static bool fail(load_reply *r, load_outcome_status status, const char *what, const char *detail, size_t size) {
    load_outcome *o = r->result;
    if (r->failed) return false; /* the first failure counts */
    r->failed = true;
    o->status = status;
    snprintf(o->message, sizeof o->message, "%s%.*s", what, (int)(size < MAX_DETAIL ? size : MAX_DETAIL), detail);
    for (char *c = o->message; *c; c++) /* the cut may be inside a character */
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~') *c = ' ';
    return false;
}

/* The same for a string. */
static bool fail_text(load_reply *r, load_outcome_status status, const char *what, const char *detail) {
    return fail(r, status, what, detail, strlen(detail));
}

void load_reply_begin(load_reply *r, load_outcome *o, bool chat) {
    *r = (load_reply){.result = o, .chat = chat};
    o->status = LOAD_OUTCOME_OK;
    o->prompt_tokens = o->cached_tokens = o->tokens = -1;
}

/* ---- Events ---- */

/* Record an output at r->now. */
static bool add_output(load_reply *r) {
    load_outcome *o = r->result;
    if (r->n_outputs++ == 0) {
        o->first = r->last = r->now;
        return true;
    }
    if (o->n_gaps == r->gap_capacity) {
        const size_t capacity = 2 * r->gap_capacity + 64;
        double *grown = realloc(o->gaps, capacity * sizeof *grown);
        if (!grown) return fail_text(r, LOAD_OUTCOME_BAD_STREAM, "no memory", "");
        o->gaps = grown;
        r->gap_capacity = capacity;
    }
    o->gaps[o->n_gaps++] = r->now - r->last;
    r->last = r->now;
    return true;
}

/*
 * Whether a choice of a chunk has output. A chat's first chunk may have only the role. A completion's chunk with empty text is
 * output, since a token may be part of a character, unless the chunk only reports why the completion ended.
 */
static bool has_output(const load_reply *r, const json_t *choice) {
    if (r->chat) {
        const json_t *delta = json_object_get(choice, "delta");
        return json_string_length(json_object_get(delta, "content")) ||
               json_string_length(json_object_get(delta, "reasoning_content"));
    }
    const json_t *text = json_object_get(choice, "text");
    return json_string_length(text) || (json_is_string(text) && !json_is_string(json_object_get(choice, "finish_reason")));
}

/* Read a count of tokens; *count is unchanged if the endpoint does not report it. */
static bool read_count(load_reply *r, const json_t *object, const char *name, int64_t *count) {
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value)) return true;
    const json_int_t n = json_integer_value(value);
    if (n >= 0 && n <= max_tokens) {
        *count = n;
        return true;
    }
    char what[96];
    snprintf(what, sizeof what, "usage: %s is %lld; it must be from 0 to %lld", name, (long long)n, (long long)max_tokens);
    return fail_text(r, LOAD_OUTCOME_BAD_STREAM, what, "");
}

static bool read_usage(load_reply *r, const json_t *usage) {
    load_outcome *o = r->result;
    return read_count(r, usage, "prompt_tokens", &o->prompt_tokens) && read_count(r, usage, "completion_tokens", &o->tokens) &&
           read_count(r, json_object_get(usage, "prompt_tokens_details"), "cached_tokens", &o->cached_tokens);
}

static bool read_chunk(load_reply *r, const json_t *chunk, const char *data, size_t size) {
    const json_t *error = json_object_get(chunk, "error"), *choices = json_object_get(chunk, "choices");
    if (error && !json_is_null(error)) {
        const char *message = json_string_value(json_object_get(error, "message"));
        return message ? fail_text(r, LOAD_OUTCOME_BAD_STREAM, "error event: ", message)
                       : fail(r, LOAD_OUTCOME_BAD_STREAM, "error event: ", data, size);
    }
    if (!json_is_array(choices)) return fail(r, LOAD_OUTCOME_BAD_STREAM, "an event is not a completion: ", data, size);
    if (!read_usage(r, json_object_get(chunk, "usage"))) return false;
    bool output = false;
    for (size_t i = 0; i < json_array_size(choices); i++) output |= has_output(r, json_array_get(choices, i));
    return !output || add_output(r);
}

static bool on_event(void *ctx, const char *data, size_t size) {
    load_reply *r = ctx;
    if (r->done) return fail(r, LOAD_OUTCOME_BAD_STREAM, "an event after [DONE]: ", data, size);
    if (strcmp(data, "[DONE]") == 0) {
        r->done = true;
        return true;
    }
    json_t *chunk = json_loadb(data, size, JSON_ALLOW_NUL, NULL);
    const bool ok = json_is_object(chunk) ? read_chunk(r, chunk, data, size)
                                          : fail(r, LOAD_OUTCOME_BAD_STREAM, "an event is not a JSON object: ", data, size);
    json_decref(chunk);
    return ok;
}

/* ---- The body ---- */

/* load_sse_feed has failed: report the reason, unless an event has done so. */
static bool fail_feed(load_reply *r) {
    char what[48] = "no memory";
    if (r->events.too_large) snprintf(what, sizeof what, "an event has more than %d bytes", LOAD_BUFFER_MAX);
    return fail_text(r, LOAD_OUTCOME_BAD_STREAM, what, "");
}

bool load_reply_feed(load_reply *r, long http_status, const char *bytes, size_t size, double now) {
    r->now = now;
    if (http_status == 200) return load_sse_feed(&r->events, bytes, size, on_event, r) || fail_feed(r);
    const size_t room = MAX_REFUSAL - r->refusal.size;
    return load_buffer_add(&r->refusal, bytes, size < room ? size : room);
}

/* The HTTP status was not 200: report it, with the message of the error object or the beginning of the body. */
static void refuse(load_reply *r, long http_status) {
    char what[48];
    snprintf(what, sizeof what, "HTTP %ld: ", http_status);
    json_t *body = json_loadb(r->refusal.size ? r->refusal.bytes : "", r->refusal.size, 0, NULL);
    const char *message = json_string_value(json_object_get(json_object_get(body, "error"), "message"));
    if (message)
        fail_text(r, LOAD_OUTCOME_REFUSED, what, message);
    else
        fail(r, LOAD_OUTCOME_REFUSED, what, r->refusal.size ? r->refusal.bytes : "", r->refusal.size);
    json_decref(body);
}

void load_reply_end(load_reply *r, long http_status, const char *transport_error, double now) {
    load_outcome *o = r->result;
    o->end = now;
    if (transport_error)
        fail_text(r, LOAD_OUTCOME_UNREACHABLE, transport_error, "");
    else if (http_status != 200)
        refuse(r, http_status);
    else if (!r->done)
        fail_text(r, LOAD_OUTCOME_BAD_STREAM, "the stream ended without [DONE]",
                  load_sse_unfinished(&r->events) ? ", inside an event" : "");
    else if (r->n_outputs == 0)
        fail_text(r, LOAD_OUTCOME_BAD_STREAM, "the stream brought no output", "");
    if (o->tokens < 0) o->tokens = r->n_outputs;
    load_sse_free(&r->events);
    load_buffer_free(&r->refusal);
}
