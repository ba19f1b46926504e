/* AVX-512-VNNI: dot products of four bytes in each 32-bit lane. */
#include "bench/shared/peaks.h"

#include <immintrin.h>

#include "base/cpu.h"

static void dot_int8(int64_t rounds) {
    __m512i sums[PEAK_ACCUMULATORS] = {0};
    const __m512i x = _mm512_set1_epi8(1), y = _mm512_set1_epi8(2);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < PEAK_ACCUMULATORS; i++) {
            sums[i] = _mm512_dpbusd_epi32(sums[i], x, y);
            __asm__ volatile("" : "+v"(sums[i]));
        }
    }
}

const peak peaks_avx512_vnni[1] = {
    {PEAK_INT8, CA_CPU_AVX512_VNNI, 2.0 * 64 * PEAK_ACCUMULATORS, dot_int8, NULL},
};
