/*
 * Draws tokens from logits. A draw is a function of (seed, choice, position), the parameters, the logits and the tokens of the
 * sequence, and never of the batch.
 *
 * The order is vLLM's: rules, penalties, temperature, min-p, top-k, top-p. (Temperature comes first, so that min-p and top-p
 * cut the distribution that is drawn from.) cl_sampler_cuts may change it behind the penalties. Equal logits rank by id, the
 * lower first; NaN counts as minus infinity.
 */
#ifndef CHUNKLLAMA_MODEL_SAMPLER_H
#define CHUNKLLAMA_MODEL_SAMPLER_H

#include <stdint.h>

#include "chunkllama.h"

/* Scratch for draws from n_vocab logits; one thread at a time. */
typedef struct cl_sampler cl_sampler;

/* NULL if memory is lacking. */
cl_sampler *cl_sampler_create(int32_t n_vocab);
void cl_sampler_free(cl_sampler **s);

/* An array of n samplers, one for each worker of a pool. NULL if memory is lacking. */
cl_sampler **cl_samplers_create(int32_t n, int32_t n_vocab);
/* Free n samplers and the array, and set *samplers to NULL. NULL in *samplers is ignored. */
void cl_samplers_free(cl_sampler ***samplers, int32_t n);

/* Which tokens may be drawn: the fields of cl_engine_request. All zero: all tokens. Everything is borrowed. */
typedef struct cl_sampler_rules {
    const cl_logit_bias *bias;     /* [n_bias] */
    const int32_t *allowed;        /* [n_allowed], at most n_vocab; 0: all tokens are allowed */
    const int32_t *bad_words;      /* the tokens of all words, one after the other */
    const int32_t *bad_word_sizes; /* [n_bad_words], >= 1 */
    const int32_t *ends;           /* [n_ends] tokens that are not drawn before min_tokens */
    int64_t min_tokens;
    int32_t n_bias, n_allowed, n_bad_words, n_ends;
} cl_sampler_rules;

/* A copy of logits [n_vocab], which the caller may change and draw from, valid until the sampler's next copy. */
float *cl_sampler_copy(cl_sampler *s, const float *logits);

/*
 * The logits [n_vocab] to draw from under rules, after a history of n_history tokens, of which the first n_prompt are the
 * prompt: those that were passed, if no rule applies here, or a copy in the sampler's scratch, valid until another draw's
 * logits are made. The logits that were passed may be such a copy, which is changed then. Where bad words and min_tokens leave
 * no token, these two do not apply; where no allowed token is possible, the first one is the only one left.
 */
const float *cl_sampler_restrict(cl_sampler *s, const cl_sampler_rules *rules, const float *logits, const int32_t *history,
                                 int64_t n_prompt, int64_t n_history);

/* Whether no token can be drawn: all logits [n_vocab] are NaN or minus infinity. */
bool cl_sampler_is_empty(const cl_sampler *s, const float *logits);

/* The tokens before a draw that penalties count. Borrowed. */
typedef struct cl_sampler_history {
    const int32_t *tokens; /* [n] */
    int64_t n_prompt;      /* of these, the first ones, which only the repetition penalty counts */
    int64_t n;
} cl_sampler_history;

/* That of a sequence [n] whose first n_prompt tokens are its prompt, and of which `window` count (cl_engine_request). */
cl_sampler_history cl_sampler_history_of(const int32_t *tokens, int64_t n_prompt, int64_t n, int32_t window);

/*
 * Draw the token at `position` of choice `choice`. logits: [n_vocab], not changed unless they are cl_sampler_restrict's copy.
 * cuts: NULL: all zero.
 */
int32_t cl_sampler_draw(cl_sampler *s, const cl_sampler_params *params, const cl_sampler_cuts *cuts, const float *logits,
                        cl_sampler_history history, int32_t choice, int64_t position);

/*
 * Draw another token in place of the one that cl_sampler_draw, or this function, has just drawn with the same sampler, since
 * that one may not follow: from the same distribution without the tokens drawn so far, with random numbers of their own for
 * each attempt >= 1. The first token that may follow is then drawn as from the distribution of those that may. -1: no other is
 * left, or nothing was random.
 */
int32_t cl_sampler_draw_other(cl_sampler *s, const cl_sampler_params *params, int32_t choice, int64_t position,
                              int32_t attempt);

/*
 * Draw as cl_sampler_draw, with random numbers of its own, among tokens ids [n_ids >= 1] in ascending order; NULL: among all. A
 * list gives what minus infinity for all other logits would give, in a time that depends on its length; if all of its logits
 * are NaN or minus infinity, it gives its first token.
 */
int32_t cl_sampler_redraw(cl_sampler *s, const cl_sampler_params *params, const cl_sampler_cuts *cuts, const float *logits,
                          const int32_t *ids, int32_t n_ids, cl_sampler_history history, int32_t choice, int64_t position);

/*
 * Logprobs from logits [n_vocab]: of token `id` to *chosen, and of the n_top likeliest tokens to top [n_top], likeliest first,
 * equal ones by id. Entries past the size of the vocabulary have id -1. Accurate to about 1e-6.
 */
void cl_sampler_logprobs(cl_sampler *s, const float *logits, int32_t id, cl_sampler_logprob *chosen, int32_t n_top,
                         cl_sampler_logprob *top);

/* 1 and the number of tokens that are likelier than `id`, by logits [n_vocab] of which its own is not NaN. */
int32_t cl_sampler_rank(const float *logits, int32_t n_vocab, int32_t id);

#endif
