/*
 * A request and its choices: its parameters, its tokens so far, and the events that report them.
 *
 * A request waits, then runs (its sequences are in the cache), and ends when all its choices have ended. A running request
 * first computes its prompt, through the sequence of choice 0 alone. From the logits of the prompt's last token every choice
 * then draws its first token.
 */
#ifndef ENGINE_REQUEST_H
#define ENGINE_REQUEST_H

#include <stdatomic.h>

#include "chance.h"
#include "engine.h"
#include "text.h"

typedef struct cl_request cl_request;
typedef struct cl_draw cl_draw; /* draw.h */

enum { CL_DRAFT_MAX = 8 }; /* most tokens that are drafted for a choice in a step */

/* The sequence of a choice in the draft model's cache. */
typedef struct cl_draft_seq {
    cattn_seq seq;                 /* 0: none */
    bool declined;                 /* computing the choice's prompt would have cost more than its drafts save */
    int64_t n_tokens;              /* length of the sequence */
    int32_t n_drafted;             /* its last tokens, which were drafted and may differ from those that were drawn */
    int32_t drafted[CL_DRAFT_MAX]; /* [n_drafted] */
} cl_draft_seq;

typedef struct cl_choice {
    cl_request *owner;
    int32_t index; /* in owner->choices */
    cl_engine_finish finish;
    cattn_seq seq;   /* 0: not in the cache */
    int32_t *tokens; /* [n_prompt + max_tokens] owned; of which n_tokens are known: prompt and completion. NULL while waiting */
    int64_t n_tokens;
    bool decoding;                     /* only its last token lacks K/V */
    int32_t n_drafted;                 /* drafted tokens, after the n_tokens in `tokens` and in the sequence; 0 between steps */
    uint8_t draft_ranks[CL_DRAFT_MAX]; /* [n_drafted] */
    cl_chance chance;                  /* of its drafts */
    cl_draft_seq model_seq;
    cl_text text;
} cl_choice;

struct cl_request {
    uint64_t id;
    cl_engine_request params; /* its pointers point to copies that the request owns */
    cl_request *next;         /* in the queue that holds it */
    size_t live_index;        /* in the engine's list of all requests */
    atomic_bool cancelled;    /* set by any thread */
    cl_choice *choices;       /* [params.n] owned */
    int32_t n_unfinished;     /* choices that have not ended */
    bool prompt_done;
    int64_t n_cached, n_completion; /* as in cl_engine_event */
};

/* First in, first out. */
typedef struct cl_request_queue {
    cl_request *first, *last;
    int64_t n;
} cl_request_queue;

void cl_request_queue_add(cl_request_queue *q, cl_request *r);
/* Remove the request after `before`, or the first one if before is NULL, and return it. */
cl_request *cl_request_queue_take(cl_request_queue *q, cl_request *before);

/* Copy a request whose fields have been checked. NULL if memory is lacking. */
cl_request *cl_request_create(const cl_engine_request *params);
void cl_request_free(cl_request *r);

/*
 * Allocate the choices' tokens, so that afterwards only text needs memory. Does nothing for choices that have theirs. False if
 * memory is lacking.
 */
bool cl_request_start(cl_request *r);

/* Add a choice's next token: reports it, and ends the choice if it is the last. */
void cl_choice_add(cl_choice *c, const cl_tokenizer *tok, const cl_draw *d);

/*
 * Whether a choice would end with the last of its next n tokens, which follow the known ones in `tokens`, for another reason
 * than its length. The tokens before it are known not to end the choice.
 */
bool cl_choice_would_end(cl_choice *c, const cl_tokenizer *tok, int32_t n);

/* Report a token of the prompt. */
void cl_choice_report_prompt(cl_choice *c, const cl_draw *d);

/* End a choice that runs: reports why, and the text that was held back. error: with CL_ENGINE_ERROR; otherwise NULL. */
void cl_choice_end(cl_choice *c, cl_engine_finish finish, const cl_error *error);

#endif
