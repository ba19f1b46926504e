/*
 * Loops that do nothing but one kind of arithmetic or reading, for the peaks of `cattn-bench machine`.
 *
 * Twelve independent accumulators: more than latency times issue width on any CPU here.
 */
#ifndef BENCH_SHARED_PEAKS_H
#define BENCH_SHARED_PEAKS_H

#include <stddef.h>
#include <stdint.h>

enum { PEAK_ACCUMULATORS = 12 };

typedef enum peak_kind { PEAK_READ, PEAK_FMA, PEAK_BF16, PEAK_INT8, PEAK_TILES, PEAK_INT8_TILES, N_PEAK_KINDS } peak_kind;

/* One of the two is set. */
typedef struct peak {
    peak_kind kind;
    uint32_t features;               /* CA_CPU_* it needs */
    double ops;                      /* multiplications and additions a round */
    void (*compute)(int64_t rounds); /* PEAK_FMA, PEAK_BF16, PEAK_INT8 */
    uint64_t (*read)(const void *data, size_t bytes);
} peak;

/* Of one source file each, in peaks/; compiled in on x86-64. */
extern const peak peaks_avx2[3];
extern const peak peaks_avx512[2];
extern const peak peaks_avx512_vnni[1];
extern const peak peaks_avx512_bf16[1];
extern const peak peaks_amx[2];

#endif
