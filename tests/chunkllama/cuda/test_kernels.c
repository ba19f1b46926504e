/*
 * Kernels of the forward pass on a device: products, and what is between them, have the bits of the CPU's level "ref" for any
 * number of rows; products of BF16 weights agree with double precision and have the bits of a row alone.
 */
#include "tests/chunkattn/cuda/device/device_testing.h"

#include <stdio.h>
#include <stdlib.h>

#include "chunkattn/base/fp.h"
#include "chunkllama/cuda/kernel_table.h"
#include "chunkllama/linear/linear.h"
#include "chunkllama/linear/linear_kernels.h"
#include "tests/chunkllama/model/random_matrix.h"

enum { MAX_ROWS = 70 };

static const ca_cuda_runtime *runtime;

static void works(const char *failure) {
    if (failure) fail_msg("%s", failure);
}

static void launch(int kernel, int blocks, const void *args) {
    const ca_cuda_kernel *k = &cl_cuda_get()->kernels[kernel];
    ca_cuda_caller before;
    works(runtime->enter(0, &before));
    works(runtime->prepare(k));
    works(runtime->launch(k, blocks, args, dev_stream(0)));
    runtime->leave(&before);
    dev_finish();
}

static void *on_device(const void *from, size_t bytes, const char *name) {
    void *p = dev_alloc(bytes, name);
    return from ? memcpy(p, from, bytes) : memset(p, 0xff, bytes);
}

static int row_groups(int n_rows) { return (n_rows + CL_LINEAR_ROW_GROUP - 1) / CL_LINEAR_ROW_GROUP; }

static size_t records_bytes(int n_rows, int n) {
    return (size_t)row_groups(n_rows) * CL_LINEAR_ROW_GROUP * (size_t)(n / CL_LINEAR_BLOCK) * CL_LINEAR_ROW_BYTES;
}

/* Rows in the CPU's records, with zeros behind the last row, as a device has them. */
static void quantize(const float *x, int n_rows, int n, uint8_t *records) {
    const unsigned fp = ca_fp_enter();
    float *padded = calloc((size_t)row_groups(n_rows) * CL_LINEAR_ROW_GROUP, (size_t)n * sizeof *padded);
    memcpy(padded, x, (size_t)n_rows * (size_t)n * sizeof *x);
    for (int i = 0; i < row_groups(n_rows); i++)
        cl_kernels_ref.quantize(padded + (size_t)i * CL_LINEAR_ROW_GROUP * (size_t)n, (size_t)n, CL_LINEAR_ROW_GROUP,
                                n / CL_LINEAR_BLOCK, records + records_bytes(8 * i, n), CL_LINEAR_ROW_GROUP);
    free(padded);
    ca_fp_leave(fp);
}

static void multiply_ref(const cl_linear *w, const float *x, int n_rows, float *y) {
    ca_pool *pool = ca_pool_create(1);
    cl_linear_input *in = cl_linear_input_create(&cl_kernels_ref, cl_linear_forms(w), n_rows, w->n_in, 1);
    cl_linear_set(in, x, (size_t)w->n_in, n_rows, w->n_in);
    cl_linear_prepare(in, pool);
    cl_linear_apply(in, &(cl_linear_product){w, y, (size_t)w->n_out}, 1, NULL, pool);
    cl_linear_input_free(&in);
    ca_pool_destroy(&pool);
}

/* The products of two matrices on the device. groups: row groups of a warp. */
static void multiply(const cl_linear *w, int first_kernel_id, int groups_log, const float *x, int n_rows, float *y) {
    const cl_linear_layout layout = cl_linear_layout_of(w->type);
    const int rows = CL_LINEAR_ROW_GROUP << groups_log, n_panels = (w->n_out + 15) / 16;
    const size_t n_y = (size_t)n_rows * (size_t)w->n_out;
    cl_cuda_linear_args a = {.n_in = w->n_in, .n_rows = n_rows, .n_products = 2};
    uint8_t *panels = on_device(w->data, w->bytes, "panels"), *records = NULL;
    float *on_x = on_device(x, (size_t)n_rows * (size_t)w->n_in * 4, "x"), *both = on_device(NULL, 2 * n_y * 4, "y");
    if (layout >= CL_LINEAR_FIRST_QUANT) {
        uint8_t *host = malloc(records_bytes(n_rows, w->n_in));
        quantize(x, n_rows, w->n_in, host);
        records = on_device(host, records_bytes(n_rows, w->n_in), "records");
        free(host);
    }
    a.records = records;
    a.x = on_x;
    if (cl_linear_table_of(w->type)) memcpy(a.table, cl_linear_table_of(w->type), sizeof a.table);
    for (int i = 0; i < 2; i++)
        a.of[i] = (cl_cuda_product){panels, both + (size_t)i * (size_t)w->n_out, 2 * w->n_out, w->n_out};
    const int blocks = (2 * n_panels + CL_CUDA_PANELS_A_BLOCK - 1) / CL_CUDA_PANELS_A_BLOCK * ((n_rows + rows - 1) / rows);
    launch(first_kernel_id + groups_log, blocks, &a);
    for (int r = 0; r < n_rows; r++) {
        const float *row = both + (size_t)r * 2 * (size_t)w->n_out;
        assert_memory_equal(row, row + w->n_out, (size_t)w->n_out * 4);
        memcpy(y + (size_t)r * (size_t)w->n_out, row, (size_t)w->n_out * 4);
    }
    dev_free(panels);
    dev_free(on_x);
    dev_free(both);
    if (records) dev_free(records);
}

static void pack(const matrix *m, cl_linear *w) {
    ca_pool *pool = ca_pool_create(1);
    assert_int_equal(cl_linear_pack(&m->tensor, pool, w, NULL), CL_OK);
    ca_pool_destroy(&pool);
}

static void products_have_the_bits_of_the_cpu(void **state) {
    (void)state;
    static const int rows_of[] = {1, 7, 8, 9, 33, 70};
    cl_tensor_type type;
    for (size_t t = 0; cl_tensor_readable_type(t, &type); t++) {
        if (type == CL_TENSOR_BF16) continue;
        const bool quantised = is_quantised(type);
        const int n_in = quantised ? (block_of(type) == 256 ? 2560 : 1920) : 50,
                  n_out = 37; /* panels are longer than the ring */
        matrix m = make_matrix(type, n_out, n_in);
        cl_linear w;
        pack(&m, &w);
        float *x = malloc(MAX_ROWS * (size_t)n_in * 4), *y = malloc(MAX_ROWS * (size_t)n_out * 4),
              *want = malloc(MAX_ROWS * (size_t)n_out * 4);
        make_rows(x, MAX_ROWS, n_in);
        multiply_ref(&w, x, MAX_ROWS, want);
        for (int i = 0; i < 6; i++) {
            const int groups_log = quantised ? (int)((t + (size_t)i) % 4) : 0;
            multiply(&w, cl_cuda_first_product(cl_linear_layout_of(type)), groups_log, x, rows_of[i], y);
            if (memcmp(want, y, (size_t)rows_of[i] * (size_t)n_out * 4)) fail_msg("type %d, %d rows", (int)type, rows_of[i]);
        }
        free(x), free(y), free(want);
        cl_linear_free(&w);
        free_matrix(&m);
    }
}

static void bf16_products_do_not_depend_on_other_rows(void **state) {
    (void)state;
    enum { N_IN = 90, N_OUT = 37, ROWS = 70 };
    static float x[ROWS * N_IN], y[ROWS * N_OUT], want[ROWS * N_OUT];
    matrix m = make_matrix(CL_TENSOR_BF16, N_OUT, N_IN);
    cl_linear w;
    pack(&m, &w);
    for (int i = 0; i < ROWS * N_IN; i++) x[i] = next_float();
    for (int r = 0; r < ROWS; r++) multiply(&w, CL_CUDA_linear_BF16_1, 0, x + r * N_IN, 1, want + r * N_OUT);
    for (int groups_log = 0; groups_log < 4; groups_log++) {
        multiply(&w, CL_CUDA_linear_BF16_1, groups_log, x, ROWS, y);
        assert_memory_equal(want, y, sizeof y);
    }
    for (int i = 0; i < ROWS * N_OUT; i++) {
        double sum = 0, size = 0;
        for (int k = 0; k < N_IN; k++) {
            const double product = (double)x[i / N_OUT * N_IN + k] * m.values[i % N_OUT * N_IN + k];
            sum += product;
            size += fabs(product);
        }
        assert_true(fabs(sum - (double)y[i]) <= size * 0x1p-8);
    }
    cl_linear_free(&w);
    free_matrix(&m);
}

/* ---- Rows ---- */

static float *random_vector(int n) {
    float *v = dev_alloc((size_t)n * 4, "vector");
    for (int i = 0; i < n; i++) v[i] = next_float();
    return v;
}

static void norms_have_the_bits_of_the_cpu(void **state) {
    (void)state;
    enum { N = 96, ROWS = 11 };
    static float x[ROWS * N], delta[ROWS * N], out[ROWS * N];
    static uint8_t records[2 * 8 * N / 32 * CL_LINEAR_ROW_BYTES];
    const cl_row_ops *ops = &cl_kernels_ref.row_ops;
    for (int kind = 0; kind < 64; kind++) {
        const bool layer = kind & 1, has_delta = kind & 2, post = kind & 4, biases = kind & 8, plain = kind & 16;
        float *v[5];
        for (int i = 0; i < 5; i++) v[i] = random_vector(N);
        float *factor = random_vector(1);
        make_rows(x, ROWS, N);
        make_rows(delta, ROWS, N);
        cl_cuda_norm_args a = {.x = on_device(x, sizeof x, "x"),
                               .delta = has_delta ? on_device(delta, sizeof delta, "delta") : NULL,
                               .delta_bias = has_delta && biases ? v[0] : NULL,
                               .delta_norm = has_delta && post ? v[1] : NULL,
                               .delta_norm_bias = has_delta && post && biases ? v[2] : NULL,
                               .norm = plain ? NULL : v[3],
                               .norm_bias = biases && !plain ? v[4] : NULL,
                               .layer_scale = kind & 32 ? factor : NULL,
                               .out = on_device(NULL, sizeof out, "out"),
                               .records = on_device(NULL, sizeof records, "records"),
                               .residual_scale = kind & 32 ? 0.22f : 1,
                               .eps = 1e-5f,
                               .n = N,
                               .n_rows = ROWS,
                               .layer_norm = layer};
        launch(CL_CUDA_rows_norm, row_groups(ROWS) * CL_LINEAR_ROW_GROUP, &a);
        const unsigned fp = ca_fp_enter();
        void (*norm)(const float *, const float *, int32_t, float, float *) = layer ? ops->layer_norm : ops->rms_norm;
        for (int r = 0; r < ROWS; r++) {
            float *row = x + r * N, *d = delta + r * N, *to = out + r * N;
            if (a.delta_bias) ops->add(d, a.delta_bias, N);
            if (a.delta_norm) norm(d, a.delta_norm, N, a.eps, d);
            if (a.delta_norm_bias) ops->add(d, a.delta_norm_bias, N);
            for (int i = 0; has_delta && i < N; i++) d[i] *= a.residual_scale;
            if (has_delta) ops->add(row, d, N);
            for (int i = 0; has_delta && a.layer_scale && i < N; i++) row[i] *= *factor;
            memcpy(to, row, N * 4);
            if (a.norm) norm(row, a.norm, N, a.eps, to);
            if (a.norm_bias) ops->add(to, a.norm_bias, N);
        }
        ca_fp_leave(fp);
        quantize(out, ROWS, N, records);
        assert_memory_equal(x, a.x, sizeof x);
        assert_memory_equal(out, a.out, sizeof out);
        assert_memory_equal(records, a.records, sizeof records);
        for (int i = 0; i < 5; i++) dev_free(v[i]);
        dev_free(factor), dev_free(a.x), dev_free(a.out), dev_free(a.records);
        if (a.delta) dev_free(a.delta);
    }
}

/* Whose products are finite. */
static void make_small_rows(float *x, int n_rows, int n) {
    make_rows(x, n_rows, n);
    for (int i = 0; i < n_rows * n; i++) x[i] *= fabsf(x[i]) > 0x1p40f ? 0x1p-90f : 1;
}

static void activations_have_the_bits_of_the_cpu(void **state) {
    (void)state;
    enum { N = 64, ROWS = 9 };
    static float gate[ROWS * N], up[ROWS * N];
    static uint8_t records[2 * 8 * N / 32 * CL_LINEAR_ROW_BYTES];
    const cl_row_ops *ops = &cl_kernels_ref.row_ops;
    for (int kind = 0; kind < 16; kind++) {
        const int ffn = kind % 4;
        const bool biases = kind & 4, to_records = kind & 8;
        float *v[2] = {random_vector(N), random_vector(N)};
        make_small_rows(gate, ROWS, N);
        make_small_rows(up, ROWS, N);
        float *on_gate = on_device(gate, sizeof gate, "gate"), *on_up = on_device(up, sizeof up, "up");
        cl_cuda_activate_args a = {.gate = ffn == CL_CUDA_GELU ? NULL : on_gate,
                                   .up = on_up,
                                   .gate_bias = biases ? v[0] : NULL,
                                   .up_bias = biases ? v[1] : NULL,
                                   .h = on_up,
                                   .records = to_records ? on_device(NULL, sizeof records, "records") : NULL,
                                   .n = N,
                                   .n_rows = ROWS,
                                   .ffn = ffn};
        launch(CL_CUDA_rows_activate, row_groups(ROWS) * CL_LINEAR_ROW_GROUP, &a);
        const unsigned fp = ca_fp_enter();
        for (int r = 0; r < ROWS; r++) {
            float *g = gate + r * N, *u = up + r * N;
            if (biases) ops->add(g, v[0], N), ops->add(u, v[1], N);
            if (ffn == CL_CUDA_SWIGLU) ops->swiglu(g, u, N, u);
            if (ffn == CL_CUDA_SWIGLU_CLAMPED) ops->swiglu_clamped(g, u, N, u);
            if (ffn == CL_CUDA_GEGLU) ops->geglu(g, u, N, u);
            if (ffn == CL_CUDA_GELU) ops->gelu(u, N);
        }
        ca_fp_leave(fp);
        quantize(up, ROWS, N, records);
        if (to_records)
            assert_memory_equal(records, a.records, sizeof records);
        else
            assert_memory_equal(up, on_up, sizeof up);
        dev_free(v[0]), dev_free(v[1]), dev_free(on_gate), dev_free(on_up);
        if (a.records) dev_free(a.records);
    }
}

/* What is asked of the heads of Q, K and V. */
static void finish_ref(const cl_cuda_finish_args *a, int which, float *rows) {
    const cl_row_ops *ops = &cl_kernels_ref.row_ops;
    const cl_cuda_heads *h = &a->of[which];
    const int d = a->head_dim;
    for (int r = 0; r < a->n_rows; r++)
        for (int i = 0; i < h->n_heads; i++) {
            float *x = rows + (r * h->n_heads + i) * d;
            const float *norm = h->norm ? h->norm + (a->own_norm && which < 2 ? i * d : 0) : NULL;
            if (h->bias) ops->add(x, h->bias + i * d, d);
            if (norm && !a->norm_is_behind) ops->rms_norm(x, norm, d, a->eps, x);
            if (h->cos_sin)
                (a->halves ? ops->rope_halves : ops->rope)(x, h->cos_sin + a->positions[r] * a->n_rot, 1, d, a->n_rot);
            if (norm && a->norm_is_behind) ops->rms_norm(x, norm, d, a->eps, x);
            for (int k = 0; h->scale && k < d; k++) x[k] *= h->scale[r];
        }
}

static void heads_have_the_bits_of_the_cpu(void **state) {
    (void)state;
    enum { D = 80, ROWS = 5, POSITIONS = 12, MAX_HEADS = 3 };
    static const int n_heads[] = {MAX_HEADS, 2, 2};
    static float rows[3][ROWS * MAX_HEADS * D];
    for (int kind = 0; kind < 32; kind++) {
        cl_cuda_finish_args a = {.positions = dev_alloc(ROWS * sizeof(int32_t), "positions"),
                                 .eps = 1e-6f,
                                 .n_rows = ROWS,
                                 .head_dim = D,
                                 .n_rot = kind & 1 ? 48 : D,
                                 .halves = kind >> 1 & 1,
                                 .own_norm = kind >> 2 & 1,
                                 .norm_is_behind = kind >> 3 & 1};
        float *bias = random_vector(MAX_HEADS * D), *norm = random_vector(MAX_HEADS * D), *scale = random_vector(ROWS),
              *cos_sin = random_vector(POSITIONS * D);
        for (int r = 0; r < ROWS; r++) ((int32_t *)a.positions)[r] = (int32_t)(next_u32() % POSITIONS);
        for (int i = 0; i < 3; i++) {
            make_rows(rows[i], ROWS * n_heads[i], D);
            a.of[i] = (cl_cuda_heads){.rows = on_device(rows[i], sizeof(float) * ROWS * (size_t)n_heads[i] * D, "heads"),
                                      .bias = kind & 16 ? bias : NULL,
                                      .norm = i < 2 || kind & 16 ? norm : NULL,
                                      .cos_sin = i < 2 ? cos_sin : NULL,
                                      .scale = i == 0 ? scale : NULL,
                                      .n_heads = n_heads[i]};
        }
        launch(CL_CUDA_rows_finish_heads, (ROWS * 7 * 32 + 255) / 256, &a);
        for (int i = 0; i < 3; i++) {
            const unsigned fp = ca_fp_enter();
            finish_ref(&a, i, rows[i]);
            ca_fp_leave(fp);
            assert_memory_equal(rows[i], a.of[i].rows, sizeof(float) * ROWS * (size_t)n_heads[i] * D);
            dev_free(a.of[i].rows);
        }
        dev_free((void *)a.positions), dev_free(bias), dev_free(norm), dev_free(scale), dev_free(cos_sin);
    }
}

static void rows_are_quantised_and_gathered(void **state) {
    (void)state;
    enum { N = 96, ROWS = 19, KEPT = 3 };
    static const int32_t kept[KEPT] = {2, 7, 18};
    static float x[ROWS * N];
    static uint8_t records[3 * 8 * N / 32 * CL_LINEAR_ROW_BYTES];
    make_rows(x, ROWS, N);
    float *on_x = on_device(x, sizeof x, "x"), *to = on_device(NULL, KEPT * N * 4, "to");
    uint8_t *on_records = on_device(NULL, sizeof records, "records");
    int32_t *on_kept = on_device(kept, sizeof kept, "kept");
    launch(CL_CUDA_rows_quantize, 24, &(cl_cuda_quantize_args){on_x, on_records, N, ROWS});
    quantize(x, ROWS, N, records);
    assert_memory_equal(records, on_records, sizeof records);
    launch(CL_CUDA_rows_gather, KEPT, &(cl_cuda_gather_args){on_x, to, on_kept, N, KEPT});
    for (int i = 0; i < KEPT; i++) assert_memory_equal(to + i * N, x + kept[i] * N, N * 4);
    dev_free(on_x), dev_free(to), dev_free(on_records), dev_free(on_kept);
}

static int find_runtime(void **state) {
    (void)state;
    runtime = cl_cuda_get()->runtime;
    return runtime ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        DEVICE_TEST(products_have_the_bits_of_the_cpu), DEVICE_TEST(bf16_products_do_not_depend_on_other_rows),
        DEVICE_TEST(norms_have_the_bits_of_the_cpu),    DEVICE_TEST(activations_have_the_bits_of_the_cpu),
        DEVICE_TEST(heads_have_the_bits_of_the_cpu),    DEVICE_TEST(rows_are_quantised_and_gathered),
    };
    return cmocka_run_group_tests(tests, find_runtime, NULL);
}
