/*
 * A random world for exactness tests: some sequences with common prefixes. The q, k and v of a position are functions of the
 * tokens up to it, so sequences with a common prefix have the same K and V there, as in a model. Everything follows from a
 * seed.
 */
#ifndef TESTS_CHUNKATTN_EXACT_WORLD_H
#define TESTS_CHUNKATTN_EXACT_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "chunkattn.h"
#include "tests/support/rng.h"

enum { WORLD_MAX_SEQS = 8, WORLD_MAX_LAYERS = 3, WORLD_MAX_HEADS = 128 };

typedef struct world_seq {
    int64_t n_tokens;
    int64_t n_prompt; /* tokens with which it joins; the rest is appended one by one */
    int32_t *tokens;
    uint64_t *path;   /* hash of the tokens up to each position */
    float *rows;      /* [n_tokens][n_layers] rows of q, k and v, one behind the other */
    float *out, *lse; /* the expected result: [n_layers][n_tokens][n_heads][head_dim_v], [n_layers][n_tokens][n_heads] */
} world_seq;

typedef struct world {
    uint64_t seed;
    cattn_config config; /* shape, type and options, whose arrays are the next ones */
    int32_t windows[WORLD_MAX_LAYERS];
    float sink_logits[WORLD_MAX_LAYERS * WORLD_MAX_HEADS], alibi_slopes[WORLD_MAX_HEADS];
    float score_scale; /* 1; more gives scores that span hundreds and thousands of powers of two */
    int value_kind;    /* 0 ordinary, 1 tiny and zero, 2 with infinities at some tokens */
    int n_seqs;
    world_seq seqs[WORLD_MAX_SEQS];
} world;

/* longest: bound on a sequence's length. */
void world_make(world *w, uint64_t seed, int64_t longest);

/* The same with a shape that `reshape` has changed as it likes: heads, head sizes, chunk size and type. */
void world_make_shaped(world *w, uint64_t seed, int64_t longest, void (*reshape)(cattn_config *config, rng *r));
void world_free(world *w);

/* One row's input: q [n_heads][head_dim], behind it k [n_kv_heads][head_dim] and v [n_kv_heads][head_dim_v]. */
const float *world_row(const world *w, const world_seq *s, int64_t position, int layer);

/* Dimensions of V and the output. */
int32_t world_dim_v(const world *w);

/* Whether two results [n] have the same bits, except that a NaN may be another: a row's own context may contain infinities. */
bool world_same(const float *a, const float *b, int n);

/* The options --worlds, --long and --seed; their defaults are what the struct holds. Ends the program for others. */
typedef struct world_options {
    int64_t n_worlds, n_long;
    uint64_t seed;
} world_options;
void world_parse_options(int argc, char **argv, world_options *o);

#endif
