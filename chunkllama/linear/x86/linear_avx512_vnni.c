/* The table of the level "avx512_vnni". Float weights are multiplied as at "avx512". */
#include "linear_x86.h"

#define ENTRY(name, ...) [CL_LINEAR_##name] = cl_linear_##name##_avx512_vnni,

const cl_kernels cl_kernels_avx512_vnni = {
    .level = "avx512_vnni",
    .group_rows = CL_LINEAR_ROW_GROUP,
    .quantize = cl_linear_quantize_avx2,
    .multiply = {cl_linear_f32_avx512, cl_linear_f16_avx512, cl_linear_bf16_avx512, LINEAR_QUANT_LAYOUTS(ENTRY)},
    .row_ops = CL_ROW_OPS,
};
