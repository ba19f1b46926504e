/* Names and block sizes of tensor types, and conversion of rows to f32. */
#include "tensor.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/half.h"
#include "chunkllama/common/file_bytes.h"
#include "weight_type.h"

/* Indexed by GGUF's number of a type. Types that cannot be read have no block size, but a name for messages. */
static const struct {
    const char *name;
    uint32_t elements, bytes; /* of a block */
} types[] = {
    [CL_TENSOR_F32] = {"F32", 1, 4},
    [CL_TENSOR_F16] = {"F16", 1, 2},
    [CL_TENSOR_Q4_0] = {"Q4_0", 32, 18},
    [CL_TENSOR_Q4_1] = {"Q4_1", 32, 20},
    [CL_TENSOR_Q5_0] = {"Q5_0", 32, 22},
    [CL_TENSOR_Q5_1] = {"Q5_1", 32, 24},
    [CL_TENSOR_Q8_0] = {"Q8_0", 32, 34},
    [9] = {"Q8_1", 0, 0},
    [CL_TENSOR_Q2_K] = {"Q2_K", 256, 84},
    [CL_TENSOR_Q3_K] = {"Q3_K", 256, 110},
    [CL_TENSOR_Q4_K] = {"Q4_K", 256, 144},
    [CL_TENSOR_Q5_K] = {"Q5_K", 256, 176},
    [CL_TENSOR_Q6_K] = {"Q6_K", 256, 210},
    [15] = {"Q8_K", 0, 0},
    [CL_TENSOR_IQ2_XXS] = {"IQ2_XXS", 256, 66},
    [CL_TENSOR_IQ2_XS] = {"IQ2_XS", 256, 74},
    [CL_TENSOR_IQ3_XXS] = {"IQ3_XXS", 256, 98},
    [CL_TENSOR_IQ1_S] = {"IQ1_S", 256, 50},
    [CL_TENSOR_IQ4_NL] = {"IQ4_NL", 32, 18},
    [CL_TENSOR_IQ3_S] = {"IQ3_S", 256, 110},
    [CL_TENSOR_IQ2_S] = {"IQ2_S", 256, 82},
    [CL_TENSOR_IQ4_XS] = {"IQ4_XS", 256, 136},
    [24] = {"I8", 0, 0},
    [25] = {"I16", 0, 0},
    [CL_TENSOR_I32] = {"I32", 0, 0},
    [27] = {"I64", 0, 0},
    [28] = {"F64", 0, 0},
    [CL_TENSOR_IQ1_M] = {"IQ1_M", 256, 56},
    [CL_TENSOR_BF16] = {"BF16", 1, 2},
    [CL_TENSOR_TQ1_0] = {"TQ1_0", 256, 54},
    [CL_TENSOR_TQ2_0] = {"TQ2_0", 256, 66},
    [CL_TENSOR_MXFP4] = {"MXFP4", 32, 17},
    [40] = {"NVFP4", 0, 0},
    [41] = {"Q1_0", 0, 0},
};
enum { N_TYPES = sizeof types / sizeof *types };

bool cl_tensor_block(uint32_t type, uint32_t *elements, uint32_t *bytes) {
    if (type >= N_TYPES || !types[type].elements) return false;
    *elements = types[type].elements;
    *bytes = types[type].bytes;
    return true;
}

bool cl_tensor_readable_type(size_t i, cl_tensor_type *type) {
    for (uint32_t t = 0; t < N_TYPES; t++) {
        if (!types[t].elements || i-- > 0) continue;
        *type = (cl_tensor_type)t;
        return true;
    }
    return false;
}

const char *cl_tensor_type_name(uint32_t type) {
    static _Thread_local char unknown[24]; /* until the thread's next call */
    if (type < N_TYPES && types[type].name) return types[type].name;
    if (type == CL_TENSOR_F8_E4M3) return "F8_E4M3";
    if (type == CL_TENSOR_U8) return "U8";
    snprintf(unknown, sizeof unknown, "type %u", type);
    return unknown;
}

void cl_tensor_type_error(const cl_tensor *tensor, cl_error *error) {
    char names[240] = "";
    cl_tensor_type type;
    for (size_t i = 0, n = 0; cl_tensor_readable_type(i, &type); i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", cl_tensor_type_name(type));
    cl_error_set(error, CL_ERR_UNSUPPORTED, "tensor %.*s has type %s; supported: %s (requantise the model)",
                 (int)tensor->name.size, tensor->name.data, cl_tensor_type_name(tensor->type), names);
}

size_t cl_tensor_row_bytes(uint32_t type, int64_t n) {
    uint32_t elements = 1, bytes = 0;
    const bool readable = cl_tensor_block(type, &elements, &bytes);
    assert(readable);
    (void)readable;
    return (size_t)n / elements * bytes;
}

cl_tensor cl_tensor_matrix(const cl_tensor *tensor, int64_t i) {
    assert(i >= 0 && i < tensor->ne[2] && tensor->ne[3] == 1);
    cl_tensor matrix = *tensor;
    matrix.n_dims = 2;
    matrix.ne[2] = 1;
    matrix.bytes = tensor->bytes / (size_t)tensor->ne[2];
    if (tensor->data) matrix.data = (const uint8_t *)tensor->data + (size_t)i * matrix.bytes;
    matrix.recipe_row += i * tensor->ne[1];
    return matrix;
}

static uint16_t load_u16(const uint8_t *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return h;
}

/* n values of a block. The products are exact in f32, so each value rounds once, where a minimum is added. */
static void block_f32(const cl_quant_type *type, const uint8_t *block, int n, float *out) {
    const cl_linear_format f = cl_linear_formats[type->layout];
    cl_quant_block parts;
    type->decode(block, &parts);
    const uint8_t *scale = cl_quant_scale(type, block, &parts);
    float d = f.powers ? ldexpf(1, *scale - 128) : ca_f32_from_f16(load_u16(scale));
    if (f.super) d /= (float)f.super;
    const float m = f.min ? ca_f32_from_f16(load_u16(block + type->m_at)) : 0;
    for (int k = 0; k < n; k++) {
        const int g = k / f.scale_group, code = type->table ? type->table[parts.codes[k]] : parts.codes[k];
        out[k] = (f.super ? d * (float)parts.d[g] : d) * (float)(code - f.zero);
        if (f.min) out[k] += f.super ? -m * (float)parts.m[g] : m;
    }
}

/* Convert a row of n values in the file's form, p, to f32. */
static void row_f32(uint32_t number, int64_t n, const uint8_t *p, float *out) {
    const cl_quant_type *type = cl_quant_type_of(number);
    if (type) {
        uint32_t elements = 1, bytes = 0;
        cl_tensor_block(number, &elements, &bytes);
        for (int64_t k = 0; k < n; k += elements, p += bytes) block_f32(type, p, (int)elements, out + k);
        return;
    }
    switch (number) {
    case CL_TENSOR_F32: memcpy(out, p, (size_t)n * 4); return;
    case CL_TENSOR_F16:
        for (int64_t k = 0; k < n; k++) out[k] = ca_f32_from_f16(load_u16(p + 2 * k));
        return;
    case CL_TENSOR_BF16:
        for (int64_t k = 0; k < n; k++) out[k] = ca_f32_from_bf16(load_u16(p + 2 * k));
        return;
    default: assert(!"a type that cl_model_load lets pass");
    }
}

const uint8_t *cl_tensor_bytes(const cl_tensor *tensor, size_t at, size_t n, void *buf) {
    if (tensor->recipe) {
        const size_t row = cl_tensor_row_bytes(tensor->type, tensor->ne[0]);
        if (row == 0) return NULL; /* rows without values */
        assert(at % row == 0 && n % row == 0);
        const cl_tensor_recipe *r = tensor->recipe;
        return r->make(r, tensor->recipe_row + (int64_t)(at / row), (int64_t)(n / row), buf) ? buf : NULL;
    }
    const uint8_t *data = (const uint8_t *)tensor->data + at;
    if (!tensor->file) return data;
    return cl_file_bytes_copy(tensor->file, data, n, buf) ? buf : NULL;
}

cl_status cl_tensor_fail_read(const cl_tensor *tensor, cl_error *error) {
    return cl_fail(error, CL_ERR_FILE,
                   "tensor %.*s cannot be read any more; was its file truncated while it was loaded, or does its disk fail?",
                   (int)tensor->name.size, tensor->name.data);
}

cl_status cl_tensor_row_f32(const cl_tensor *tensor, int64_t row, float *out, cl_error *error) {
    const size_t bytes = cl_tensor_row_bytes(tensor->type, tensor->ne[0]);
    void *buf = cl_tensor_needs_buffer(tensor) ? malloc(bytes) : NULL;
    if (cl_tensor_needs_buffer(tensor) && !buf)
        return cl_fail(error, CL_ERR_NOMEM, "no memory for tensor %.*s", (int)tensor->name.size, tensor->name.data);
    const uint8_t *p = cl_tensor_bytes(tensor, (size_t)row * bytes, bytes, buf);
    if (p) row_f32(tensor->type, tensor->ne[0], p, out);
    free(buf);
    return p ? CL_OK : cl_tensor_fail_read(tensor, error);
}
