/* AMX: tile registers multiply quantised weights where there are rows to fill them, and BF16 weights. */
#include "base/cpu.h"
#include "linear_amx_bf16.h"
#include "linear_amx_int8.h"
#include "linear_avx512_bf16.h"
#include "linear_avx512_float.h"
#include "llama/ops.h"
#include "quantize_avx2.h"

const cl_linear_kernel cl_linear_amx = {
    .name = "amx",
    .features = CA_CPU_AVX512 | CA_CPU_AVX512_VNNI | CA_CPU_AVX512_BF16 | CA_CPU_AMX,
    .tile_rows = AMX_ROWS,
    .min_rows = AMX_MIN_ROWS,
    .to_l2 = true,
    .quantize = cl_linear_quantize_avx2,
    .round = cl_linear_round_avx512_bf16,
    .multiply = {cl_linear_f32_avx512, cl_linear_f16_avx512, multiply_bf16, LINEAR_QUANT_LAYOUTS(LINEAR_ENTRY)},
    .leave = ca_tiles_leave,
    OPS_ENTRIES,
};
