/* The loops whose speed is a limit of the machine: arithmetic of one instruction, and reading memory. */
#ifndef BENCH_SHARED_PEAKS_H
#define BENCH_SHARED_PEAKS_H

#include <stddef.h>
#include <stdint.h>

#include "chunkattn.h"

/* LIMIT_FMA is of the widest vectors, LIMIT_TILES of bf16. */
typedef enum limit {
    LIMIT_READ,
    LIMIT_FMA,
    LIMIT_FMA_AVX2,
    LIMIT_BF16,
    LIMIT_TILES,
    LIMIT_INT8,
    LIMIT_INT8_AVX_VNNI,
    LIMIT_INT8_TILES,
    N_LIMITS
} limit;

/* Exactly one of compute and read is set. */
typedef struct peak {
    limit kind;
    uint32_t features;               /* CA_CPU_* it needs */
    double ops;                      /* multiplications and additions of one round of compute */
    void (*compute)(int64_t rounds); /* every kind but LIMIT_READ */
    uint64_t (*read)(const void *data, size_t bytes);
} peak;

/* The loop of the highest level that the CPU supports; NULL: it has no such instruction. */
const peak *peak_find(limit kind);

/* The limit of the instruction that a kernel level computes with; N_LIMITS: none to compare with. */
limit limit_of_level(const char *level, cattn_type kv_type);

#endif
