/* Converts rows of packed matrices to f32, as linear_pack.c has placed them. */
#include <math.h>
#include <string.h>

#include "chunkattn/base/half.h"
#include "chunkllama/tensor/weight_type.h"
#include "linear.h"

static uint32_t get_word(const uint8_t *record, int vector, int lane) {
    uint32_t word;
    memcpy(&word, record + 64 * vector + 4 * lane, sizeof word);
    return word;
}

static float get_f16(const uint8_t *from, int lane) {
    uint16_t h;
    memcpy(&h, from + 2 * lane, sizeof h);
    return ca_f32_from_f16(h);
}

/* The scale of a lane among the 16 at `from`. super: that of which these are factors, if any. */
static float get_scale(cl_linear_format f, const uint8_t *from, int lane, float super) {
    if (f.powers) return ldexpf(1, from[lane] - 128);
    return f.super ? super * (float)(int8_t)from[lane] : get_f16(from, lane);
}

/* Undo pack_codes (linear_pack.c). */
static void unpack_codes(const uint8_t *record, int lane, int bits, uint8_t *codes) {
    uint32_t step[8];
    for (int j = 0; j < 8; j++) {
        const uint8_t *plane = record;
        int shift = 0;
        step[j] = bits == 8 ? get_word(plane, j, lane) : 0;
        if (bits & 4) {
            step[j] = get_word(plane, j % 4, lane) >> (j < 4 ? 0 : 4) & 0x0f0f0f0f;
            plane += 256;
            shift = 4;
        }
        if (bits & 2) {
            step[j] |= (get_word(plane, j / 4, lane) >> 2 * (j % 4) & 0x03030303) << shift;
            plane += 128;
            shift += 2;
        }
        if (bits & 1) step[j] |= (get_word(plane, 0, lane) >> j & 0x01010101) << shift;
    }
    memcpy(codes, step, sizeof step);
}

/* The products are exact in f32, so each value rounds once, where a minimum is added. */
static void unpack_quant(const cl_linear *w, const uint8_t *record, int lane, float *out) {
    const cl_linear_format f = cl_linear_formats[cl_linear_layout_of(w->type)];
    const uint8_t *table = cl_linear_table_of(w->type);
    uint8_t codes[CL_LINEAR_BLOCK];
    float super_d = 0, super_m = 0;
    for (int32_t k = 0; k < w->n_in; k += CL_LINEAR_BLOCK, record += cl_linear_record_bytes(f)) {
        if (f.super && k % (CL_LINEAR_BLOCK * CL_LINEAR_SUPER) == 0) {
            super_d = get_f16(record, lane) / (float)f.super;
            if (f.min) super_m = get_f16(record + 2 * CL_LINEAR_LANES, lane);
            record += cl_linear_super_bytes(f);
        }
        unpack_codes(record, lane, f.bits, codes);
        for (int i = 0; i < CL_LINEAR_BLOCK; i++) {
            const uint8_t *d = record + cl_linear_d_at(f, i / f.scale_group),
                          *m = record + cl_linear_m_at(f, i / f.scale_group);
            const int code = table ? table[codes[i]] : codes[i];
            out[k + i] = get_scale(f, d, lane, super_d) * (float)(code - f.zero);
            if (f.min) out[k + i] += f.super ? super_m * (float)(int8_t)m[lane] : get_f16(m, lane);
        }
    }
}

void cl_linear_row_f32(const cl_linear *w, int32_t row, float *out) {
    const cl_linear_layout layout = cl_linear_layout_of(w->type);
    const int lane = row % CL_LINEAR_LANES;
    const uint8_t *panel = (const uint8_t *)w->data + (size_t)(row / CL_LINEAR_LANES) * cl_linear_panel_bytes(layout, w->n_in);
    switch (layout) {
    case CL_LINEAR_F32:
        for (size_t k = 0; k < (size_t)w->n_in; k++)
            memcpy(&out[k], panel + (k * CL_LINEAR_LANES + (size_t)lane) * sizeof *out, sizeof *out);
        return;
    case CL_LINEAR_F16:
        for (size_t k = 0; k < (size_t)w->n_in; k++) out[k] = get_f16(panel + 2 * k * CL_LINEAR_LANES, lane);
        return;
    case CL_LINEAR_BF16:
        for (size_t k = 0; k < (size_t)w->n_in; k++) {
            uint16_t h;
            memcpy(&h, panel + k / 2 * 4 * CL_LINEAR_LANES + 4 * (size_t)lane + k % 2 * 2, sizeof h);
            out[k] = ca_f32_from_bf16(h);
        }
        return;
    default: unpack_quant(w, panel, lane, out);
    }
}
