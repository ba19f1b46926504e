/*
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011): a random number is a
 * function of key and counter, so draws need no state and no order.
 */
#ifndef CHUNKLLAMA_COMMON_PHILOX_H
#define CHUNKLLAMA_COMMON_PHILOX_H

#include <stdint.h>

/* Turn a counter into random bits, in place. */
static inline void cl_philox(uint32_t counter[4], uint64_t key) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * counter[0], b = (uint64_t)0xcd9e8d57u * counter[2];
        counter[0] = (uint32_t)(b >> 32) ^ counter[1] ^ k0;
        counter[1] = (uint32_t)b;
        counter[2] = (uint32_t)(a >> 32) ^ counter[3] ^ k1;
        counter[3] = (uint32_t)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}

#endif
