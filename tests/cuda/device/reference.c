/* The attention of a row in double precision. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>

#include "base/half.h"

static const double LOG2_E = 1.4426950408889634;

static double rounded(const world *w, float x) {
    if (w->config.kv_type == CATTN_BF16) return (double)ca_f32_from_bf16(ca_bf16_from_f32(x));
    return (double)ca_f32_from_f16(ca_f16_from_f32(x));
}

typedef struct head_result {
    double o[256], lse;
    double most_v, most_s; /* the largest |V|, and the largest sum of the magnitudes that a score consists of */
} head_result;

static void attend(const world *w, const world_seq *s, int64_t position, int layer, int head, head_result *r) {
    const cattn_config *c = &w->config;
    const int d = c->head_dim, kv = head / (c->n_heads / c->n_kv_heads), window = c->windows ? c->windows[layer] : 0;
    const float *q = world_row(w, s, position, layer) + head * d;
    const double scale = LOG2_E / sqrt((double)d), cap = (double)c->softcap * LOG2_E;
    const double slope = c->alibi_slopes ? (double)c->alibi_slopes[head] * LOG2_E : 0;
    const double sink = c->sink_logits ? (double)c->sink_logits[layer * c->n_heads + head] * LOG2_E : -INFINITY;
    double *score = malloc((size_t)(position + 1) * sizeof *score), most = sink, sum = 0;
    *r = (head_result){.lse = 0};
    for (int64_t x = 0; x <= position; x++) {
        const float *k = world_row(w, s, x, layer) + c->n_heads * d + kv * d;
        double dot = 0, size = 0;
        for (int i = 0; i < d; i++) {
            const double part = rounded(w, q[i]) * rounded(w, k[i]) * scale;
            dot += part;
            size += fabs(part);
        }
        if (cap > 0) dot = cap * tanh(dot / cap);
        dot += slope * (double)(x - position);
        score[x] = window && x <= position - window && x >= c->n_sink_tokens ? -INFINITY : dot;
        if (score[x] == -INFINITY) continue;
        r->most_s = fmax(r->most_s, fmax(size, fabs(dot) + cap));
        most = fmax(most, dot);
    }
    for (int64_t x = 0; x <= position; x++) sum += score[x] = exp2(score[x] - most);
    sum += exp2(sink - most);
    for (int64_t x = 0; x <= position; x++) {
        if (window && x <= position - window && x >= c->n_sink_tokens) continue;
        const float *v = world_row(w, s, x, layer) + (c->n_heads + c->n_kv_heads + kv) * d;
        for (int i = 0; i < d; i++) {
            const double value = rounded(w, v[i]);
            r->o[i] += score[x] / sum * value;
            if (isfinite(value)) r->most_v = fmax(r->most_v, fabs(value));
        }
    }
    r->lse = most + log2(sum);
    free(score);
}

static double judge(double got, double want, double allowed) {
    if (!isfinite(want)) return isfinite(got) ? INFINITY : 0;
    const double error = fabs(got - want) / allowed;
    return isfinite(error) ? error : INFINITY;
}

/*
 * A weight is rounded by at most e = 2^-8 of itself (f16: 2^-11), and l sums the rounded weights, so an output moves by at most
 * e times the largest |v - out|, which is at most 2 max |V|, and lse by at most e / ln 2. A score is wrong by the rounding of d
 * products and sums in f32, at most 2^-20 of the sum of their magnitudes, which moves a weight by that much, relatively.
 */
double reference_error(const world *w, const world_seq *s, int64_t position, int layer, const float *out, const float *lse) {
    const double e = w->config.kv_type == CATTN_BF16 ? 1.0 / 256 : 1.0 / 2048;
    double worst = 0;
    for (int head = 0; head < w->config.n_heads; head++) {
        head_result r;
        attend(w, s, position, layer, head, &r);
        const double scores = r.most_s * 0x1p-20;
        for (int i = 0; i < w->config.head_dim; i++)
            worst = fmax(worst, judge((double)out[head * w->config.head_dim + i], r.o[i],
                                      2 * r.most_v * (e + scores) + 1e-6 * r.most_v + 1e-30));
        worst = fmax(worst, judge((double)lse[head], r.lse, e / log(2.0) + scores + 1e-5));
    }
    return worst;
}
