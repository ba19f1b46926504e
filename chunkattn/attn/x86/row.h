/*
 * The arithmetic of one row on the x86 levels: its state, the softmax weights of a chunk, the merge.
 *
 * A state is O [d_v], then l [16], then M in a cache line of its own, all f32. M is a whole number. It starts at -FLT_MAX and
 * is raised at most once for each chunk, to 16 above a multiple of 32. So rescaling is rare, and the largest weight since the
 * last one is between 2^-32 and 1. Weights that are 2^-94 times smaller than the largest become zero.
 *
 * Before it is included, a level must have included vec256.h or vec512.h, and defined
 *     void store_weights(float *scores, int group, vec p)
 * which stores the weights of one vector of slots in the place of their scores, in the form that its second product reads.
 */
#ifndef CHUNKATTN_ATTN_X86_ROW_H
#define CHUNKATTN_ATTN_X86_ROW_H

#if !defined(CHUNKATTN_ATTN_X86_VEC256_H) && !defined(CHUNKATTN_ATTN_X86_VEC512_H)
#error "include vec256.h or vec512.h before row.h"
#endif

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { L_LANES = 16, L_VECS = L_LANES / V_LANES };

static inline size_t state_floats(int32_t d_v) { return (size_t)d_v + L_LANES + 16; }
static inline size_t state_bytes(int32_t d_v) { return state_floats(d_v) * sizeof(float); }

static inline void init(void *states, int32_t n_rows, int32_t d_v) {
    float *o = states;
    for (int32_t r = 0; r < n_rows; r++, o += state_floats(d_v)) {
        for (size_t i = 0; i < state_floats(d_v); i++) o[i] = 0;
        o[d_v + L_LANES] = -FLT_MAX;
    }
}

/* 2^f for f in [0, 1], minimax for the relative error, 7.5e-8. A lower degree for bf16 gains nothing that can be measured. */
static inline vec exp2_fraction(vec f) {
    vec p = v_fma(v_set1(0.00187757751f), f, v_set1(0.00898933783f));
    p = v_fma(p, f, v_set1(0.0558263212f));
    p = v_fma(p, f, v_set1(0.240153611f));
    p = v_fma(p, f, v_set1(0.693153083f));
    return v_fma(p, f, v_set1(0.99999994f));
}

/*
 * 2^(s - M): the exponent is whole, so that M moves no bit of the weight's fraction. The fraction's power is below 2, so what
 * is below 2^-126 is 0, whichever instructions v_scale2 consists of.
 */
static inline vec weight(vec s, vec m) {
    const vec n = v_floor(s);
    return v_scale2(exp2_fraction(v_sub(s, n)), v_sub(n, m));
}

/* 2^n, n whole and at most 127; 0 below -126. */
static inline float power_of_2(float n) {
    const uint32_t bits = (uint32_t)(int32_t)(fmaxf(n, -127) + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* Raise M to at least floor of the largest lane of top, and rescale. Not inlined, since it is rare. */
static __attribute__((noinline)) void raise_m(float *o, int32_t d_v, vec top) {
    const float s = v_top(top);
    float *l = o + d_v, *m = l + L_LANES;
    const float n = floorf(s), step = floorf((n + 16) / 32) * 32 + 16;
    const float raised = step > n ? step : n; /* beyond 2^24 steps of 32 are not floats any more */
    const vec down = v_set1(power_of_2(*m - raised));
    const int32_t filled = *m > -FLT_MAX ? d_v + L_LANES : 0; /* a new state is all zeros */
    for (int32_t i = 0; i < filled; i += V_LANES) v_store(o + i, v_mul(v_load(o + i), down));
    *m = raised;
}

/*
 * Turn the scores of a row's first n > 0 slots into weights, and update M and l of its state o. Scores from n on may be
 * anything. v_scales [n]: factors of the weights that l leaves out, the scales of int8 V; NULL: none.
 */
static inline void softmax_row(float *scores, int n, const float *v_scales, float *o, int32_t d_v) {
    const vec lowest = v_set1(-FLT_MAX);
    const int whole = n / V_LANES, rest = n % V_LANES;
    const vmask seen = v_below(rest);
    float *l = o + d_v;
    const float *m = l + L_LANES;

    vec top = lowest; /* v_max gives its second argument if one is NaN, so the largest does not depend on where NaN is */
    for (int g = 0; g < whole; g++) top = v_max(v_load(scores + g * V_LANES), top);
    if (rest) top = v_max(v_select(seen, v_load(scores + whole * V_LANES), lowest), top);
    if (__builtin_expect(v_any_ge(top, v_set1(*m)), 0)) raise_m(o, d_v, top);

    const vec at = v_set1(*m);
    vec sum[L_VECS];
    int g = 0;
    for (int i = 0; i < L_VECS; i++) sum[i] = v_load(l + i * V_LANES);
#pragma GCC unroll 4
    for (; g + L_VECS <= whole; g += L_VECS)
#pragma GCC unroll 2
        for (int i = 0; i < L_VECS; i++) {
            const vec p = weight(v_load(scores + (g + i) * V_LANES), at);
            sum[i] = v_add(sum[i], p);
            store_weights(scores, g + i, v_scales ? v_mul(p, v_load(v_scales + (g + i) * V_LANES)) : p);
        }
#pragma GCC unroll 2
    for (int i = 0; i < L_VECS; i++, g++) {
        const int left = n - g * V_LANES;
        if (left <= 0) break;
        const vmask seen = v_below(left < V_LANES ? left : V_LANES);
        const vec p = v_select(seen, weight(v_load(scores + g * V_LANES), at), v_set1(0));
        sum[i] = v_add(sum[i], p);
        store_weights(scores, g, v_scales ? v_select(seen, v_mul(p, v_load(v_scales + g * V_LANES)), v_set1(0)) : p);
    }
    for (int i = 0; i < L_VECS; i++) v_store(l + i * V_LANES, sum[i]);
}

/* Sums of l are added as eight lanes at all levels, so that they have the same bits. */
static inline void merge(const void *const *states, int32_t n_states, int32_t d_v, float sink, float *out, float *lse) {
    const float *const *o = (const float *const *)states;
    float m = ceilf(fmaxf(sink, -FLT_MAX)), sum = 0;
    for (int32_t k = 0; k < n_states; k++) m = o[k][d_v + L_LANES] > m ? o[k][d_v + L_LANES] : m;

    __m256 l = _mm256_setzero_ps();
    for (int32_t k = 0; k < n_states; k++) {
        const float *lanes = o[k] + d_v;
        const __m256 part = _mm256_add_ps(_mm256_loadu_ps(lanes), _mm256_loadu_ps(lanes + 8));
        l = _mm256_add_ps(l, _mm256_mul_ps(part, _mm256_set1_ps(power_of_2(lanes[L_LANES] - m))));
    }
    float lanes[8];
    _mm256_storeu_ps(lanes, l);
    for (int i = 0; i < 8; i++) sum += lanes[i];
    if (sink > -INFINITY) sum += exp2f(sink - m);

    for (int32_t k = 0; k < n_states; k++) {
        const vec power = v_set1(power_of_2(o[k][d_v + L_LANES] - m));
        for (int32_t i = 0; i < d_v; i += V_LANES)
            v_store(out + i, v_add(k == 0 ? v_set1(0) : v_load(out + i), v_mul(v_load(o[k] + i), power)));
    }
    const vec divisor = v_set1(sum == 0 ? 1 : sum); /* zeros for a row that has seen nothing */
    for (int32_t i = 0; i < d_v; i += V_LANES) v_store(out + i, v_add(v_div(v_load(out + i), divisor), v_set1(0)));
    if (lse) *lse = sum == 0 ? -INFINITY : m + log2f(sum);
}

#endif
