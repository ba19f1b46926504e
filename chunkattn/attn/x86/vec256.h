/* The vector of eight floats that row.h and f32_lines.h are written for: AVX2 with FMA and F16C. */
#ifndef CHUNKATTN_ATTN_X86_VEC256_H
#define CHUNKATTN_ATTN_X86_VEC256_H

#include <immintrin.h>
#include <stdint.h>

enum { V_LANES = 8 };
typedef __m256 vec;
typedef __m256 vmask; /* lanes with the sign bit set */

static inline vec v_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void v_store(float *p, vec a) { _mm256_storeu_ps(p, a); }
static inline vec v_set1(float x) { return _mm256_set1_ps(x); }
static inline vec v_add(vec a, vec b) { return _mm256_add_ps(a, b); }
static inline vec v_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
static inline vec v_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
static inline vec v_div(vec a, vec b) { return _mm256_div_ps(a, b); }
static inline vec v_fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
static inline vec v_max(vec a, vec b) { return _mm256_max_ps(a, b); }
/* The largest lane. */
static inline float v_top(vec a) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
static inline vec v_min(vec a, vec b) { return _mm256_min_ps(a, b); }
static inline vec v_floor(vec a) { return _mm256_floor_ps(a); }

/* x 2^n, n whole; 0 below 2^-126. */
static inline vec v_scale2(vec x, vec n) {
    const __m256i e = _mm256_cvtps_epi32(_mm256_max_ps(n, v_set1(-127)));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(e, _mm256_set1_epi32(127)), 23)));
}

/* 0, 1, 2, ... */
static inline vec v_lanes(void) { return _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7); }

/* Lanes below n; n may be negative or beyond the last. */
static inline vmask v_below(int n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane));
}
static inline vec v_select(vmask m, vec yes, vec no) { return _mm256_blendv_ps(no, yes, m); }
static inline int v_any_ge(vec a, vec b) { return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)); }

/* The two bf16 of each 32-bit lane: the even element is the low half. */
static inline vec v_bf16_even(const void *p) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(p), 16)); }
static inline vec v_bf16_odd(const void *p) {
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(p), _mm256_set1_epi32((int)0xffff0000)));
}

/* The n-th byte of each 32-bit lane, signed once the bits of flip are flipped. */
static inline vec v_i8(const void *p, int n, int32_t flip) {
    const __m256i x = _mm256_xor_si256(_mm256_loadu_si256(p), _mm256_set1_epi32(flip));
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(x, 24 - 8 * n), 24));
}

static inline vec v_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }

#endif
