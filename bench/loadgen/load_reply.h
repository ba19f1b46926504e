/* Reads the streamed reply to a request, and records its outcome: times and counts. */
#ifndef BENCH_LOADGEN_LOAD_REPLY_H
#define BENCH_LOADGEN_LOAD_REPLY_H

#include <stdint.h>

#include "sse.h"

typedef enum load_outcome_status {
    LOAD_OUTCOME_OK,
    LOAD_OUTCOME_UNREACHABLE, /* there was no connection, or it broke before the reply ended */
    LOAD_OUTCOME_REFUSED,     /* the HTTP status was not 200 */
    LOAD_OUTCOME_BAD_STREAM,  /* an event was not a completion or was an error, or the stream ended without [DONE] */
    LOAD_OUTCOME_CUT,         /* the time limit came first, perhaps before the request was sent */
    N_LOAD_OUTCOMES
} load_outcome_status;

/* Times are seconds since the run began. */
typedef struct load_outcome {
    load_outcome_status status;
    char message[256];     /* what went wrong, unless status is LOAD_OUTCOME_OK */
    double due, sent, end; /* when the request arrived, was sent, and its reply ended */
    double first;          /* when the first output came */
    int64_t prompt_tokens; /* as the endpoint reports them; -1: it does not */
    int64_t cached_tokens; /* tokens of the prompt found in a cache, as the endpoint reports them; -1: it does not */
    int64_t tokens;        /* of the completion, as the endpoint reports them; otherwise the number of outputs */
    double *gaps;          /* [n_gaps] seconds from each output to the next, owned */
    size_t n_gaps;
} load_outcome;

/* Free what *o owns. */
void load_outcome_free(load_outcome *o);

/* A reply that is being received. */
typedef struct load_reply {
    load_outcome *result; /* borrowed */
    bool chat;            /* the events are chunks of chat completions; otherwise of completions */
    bool done;            /* [DONE] has come */
    bool failed;          /* result has the reason */
    load_sse events;
    load_buffer refusal; /* the beginning of a body that is not a stream */
    double now, last;    /* seconds: the time of the bytes that are being read, and of the last output */
    int64_t n_outputs;   /* events with output */
    size_t gap_capacity;
} load_reply;

/* Begin a reply. o->due and o->sent are set; *o is borrowed until load_reply_end. */
void load_reply_begin(load_reply *r, load_outcome *o, bool chat);

/* Read `size` bytes of the body, which came at time `now`. False: the stream is wrong, so the transfer may be ended. */
bool load_reply_feed(load_reply *r, long http_status, const char *bytes, size_t size, double now);

/*
 * Complete the outcome after the transfer, and free what *r owns. transport_error: why the transfer failed; NULL: it did not.
 */
void load_reply_end(load_reply *r, long http_status, const char *transport_error, double now);

#endif
