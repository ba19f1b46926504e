/*
 * The activations of one value, in a fixed order of operations, fused only where it says so. Kernels of a CUDA device have them
 * from here, too, compiled without contraction and with denormals as zeros, so that they have the CPU's bits.
 */
#ifndef CHUNKLLAMA_LINEAR_SCALAR_OPS_H
#define CHUNKLLAMA_LINEAR_SCALAR_OPS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define CL_OPS static __device__ __forceinline__
#else
#define CL_OPS static inline
#endif

/*
 * condition ? a : b, by masks. From a conditional, gcc 12 makes branches, after which it divides once for each outcome with
 * AVX-512, and element by element with AVX2.
 */
CL_OPS float cl_ops_select(bool condition, float a, float b) {
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
CL_OPS float cl_ops_exp(float x) {
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

/* 1 / (1 + e^-x) */
CL_OPS float cl_ops_sigmoid(float x) { return 1.0f / (1.0f + cl_ops_exp(-x)); }

CL_OPS float cl_ops_swiglu_of(float gate, float up) { return gate / (1.0f + cl_ops_exp(-gate)) * up; }

/* g / (1 + e^(-1.702 g)) * (u + 1), where g is the gate, at most 7, and u is up, from -7 to 7; the activation of gpt-oss. */
CL_OPS float cl_ops_swiglu_clamped_of(float gate, float up) {
    const float g = cl_ops_select(gate > 7.0f, 7.0f, gate), low = cl_ops_select(up < -7.0f, -7.0f, up);
    return g / (1.0f + cl_ops_exp(-1.702f * g)) * (cl_ops_select(low > 7.0f, 7.0f, low) + 1.0f);
}

/* GELU's tanh form: x (1 + tanh u) / 2 = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3). */
CL_OPS float cl_ops_gelu_of(float x) {
    const float u = 0.797884561f * (x + 0.044715f * x * x * x);
    return x / (1.0f + cl_ops_exp(-2.0f * u));
}

#endif
