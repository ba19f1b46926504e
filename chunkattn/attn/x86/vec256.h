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

static inline vec v_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }

/* ---- Integers ---- */

typedef __m256i veci;

static inline veci vi_load(const void *p) { return _mm256_loadu_si256(p); }
static inline void vi_store(void *p, veci a) { _mm256_storeu_si256(p, a); }
static inline veci vi_set1(int32_t x) { return _mm256_set1_epi32(x); }
static inline veci vi_set1_16(int16_t x) { return _mm256_set1_epi16(x); }
static inline veci vi_and(veci a, veci b) { return _mm256_and_si256(a, b); }
static inline veci vi_xor(veci a, veci b) { return _mm256_xor_si256(a, b); }
static inline veci vi_add(veci a, veci b) { return _mm256_add_epi32(a, b); }
static inline veci vi_add_16(veci a, veci b) { return _mm256_add_epi16(a, b); }
static inline veci vi_sll(veci a, int n) { return _mm256_slli_epi32(a, n); }
static inline veci vi_sll_16(veci a, int n) { return _mm256_slli_epi16(a, n); }
static inline veci vi_srl_16(veci a, int n) { return _mm256_srli_epi16(a, n); }
static inline veci vi_sra_16(veci a, int n) { return _mm256_srai_epi16(a, n); }
/* Products of signed words, added in pairs. */
static inline veci vi_madd(veci a, veci b) { return _mm256_madd_epi16(a, b); }
/* The bytes of each 128 bits in the order given; -1: zero. */
static inline veci vi_shuffle(veci a, __m128i order) { return _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(order)); }
static inline vec vi_to_float(veci a) { return _mm256_cvtepi32_ps(a); }
static inline veci v_bits(vec a) { return _mm256_castps_si256(a); }

#endif
