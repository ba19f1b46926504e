/*
 * Draws tokens from logits. A draw is a function of (seed, choice, position), the parameters, the logits and the tokens of the
 * sequence, and never of the batch.
 *
 * The order is vLLM's: penalties, temperature, min-p, top-k, top-p. (Temperature comes first, so that min-p and top-p cut the
 * distribution that is drawn from.) Equal logits rank by id, the lower first; NaN counts as minus infinity.
 */
#ifndef LLAMA_SAMPLER_H
#define LLAMA_SAMPLER_H

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

/*
 * Draw the token at `position` of choice `choice`. history: [n_history] the n_prompt tokens of the prompt, then those of the
 * completion so far. logits: [n_vocab], not changed.
 */
int32_t cl_sampler_draw(cl_sampler *s, const cl_sampler_params *params, const float *logits, const int32_t *history,
                        int64_t n_prompt, int64_t n_history, int32_t choice, int64_t position);

/*
 * Logprobs from logits [n_vocab]: of token `id` to *chosen, and of the n_top likeliest tokens to top [n_top], likeliest first,
 * equal ones by id. Entries past the size of the vocabulary have id -1. Accurate to about 1e-6.
 */
void cl_sampler_logprobs(cl_sampler *s, const float *logits, int32_t id, cl_sampler_logprob *chosen, int32_t n_top,
                         cl_sampler_logprob *top);

#endif
