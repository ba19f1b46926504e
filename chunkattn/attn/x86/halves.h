/*
 * f16 and bf16 from f32 and back on the x86 levels, with the bits of chunkattn/base/half.h in any floating-point mode. bf16
 * instructions are not used: they take denormals for zero.
 */
#ifndef CHUNKATTN_ATTN_X86_HALVES_H
#define CHUNKATTN_ATTN_X86_HALVES_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkattn.h"

#define X86_INLINE static inline __attribute__((always_inline))

/* ---- f32 to halves ---- */

X86_INLINE __m256i nan_lanes(__m256i bits) {
    const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    return _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
}

/* Eight numbers to the low halves of lanes. */
X86_INLINE __m256i bf16_lanes(__m256 x) {
    const __m256i u = _mm256_castps_si256(x), high = _mm256_srli_epi32(u, 16);
    const __m256i up = _mm256_add_epi32(_mm256_set1_epi32(0x7fff), _mm256_and_si256(high, _mm256_set1_epi32(1)));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, up), 16);
    return _mm256_blendv_epi8(rounded, _mm256_or_si256(high, _mm256_set1_epi32(0x40)), nan_lanes(u));
}
X86_INLINE __m256i f16_lanes(__m256 x) {
    const __m256i u = _mm256_castps_si256(x);
    const __m256i rounded = _mm256_cvtepu16_epi32(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(0x8000));
    return _mm256_blendv_epi8(rounded, _mm256_or_si256(sign, _mm256_set1_epi32(0x7e00)), nan_lanes(u));
}

X86_INLINE __m256i pack_halves(__m256i a, __m256i b) { return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8); }

/* n floats, a multiple of 16, to f16 or bf16; `to` needs no alignment. */
X86_INLINE void narrow(cattn_type type, const float *from, int32_t n, void *to) {
    for (int32_t i = 0; i < n; i += 16) {
        const __m256 a = _mm256_loadu_ps(from + i), b = _mm256_loadu_ps(from + i + 8);
        const __m256i packed =
            type == CATTN_BF16 ? pack_halves(bf16_lanes(a), bf16_lanes(b)) : pack_halves(f16_lanes(a), f16_lanes(b));
        _mm256_storeu_si256((__m256i *)((char *)to + 2 * (size_t)i), packed);
    }
}

/* ---- Halves to f32 ---- */

X86_INLINE __m256 f32_of_bf16(__m128i x) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16)); }

/* The instruction sets the quiet bit of a NaN, chunkattn/base/half.h keeps all its bits. */
X86_INLINE __m256 f32_of_f16(__m128i x) {
    const __m256i bits = _mm256_cvtepu16_epi32(x), magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fff));
    const __m256i sign = _mm256_slli_epi32(_mm256_xor_si256(bits, magnitude), 16);
    const __m256i fraction = _mm256_slli_epi32(magnitude, 13);
    const __m256i nan = _mm256_or_si256(sign, _mm256_or_si256(fraction, _mm256_set1_epi32(0x7f800000)));
    const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7c00));
    return _mm256_blendv_ps(_mm256_cvtph_ps(x), _mm256_castsi256_ps(nan), _mm256_castsi256_ps(is_nan));
}

/* n f16 or bf16, a multiple of 8, to floats; `from` needs no alignment. */
X86_INLINE void widen(cattn_type type, const void *from, int32_t n, float *to) {
    for (int32_t i = 0; i < n; i += 8) {
        const __m128i x = _mm_loadu_si128((const __m128i *)((const char *)from + 2 * (size_t)i));
        _mm256_storeu_ps(to + i, type == CATTN_BF16 ? f32_of_bf16(x) : f32_of_f16(x));
    }
}

/* ---- A level's table ---- */

static void widen_rows(cattn_type type, const void *from, int32_t n, float *to) {
    if (type == CATTN_BF16)
        widen(CATTN_BF16, from, n, to);
    else
        widen(CATTN_F16, from, n, to);
}

static void narrow_rows(cattn_type type, const float *from, int32_t n, void *to) {
    if (type == CATTN_BF16)
        narrow(CATTN_BF16, from, n, to);
    else
        narrow(CATTN_F16, from, n, to);
}

#endif
