/*
 * Draws: tokens and logprobs from the logits of a step. All draws of a step are listed first and computed together, on the
 * threads of the pool. The draw of a beam yields its likeliest next tokens instead (beam.h).
 */
#ifndef CHUNKLLAMA_ENGINE_DRAW_H
#define CHUNKLLAMA_ENGINE_DRAW_H

#include "chunkattn/base/threads.h"
#include "chunkllama/model/sampler.h"
#include "constraint.h"
#include "engine_step.h"

typedef struct cl_draw {
    cl_choice *choice;
    /* [n_vocab] after the token before, borrowed until the list has been computed; NULL at position 0, or if it is forced */
    const float *logits;
    int64_t position;          /* of the token */
    bool prompt;               /* the token is one of the prompt, of which only the logprob is computed */
    int32_t n_ahead;           /* drafted tokens of the choice that come before this one */
    bool drafted;              /* the draft has the same token here, and the choice's next draw follows in the list */
    int32_t token;             /* CL_NO_TOKEN: emptied_by says why */
    const char *emptied_by;    /* the request's field that leaves no token; NULL: the choice's constraint has failed */
    bool completes;            /* the grammar of the choice ends with it */
    cl_sampler_logprob chosen; /* of the token, if logprobs are wanted; otherwise its id is -1 */
    cl_sampler_logprob top[CL_ENGINE_MAX_TOP]; /* [n_top] as in cl_event_token */
    int32_t n_top;
    int32_t rank; /* of a token of the prompt; otherwise 0 */
} cl_draw;

/*
 * A run is the draws after one draft, in order: each of them counts only if the one before it has drawn the drafted token. Runs
 * are computed in parallel.
 */
typedef struct cl_draw_list {
    ca_pool *pool;           /* borrowed */
    const cl_tokenizer *tok; /* borrowed */
    cl_sampler **samplers;   /* [workers of the pool] owned */
    cl_constraint_scratch constraints;
    cl_draw *draws; /* [n] owned */
    int32_t *runs;  /* [n_runs] index of the first draw of each run; owned */
    int32_t n, n_runs;
    double until;          /* answers of grammars are awaited, by clock_seconds() */
    cl_matcher **foreseen; /* [n_runs] scratch for questions that are asked together, owned; and their tokens */
    int32_t *candidates;
} cl_draw_list;

/* For at most max_draws draws a step. Borrows pool and tok. False if memory is lacking; cl_draw_list_free is due then too. */
bool cl_draw_list_init(cl_draw_list *list, ca_pool *pool, const cl_tokenizer *tok, int32_t n_vocab, int32_t max_draws);
void cl_draw_list_free(cl_draw_list *list);
void cl_draw_list_clear(cl_draw_list *list);

/*
 * List the draws from the logits of a step that has run: the next token of each choice whose tokens have all been computed, the
 * tokens after its drafted ones, and the logprobs of prompts. A choice decodes from its first draw on.
 */
void cl_draw_list_fill(cl_draw_list *list, const cl_step *st);

/* List the draws of those of n choices that sit out (constraint.h), and need not any longer. */
void cl_draw_list_resume(cl_draw_list *list, cl_choice *const *choices, int32_t n);

/*
 * Compute all draws, but for those whose grammars do not answer by a time, by clock_seconds(): they are removed, and their
 * choices sit out. A draw after drafted tokens stays in the list only if the draws before it drew these tokens and none of
 * them ends the choice; the others are removed.
 */
void cl_draw_list_run(cl_draw_list *list, double until);

#endif
