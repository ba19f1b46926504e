/* The vector of sixteen floats that row.h and f32_lines.h are written for: AVX-512 F, BW, DQ, VL. */
#ifndef CHUNKATTN_ATTN_X86_VEC512_H
#define CHUNKATTN_ATTN_X86_VEC512_H

#include <immintrin.h>
#include <stdint.h>

enum { V_LANES = 16 };
typedef __m512 vec;
typedef __mmask16 vmask;

static inline vec v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, vec a) { _mm512_storeu_ps(p, a); }
static inline vec v_set1(float x) { return _mm512_set1_ps(x); }
static inline vec v_add(vec a, vec b) { return _mm512_add_ps(a, b); }
static inline vec v_sub(vec a, vec b) { return _mm512_sub_ps(a, b); }
static inline vec v_mul(vec a, vec b) { return _mm512_mul_ps(a, b); }
static inline vec v_div(vec a, vec b) { return _mm512_div_ps(a, b); }
static inline vec v_fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
static inline vec v_max(vec a, vec b) { return _mm512_max_ps(a, b); }
/* The largest lane. */
static inline float v_top(vec a) { return _mm512_reduce_max_ps(a); }
static inline vec v_min(vec a, vec b) { return _mm512_min_ps(a, b); }
static inline vec v_floor(vec a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }

/* x 2^n, n whole; 0 below 2^-126. */
static inline vec v_scale2(vec x, vec n) { return _mm512_scalef_ps(x, n); }

/* 0, 1, 2, ... */
static inline vec v_lanes(void) { return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15); }

/* Lanes below n; n may be negative or beyond the last. */
static inline vmask v_below(int n) { return (vmask)(n >= V_LANES ? 0xffff : (1u << (n > 0 ? n : 0)) - 1); }
static inline vec v_select(vmask m, vec yes, vec no) { return _mm512_mask_mov_ps(no, m, yes); }
static inline int v_any_ge(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ); }

/* The two bf16 of each 32-bit lane: the even element is the low half. */
static inline vec v_bf16_even(const void *p) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16)); }
static inline vec v_bf16_odd(const void *p) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int)0xffff0000)));
}

static inline vec v_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }

/* ---- Integers ---- */

typedef __m512i veci;

static inline veci vi_load(const void *p) { return _mm512_loadu_si512(p); }
static inline void vi_store(void *p, veci a) { _mm512_storeu_si512(p, a); }
static inline veci vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
static inline veci vi_set1_16(int16_t x) { return _mm512_set1_epi16(x); }
static inline veci vi_and(veci a, veci b) { return _mm512_and_si512(a, b); }
static inline veci vi_xor(veci a, veci b) { return _mm512_xor_si512(a, b); }
static inline veci vi_add(veci a, veci b) { return _mm512_add_epi32(a, b); }
static inline veci vi_add_16(veci a, veci b) { return _mm512_add_epi16(a, b); }
static inline veci vi_sll(veci a, int n) { return _mm512_slli_epi32(a, (unsigned)n); }
static inline veci vi_sll_16(veci a, int n) { return _mm512_slli_epi16(a, (unsigned)n); }
static inline veci vi_srl_16(veci a, int n) { return _mm512_srli_epi16(a, (unsigned)n); }
static inline veci vi_sra_16(veci a, int n) { return _mm512_srai_epi16(a, (unsigned)n); }
/* Products of signed words, added in pairs. */
static inline veci vi_madd(veci a, veci b) { return _mm512_madd_epi16(a, b); }
/* The bytes of each 128 bits in the order given; -1: zero. */
static inline veci vi_shuffle(veci a, __m128i order) { return _mm512_shuffle_epi8(a, _mm512_broadcast_i32x4(order)); }
static inline vec vi_to_float(veci a) { return _mm512_cvtepi32_ps(a); }
static inline veci v_bits(vec a) { return _mm512_castps_si512(a); }

#endif
