/*
 * What attention and a whole layer compute and move, by formula, to compare measurements with.
 *
 * The formulas of a layer are the paper's Table 1, written for grouped heads and any number of rows, so that the same terms
 * serve decode and prefill. Everything counts 16-bit elements, each matrix and each activation once; attention writes its
 * scores and reads them again, as it does without fusion. A row at position p has p + 1 tokens to see.
 */
#ifndef BENCH_SHARED_FORMULAS_H
#define BENCH_SHARED_FORMULAS_H

#include <stdint.h>

typedef struct layer_shape {
    int32_t n_embd, n_ff, n_vocab;
    int32_t heads, kv_heads, head_dim;
} layer_shape;

typedef struct layer_cost {
    double flops, bytes;
} layer_cost;

typedef enum layer_part { LAYER_QKV, LAYER_ATTENTION, LAYER_MLP, LAYER_OUTPUT, N_LAYER_PARTS } layer_part;

/* "QKV projection", "attention", "MLP", "output layer" */
const char *layer_part_name(layer_part part);

/*
 * A step of `batch` sequences with n_rows new rows each, behind n_context tokens: decode has one row, prefill no context. The
 * output layer, D to the vocabulary, takes only the last row of each sequence.
 */
layer_cost layer_cost_of(const layer_shape *shape, layer_part part, int64_t batch, int64_t n_context, int64_t n_rows);

/* FLOPs for each byte. */
static inline double layer_cost_intensity(layer_cost cost) { return cost.flops / cost.bytes; }

/* FLOPs of rows that see n tokens in total: q.k and p v, 2 d each, for each head. */
double formula_flops(int32_t heads, int32_t head_dim, double n);

#endif
