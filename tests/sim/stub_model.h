/*
 * A model whose logits depend on every K and V of a sequence through exact integers, so that a reference can follow it without
 * a cache. It takes the place of llama's forward pass and tokenizer at link time.
 *
 * A token at a position has SIM_KEYS small integers h[j] in its K, and SIM_VALUES small integers v[d] in its V. A row at
 * position p has the unit vector of key p mod SIM_KEYS as its q, and the scale of scores is ln 2. So attention sums
 * 2^h[j] v[d] over the tokens, divided by the sum of 2^h[j], which is 2^lse. All terms are integers below 2^24; rounding
 * recovers both sums, and the logits are a hash of them. The K or V of a wrong token or position, or a token too many, changes
 * the hash.
 */
#ifndef TESTS_SIM_STUB_MODEL_H
#define TESTS_SIM_STUB_MODEL_H

#include <stdint.h>

#include "llama/model.h"

enum {
    SIM_VOCAB = 24,
    SIM_END = 0,       /* the token that ends a completion */
    SIM_CONTEXT = 512, /* tokens; more would exceed the integers */
    SIM_KEYS = 4,
    SIM_VALUES = 8,
};

/* The sums over the tokens of a sequence. Zero-initialise. */
typedef struct sim_sums {
    int64_t n_tokens;
    int64_t weights[SIM_KEYS];
    int64_t values[SIM_KEYS][SIM_VALUES];
} sim_sums;

/* Add the next token to the sums. */
void sim_sums_add(sim_sums *sums, int32_t token);

/* The token that the logits of most rows after this one prefer. */
int32_t sim_next(int32_t token);

/* The logits [SIM_VOCAB] of the row of the last token that was added. */
void sim_logits(const sim_sums *sums, int32_t token, float *logits);

/* The model, and a draft model that agrees with it most of the time; static. */
const cl_model *sim_model(void);
const cl_model *sim_draft_model(void);

/* The caches of forward passes that exist: [SIM_CACHES], NULL where there is none. */
enum { SIM_CACHES = 2 };
cattn_cache *const *sim_caches(void);

/* Rows that were computed since the program began. */
int64_t sim_n_rows(void);

#endif
