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

typedef struct request request;
typedef struct draw draw; /* draw.h */

enum { DRAFT_MAX = 8 }; /* tokens drafted for a choice in a step */

/* A choice's sequence in the draft model's cache. */
typedef struct draft_seq {
    cattn_seq seq;     /* 0: none */
    bool declined;     /* its prompt would have cost more than the drafts save */
    int64_t n_tokens;  /* in it */
    int32_t n_drafted; /* of these, the last, which may turn out otherwise: */
    int32_t drafted[DRAFT_MAX];
} draft_seq;

typedef struct choice {
    request *owner;
    int32_t index;
    engine_finish finish;
    cattn_seq seq;   /* 0 when not in the cache */
    int32_t *tokens; /* [n_prompt + max_tokens], while running: prompt and completion */
    int64_t n_tokens;
    bool decoding;     /* only the last of its tokens lacks K/V */
    int32_t n_drafted; /* behind its tokens, in `tokens` and in its sequence too: a draft; 0 between steps */
    uint8_t draft_ranks[DRAFT_MAX];
    chance chance; /* of its drafts */
    draft_seq model_seq;
    text text;
} choice;

struct request {
    uint64_t id;
    engine_request asked; /* pointers lead into memory of the request's own */
    request *next;        /* in the one queue that holds it */
    size_t live_index;    /* in the engine's list for cancelling */
    atomic_bool cancelled;
    choice *choices; /* [asked.n] */
    int32_t n_unfinished;
    bool prompt_done;
    int64_t n_cached, n_completion;
};

/* First in, first out. */
typedef struct request_queue {
    request *first, *last;
    int64_t n;
} request_queue;

void request_queue_add(request_queue *q, request *r);
/* Take out the one behind `before`, or the first where that is NULL. */
request *request_queue_take(request_queue *q, request *before);

/* Copy a request whose fields have been checked. NULL without memory. */
request *request_create(const engine_request *asked);
void request_free(request *r);

/* Make room for the choices' tokens, so that running allocates only for text; once. False without memory. */
bool request_start(request *r);

/* Take a choice's next token: tells it, and ends the choice where it is the last. */
void choice_add(choice *c, const tokenizer *tok, const draw *d);

/*
 * Whether a choice would end with the last of its next n tokens, which stand behind the others in `tokens`, for another reason
 * than its length. Those before are known not to end it.
 */
bool choice_would_end(choice *c, const tokenizer *tok, int32_t n);

/* Tell a token of the prompt. */
void choice_tell_prompt(choice *c, const draw *d);

/* End a choice that has not ended: tells why, and the text held back. error: with ENGINE_ERROR, else NULL. */
void choice_end(choice *c, engine_finish finish, const cl_error *error);

#endif
