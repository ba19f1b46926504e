/*
 * The codebooks of the IQ types: rows of 8 magnitudes as 2-bit numbers, or of 4 as 3-bit numbers, the first in the low bits.
 * The numbers count the type's magnitudes in ascending order; those of IQ1_S and IQ1_M are -1, 0, 1.
 */
#ifndef CHUNKLLAMA_TENSOR_CODEBOOKS_H
#define CHUNKLLAMA_TENSOR_CODEBOOKS_H

#include <stdint.h>

extern const uint16_t cl_iq2_xxs_codebook[256];
extern const uint16_t cl_iq2_xs_codebook[512];
extern const uint16_t cl_iq2_s_codebook[1024];
extern const uint16_t cl_iq1_codebook[2048];
extern const uint16_t cl_iq3_xxs_codebook[256];
extern const uint16_t cl_iq3_s_codebook[512];

#endif
