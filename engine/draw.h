/*
 * From the logits of a step to tokens and logprobs: all that a step asks for is listed, then worked off on the pool's
 * threads.
 */
#ifndef ENGINE_DRAW_H
#define ENGINE_DRAW_H

#include "base/threads.h"
#include "llama/sampler.h"
#include "request.h"

typedef struct cl_draw {
    cl_choice *choice;
    const float *logits; /* of the token before; NULL at position 0 */
    int64_t position;    /* of the token */
    bool prompt;         /* the token is given */
    int32_t n_ahead;     /* so many tokens of the choice's draft are taken as drawn before it */
    bool drafted;        /* the draft had the token too, and the choice's next draw follows in the list */
    int32_t token;
    cl_sampler_logprob chosen; /* where logprobs are wanted; id is -1 elsewhere */
    cl_sampler_logprob top[CL_ENGINE_MAX_TOP];
    int32_t n_top;
} cl_draw;

typedef struct cl_draw_list {
    ca_pool *pool;
    const cl_tokenizer *tok;
    cl_sampler **samplers; /* [threads of the pool] */
    cl_draw *draws;        /* [n] */
    int32_t *runs;         /* [n_runs] first draws of runs: those behind one draft */
    int32_t n, n_runs;
} cl_draw_list;

/* For at most max_draws. pool and tok are borrowed. False without memory; cl_draw_list_free tidies up. */
bool cl_draw_list_init(cl_draw_list *list, ca_pool *pool, const cl_tokenizer *tok, int32_t n_vocab, int32_t max_draws);
void cl_draw_list_free(cl_draw_list *list);
void cl_draw_list_clear(cl_draw_list *list);

/*
 * The next token of a choice, or the one behind n_ahead drafted ones, in ascending order of n_ahead from 0; or a token of its
 * prompt, with logprobs.
 */
void cl_draw_list_add(cl_draw_list *list, cl_choice *c, int32_t n_ahead, const float *logits);
void cl_draw_list_add_prompt(cl_draw_list *list, cl_choice *c, int64_t position, const float *logits);

/*
 * Fill in what was listed. A draw behind drafted tokens stays only if those before it drew these tokens, and none ends the
 * choice: others are taken off the list.
 */
void cl_draw_list_run(cl_draw_list *list);

#endif
