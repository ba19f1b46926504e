/* Reference level of the linear layers: the arithmetic of linear_kernels.h, one output at a time. */
#include "linear_kernels.h"

#include <math.h>
#include <string.h>

#include "chunkattn/base/half.h"

static float load_f16(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return ca_f32_from_f16(h);
}

/* The weight of input k and output o of a panel. */
static float load_weight(cl_linear_layout layout, const uint8_t *panel, size_t k, size_t o) {
    if (layout == CL_LINEAR_F32) {
        float w;
        memcpy(&w, panel + 4 * (k * CL_LINEAR_LANES + o), sizeof w);
        return w;
    }
    if (layout == CL_LINEAR_F16) return load_f16(panel + 2 * (k * CL_LINEAR_LANES + o));
    uint16_t h;
    memcpy(&h, panel + k / 2 * 4 * CL_LINEAR_LANES + 4 * o + k % 2 * 2, sizeof h);
    return ca_f32_from_bf16(h);
}

static void multiply_float(const cl_linear_task *t, cl_linear_layout layout) {
    const size_t panel_bytes = cl_linear_panel_bytes(layout, t->n_in);
    for (int32_t row = 0; row < t->n_rows; row++) {
        const float *x = t->x + (size_t)row * t->x_stride;
        for (int32_t out = 0; out < (t->n_panels - 1) * CL_LINEAR_LANES + t->n_last; out++) {
            const uint8_t *panel = t->panels + (size_t)(out / CL_LINEAR_LANES) * panel_bytes;
            float y = 0;
            for (int32_t k = 0; k < t->n_in; k++)
                y = fmaf(x[k], load_weight(layout, panel, (size_t)k, (size_t)out % CL_LINEAR_LANES), y);
            t->y[(size_t)row * t->y_stride + (size_t)out] = y;
        }
    }
}

static void multiply_f32(const cl_linear_task *t) { multiply_float(t, CL_LINEAR_F32); }
static void multiply_f16(const cl_linear_task *t) { multiply_float(t, CL_LINEAR_F16); }
static void multiply_bf16(const cl_linear_task *t) { multiply_float(t, CL_LINEAR_BF16); }

/* The code of input k and output o in a record. */
static int32_t load_code(int bits, const uint8_t *record, int k, int o) {
    const int step = k / 4, byte = 4 * o + k % 4;
    if (bits == 8) return record[64 * step + byte];
    int32_t code = 0, shift = 0;
    if (bits & 4) {
        code = record[64 * (step % 4) + byte] >> (step < 4 ? 0 : 4) & 15;
        record += 256;
        shift = 4;
    }
    if (bits & 2) {
        code |= (record[64 * (step / 4) + byte] >> 2 * (step % 4) & 3) << shift;
        record += 128;
        shift += 2;
    }
    if (bits & 1) code |= (record[byte] >> step & 1) << shift;
    return code;
}

/* The scale of output o among the 16 at p. super: the f16 scales of which these are factors, in formats that have them. */
static float load_scale(cl_linear_format f, const uint8_t *p, const uint8_t *super, int o) {
    if (f.powers) return p[o] < 2 ? 0 : ca_f32_from_bits((p[o] - 1u) << 23);
    return f.super ? load_f16(super + 2 * o) / (float)f.super * (float)(int8_t)p[o] : load_f16(p + 2 * o);
}

/* The activations of a row in a record of a row group of n_rows rows. */
static float tile_row(const uint8_t *record, int32_t n_rows, int32_t row, int8_t x[CL_LINEAR_BLOCK]) {
    for (int32_t j = 0; j < CL_LINEAR_BLOCK / 4; j++) memcpy(x + 4 * j, record + ((size_t)j * n_rows + row) * 4, 4);
    float scale;
    memcpy(&scale, record + (size_t)n_rows * CL_LINEAR_BLOCK + (size_t)row * 4, 4);
    return scale;
}

/* y plus the products of the scale groups of block b. */
static float add_block(cl_linear_format f, const uint8_t *table, const uint8_t *panel, int32_t b, int o,
                       const int8_t x[CL_LINEAR_BLOCK], float scale, float y) {
    const size_t bytes = cl_linear_record_bytes(f), super_bytes = cl_linear_super_bytes(f);
    const uint8_t *super = panel + (size_t)(b / CL_LINEAR_SUPER) * (super_bytes + CL_LINEAR_SUPER * bytes);
    const uint8_t *record = super + super_bytes + (size_t)(b % CL_LINEAR_SUPER) * bytes;
    for (int g = 0; g < CL_LINEAR_BLOCK / f.scale_group; g++) {
        int32_t sum = 0, sum_x = 0;
        for (int k = g * f.scale_group; k < (g + 1) * f.scale_group; k++) {
            const int32_t code = load_code(f.bits, record, k, o);
            sum += x[k] * ((f.table ? table[code] : code) - f.zero);
            sum_x += x[k];
        }
        y = fmaf((float)sum * scale, load_scale(f, record + cl_linear_d_at(f, g), super, o), y);
        if (!f.min) continue;
        y = fmaf(scale * (float)sum_x, load_scale(f, record + cl_linear_m_at(f, g), super + 2 * CL_LINEAR_LANES, o), y);
    }
    return y;
}

static float multiply_one(const cl_linear_task *t, cl_linear_layout layout, int32_t row, int32_t out) {
    const int32_t n_blocks = t->n_in / CL_LINEAR_BLOCK, first = row - row % CL_LINEAR_ROW_GROUP;
    const int32_t group_rows = t->n_rows - first < CL_LINEAR_ROW_GROUP ? t->n_rows - first : CL_LINEAR_ROW_GROUP;
    const uint8_t *row_group = t->row_groups + (size_t)first * (size_t)n_blocks * CL_LINEAR_ROW_BYTES;
    const uint8_t *panel = t->panels + (size_t)(out / CL_LINEAR_LANES) * cl_linear_panel_bytes(layout, t->n_in);
    float y = 0;
    for (int32_t b = 0; b < n_blocks; b++) {
        int8_t x[CL_LINEAR_BLOCK];
        const float scale =
            tile_row(row_group + (size_t)b * (size_t)group_rows * CL_LINEAR_ROW_BYTES, group_rows, row - first, x);
        y = add_block(cl_linear_formats[layout], t->table, panel, b, out % CL_LINEAR_LANES, x, scale, y);
    }
    return y;
}

static void multiply_quant(const cl_linear_task *t, cl_linear_layout layout) {
    for (int32_t row = 0; row < t->n_rows; row++)
        for (int32_t out = 0; out < (t->n_panels - 1) * CL_LINEAR_LANES + t->n_last; out++)
            t->y[(size_t)row * t->y_stride + (size_t)out] = multiply_one(t, layout, row, out);
}

#define MULTIPLY(name, ...)                                                                                                    \
    static void multiply_##name(const cl_linear_task *t) { multiply_quant(t, CL_LINEAR_##name); }
LINEAR_QUANT_LAYOUTS(MULTIPLY)

static void quantize(const float *x, size_t row_stride, int32_t n_rows, int32_t n_blocks, uint8_t *row_group,
                     int32_t group_rows) {
    const size_t array_bytes = (size_t)group_rows * 4;
    for (int32_t b = 0; b < n_blocks; b++, row_group += (size_t)group_rows * CL_LINEAR_ROW_BYTES) {
        for (int32_t row = 0; row < n_rows; row++) {
            const float *block = x + (size_t)row * row_stride + (size_t)b * CL_LINEAR_BLOCK;
            float max = 0;
            for (int32_t k = 0; k < CL_LINEAR_BLOCK; k++) max = fabsf(block[k]) > max ? fabsf(block[k]) : max;
            const float scale = ca_f32_from_bits((ca_f32_bits(max / 127.0f) + 3u) & ~3u);
            const float inverse = scale > 0 ? 1.0f / scale : 0;
            int32_t sum = 0, half = 0;
            for (int32_t k = 0; k < CL_LINEAR_BLOCK; k++) {
                const int8_t q = (int8_t)lrintf(block[k] * inverse);
                memcpy(row_group + (size_t)(k / 4) * array_bytes + (size_t)row * 4 + k % 4, &q, 1);
                sum += q;
                if (k < CL_LINEAR_BLOCK / 2) half += q;
            }
            const float scales[3] = {scale, -12582912.0f * scale, scale * (float)sum};
            const int32_t starts[2] = {CL_LINEAR_MAGIC - 128 * sum, CL_LINEAR_MAGIC - 128 * half};
            uint8_t *to = row_group + 8 * array_bytes + (size_t)row * 4;
            for (int i = 0; i < 3; i++) memcpy(to + array_bytes * i, &scales[i], 4);
            for (int i = 0; i < 2; i++) memcpy(to + array_bytes * (3 + i), &starts[i], 4);
        }
    }
}

const cl_kernels cl_kernels_ref = {
    .level = "ref",
    .group_rows = CL_LINEAR_ROW_GROUP,
    .quantize = quantize,
    .multiply = {multiply_f32, multiply_f16, multiply_bf16, LINEAR_QUANT_LAYOUTS(LINEAR_ENTRY)},
    .row_ops = CL_ROW_OPS,
};
