/* Rows of a tensor as they lie in the file. */
#ifndef LLAMA_FILE_TENSOR_ROW_H
#define LLAMA_FILE_TENSOR_ROW_H

#include "tensor.h"

/* Bytes of a row of n values of a tensor_type; n is a multiple of the type's block. */
size_t cl_tensor_row_bytes(uint32_t type, int64_t n);

/* Row `row` (of ne[0] values) in f32, as the format defines it. */
void cl_tensor_row_f32(const cl_tensor *tensor, int64_t row, float *out);

#endif
