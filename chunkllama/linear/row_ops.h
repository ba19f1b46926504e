/*
 * Row operations between the linear layers, norms, residual, activations, rotary embedding, soft-cap, and those of draws from a
 * row of logits.
 *
 * Plain C in a fixed order, fused only where it says so, so that each kernel level may compile it for its own vectors and get
 * the same bits. `static inline`, or the linker might choose the widest copy for every level.
 */
#ifndef CHUNKLLAMA_LINEAR_ROW_OPS_H
#define CHUNKLLAMA_LINEAR_ROW_OPS_H

#include "scalar_ops.h"

/* Sum 16 lanes. */
static inline float cl_ops_fold(float lane[16]) {
    for (int32_t half = 8; half; half /= 2)
        for (int32_t j = 0; j < half; j++) lane[j] += lane[j + half];
    return lane[0];
}

/* The sum of x y; lane i sums the elements i mod 16, as in the next two. */
static inline float cl_ops_dot(const float *x, const float *y, int32_t n) {
    float lane[16] = {0};
    int32_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int32_t j = 0; j < 16; j++) lane[j] += x[i + j] * y[i + j];
    for (int32_t j = 0; i + j < n; j++) lane[j] += x[i + j] * y[i + j];
    return cl_ops_fold(lane);
}

static inline float cl_ops_mean(const float *x, int32_t n) {
    float lane[16] = {0};
    int32_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int32_t j = 0; j < 16; j++) lane[j] += x[i + j];
    for (int32_t j = 0; i + j < n; j++) lane[j] += x[i + j];
    return cl_ops_fold(lane) / (float)n;
}

static inline float cl_ops_variance(const float *x, float mean, int32_t n) {
    float lane[16] = {0};
    int32_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int32_t j = 0; j < 16; j++) lane[j] += (x[i + j] - mean) * (x[i + j] - mean);
    for (int32_t j = 0; i + j < n; j++) lane[j] += (x[i + j] - mean) * (x[i + j] - mean);
    return cl_ops_fold(lane) / (float)n;
}

/* out = x / sqrt(mean(x^2) + eps) * weight; out may be x. */
static inline void cl_ops_rms_norm(const float *x, const float *weight, int32_t n, float eps, float *out) {
    const float scale = 1.0f / sqrtf(cl_ops_dot(x, x, n) / (float)n + eps);
    for (int32_t i = 0; i < n; i++) out[i] = x[i] * scale * weight[i];
}

/* out = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight; out may be x. */
static inline void cl_ops_layer_norm(const float *x, const float *weight, int32_t n, float eps, float *out) {
    const float mean = cl_ops_mean(x, n), scale = 1.0f / sqrtf(cl_ops_variance(x, mean, n) + eps);
    for (int32_t i = 0; i < n; i++) out[i] = (x[i] - mean) * scale * weight[i];
}

static inline void cl_ops_add(float *x, const float *y, int32_t n) {
    for (int32_t i = 0; i < n; i++) x[i] += y[i];
}

/* x += factor * y */
static inline void cl_ops_add_scaled(float *x, const float *y, int32_t n, float factor) {
    for (int32_t i = 0; i < n; i++) x[i] += factor * y[i];
}

/* x = max(x - cut, 0), where cut is `deviations` standard deviations above the mean of x; few values are left. */
static inline void cl_ops_cut(float *x, int32_t n, float deviations) {
    const float mean = cl_ops_mean(x, n), cut = mean + deviations * sqrtf(cl_ops_variance(x, mean, n));
    for (int32_t i = 0; i < n; i++) x[i] = x[i] > cut ? x[i] - cut : 0;
}

/* out = gate / (1 + e^-gate) * up; out may be gate or up. */
static inline void cl_ops_swiglu(const float *gate, const float *up, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) out[i] = cl_ops_swiglu_of(gate[i], up[i]);
}

/* The activation of gpt-oss; out may be gate or up. */
static inline void cl_ops_swiglu_clamped(const float *gate, const float *up, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) out[i] = cl_ops_swiglu_clamped_of(gate[i], up[i]);
}

/* out = gelu(gate) * up; out may be gate or up. */
static inline void cl_ops_geglu(const float *gate, const float *up, int32_t n, float *out) {
    for (int32_t i = 0; i < n; i++) out[i] = cl_ops_gelu_of(gate[i]) * up[i];
}

/* x = gelu(x) */
static inline void cl_ops_gelu(float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) x[i] = cl_ops_gelu_of(x[i]);
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

/* The first index of the largest of x [n]; 0 if all are NaN or minus infinity. */
static inline int32_t cl_ops_argmax(const float *x, int32_t n) {
    enum { BLOCK = 256, LANES = 16 };
    float max = -INFINITY;
    int32_t from = 0;
    for (int32_t first = 0; first < n; first += BLOCK) {
        const int32_t end = n - first < BLOCK ? n : first + BLOCK;
        float lane[LANES], block_max = -INFINITY;
        for (int32_t j = 0; j < LANES; j++) lane[j] = -INFINITY;
        int32_t i = first;
        for (; i + LANES <= end; i += LANES)
            for (int32_t j = 0; j < LANES; j++) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
        for (int32_t j = 0; j < LANES; j++) block_max = lane[j] > block_max ? lane[j] : block_max;
        for (; i < end; i++) block_max = x[i] > block_max ? x[i] : block_max;
        if (block_max > max) {
            max = block_max;
            from = first;
        }
    }
    while (max > -INFINITY && x[from] != max) from++;
    return from;
}

/*
 * e^x for x <= 0, zero from -80 down and for NaN: no denormals, no calls, so that the compiler can use vectors. The polynomial
 * is 2^f's Taylor series, whose terms from the eighth on are below 2^-27 for |f| <= 0.5. The relative error is that of rounding
 * x log2(e): 2^-24 |x|.
 */
static inline float cl_ops_weight(float x) {
    const float t = cl_ops_select(x > -80.0f, x, -80.0f) * 0x1.715476p0f;
    const float n = (t + 0x1.8p23f) - 0x1.8p23f; /* rounds to an integer */
    const float f = t - n;
    float p = 1.5252734e-5f;
    p = p * f + 1.5403530e-4f;
    p = p * f + 1.3333558e-3f;
    p = p * f + 9.6181291e-3f;
    p = p * f + 5.5504109e-2f;
    p = p * f + 2.4022651e-1f;
    p = p * f + 6.9314718e-1f;
    p = p * f + 1;
    const uint32_t bits = (uint32_t)((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return cl_ops_select(x > -80.0f, p * scale, 0);
}

enum { CL_OPS_WEIGHTS = 256 }; /* weights per partial sum */

/*
 * Unnormalised probabilities of logits [n]: weights [n] = e^((logits - max) * inverse_temperature), and the sum of each
 * CL_OPS_WEIGHTS of them in sums, where lane i sums the weights i mod 8.
 */
static inline void cl_ops_weigh(const float *logits, int32_t n, float max, float inverse_temperature, float *restrict weights,
                                double *restrict sums) {
    for (int32_t first = 0; first < n; first += CL_OPS_WEIGHTS) {
        const int32_t end = n - first < CL_OPS_WEIGHTS ? n : first + CL_OPS_WEIGHTS;
        double lane[8] = {0};
        int32_t i = first;
        for (int32_t k = first; k < end; k++) weights[k] = cl_ops_weight((logits[k] - max) * inverse_temperature);
        for (; i + 8 <= end; i += 8)
            for (int32_t j = 0; j < 8; j++) lane[j] += (double)weights[i + j];
        for (int32_t j = 0; i + j < end; j++) lane[j] += (double)weights[i + j];
        for (int32_t half = 4; half; half /= 2)
            for (int32_t j = 0; j < half; j++) lane[j] += lane[j + half];
        sums[first / CL_OPS_WEIGHTS] = lane[0];
    }
}

/* The row operations, compiled for one kernel level. The soft-cap is rare and has one copy for all levels. */
typedef struct cl_row_ops {
    void (*rms_norm)(const float *x, const float *weight, int32_t n, float eps, float *out);
    void (*layer_norm)(const float *x, const float *weight, int32_t n, float eps, float *out);
    void (*add)(float *x, const float *y, int32_t n);
    void (*add_scaled)(float *x, const float *y, int32_t n, float factor);
    float (*dot)(const float *x, const float *y, int32_t n);
    void (*cut)(float *x, int32_t n, float deviations);
    void (*swiglu)(const float *gate, const float *up, int32_t n, float *out);
    void (*swiglu_clamped)(const float *gate, const float *up, int32_t n, float *out);
    void (*geglu)(const float *gate, const float *up, int32_t n, float *out);
    void (*gelu)(float *x, int32_t n);
    void (*rope)(float *x, const float *cos_sin, int32_t n_heads, int32_t head_dim, int32_t n_rot);
    void (*rope_halves)(float *x, const float *cos_sin, int32_t n_heads, int32_t head_dim, int32_t n_rot);
    int32_t (*argmax)(const float *x, int32_t n);
    void (*weigh)(const float *logits, int32_t n, float max, float inverse_temperature, float *weights, double *sums);
} cl_row_ops;

/* Initialises a cl_row_ops with the copies of the including file. */
#define CL_ROW_OPS                                                                                                             \
    {                                                                                                                          \
        .rms_norm = cl_ops_rms_norm, .layer_norm = cl_ops_layer_norm, .add = cl_ops_add, .add_scaled = cl_ops_add_scaled,      \
        .dot = cl_ops_dot, .cut = cl_ops_cut, .swiglu = cl_ops_swiglu, .swiglu_clamped = cl_ops_swiglu_clamped,                \
        .geglu = cl_ops_geglu, .gelu = cl_ops_gelu, .rope = cl_ops_rope, .rope_halves = cl_ops_rope_halves,                    \
        .argmax = cl_ops_argmax, .weigh = cl_ops_weigh                                                                         \
    }

#endif
