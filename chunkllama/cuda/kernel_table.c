/* See kernel_table.h. */
#include "kernel_table.h"

#pragma weak cl_cuda_linked /* NULL where nothing defines it */

int cl_cuda_first_product(cl_linear_layout layout) {
    static const int first[CL_LINEAR_N_LAYOUTS] = {
#define FIRST(name, ...) [CL_LINEAR_##name] = CL_CUDA_linear_##name##_1,
        LINEAR_QUANT_LAYOUTS(FIRST) FIRST(F32) FIRST(F16) FIRST(BF16)
#undef FIRST
    };
    return first[layout];
}

const cl_cuda_link *cl_cuda_get(void) { return cl_cuda_linked ? cl_cuda_linked() : NULL; }
