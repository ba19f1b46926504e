/*
 * Row operations between the linear layers: RMSNorm, residual, gated activations, rotary embedding, soft-cap.
 *
 * Plain C in a fixed order, fused only where it says so, so that each kernel level may compile it for its own vectors and get
 * the same bits. `static inline`, or the linker might choose the widest copy for every level.
 */
#ifndef LLAMA_OPS_H
#define LLAMA_OPS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* out = x / sqrt(mean(x^2) + eps) * weight; lane i sums the elements i mod 16. out may be x. */
static inline void cl_ops_rms_norm(const float *x, const float *weight, int32_t n, float eps, float *out) {
    float lane[16] = {0};
    int32_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int32_t j = 0; j < 16; j++) lane[j] += x[i + j] * x[i + j];
    for (int32_t j = 0; i + j < n; j++) lane[j] += x[i + j] * x[i + j];
    for (int32_t half = 8; half; half /= 2)
        for (int32_t j = 0; j < half; j++) lane[j] += lane[j + half];
    const float scale = 1.0f / sqrtf(lane[0] / (float)n + eps);
    for (i = 0; i < n; i++) out[i] = x[i] * scale * weight[i];
}

static inline void cl_ops_add(float *x, const float *y, int32_t n) {
    for (int32_t i = 0; i < n; i++) x[i] += y[i];
}

/*
 * condition ? a : b, by masks. From a conditional, gcc 12 makes branches, after which it divides once for each outcome with
 * AVX-512, and element by element with AVX2.
 */
static inline float cl_ops_select(bool condition, float a, float b) {
    uint32_t bits_a, bits_b;
    memcpy(&bits_a, &a, sizeof a);
    memcpy(&bits_b, &b, sizeof b);
    const uint32_t mask = 0u - (uint32_t)condition, bits = (bits_a & mask) | (bits_b & ~mask);
    memcpy(&a, &bits, sizeof a);
    return a;
}

/*
 * e^x with a relative error below 3e-7 for -87 <= x <= 88; outside, the value at the nearer end. x = n ln 2 + r with
 * |r| <= ln 2 / 2, for which Taylor's series up to r^7 / 7! is off by 5e-9. ln 2 has two parts; n times the first is exact.
 */
static inline float cl_ops_exp(float x) {
    x = cl_ops_select(x < -87.0f, -87.0f, x);
    x = cl_ops_select(x > 88.0f, 88.0f, x);
    const float n = fmaf(x, 1.44269504f, 12582912.0f) - 12582912.0f; /* rounds to an integer */
    const float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, x));
    float p = 1.0f / 5040;
    p = fmaf(p, r, 1.0f / 720);
    p = fmaf(p, r, 1.0f / 120);
    p = fmaf(p, r, 1.0f / 24);
    p = fmaf(p, r, 1.0f / 6);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p, r, 1.0f);
    p = fmaf(p, r, 1.0f);
    const uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

/* out = gate / (1 + e^-gate) * up; out may be gate or up. */
static inline void cl_ops_swiglu(const float *gate, const float *up, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) out[i] = gate[i] / (1.0f + cl_ops_exp(-gate[i])) * up[i];
}

/*
 * out = gelu(gate) * up with GELU's tanh form, x (1 + tanh u) / 2 = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3); out
 * may be gate or up.
 */
static inline void cl_ops_geglu(const float *gate, const float *up, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) {
        const float x = gate[i], u = 0.797884561f * (x + 0.044715f * x * x * x);
        out[i] = x / (1.0f + cl_ops_exp(-2.0f * u)) * up[i];
    }
}

/* x = cap tanh(x / cap), where tanh u = 1 - 2 / (1 + e^2u) is off by 2e-7 at most. */
static inline void cl_ops_softcap(float *x, int32_t n, float cap) {
    for (int32_t i = 0; i < n; i++) x[i] = cap * (1.0f - 2.0f / (1.0f + cl_ops_exp(2.0f * (x[i] / cap))));
}

/*
 * Rotate the first n_rot dimensions of each head of x [n_heads][head_dim] in pairs (2i, 2i + 1), for which the Q and K of
 * Llama's GGUF files are permuted. cos_sin: [n_rot / 2] pairs of cosine and sine of the row's position.
 */
static inline void cl_ops_rope(float *x, const float *cos_sin, int32_t n_heads, int32_t head_dim, int32_t n_rot) {
    for (int32_t h = 0; h < n_heads; h++, x += head_dim) {
        for (int32_t i = 0; i < n_rot; i += 2) {
            const float a = x[i], b = x[i + 1], c = cos_sin[i], s = cos_sin[i + 1];
            /* Fused by hand: gcc 12 turns this pattern into vfmaddsub even with contraction off, and levels would differ. */
            x[i] = fmaf(a, c, -(b * s));
            x[i + 1] = fmaf(a, s, b * c);
        }
    }
}

/* The same in pairs (i, n_rot / 2 + i). */
static inline void cl_ops_rope_halves(float *x, const float *cos_sin, int32_t n_heads, int32_t head_dim, int32_t n_rot) {
    const int32_t half = n_rot / 2;
    for (int32_t h = 0; h < n_heads; h++, x += head_dim) {
        for (int32_t i = 0; i < half; i++) {
            const float a = x[i], b = x[half + i], c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
            x[i] = fmaf(a, c, -(b * s));
            x[half + i] = fmaf(a, s, b * c);
        }
    }
}

/* The row operations, compiled for one kernel level. The soft-cap is rare and has one copy for all levels. */
typedef struct cl_row_ops {
    void (*rms_norm)(const float *x, const float *weight, int32_t n, float eps, float *out);
    void (*add)(float *x, const float *y, int32_t n);
    void (*swiglu)(const float *gate, const float *up, int32_t n, float *out);
    void (*geglu)(const float *gate, const float *up, int32_t n, float *out);
    void (*rope)(float *x, const float *cos_sin, int32_t n_heads, int32_t head_dim, int32_t n_rot);
    void (*rope_halves)(float *x, const float *cos_sin, int32_t n_heads, int32_t head_dim, int32_t n_rot);
} cl_row_ops;

/* Initialises a cl_row_ops with the copies of the including file. */
#define CL_ROW_OPS                                                                                                             \
    {                                                                                                                          \
        .rms_norm = cl_ops_rms_norm, .add = cl_ops_add, .swiglu = cl_ops_swiglu, .geglu = cl_ops_geglu, .rope = cl_ops_rope,   \
        .rope_halves = cl_ops_rope_halves                                                                                      \
    }

#endif
