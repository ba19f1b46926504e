/* Times the linear parts of a layer. */
#include "linear_time.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "bench/loadgen/quantiles.h"
#include "chunkattn/base/clock.h"
#include "chunkattn/base/half.h"
#include "chunkllama/tensor/weight_type.h"

enum { MAX_MATRICES = 3, MAX_STEPS = 1000, N_WARMUP = 1 };

struct linear_timer {
    layer_part part;
    ca_pool *pool;
    cl_linear *weights; /* [n_copies][n_matrices] */
    int32_t n_copies, n_matrices, next;
    cl_linear_input *input, *inner; /* inner: of the MLP's last product */
    float *x, *y[MAX_MATRICES];
};

bool linear_time_type(const char *name, uint32_t *type) {
    cl_tensor_type readable;
    for (size_t i = 0; cl_tensor_readable_type(i, &readable); i++)
        if (strcasecmp(name, cl_tensor_type_name(readable)) == 0) {
            *type = readable;
            return true;
        }
    return false;
}

/* Set the inputs and outputs of a part's matrices; returns the number of matrices. */
static int32_t shapes_of(const layer_shape *s, layer_part part, int32_t n_in[MAX_MATRICES], int32_t n_out[MAX_MATRICES]) {
    for (int i = 0; i < MAX_MATRICES; i++) n_in[i] = s->n_embd;
    switch (part) {
    case LAYER_QKV:
        n_out[0] = s->heads * s->head_dim;
        n_out[1] = n_out[2] = s->kv_heads * s->head_dim;
        return 3;
    case LAYER_MLP:
        n_out[0] = n_out[1] = n_in[2] = s->n_ff;
        n_out[2] = s->n_embd;
        return 3;
    default: n_out[0] = s->n_vocab; return 1;
    }
}

static uint64_t next_random(uint64_t *state) { return *state = *state * 6364136223846793005u + 1442695040888963407u; }

static void put_u16(uint8_t *to, uint16_t x) { memcpy(to, &x, sizeof x); }

/* Fill n_blocks blocks in the file's form: random codes, scales, and single weights of about 1. */
static void fill(uint8_t *data, size_t n_blocks, uint32_t block_bytes, uint32_t type) {
    const cl_quant_type *quant = cl_quant_type_of(type);
    uint64_t state = 1;
    for (size_t i = 0; i < n_blocks; i++) {
        uint8_t *p = data + i * block_bytes;
        const float x = (float)(int32_t)(next_random(&state) >> 32) * 0x1p-31f;
        const uint16_t f16 = ca_f16_from_f32(x);
        if (type == CL_TENSOR_F32) memcpy(p, &x, sizeof x);
        if (type == CL_TENSOR_BF16) put_u16(p, ca_bf16_from_f32(x));
        if (type == CL_TENSOR_F16) put_u16(p, f16);
        if (!quant) continue;
        for (uint32_t k = 0; k < block_bytes; k++) p[k] = (uint8_t)(next_random(&state) >> 56);
        if (cl_linear_formats[quant->layout].powers)
            p[quant->d_at] = 127;
        else if (quant->d_at >= 0)
            put_u16(p + quant->d_at, f16);
        if (cl_linear_formats[quant->layout].min) put_u16(p + quant->m_at, f16);
    }
}

/* Bytes of a matrix in the file's form; 0: the type's blocks do not divide its rows. */
static size_t file_bytes(int32_t n_in, int32_t n_out, uint32_t type) {
    uint32_t block = 1, block_bytes = 0;
    if (!cl_tensor_block(type, &block, &block_bytes) || n_in % (int32_t)block) return 0;
    return (size_t)n_in / block * (size_t)n_out * block_bytes;
}

/* Pack one matrix; `file` has room for its form in the file. */
static bool pack(uint8_t *file, int32_t n_in, int32_t n_out, uint32_t type, ca_pool *pool, cl_linear *w) {
    uint32_t block = 1, block_bytes = 0;
    const size_t bytes = file_bytes(n_in, n_out, type);
    if (bytes && cl_tensor_block(type, &block, &block_bytes)) fill(file, bytes / block_bytes, block_bytes, type);
    const cl_tensor random = {.name = {"random", strlen("random")},
                              .type = type,
                              .n_dims = 2,
                              .ne = {n_in, n_out, 1, 1},
                              .data = file,
                              .bytes = bytes};
    cl_error error;
    if (cl_linear_pack(&random, pool, w, &error) == CL_OK) return true;
    fprintf(stderr, "cattn-bench: %s\n", error.message);
    return false;
}

static bool make_weights(linear_timer *t, const layer_shape *shape, uint32_t type, size_t cold_bytes) {
    int32_t n_in[MAX_MATRICES], n_out[MAX_MATRICES];
    t->n_matrices = shapes_of(shape, t->part, n_in, n_out);
    size_t bytes = 0, largest = 1;
    for (int i = 0; i < t->n_matrices; i++) {
        const size_t size = file_bytes(n_in[i], n_out[i], type);
        bytes += size;
        largest = size > largest ? size : largest;
    }
    t->n_copies = 1 + (int32_t)(bytes ? cold_bytes / bytes : 0);
    t->weights = calloc((size_t)(t->n_copies * t->n_matrices), sizeof *t->weights);
    uint8_t *file = malloc(largest);
    bool ok = t->weights && file;
    if (!ok) fputs("cattn-bench: no memory for weights\n", stderr);
    for (int32_t i = 0; ok && i < t->n_copies * t->n_matrices; i++)
        ok = pack(file, n_in[i % t->n_matrices], n_out[i % t->n_matrices], type, t->pool, &t->weights[i]);
    free(file);
    return ok;
}

/* Rows in and out: x of the embedding's size, y of each matrix. */
static bool make_rows(linear_timer *t, const cl_kernels *kernel, int32_t max_rows) {
    const int32_t n_embd = t->weights[0].n_in;
    const unsigned forms = cl_linear_forms(&t->weights[0]);
    const size_t n_x = (size_t)max_rows * (size_t)n_embd;
    uint64_t state = 1;
    t->x = malloc(n_x * sizeof(float));
    bool ok = t->x;
    for (size_t i = 0; ok && i < n_x; i++) t->x[i] = (float)(int32_t)(next_random(&state) >> 32) * 0x1p-31f;
    for (int i = 0; i < t->n_matrices; i++) {
        t->y[i] = calloc((size_t)max_rows * (size_t)t->weights[i].n_out, sizeof(float));
        ok = ok && t->y[i];
    }
    t->input = cl_linear_input_create(kernel, forms, max_rows, n_embd, ca_pool_size(t->pool));
    if (t->part == LAYER_MLP)
        t->inner = cl_linear_input_create(kernel, forms, max_rows, t->weights[2].n_in, ca_pool_size(t->pool));
    ok = ok && t->input && (t->part != LAYER_MLP || t->inner);
    if (!ok) fprintf(stderr, "cattn-bench: no memory for %d rows\n", max_rows);
    return ok;
}

linear_timer *linear_timer_create(const layer_shape *shape, layer_part part, uint32_t type, const cl_kernels *kernel,
                                  int32_t max_rows, size_t cold_bytes, ca_pool *pool) {
    linear_timer *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    *t = (linear_timer){.part = part, .pool = pool};
    if (!make_weights(t, shape, type, cold_bytes) || !make_rows(t, kernel, max_rows)) linear_timer_destroy(&t);
    return t;
}

void linear_timer_destroy(linear_timer **timer) {
    linear_timer *t = *timer;
    if (!t) return;
    for (int32_t i = 0; t->weights && i < t->n_copies * t->n_matrices; i++) cl_linear_free(&t->weights[i]);
    for (int i = 0; i < MAX_MATRICES; i++) free(t->y[i]);
    cl_linear_input_free(&t->input);
    cl_linear_input_free(&t->inner);
    free(t->weights);
    free(t->x);
    free(t);
    *timer = NULL;
}

static void multiply(linear_timer *t, cl_linear_input *in, const float *x, int32_t n_rows, const cl_linear *w, float **y,
                     int n) {
    cl_linear_product products[MAX_MATRICES];
    for (int i = 0; i < n; i++) products[i] = (cl_linear_product){.w = &w[i], .y = y[i], .y_stride = (size_t)w[i].n_out};
    cl_linear_set(in, x, (size_t)w->n_in, n_rows, w->n_in);
    cl_linear_prepare(in, t->pool);
    cl_linear_apply(in, products, n, NULL, t->pool);
}

/* The MLP's last product multiplies the output of the first; the gate between them is not part of linear layers. */
static void step(linear_timer *t, int32_t n_rows) {
    const cl_linear *w = t->weights + t->next * t->n_matrices;
    t->next = (t->next + 1) % t->n_copies;
    multiply(t, t->input, t->x, n_rows, w, t->y, t->part == LAYER_MLP ? 2 : t->n_matrices);
    if (t->part == LAYER_MLP) multiply(t, t->inner, t->y[0], n_rows, w + 2, t->y + 2, 1);
}

double linear_timer_us(linear_timer *t, int32_t n_rows, int n_steps) {
    double us[MAX_STEPS];
    for (int i = -N_WARMUP; i < n_steps; i++) {
        const double start = clock_seconds();
        step(t, n_rows);
        if (i >= 0) us[i] = (clock_seconds() - start) * 1e6;
    }
    return load_median(us, (size_t)n_steps);
}
