/*
 * One request and its choices: what was asked, the tokens so far, what has been told.
 *
 * waiting -> running (its sequences are in the cache) -> every choice finished. A running request first computes its prompt,
 * through the sequence of choice 0 alone; from the logits of the prompt's last token every choice draws its first one.
 */
#ifndef ENGINE_REQUEST_H
#define ENGINE_REQUEST_H

#include <stdatomic.h>

#include "chance.h"
#include "engine.h"
#include "text.h"

typedef struct cl_request cl_request;
typedef struct cl_draw cl_draw; /* draw.h */

enum { CL_DRAFT_MAX = 8 }; /* tokens drafted for a choice in a step */

/* A choice's sequence in the draft model's cache. */
typedef struct cl_draft_seq {
    cattn_seq seq;     /* 0: none */
    bool declined;     /* its prompt would have cost more than the drafts save */
    int64_t n_tokens;  /* in it */
    int32_t n_drafted; /* of these, the last, which may turn out otherwise: */
    int32_t drafted[CL_DRAFT_MAX];
} cl_draft_seq;

typedef struct cl_choice {
    cl_request *owner;
    int32_t index;
    cl_engine_finish finish;
    cattn_seq seq;   /* 0 when not in the cache */
    int32_t *tokens; /* [n_prompt + max_tokens], while running: prompt and completion */
    int64_t n_tokens;
    bool decoding;     /* only the last of its tokens lacks K/V */
    int32_t n_drafted; /* behind its tokens, in `tokens` and in its sequence too: a draft; 0 between steps */
    uint8_t draft_ranks[CL_DRAFT_MAX];
    cl_chance chance; /* of its drafts */
    cl_draft_seq model_seq;
    cl_text text;
} cl_choice;

struct cl_request {
    uint64_t id;
    cl_engine_request asked; /* pointers lead into memory of the request's own */
    cl_request *next;        /* in the one queue that holds it */
    size_t live_index;       /* in the engine's list for cancelling */
    atomic_bool cancelled;
    cl_choice *choices; /* [asked.n] */
    int32_t n_unfinished;
    bool prompt_done;
    int64_t n_cached, n_completion;
};

/* First in, first out. */
typedef struct cl_request_queue {
    cl_request *first, *last;
    int64_t n;
} cl_request_queue;

void cl_request_queue_add(cl_request_queue *q, cl_request *r);
/* Take out the one behind `before`, or the first where that is NULL. */
cl_request *cl_request_queue_take(cl_request_queue *q, cl_request *before);

/* Copy a request whose fields have been checked. NULL without memory. */
cl_request *cl_request_create(const cl_engine_request *asked);
void cl_request_free(cl_request *r);

/* Make room for the choices' tokens, so that running allocates only for text; once. False without memory. */
bool cl_request_start(cl_request *r);

/* Take a choice's next token: tells it, and ends the choice where it is the last. */
void cl_choice_add(cl_choice *c, const cl_tokenizer *tok, const cl_draw *d);

/*
 * Whether a choice would end with the last of its next n tokens, which stand behind the others in `tokens`, for another reason
 * than its length. Those before are known not to end it.
 */
bool cl_choice_would_end(cl_choice *c, const cl_tokenizer *tok, int32_t n);

/* Tell a token of the prompt. */
void cl_choice_tell_prompt(cl_choice *c, const cl_draw *d);

/* End a choice that has not ended: tells why, and the text held back. error: with CL_ENGINE_ERROR, else NULL. */
void cl_choice_end(cl_choice *c, cl_engine_finish finish, const cl_error *error);

#endif
