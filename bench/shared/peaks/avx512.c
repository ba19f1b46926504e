/* AVX-512: f32 FMA, reading by cache lines. */
#include "bench/shared/peaks.h"

#include <immintrin.h>

#include "base/cpu.h"

static void fma_f32(int64_t rounds) {
    __m512 sums[PEAK_ACCUMULATORS] = {0};
    const __m512 x = _mm512_set1_ps(1.0f), y = _mm512_set1_ps(0.5f);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < PEAK_ACCUMULATORS; i++) {
            sums[i] = _mm512_fmadd_ps(x, y, sums[i]);
            __asm__ volatile("" : "+v"(sums[i]));
        }
    }
}

static uint64_t read_all(const void *data, size_t bytes) {
    const __m512i *p = data;
    __m512i sums[4] = {0};
    for (size_t i = 0; i < bytes / sizeof *p; i += 4)
        for (int k = 0; k < 4; k++) sums[k] = _mm512_xor_si512(sums[k], _mm512_load_si512(p + i + k));
    const __m512i sum = _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]));
    return (uint64_t)_mm512_reduce_add_epi64(sum);
}

const peak peaks_avx512[2] = {
    {PEAK_FMA, CA_CPU_AVX512, 2.0 * 16 * PEAK_ACCUMULATORS, fma_f32, NULL},
    {PEAK_READ, CA_CPU_AVX512, 0, NULL, read_all},
};
