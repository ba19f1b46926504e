/* Random matrices of every type, and rows that they multiply. Included after cmocka. */
#ifndef TESTS_CHUNKLLAMA_MODEL_RANDOM_MATRIX_H
#define TESTS_CHUNKLLAMA_MODEL_RANDOM_MATRIX_H

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/half.h"
#include "chunkllama/tensor/tensor.h"
#include "chunkllama/tensor/weight_type.h"

static uint64_t seed = 0x9E3779B97F4A7C15u;

static inline uint32_t next_u32(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32);
}

static inline float next_float(void) { return (float)(int32_t)next_u32() * 0x1p-31f; }

static inline bool is_quantised(uint32_t type) { return cl_quant_type_of(type) != NULL; }

static inline int block_of(uint32_t type) {
    uint32_t elements = 0, bytes;
    assert_true(cl_tensor_block(type, &elements, &bytes));
    return (int)elements;
}

/* A random matrix in the file's form, and the same in double. */
typedef struct matrix {
    cl_tensor tensor;
    uint8_t *data;
    double *values;
} matrix;

static inline void put_f16(uint8_t *p, float x) {
    const uint16_t h = ca_f16_from_f32(x);
    memcpy(p, &h, 2);
}

/* Set the scale of a block; IQ1_M has a quarter of it in the high bits of each of its last four words. */
static inline void put_scale(const cl_quant_type *type, uint8_t *p, uint32_t bytes, float x) {
    const uint16_t h = ca_f16_from_f32(x);
    if (type->d_at >= 0) put_f16(p + type->d_at, x);
    for (uint32_t i = 0; type->d_at < 0 && i < 4; i++) {
        uint8_t *high = p + bytes - 7 + 2 * i;
        *high = (uint8_t)((*high & 15) | (h >> 4 * i & 15) << 4);
    }
}

/* A block of a quantised type; factors of minima are below 64, so these below 1. */
static inline void put_block(const cl_quant_type *type, uint8_t *p, uint32_t bytes) {
    const cl_linear_format f = cl_linear_formats[type->layout];
    const float factor = f.super ? 1.0f / 64 : 1;
    for (uint32_t i = 0; i < bytes; i++) p[i] = (uint8_t)(next_u32() % 16 ? next_u32() : 0x80); /* often the extreme weight */
    /* One block in eight is subnormal in f16: it must count although f32 denormals do not. */
    if (f.powers)
        p[type->d_at] = (uint8_t)(next_u32() % 8 ? 112 + next_u32() % 16 : next_u32() % 3);
    else
        put_scale(type, p, bytes, next_float() * (next_u32() % 8 ? 0.1f * factor : 0x1p-16f));
    if (f.min) put_f16(p + type->m_at, next_float() * factor);
}

static inline matrix make_matrix(uint32_t type, int n_out, int n_in) {
    const size_t n = (size_t)n_out * n_in;
    uint32_t elements = 1, bytes = 0;
    assert_true(cl_tensor_block(type, &elements, &bytes));
    assert_int_equal(n_in % elements, 0);
    matrix m = {.data = calloc(n / elements, bytes), .values = malloc(n * sizeof(double))};
    float *row = malloc(n_in * sizeof *row);
    assert_true(m.data && m.values && row);
    for (uint8_t *p = m.data; p < m.data + n / elements * bytes; p += bytes) {
        const float x = next_float();
        const uint16_t bf16 = ca_bf16_from_f32(x);
        if (is_quantised(type)) put_block(cl_quant_type_of(type), p, bytes);
        if (type == CL_TENSOR_F32) memcpy(p, &x, 4);
        if (type == CL_TENSOR_F16) put_f16(p, x);
        if (type == CL_TENSOR_BF16) memcpy(p, &bf16, 2);
    }
    m.tensor = (cl_tensor){
        .name = {"w", 1}, .type = type, .n_dims = 2, .ne = {n_in, n_out, 1, 1}, .data = m.data, .bytes = n / elements * bytes};
    for (int o = 0; o < n_out; o++) {
        cl_tensor_row_f32(&m.tensor, o, row,
                          NULL); /* tests/chunkllama/model/test_tensor_types.py holds it to another implementation */
        for (int k = 0; k < n_in; k++) m.values[(size_t)o * n_in + k] = row[k];
    }
    free(row);
    return m;
}

static inline void free_matrix(matrix *m) {
    free(m->data);
    free(m->values);
}

/* Rows of very different size, with zero blocks, outliers and denormals. */
static inline void make_rows(float *x, int n_rows, int n_in) {
    for (int r = 0; r < n_rows; r++) {
        const float size = ldexpf(1, r % 7 == 6 ? 90 : r % 5 * 4 - 8);
        for (int k = 0; k < n_in; k++) {
            x[r * n_in + k] = next_float() * size * (next_u32() % 50 ? 1 : 30);
            if (r % 6 == 5 && k / 32 % 2) x[r * n_in + k] = k % 3 ? 0 : 0x1p-140f;
            if (r % 6 == 4 && k / 32 % 2) x[r * n_in + k] = next_float() * 0x1p-120f;
        }
    }
}

#endif
