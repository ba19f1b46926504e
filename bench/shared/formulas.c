/* What attention and a whole layer compute and move, by formula. */
#include "formulas.h"

enum { ELEMENT_BYTES = 2 };

static const char *const names[N_LAYER_PARTS] = {"QKV projection", "attention", "MLP", "output layer"};

const char *layer_part_name(layer_part part) { return names[part]; }

/* A product of n_in inputs with n_out outputs for n_rows rows: weights once, inputs and outputs of each row. */
static layer_cost product(double n_in, double n_out, double n_rows) {
    return (layer_cost){.flops = 2 * n_in * n_out * n_rows, .bytes = ELEMENT_BYTES * (n_in * n_out + n_rows * (n_in + n_out))};
}

/* q and out of each row, K and V of each token, scores of each row twice; q k and p v are 2 FLOPs for each dimension. */
static layer_cost attention(const layer_shape *s, double n_context, double n_rows) {
    const double before = n_rows * n_context + n_rows * (n_rows - 1) / 2; /* positions before each row, of all rows */
    const double q_row = (double)s->heads * s->head_dim, kv_row = (double)s->kv_heads * s->head_dim;
    return (layer_cost){
        .flops = 4 * (before + n_rows) * q_row,
        .bytes = ELEMENT_BYTES * (2 * n_rows * q_row + 2 * (n_context + n_rows) * kv_row + 2 * s->heads * before),
    };
}

layer_cost layer_cost_of(const layer_shape *s, layer_part part, int64_t batch, int64_t n_context, int64_t n_rows) {
    const double b = (double)batch, rows = b * (double)n_rows;
    const double q_row = (double)s->heads * s->head_dim, kv_row = (double)s->kv_heads * s->head_dim;
    layer_cost cost = {0};
    switch (part) {
    case LAYER_QKV: return product(s->n_embd, q_row + 2 * kv_row, rows);
    case LAYER_ATTENTION:
        cost = attention(s, (double)n_context, (double)n_rows);
        return (layer_cost){.flops = b * cost.flops, .bytes = b * cost.bytes};
    case LAYER_MLP: /* gate and up, each reading the rows, and down */
        cost = product(s->n_embd, s->n_ff, rows);
        return (layer_cost){.flops = 3 * cost.flops, .bytes = 3 * cost.bytes};
    case LAYER_OUTPUT: return product(s->n_embd, s->n_vocab, b);
    case N_LAYER_PARTS: break;
    }
    return cost;
}

double formula_flops(int32_t heads, int32_t head_dim, double n) { return 4.0 * heads * head_dim * n; }
