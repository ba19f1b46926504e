/* Random numbers as a function of seed, stream and index: the same options give the same load, whatever is drawn besides. */
#ifndef LOADGEN_RANDOM_H
#define LOADGEN_RANDOM_H

#include <stddef.h>

#include "llama/common/philox.h"

typedef enum random_stream { RANDOM_ARRIVALS, RANDOM_SHARED, RANDOM_OWN } random_stream;

static inline uint64_t random_bits(uint64_t seed, random_stream stream, uint32_t row, uint64_t index) {
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), row, (uint32_t)stream};
    cl_philox(counter, seed);
    return (uint64_t)counter[0] << 32 | counter[1];
}

/* Above 0, at most 1: it has a logarithm. */
static inline double random_unit(uint64_t seed, random_stream stream, uint32_t row, uint64_t index) {
    return ((double)(random_bits(seed, stream, row, index) >> 11) + 1) * 0x1p-53;
}

#endif
