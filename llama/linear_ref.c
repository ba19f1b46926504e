/* Reference level of the linear layers: the arithmetic of linear_kernels.h, one output at a time. */
#include "linear_kernels.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "ops.h"

static float load_f16(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return ca_f32_from_f16(h);
}

static float load_weight(linear_layout layout, const uint8_t *panel, size_t i) {
    if (layout == LINEAR_F32) {
        float w;
        memcpy(&w, panel + 4 * i, sizeof w);
        return w;
    }
    if (layout == LINEAR_F16) return load_f16(panel + 2 * i);
    uint16_t h;
    memcpy(&h, panel + 2 * i, sizeof h);
    return ca_f32_from_bf16(h);
}

static void multiply_float(const linear_task *t, linear_layout layout) {
    const size_t panel_bytes = (size_t)t->n_in * LINEAR_LANES * (layout == LINEAR_F32 ? 4 : 2);
    for (int32_t row = 0; row < t->n_rows; row++) {
        const float *x = t->x + (size_t)row * t->x_stride;
        for (int32_t out = 0; out < (t->n_panels - 1) * LINEAR_LANES + t->n_last; out++) {
            const uint8_t *panel = t->panels + (size_t)(out / LINEAR_LANES) * panel_bytes;
            float y = 0;
            for (int32_t k = 0; k < t->n_in; k++)
                y = fmaf(x[k], load_weight(layout, panel, (size_t)k * LINEAR_LANES + (size_t)(out % LINEAR_LANES)), y);
            t->y[(size_t)row * t->y_stride + (size_t)out] = y;
        }
    }
}

static void multiply_f32(const linear_task *t) { multiply_float(t, LINEAR_F32); }
static void multiply_f16(const linear_task *t) { multiply_float(t, LINEAR_F16); }
static void multiply_bf16(const linear_task *t) { multiply_float(t, LINEAR_BF16); }

/* Weight code of input k, lane o. */
static int32_t code_q4(const uint8_t *record, int32_t k, int32_t o) {
    const uint8_t byte = record[k % 16 / 4 * 64 + o * 4 + k % 4];
    return k < 16 ? byte & 15 : byte >> 4;
}

static int32_t code_q8(const uint8_t *record, int32_t k, int32_t o) { return record[k / 4 * 64 + o * 4 + k % 4] - 128; }

/* Row `row` of a tile's record of n_rows rows: its activations and scales. */
static float tile_row(const uint8_t *record, int32_t n_rows, int32_t row, int8_t x[LINEAR_BLOCK], float *weighted) {
    for (int32_t j = 0; j < LINEAR_BLOCK / 4; j++) memcpy(x + 4 * j, record + ((size_t)j * n_rows + row) * 4, 4);
    const uint8_t *scales = record + (size_t)n_rows * LINEAR_BLOCK + (size_t)row * 4;
    float scale;
    memcpy(&scale, scales, 4);
    memcpy(weighted, scales + (size_t)n_rows * 8, 4);
    return scale;
}

static void multiply_blocks(const linear_task *t, linear_layout layout) {
    const int32_t n_blocks = t->n_in / LINEAR_BLOCK;
    const size_t bytes = layout == LINEAR_Q4 ? LINEAR_Q4_BYTES : LINEAR_Q8_BYTES;
    for (int32_t row = 0; row < t->n_rows; row++) {
        const int32_t first = row - row % LINEAR_TILE;
        const int32_t tile_rows = t->n_rows - first < LINEAR_TILE ? t->n_rows - first : LINEAR_TILE;
        const uint8_t *tile = t->tiles + (size_t)first * (size_t)n_blocks * LINEAR_ROW_BYTES;
        for (int32_t out = 0; out < (t->n_panels - 1) * LINEAR_LANES + t->n_last; out++) {
            const int32_t o = out % LINEAR_LANES;
            const uint8_t *record = t->panels + (size_t)(out / LINEAR_LANES) * (size_t)n_blocks * bytes;
            float y = 0;
            for (int32_t b = 0; b < n_blocks; b++, record += bytes) {
                int8_t x[LINEAR_BLOCK];
                float weighted;
                const float scale =
                    tile_row(tile + (size_t)b * (size_t)tile_rows * LINEAR_ROW_BYTES, tile_rows, row - first, x, &weighted);
                int32_t sum = 0;
                for (int32_t k = 0; k < LINEAR_BLOCK; k++)
                    sum += x[k] * (layout == LINEAR_Q4 ? code_q4(record, k, o) : code_q8(record, k, o));
                y = fmaf((float)sum * scale, load_f16(record + (layout == LINEAR_Q4 ? 256 : 512) + 2 * o), y);
                if (layout == LINEAR_Q4) y = fmaf(weighted, load_f16(record + 288 + 2 * o), y);
            }
            t->y[(size_t)row * t->y_stride + (size_t)out] = y;
        }
    }
}

static void multiply_q4(const linear_task *t) { multiply_blocks(t, LINEAR_Q4); }
static void multiply_q8(const linear_task *t) { multiply_blocks(t, LINEAR_Q8); }

static void quantize(const float *x, size_t row_stride, int32_t n_rows, int32_t n_blocks, uint8_t *tile) {
    for (int32_t b = 0; b < n_blocks; b++, tile += (size_t)n_rows * LINEAR_ROW_BYTES) {
        for (int32_t row = 0; row < n_rows; row++) {
            const float *block = x + (size_t)row * row_stride + (size_t)b * LINEAR_BLOCK;
            float max = 0;
            for (int32_t k = 0; k < LINEAR_BLOCK; k++) max = fabsf(block[k]) > max ? fabsf(block[k]) : max;
            const float scale = ca_f32_from_bits((ca_f32_bits(max / 127.0f) + 3u) & ~3u);
            const float inverse = scale > 0 ? 1.0f / scale : 0;
            int32_t sum = 0;
            for (int32_t k = 0; k < LINEAR_BLOCK; k++) {
                const int8_t q = (int8_t)lrintf(block[k] * inverse);
                memcpy(tile + ((size_t)(k / 4) * n_rows + row) * 4 + k % 4, &q, 1);
                sum += q;
            }
            const float scales[3] = {scale, -12582912.0f * scale, scale * (float)sum};
            const int32_t start = LINEAR_MAGIC - 128 * sum;
            uint8_t *to = tile + (size_t)n_rows * LINEAR_BLOCK + (size_t)row * 4;
            for (int i = 0; i < 3; i++) memcpy(to + (size_t)n_rows * 4 * i, &scales[i], 4);
            memcpy(to + (size_t)n_rows * 12, &start, 4);
        }
    }
}

const linear_kernel linear_ref = {
    .name = "ref",
    .quantize = quantize,
    .multiply = {multiply_f32, multiply_f16, multiply_bf16, multiply_q4, multiply_q8},
    .rms_norm = ops_rms_norm,
    .add = ops_add,
    .swiglu = ops_swiglu,
    .geglu = ops_geglu,
    .rope = ops_rope,
    .rope_halves = ops_rope_halves,
};
