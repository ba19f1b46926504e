/* What became of a request: its streamed reply as times and counts. */
#ifndef LOADGEN_REPLY_H
#define LOADGEN_REPLY_H

#include <stdint.h>

#include "sse.h"

typedef enum outcome_status {
    OUTCOME_OK,
    OUTCOME_UNREACHABLE, /* no connection, or it broke before the reply's end */
    OUTCOME_REFUSED,     /* an HTTP status other than 200 */
    OUTCOME_BAD_STREAM,  /* an event that is no completion, an error event, or an end without [DONE] */
    OUTCOME_CUT,         /* the time limit came first; also what was never sent */
    N_OUTCOMES
} outcome_status;

/* Times are seconds since the run began. */
typedef struct outcome {
    outcome_status status;
    char message[256];     /* where it is not OUTCOME_OK */
    double due, sent, end; /* when it came, when it was sent, when its reply was complete */
    double first;          /* first output */
    int64_t prompt_tokens; /* as the endpoint counts them; -1: it did not say */
    int64_t cached_tokens; /* of the prompt, found in a cache; -1: it did not say */
    int64_t tokens;        /* of the completion, as the endpoint counts them; events with output where it did not */
    double *gaps;          /* [n_gaps] between one event with output and the next; freed by outcome_free */
    size_t n_gaps;
} outcome;

void outcome_free(outcome *o);

/* A reply on its way. */
typedef struct reply {
    outcome *outcome;
    bool chat; /* chunks are those of chat completions */
    bool done; /* [DONE] has come */
    bool failed;
    sse sse;
    buffer refusal; /* the beginning of a body that is not a stream */
    double now, last;
    int64_t n_events;
    size_t gap_capacity;
} reply;

/* *outcome has its times up to `sent`, and is borrowed until reply_end. */
void reply_begin(reply *r, outcome *o, bool chat);

/* Bytes of the body, of a reply of this HTTP status. False: the stream is wrong, the rest is of no interest. */
bool reply_feed(reply *r, long http_status, const char *bytes, size_t size, double now);

/* The transfer is over; transport_error NULL: as HTTP has it, without an error. Completes the outcome and frees the reply's
 * own. */
void reply_end(reply *r, long http_status, const char *transport_error, double now);

#endif
