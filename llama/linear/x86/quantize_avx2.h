/* Quantises up to 8 rows of a tile with AVX2, for every x86 level. */
#ifndef LLAMA_LINEAR_X86_QUANTIZE_AVX2_H
#define LLAMA_LINEAR_X86_QUANTIZE_AVX2_H

#include <stddef.h>
#include <stdint.h>

void cl_linear_quantize_avx2(const float *x, size_t row_stride, int32_t n_rows, int32_t n_blocks, uint8_t *tile,
                             int32_t tile_rows);

#endif
