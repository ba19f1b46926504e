/* The attention of a row in double precision. */
#include "reference.h"

#include <math.h>
#include <stdlib.h>

#include "../cuda/e4m3.h"
#include "chunkattn/attn/head_sizes.h"
#include "chunkattn/base/half.h"

static const double LOG2_E = 1.4426950408889634;

static double rounded(const world *w, float x) {
    if (w->config.kv_type == CATTN_F32) return (double)x;
    if (w->config.kv_type == CATTN_BF16) return (double)ca_f32_from_bf16(ca_bf16_from_f32(x));
    return (double)ca_f32_from_f16(ca_f16_from_f32(x));
}

/* What the cache makes of a token's k or v of one head, x [d]: to [d]. */
static void stored(const world *w, const float *x, int d, double *to) {
    if (w->config.kv_type != CATTN_E4M3) {
        for (int i = 0; i < d; i++) to[i] = rounded(w, x[i]);
        return;
    }
    const float scale = e4m3_scale(x, d);
    for (int i = 0; i < d; i++)
        to[i] = scale > 0 ? (double)scale * e4m3_value(nearest_e4m3((double)(x[i] * (1 / scale)))) : (double)scale;
}

typedef struct head_result {
    double o[CA_MAX_HEAD_SIZE], lse;
    bool is_finite;        /* V of all tokens, those too that a window hides */
    double most_v, most_s; /* the largest |V|, and the largest sum of the magnitudes that a score consists of */
} head_result;

static int first_head(const world *w, int layer) {
    int n = 0;
    for (int i = 0; i < layer; i++) n += world_heads(w, i).n_heads;
    return n;
}

/* A device rounds q to the type of K and V; levels of the CPU that do so may differ by that (reference_error). */
static void attend(const world *w, const world_seq *s, int64_t position, int layer, int head, bool rounds_q, head_result *r) {
    const cattn_config *c = &w->config;
    const ca_heads h = world_heads(w, layer);
    const int d = h.d_k, d_v = h.d_v, kv = head / (h.n_heads / h.n_kv_heads), window = c->windows ? c->windows[layer] : 0;
    const float *q = world_row(w, s, position, layer).q + head * d;
    const double scale = LOG2_E * (c->scale > 0 ? (double)c->scale : 1 / sqrt((double)d)), cap = (double)c->softcap * LOG2_E;
    const double slope = c->alibi_slopes ? (double)c->alibi_slopes[head] * LOG2_E : 0;
    const double sink = c->sink_logits ? (double)w->sink_logits[first_head(w, layer) + head] * LOG2_E : -INFINITY;
    double *score = malloc((size_t)(position + 1) * sizeof *score), most = sink, sum = 0, kv_row[CA_MAX_HEAD_SIZE];
    *r = (head_result){.is_finite = true};
    for (int64_t x = 0; x <= position; x++) {
        double dot = 0, size = 0;
        stored(w, world_row(w, s, x, layer).k + kv * d, d, kv_row);
        for (int i = 0; i < d; i++) {
            const double part = (rounds_q ? rounded(w, q[i]) : (double)q[i]) * kv_row[i] * scale;
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
        const bool is_hidden = window && x <= position - window && x >= c->n_sink_tokens;
        stored(w, world_row(w, s, x, layer).v + kv * d_v, d_v, kv_row);
        for (int i = 0; i < d_v; i++) {
            const double value = kv_row[i];
            r->is_finite &= isfinite(value) != 0;
            if (is_hidden) continue;
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
 * A weight is rounded by at most e = 2^-8 of itself (f16: 2^-11, f32: 2^-22), and l sums the rounded weights, so an output
 * moves by at most e times the largest |v - out|, which is at most 2 max |V|, and lse by at most e / ln 2. A score is wrong by
 * the rounding of d products and sums in f32, at most 2^-20 of the sum of their magnitudes, which moves a weight by that much,
 * relatively. A sink logit in base 2 and lse itself are rounded to f32, each by at most 2^-24 of itself; where the sink is
 * huge, lse is its size.
 *
 * e4m3: weight times scale is rounded, by at most e of itself, and l sums the weights as they are: an output moves by at most
 * e max |V|, lse not at all. Products below 2^-14 in f16 lose at most 2^-30 of max |V| a slot.
 *
 * CPU: levels that multiply bf16 round q to it, by 2^-8 of itself, and so each term of a score. Where a score may then be wrong
 * by much, a weight is by its power of two. What is 2^-94 of the largest weight may be lost.
 */
double reference_error(const world *w, const world_seq *s, int64_t position, int layer, bool on_device, const float *out,
                       const float *lse) {
    const cattn_type type = w->config.kv_type;
    const bool e4m3 = type == CATTN_E4M3;
    const ca_heads h = world_heads(w, layer);
    const int d_v = h.d_v;
    const double rounding = type == CATTN_BF16 ? 0x1p-8 : type == CATTN_F32 ? 0x1p-22 : 0x1p-11;
    const double e = e4m3 ? rounding / 2 : rounding, lse_e = e4m3 ? 0 : rounding / log(2.0);
    const double small = 1e-6 + (e4m3 ? (double)(position + 1) * 0x1p-30 : 0);
    const double lost = on_device ? 1e-30 : (double)(position + 1) * 0x1p-94;
    double worst = 0;
    if (type == CATTN_I8) return 0;
    for (int head = 0; head < h.n_heads; head++) {
        head_result r;
        attend(w, s, position, layer, head, on_device, &r);
        if (!on_device && !r.is_finite) continue;
        const double scores = r.most_s * (0x1p-20 + (!on_device && type == CATTN_BF16 ? 0x1p-8 : 0));
        const double weights = on_device ? scores : exp2(scores) - 1;
        for (int i = 0; i < d_v; i++)
            worst =
                fmax(worst, judge((double)out[head * d_v + i], r.o[i], 2 * r.most_v * (e + weights) + small * r.most_v + lost));
        worst = fmax(worst, judge((double)lse[head], r.lse, lse_e + scores + 0x1p-23 * fabs(r.lse) + 1e-5));
    }
    return worst;
}
