/* The loops whose speed is a limit of the machine: arithmetic of one instruction, and reading memory. */
#ifndef BENCH_SHARED_PEAKS_H
#define BENCH_SHARED_PEAKS_H

#include <stddef.h>
#include <stdint.h>

typedef enum peak_kind { PEAK_READ, PEAK_FMA, PEAK_BF16, PEAK_INT8, PEAK_TILES, PEAK_INT8_TILES, N_PEAK_KINDS } peak_kind;

/* Exactly one of compute and read is set. */
typedef struct peak {
    peak_kind kind;
    uint32_t features;               /* CA_CPU_* it needs */
    double ops;                      /* multiplications and additions of one round of compute */
    void (*compute)(int64_t rounds); /* every kind but PEAK_READ */
    uint64_t (*read)(const void *data, size_t bytes);
} peak;

/* Lowest level first: of each kind, the last one that the CPU supports is its limit. */
extern const peak peaks[];
extern const int n_peaks;

#endif
