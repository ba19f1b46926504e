/*
 * A model whose logits depend on every K and V of a sequence through exact integers, so that a reference can follow it without
 * a cache. It takes the place of llama's forward pass and tokenizer at link time.
 *
 * A token at a position has SIM_KEYS small integers h[j] in its K, and SIM_VALUES small integers v[d] in its V. A row at
 * position p has the unit vector of key p mod SIM_KEYS as its q, and the scale of scores is ln 2. So attention sums
 * 2^h[j] v[d] over the tokens, divided by the sum of 2^h[j], which is 2^lse. All terms are integers below 2^24; rounding
 * recovers both sums, and the logits are a hash of them. The K or V of a wrong token or position, or a token too many, changes
 * the hash. A model with a window has a second layer whose rows see the last tokens only; then the logits are a hash of the
 * sums of both layers.
 *
 * One element of each K and V that no sum uses is 127, so that int8, whose scale is 1 then, holds the integers as well.
 */
#ifndef TESTS_CHUNKATTN_SIM_STUB_MODEL_H
#define TESTS_CHUNKATTN_SIM_STUB_MODEL_H

#include <stdint.h>

#include "chunkllama/model/model.h"

enum {
    SIM_VOCAB = 24,
    SIM_END = 0,       /* the token that ends a completion */
    SIM_CONTEXT = 512, /* tokens; more would exceed the integers */
    SIM_KEYS = 4,
    SIM_VALUES = 8,
};

enum { SIM_LAYERS = 2 }; /* at most */

/* The sums over the tokens of a sequence, in each layer over those that its rows see. Zero-initialise. */
typedef struct sim_sums {
    int64_t n_tokens;
    int64_t weights[SIM_LAYERS][SIM_KEYS];
    int64_t values[SIM_LAYERS][SIM_KEYS][SIM_VALUES];
} sim_sums;

/* Add the sequence's next token, tokens[sums->n_tokens]. */
void sim_sums_add(sim_sums *sums, const int32_t *tokens);

/* The token that the logits of most rows after this one prefer. */
int32_t sim_next(int32_t token);

/* The logits [SIM_VOCAB] of the row of the last token that was added. */
void sim_logits(const sim_sums *sums, int32_t token, float *logits);

/* Let the second layer's rows see this many tokens; 0: there is no second layer. Not while an engine exists. */
void sim_set_window(int32_t window);

/* The model, and a draft model that agrees with it most of the time; static. */
const cl_model *sim_model(void);
const cl_model *sim_draft_model(void);

/* The caches of forward passes that exist: [SIM_CACHES], NULL where there is none. */
enum { SIM_CACHES = 2 };
cattn_cache *const *sim_caches(void);

/* Rows that were computed since the program began. */
int64_t sim_n_rows(void);

#endif
