/*
 * From the logits of a step to tokens and logprobs: all that a step asks for is listed, then worked off on the pool's
 * threads.
 */
#ifndef ENGINE_DRAW_H
#define ENGINE_DRAW_H

#include "base/threads.h"
#include "request.h"

typedef struct draw {
    choice *choice;
    const float *logits; /* of the token before; NULL at position 0 */
    int64_t position;    /* of the token */
    bool prompt;         /* the token is given */
    int32_t token;
    sampler_logprob chosen; /* where logprobs are wanted; id is -1 elsewhere */
    sampler_logprob top[ENGINE_MAX_TOP];
    int32_t n_top;
} draw;

typedef struct draw_list {
    ca_pool *pool;
    sampler **samplers; /* [threads of the pool] */
    draw *draws;        /* [n] */
    int32_t n;
} draw_list;

/* For at most max_draws. The pool is borrowed. False without memory; draw_list_free tidies up. */
bool draw_list_init(draw_list *list, ca_pool *pool, int32_t n_vocab, int32_t max_draws);
void draw_list_free(draw_list *list);

/* The next token of a choice; or a token of its prompt, with logprobs. */
void draw_list_add(draw_list *list, choice *c, const float *logits);
void draw_list_add_prompt(draw_list *list, choice *c, int64_t position, const float *logits);

/* Fill in what was listed. */
void draw_list_run(draw_list *list);

#endif
