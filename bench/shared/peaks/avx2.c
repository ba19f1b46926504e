/* AVX2: f32 FMA, 8-bit dot products in two multiplications and an addition, reading by 32 bytes. */
#include "bench/shared/peaks.h"

#include <immintrin.h>

#include "base/cpu.h"

static void fma_f32(int64_t rounds) {
    __m256 sums[PEAK_ACCUMULATORS] = {0};
    const __m256 x = _mm256_set1_ps(1.0f), y = _mm256_set1_ps(0.5f);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < PEAK_ACCUMULATORS; i++) {
            sums[i] = _mm256_fmadd_ps(x, y, sums[i]);
            __asm__ volatile("" : "+x"(sums[i]));
        }
    }
}

static void dot_int8(int64_t rounds) {
    __m256i sums[PEAK_ACCUMULATORS] = {0};
    __m256i x = _mm256_set1_epi8(1);
    const __m256i ones = _mm256_set1_epi16(1);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < PEAK_ACCUMULATORS; i++) {
            __asm__ volatile("" : "+x"(x)); /* a new product each time, as far as the compiler knows */
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(x, x), ones));
            __asm__ volatile("" : "+x"(sums[i]));
        }
    }
}

static uint64_t read_all(const void *data, size_t bytes) {
    const __m256i *p = data;
    __m256i sums[4] = {0};
    for (size_t i = 0; i < bytes / sizeof *p; i += 4)
        for (int k = 0; k < 4; k++) sums[k] = _mm256_xor_si256(sums[k], _mm256_load_si256(p + i + k));
    const __m256i sum = _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
    return (uint64_t)_mm256_extract_epi64(sum, 0);
}

const peak peaks_avx2[3] = {
    {PEAK_FMA, CA_CPU_AVX2, 2.0 * 8 * PEAK_ACCUMULATORS, fma_f32, NULL},
    {PEAK_INT8, CA_CPU_AVX2, 2.0 * 32 * PEAK_ACCUMULATORS, dot_int8, NULL},
    {PEAK_READ, CA_CPU_AVX2, 0, NULL, read_all},
};
