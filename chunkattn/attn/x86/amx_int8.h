/* The functions of level amx for int8 K and V; the others of that kernel are the same as for bf16. */
#ifndef CHUNKATTN_ATTN_X86_AMX_INT8_H
#define CHUNKATTN_ATTN_X86_AMX_INT8_H

#include "chunkattn/attn/kernels.h"

size_t ca_amx_int8_query_bytes(int32_t d_k);
size_t ca_amx_int8_scratch_bytes(int32_t d_k, int32_t d_v, int32_t c);
void ca_amx_int8_pack_query(const float *q, ptrdiff_t row_stride, int32_t n_rows, int32_t d_k, float scale_log2, void *packed);
void ca_amx_int8_attend(const ca_tile *tile);

#endif
