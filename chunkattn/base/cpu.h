/*
 * What the machine is (features, CPUs, cache, name): the only place that asks the processor. Detected once; safe from any
 * thread.
 */
#ifndef CHUNKATTN_BASE_CPU_H
#define CHUNKATTN_BASE_CPU_H

#include <stddef.h>
#include <stdint.h>

enum {
    CA_CPU_AVX2 = 1u << 0,   /* AVX2, FMA and F16C, which always come together here */
    CA_CPU_AVX512 = 1u << 1, /* F, BW, DQ, VL, and the operating system saves zmm */
    CA_CPU_AVX512_VNNI = 1u << 2,
    CA_CPU_AVX512_BF16 = 1u << 3,
    CA_CPU_AMX = 1u << 4, /* tiles with BF16 and INT8, and the operating system lets this process use them */
    CA_CPU_AVX_VNNI = 1u << 5,
};

/* Set of CA_CPU_* that both the processor and the operating system support; 0 on other architectures. */
uint32_t ca_cpu_features(void);

/* Number of CPUs this process may run on, at least 1. */
int ca_cpu_count(void);

/* Size of the last-level cache; 32 MiB if the system does not report it. */
size_t ca_cpu_cache_bytes(void);

/* Name, family and model as the operating system tells them, for benchmark headers; "unknown" where it does not. Static
 * storage. */
const char *ca_cpu_name(void);

#endif
