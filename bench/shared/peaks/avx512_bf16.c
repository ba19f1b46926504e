/* AVX-512-BF16: dot products of a pair in each 32-bit lane. */
#include "bench/shared/peaks.h"

#include <immintrin.h>

#include "base/cpu.h"

enum { ACCUMULATORS = 20 }; /* on Zen 5 it takes more than the usual 12: two a cycle, with a latency of more than six */

static void dot_bf16(int64_t rounds) {
    __m512 sums[ACCUMULATORS] = {0};
    const __m512bh x = (__m512bh)_mm512_set1_epi16(0x3f80), y = (__m512bh)_mm512_set1_epi16(0x3f00); /* 1 and 0.5 */
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 20
        for (int i = 0; i < ACCUMULATORS; i++) {
            sums[i] = _mm512_dpbf16_ps(sums[i], x, y);
            __asm__ volatile("" : "+v"(sums[i]));
        }
    }
}

const peak peaks_avx512_bf16[1] = {
    {PEAK_BF16, CA_CPU_AVX512_BF16, 2.0 * 32 * ACCUMULATORS, dot_bf16, NULL},
};
