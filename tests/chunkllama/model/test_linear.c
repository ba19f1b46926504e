/*
 * Linear layers: every level gives the bits of "ref" computed a row at a time, or for bf16 weights those of its own definition,
 * for any number of rows and threads; "ref" and the best level are held to double.
 */
#include "tests/support/testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chunkattn/base/fp.h"
#include "chunkattn/base/half.h"
#include "chunkllama/common/file_bytes.h"
#include "chunkllama/linear/linear.h"
#include "chunkllama/linear/linear_kernels.h"
#include "chunkllama/tensor/tensor.h"
#include "chunkllama/tensor/weight_type.h"
#include "random_matrix.h"

enum { MAX_ROWS = 70 };

/* Of the numbers of rows and threads, each `every`-th beginning at `from`; the gate takes a part each day. */
static int every = 1, from;

/* The rows of packed weights are those of the file, bit for bit. */
static void assert_same_rows(const cl_tensor *tensor, const cl_linear *w) {
    const size_t bytes = (size_t)w->n_in * sizeof(float);
    float *expected = malloc(bytes), *row = malloc(bytes);
    assert_true(expected && row);
    for (int32_t o = 0; o < w->n_out; o++) {
        assert_int_equal(cl_tensor_row_f32(tensor, o, expected, NULL), CL_OK);
        cl_linear_row_f32(w, o, row);
        assert_memory_equal(row, expected, bytes);
    }
    free(expected);
    free(row);
}

/* Each matrix of a 3-D tensor is packed as if it were alone: from memory and from a file, of every type. */
static void test_matrices(void **state) {
    (void)state;
    enum { N = 3, N_OUT = 21, N_IN = 512 };
    ca_pool *pool = ca_pool_create(2);
    char folder[] = "/tmp/chunkllama_linear.XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/weights", folder);
    cl_tensor_type type;
    for (size_t t = 0; cl_tensor_readable_type(t, &type); t++) {
        matrix all = make_matrix(type, N * N_OUT, N_IN); /* the same bytes */
        FILE *f = fopen(path, "wb");
        assert_true(f && fwrite(all.data, 1, all.tensor.bytes, f) == all.tensor.bytes && fclose(f) == 0);
        cl_file_bytes file;
        assert_int_equal(cl_file_bytes_open(path, &file, NULL), CL_OK);
        cl_tensor tensor = all.tensor;
        tensor.n_dims = 3;
        tensor.ne[1] = N_OUT;
        tensor.ne[2] = N;
        for (int i = 0; i < 2 * N; i++) {
            tensor.data = i < N ? all.data : file.data;
            tensor.file = i < N ? NULL : &file;
            const cl_tensor one = cl_tensor_matrix(&tensor, i % N);
            cl_tensor expected = all.tensor;
            expected.data = all.data + all.tensor.bytes / N * (i % N);
            cl_linear w;
            assert_int_equal(cl_linear_pack(&one, pool, &w, NULL), CL_OK);
            assert_true(w.n_out == N_OUT && w.n_in == N_IN);
            assert_same_rows(&expected, &w);
            cl_linear_free(&w);
        }
        cl_file_bytes_close(&file);
        free_matrix(&all);
    }
    assert_int_equal(unlink(path) + rmdir(folder), 0);
    ca_pool_destroy(&pool);
}

static void apply(const cl_kernels *kernel, const cl_linear *w, const float *x, int n_rows, float *y, size_t y_stride,
                  ca_pool *pool) {
    cl_linear_input *in = cl_linear_input_create(kernel, cl_linear_forms(w), n_rows, w->n_in, ca_pool_size(pool));
    assert_non_null(in);
    cl_linear_set(in, x, (size_t)w->n_in, n_rows, w->n_in);
    cl_linear_prepare(in, pool);
    cl_linear_apply(in, &(cl_linear_product){w, y, y_stride}, 1, NULL, pool);
    cl_linear_input_free(&in);
}

static bool rounds(const cl_kernels *kernel, uint32_t type) { return type == CL_TENSOR_BF16 && kernel->round_bf16; }

static float in_bf16(float x) { return fabsf(x) < 0x1p-126f ? 0 : ca_f32_from_bf16(ca_bf16_from_f32(x)); }

/*
 * Rows rounded to bf16 times bf16 weights, by the definition in linear_kernels.h. Intel's manual has it so (the order of
 * a pair, one rounding each, denormals zero), and AMD's Zen 5 agrees bit for bit.
 */
static void multiply_pairs(const matrix *m, const float *x, int n_rows, int n_in, float *y, int n_out) {
    const unsigned fp = ca_fp_enter();
    for (int r = 0; r < n_rows; r++) {
        for (int o = 0; o < n_out; o++) {
            float sum = 0;
            for (int k = 0; k < n_in; k += 2) {
                for (int j = k + 1; j >= k; j--) {
                    const bool is = j < n_in;
                    sum = fmaf(is ? in_bf16(x[r * n_in + j]) : 0, is ? (float)m->values[(size_t)o * n_in + j] : 0, sum);
                }
            }
            y[r * n_out + o] = sum;
        }
    }
    ca_fp_leave(fp);
}

/*
 * The same as AMX multiplies: 32 inputs at a time, the products of even and of odd ones apart. Intel's manual has it so.
 */
static void multiply_blocks(const matrix *m, const float *x, int n_rows, int n_in, float *y, int n_out) {
    const unsigned fp = ca_fp_enter();
    for (int r = 0; r < n_rows; r++) {
        for (int o = 0; o < n_out; o++) {
            float sum = 0;
            for (int first = 0; first < n_in; first += 32) {
                float parts[2] = {0, 0};
                for (int k = first; k < first + 32 && k < n_in; k++)
                    parts[k % 2] = fmaf(in_bf16(x[r * n_in + k]), (float)m->values[(size_t)o * n_in + k], parts[k % 2]);
                sum += parts[0] + parts[1];
            }
            y[r * n_out + o] = sum;
        }
    }
    ca_fp_leave(fp);
}

/*
 * Every level, 1 to 70 rows, 1 to 3 threads, against "ref" row by row or its own definition; what lies around the output stays.
 */
static void test_same_bits(void **state) {
    (void)state;
    static const int shapes[][2] = {{1, 1}, {16, 2}, {35, 3}, {57, 5}, {129, 1}, {19, 41}}; /* outputs; blocks of inputs */
    enum { N_SHAPES = sizeof shapes / sizeof *shapes };
    cl_tensor_type type;
    ca_pool *pools[] = {ca_pool_create(1), ca_pool_create(2), ca_pool_create(3)};
    printf("seed %llx\n", (unsigned long long)seed);
    for (int i = 0; cl_tensor_readable_type((size_t)i / N_SHAPES, &type); i++) {
        const int n_out = shapes[i % N_SHAPES][0], n_blocks = shapes[i % N_SHAPES][1];
        const int n_of_blocks = n_blocks * block_of(type), n_most = 6 * 256; /* more than a stripe (linear_avx2_tiles.h) */
        const int n_in = !is_quantised(type) ? 32 * n_blocks - 3 : n_of_blocks < n_most ? n_of_blocks : n_most;
        matrix m = make_matrix(type, n_out, n_in);
        cl_linear w;
        assert_int_equal(cl_linear_pack(&m.tensor, pools[i % 3], &w, NULL), CL_OK);
        assert_same_rows(&m.tensor, &w);
        float *x = malloc(sizeof *x * MAX_ROWS * n_in), *expected = malloc(sizeof *x * MAX_ROWS * n_out);
        const size_t stride = (size_t)n_out + 3;
        float *y = malloc(sizeof *y * (MAX_ROWS + 1) * stride);
        assert_true(x && expected && y);
        make_rows(x, MAX_ROWS, n_in);
        for (int r = 0; r < MAX_ROWS; r++)
            apply(&cl_kernels_ref, &w, x + (size_t)r * n_in, 1, expected + (size_t)r * n_out, n_out, pools[0]);
        for (int level = 0; cl_kernels_level_name(level); level++) {
            const cl_kernels *kernel = cl_kernels_find(cl_kernels_level_name(level));
            if (!kernel || strcmp(cl_kernels_level(kernel), cl_kernels_level_name(level)) != 0) continue; /* CATTN_LEVEL */
            if (rounds(kernel, type)) {
                const bool amx = strcmp(cl_kernels_level_name(level), "amx") == 0;
                (amx ? multiply_blocks : multiply_pairs)(&m, x, MAX_ROWS, n_in, expected, n_out);
            }
            for (int n = 1 + from; n <= MAX_ROWS; n += every) {
                memset(y, 0x77, sizeof *y * (MAX_ROWS + 1) * stride);
                apply(kernel, &w, x, n, y, stride, pools[n % 3]);
                for (int r = 0; r < n; r++) {
                    if (memcmp(y + (size_t)r * stride, expected + (size_t)r * n_out, sizeof *y * n_out) != 0)
                        fail_msg("%s, %s, %d x %d: row %d of %d differs", cl_kernels_level_name(level),
                                 cl_tensor_type_name(type), n_out, n_in, r, n);
                    for (size_t o = (size_t)n_out; o < stride; o++)
                        assert_int_equal(ca_f32_bits(y[(size_t)r * stride + o]), 0x77777777);
                }
                for (size_t o = 0; o < stride; o++) assert_int_equal(ca_f32_bits(y[(size_t)n * stride + o]), 0x77777777);
            }
        }
        free(x);
        free(expected);
        free(y);
        cl_linear_free(&w);
        free_matrix(&m);
    }
    for (int i = 0; i < 3; i++) ca_pool_destroy(&pools[i]);
}

/* A row that holds what is not a number gives the same alone as among others, whichever lane that is in. */
static void test_not_a_number(void **state) {
    (void)state;
    enum { N_ROWS = 8, N_IN = 64, N_OUT = 16 };
    ca_pool *pool = ca_pool_create(1);
    matrix m = make_matrix(CL_TENSOR_Q4_1, N_OUT, N_IN);
    cl_linear w;
    assert_int_equal(cl_linear_pack(&m.tensor, pool, &w, NULL), CL_OK);
    for (int level = 0; cl_kernels_level_name(level); level++) {
        const cl_kernels *kernel = cl_kernels_find(cl_kernels_level_name(level));
        for (int at = 0; at < 32; at++) {
            float x[N_ROWS * N_IN], y[N_ROWS * N_OUT], alone[N_OUT];
            make_rows(x, N_ROWS, N_IN);
            x[3 * N_IN + at] = NAN;
            x[5 * N_IN + 32 + at] = -INFINITY;
            apply(kernel, &w, x, N_ROWS, y, N_OUT, pool);
            for (int r = 0; r < N_ROWS; r++) {
                apply(kernel, &w, x + r * N_IN, 1, alone, N_OUT, pool);
                for (int o = 0; o < N_OUT; o++)
                    if (!isnan(alone[o]) || !isnan(y[r * N_OUT + o]))
                        assert_int_equal(ca_f32_bits(y[r * N_OUT + o]), ca_f32_bits(alone[o]));
            }
        }
    }
    cl_linear_free(&w);
    free_matrix(&m);
    ca_pool_destroy(&pool);
}

/* Several products over one input are those one by one; more rows than a block of rows and more panels than tasks. */
static void test_products(void **state) {
    (void)state;
    enum { N_IN = 64, N_ROWS = 300 };
    ca_pool *pool = ca_pool_create(2), *one = ca_pool_create(1);
    enum { N = 4 };
    static const uint32_t kinds[N] = {CL_TENSOR_Q4_1, CL_TENSOR_F16, CL_TENSOR_BF16, CL_TENSOR_Q8_0};
    static const int sizes[N] = {200, 17, 50, 100};
    static float x[N_ROWS * N_IN], y[N][N_ROWS * 200], expected[N_ROWS * 200];
    make_rows(x, N_ROWS, N_IN);
    const cl_kernels *kernel = cl_kernels_find(NULL);
    assert_non_null(kernel);
    cl_linear w[N];
    cl_linear_product products[N];
    unsigned forms = 0;
    for (int i = 0; i < N; i++) {
        matrix m = make_matrix(kinds[i], sizes[i], N_IN);
        assert_int_equal(cl_linear_pack(&m.tensor, pool, &w[i], NULL), CL_OK);
        products[i] = (cl_linear_product){&w[i], y[i], (size_t)sizes[i]};
        forms |= cl_linear_forms(&w[i]);
        free_matrix(&m);
    }
    cl_linear_input *in = cl_linear_input_create(kernel, forms, N_ROWS, N_IN, 2);
    assert_non_null(in);
    cl_linear_set(in, x, N_IN, N_ROWS, N_IN);
    cl_linear_prepare(in, pool);
    cl_linear_apply(in, products, N, NULL, pool);
    for (int i = 0; i < N; i++) {
        apply(kernel, &w[i], x, N_ROWS, expected, (size_t)sizes[i], one);
        assert_memory_equal(y[i], expected, sizeof(float) * N_ROWS * sizes[i]);
        cl_linear_free(&w[i]);
    }
    cl_linear_input_free(&in);
    ca_pool_destroy(&pool);
    ca_pool_destroy(&one);
}

enum { N_FINISHED = 3 };

/* Products and how often each of their values was finished. */
typedef struct finished {
    const cl_linear_product *products;
    int32_t unit;
    float *times[N_FINISHED];
} finished;

static void negate(void *arg, int i, int32_t row, int32_t n_rows, int32_t begin, int32_t end) {
    const finished *f = arg;
    const cl_linear_product *p = &f->products[i];
    if (begin % f->unit || (end % f->unit && end != p->w->n_out)) f->times[i][0] = 100;
    for (int32_t r = row; r < row + n_rows; r++)
        for (int32_t o = begin; o < end; o++) {
            p->y[(size_t)r * p->y_stride + o] *= -1;
            f->times[i][r * p->w->n_out + o]++;
        }
}

/* Each value is finished once, when it is there, in whole units; with any number of threads, units and rows. */
static void test_finish(void **state) {
    (void)state;
    enum { N_IN = 64, MAX_N = 300, MAX_OUT = 480 };
    static const struct {
        int32_t unit, of_16;
        int sizes[N_FINISHED];
    } cases[] = {{0, 16, {200, 17, 50}}, {16, 16, {48, 16, 16}}, {64, 64, {192, 64, 64}}, {80, 80, {480, 80, 80}}};
    static float x[MAX_N * N_IN], y[N_FINISHED][MAX_N * MAX_OUT], expected[MAX_N * MAX_OUT], times[N_FINISHED][MAX_N * MAX_OUT];
    ca_pool *pools[] = {ca_pool_create(1), ca_pool_create(2), ca_pool_create(3)};
    const cl_kernels *kernel = cl_kernels_find(NULL);
    make_rows(x, MAX_N, N_IN);
    for (int i = 0; i < MAX_N * N_IN; i++) x[i] = fmodf(x[i], 64); /* or some sums would not be numbers */
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        cl_linear w[N_FINISHED];
        cl_linear_product products[N_FINISHED];
        for (int i = 0; i < N_FINISHED; i++) {
            matrix m = make_matrix(CL_TENSOR_Q4_1, cases[c].sizes[i], N_IN);
            assert_int_equal(cl_linear_pack(&m.tensor, pools[0], &w[i], NULL), CL_OK);
            products[i] = (cl_linear_product){&w[i], y[i], (size_t)cases[c].sizes[i]};
            free_matrix(&m);
        }
        for (int run = 0; run < 9; run++) {
            static const int rows[] = {1, 33, MAX_N};
            const int n = rows[run / 3];
            memset(times, 0, sizeof times);
            finished f = {products, cases[c].of_16, {times[0], times[1], times[2]}};
            ca_pool *pool = pools[run % 3];
            cl_linear_input *in = cl_linear_input_create(kernel, CL_LINEAR_IN_INT8, n, N_IN, ca_pool_size(pool));
            assert_non_null(in);
            cl_linear_set(in, x, N_IN, n, N_IN);
            cl_linear_prepare(in, pool);
            cl_linear_apply(in, products, N_FINISHED, &(cl_linear_finish){negate, &f, cases[c].unit}, pool);
            cl_linear_input_free(&in);
            for (int i = 0; i < N_FINISHED; i++) {
                apply(kernel, &w[i], x, n, expected, (size_t)cases[c].sizes[i], pools[0]);
                for (int k = 0; k < n * cases[c].sizes[i]; k++) {
                    assert_true(times[i][k] == 1);
                    assert_int_equal(ca_f32_bits(y[i][k]), ca_f32_bits(-expected[k]));
                }
            }
        }
        for (int i = 0; i < N_FINISHED; i++) cl_linear_free(&w[i]);
    }
    for (int i = 0; i < 3; i++) ca_pool_destroy(&pools[i]);
}

/* Gate, up, biases, the activation and the matrix after them, each in a pass of its own over all rows. */
static void apply_apart(const cl_kernels *kernel, const cl_linear_pair *pair, const cl_linear *down, const float *x, int n_rows,
                        float *h, float *y, ca_pool *pool) {
    const int n_out = pair->gate->n_out;
    const size_t n = (size_t)n_rows * n_out;
    float *up_x = malloc(sizeof *up_x * n);
    assert_non_null(up_x);
    apply(kernel, pair->gate, x, n_rows, h, n_out, pool);
    apply(kernel, pair->up, x, n_rows, up_x, n_out, pool);
    const unsigned fp = ca_fp_enter();
    for (size_t i = 0; i < n; i++) {
        if (pair->gate_bias) h[i] += pair->gate_bias[i % n_out];
        if (pair->up_bias) up_x[i] += pair->up_bias[i % n_out];
    }
    pair->activate(h, up_x, (int32_t)n, h);
    ca_fp_leave(fp);
    apply(kernel, down, h, n_rows, y, down->n_out, pool);
    free(up_x);
}

/*
 * The gated product has the bits of its parts: at every level, with 1 to 3 threads, rows in partial tiles and in two blocks,
 * ranges that end in a partial pair of panels or take several turns, and any kind of matrix after it, with biases and without.
 * Values in between come out only where they are read.
 */
static void test_gated(void **state) {
    (void)state;
    enum { N_IN = 64, N_OUT = 21, MAX_FF = 480, N_ROWS = 300 };
    static const struct {
        uint32_t gate, up, down;
        int n_ff;
    } cases[] = {
        {CL_TENSOR_Q4_1, CL_TENSOR_Q4_1, CL_TENSOR_Q4_1, 480}, {CL_TENSOR_Q4_1, CL_TENSOR_Q8_0, CL_TENSOR_Q5_1, 96},
        {CL_TENSOR_Q5_0, CL_TENSOR_F16, CL_TENSOR_Q8_0, 32},   {CL_TENSOR_BF16, CL_TENSOR_F32, CL_TENSOR_Q4_0, 160},
        {CL_TENSOR_Q8_0, CL_TENSOR_Q8_0, CL_TENSOR_F16, 57},   {CL_TENSOR_F32, CL_TENSOR_F32, CL_TENSOR_F32, 3},
        {CL_TENSOR_Q4_0, CL_TENSOR_Q4_0, CL_TENSOR_BF16, 400}, {CL_TENSOR_BF16, CL_TENSOR_BF16, CL_TENSOR_BF16, 57},
    };
    static const int rows[] = {1, 2, 7, 8, 13, 31, 33, 70, 257, N_ROWS};
    static float x[N_ROWS * N_IN], h[(N_ROWS + 1) * MAX_FF], untouched[(N_ROWS + 1) * MAX_FF], y[N_ROWS * N_OUT];
    static float expected_h[N_ROWS * MAX_FF], expected_y[N_ROWS * N_OUT], biases[2 * MAX_FF];
    ca_pool *pools[] = {ca_pool_create(1), ca_pool_create(2), ca_pool_create(3)};
    memset(untouched, 0x77, sizeof untouched);
    make_rows(x, N_ROWS, N_IN);
    for (int i = 0; i < 2 * MAX_FF; i++) biases[i] = 4 * next_float();
    for (int i = 0; i < N_ROWS * N_IN; i++) x[i] = fmodf(x[i], 64); /* or h would be infinite, and tell nothing */
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const int n_ff = cases[c].n_ff;
        const uint32_t types[] = {cases[c].gate, cases[c].up, cases[c].down};
        cl_linear w[3];
        for (int i = 0; i < 3; i++) {
            matrix m = make_matrix(types[i], i == 2 ? N_OUT : n_ff, i == 2 ? n_ff : N_IN);
            assert_int_equal(cl_linear_pack(&m.tensor, pools[1], &w[i], NULL), CL_OK);
            free_matrix(&m);
        }
        for (int level = 0; cl_kernels_level_name(level); level++) {
            const cl_kernels *kernel = cl_kernels_find(cl_kernels_level_name(level));
            const cl_linear_pair pair = {&w[0], &w[1], c % 2 ? biases : NULL, c % 3 == 1 ? biases + MAX_FF : NULL,
                                         c % 2 ? kernel->row_ops.swiglu_clamped : kernel->row_ops.swiglu};
            apply_apart(kernel, &pair, &w[2], x, N_ROWS, expected_h, expected_y, pools[1]);
            for (size_t i = (size_t)from; i < 3 * sizeof rows / sizeof *rows; i += (size_t)every) {
                const int n = rows[i / 3], n_written = is_quantised(types[2]) || rounds(kernel, types[2]) ? 0 : n * n_ff;
                ca_pool *pool = pools[i % 3];
                cl_linear_input *in = cl_linear_input_create(kernel, cl_linear_forms(&w[0]) | cl_linear_forms(&w[1]), n, N_IN,
                                                             ca_pool_size(pool));
                cl_linear_input *in_h = cl_linear_input_create(kernel, cl_linear_forms(&w[2]), n, n_ff, ca_pool_size(pool));
                assert_true(in && in_h);
                memcpy(h, untouched, sizeof h);
                cl_linear_set(in, x, N_IN, n, N_IN);
                cl_linear_prepare(in, pool);
                cl_linear_apply_gated(in, &pair, h, &w[2], in_h, pool);
                cl_linear_apply(in_h, &(cl_linear_product){&w[2], y, N_OUT}, 1, NULL, pool);
                if (memcmp(y, expected_y, sizeof *y * N_OUT * n) != 0 || memcmp(h, expected_h, sizeof *h * n_written) != 0)
                    fail_msg("%s, case %zu: %d rows, %zu threads: differs", cl_kernels_level_name(level), c, n, i % 3 + 1);
                assert_memory_equal(h + n_written, untouched, sizeof h - sizeof *h * n_written);
                cl_linear_input_free(&in);
                cl_linear_input_free(&in_h);
            }
        }
        for (int i = 0; i < N_ROWS * N_OUT; i++) assert_true(isfinite(expected_y[i]));
        for (int i = 0; i < 3; i++) cl_linear_free(&w[i]);
    }
    for (int i = 0; i < 3; i++) ca_pool_destroy(&pools[i]);
}

/* x as int8 per block of 32 says it, by the definition in linear_kernels.h. */
static void quantised(const float *x, int n_in, double *values, double *scales) {
    for (int b = 0; b < n_in / 32; b++, x += 32) {
        float max = 0;
        for (int k = 0; k < 32; k++) max = fmaxf(max, fabsf(x[k]));
        const float scale = ca_f32_from_bits((ca_f32_bits(max / 127) + 3) & ~3u), inverse = scale > 0 ? 1 / scale : 0;
        for (int k = 0; k < 32; k++) values[32 * b + k] = (double)scale * rint((double)(x[k] * inverse));
        scales[b] = scale;
    }
}

/*
 * A level against double. With the same quantised activations only f32 rounding is left: every step of a sum rounds by
 * at most 2^-24 of a partial sum that is at most sum |w x| (code and minimum apart), and there are at most n_in, or for each
 * block 3, twice where it has two groups, and the rounding of the f32 weights. Against unquantised activations a value is off
 * by at most half its block's scale, so the sum by at most sum |w| scale / 2 more; scale and its inverse round, hence 0.501.
 * Where activations are rounded to bf16, which has 8 bits, a value is off by at most 2^-9 of itself, the sum by sum |w x| 2^-9.
 */
static void against_double(const cl_kernels *kernel) {
    enum { N_OUT = 40, N_IN = 768, N_ROWS = 12 };
    ca_pool *pool = ca_pool_create(1);
    static float x[N_ROWS * N_IN], y[N_ROWS * N_OUT];
    double worst = 0;
    cl_tensor_type type;
    for (size_t t = 0; cl_tensor_readable_type(t, &type); t++) {
        matrix m = make_matrix(type, N_OUT, N_IN);
        const bool quantise = is_quantised(type), round = rounds(kernel, type),
                   min = quantise && cl_linear_formats[cl_quant_type_of(type)->layout].min;
        cl_linear w;
        assert_int_equal(cl_linear_pack(&m.tensor, pool, &w, NULL), CL_OK);
        for (int i = 0; i < N_ROWS * N_IN; i++) x[i] = next_float() * (next_u32() % 50 ? 1 : 30);
        apply(kernel, &w, x, N_ROWS, y, N_OUT, pool);
        for (int r = 0; r < N_ROWS; r++) {
            double q[N_IN], scales[N_IN / 32];
            const float *row = x + r * N_IN;
            quantised(row, N_IN, q, scales);
            for (int o = 0; o < N_OUT; o++) {
                const double *values = m.values + (size_t)o * N_IN;
                double same = 0, full = 0, size = 0, step = 0;
                for (int k = 0; k < N_IN; k++) {
                    const double xk = quantise ? q[k] : round ? in_bf16(row[k]) : row[k];
                    same += values[k] * xk;
                    full += values[k] * row[k];
                    size += fabs(values[k] * xk);
                    if (quantise) step += fabs(values[k]) * scales[k / 32] * 0.501;
                    if (round) step += fabs(values[k] * row[k]) * 0x1p-9;
                    /* code and minimum, which is below 1, apart are at most this much larger than their sum */
                    if (min) size += 2 * fabs(xk);
                }
                const double rounding = (quantise ? 7 * N_IN / 32 : N_IN) * 0x1p-24 * size;
                const double got = y[r * N_OUT + o];
                if (!(fabs(got - same) <= rounding) || !(fabs(got - full) <= rounding + step))
                    fail_msg("%s, %s, row %d output %d: %.9g, expected %.9g (%.3g) or %.9g (%.3g)", cl_kernels_level(kernel),
                             cl_tensor_type_name(type), r, o, got, same, rounding, full, step);
                worst = fmax(worst, fabs(got - same) / rounding);
            }
        }
        cl_linear_free(&w);
        free_matrix(&m);
    }
    printf("%s: largest rounding error %.3g of its bound\n", cl_kernels_level(kernel), worst);
    ca_pool_destroy(&pool);
}

static void test_against_double(void **state) {
    (void)state;
    const cl_kernels *best = cl_kernels_find(NULL);
    assert_non_null(best);
    against_double(&cl_kernels_ref);
    against_double(best);
}

static void expect_error(const cl_tensor *tensor, ca_pool *pool, cl_status code, const char *part) {
    cl_linear w;
    cl_error error;
    assert_int_equal(cl_linear_pack(tensor, pool, &w, &error), code);
    assert_int_equal(error.code, code);
    if (!strstr(error.message, part)) fail_msg("\"%s\" does not say \"%s\"", error.message, part);
    assert_null(w.data);
}

static void test_errors(void **state) {
    (void)state;
    ca_pool *pool = ca_pool_create(1);
    matrix m = make_matrix(CL_TENSOR_Q4_0, 4, 64);
    cl_tensor t = m.tensor;
    t.name = (cl_str){"blk.3.ffn_up.weight", 19};
    t.type = 40;
    expect_error(&t, pool, CL_ERR_UNSUPPORTED, "blk.3.ffn_up.weight has type NVFP4; supported: F32, F16, Q4_0, ");
    t.type = CL_TENSOR_Q4_0;
    t.ne[0] = 48;
    expect_error(&t, pool, CL_ERR_FORMAT, "48");
    t.ne[0] = 64;
    t.ne[2] = 2;
    expect_error(&t, pool, CL_ERR_FORMAT, "matrix");
    t.ne[2] = 1;
    t.type = CL_TENSOR_Q4_K;
    t.ne[0] = 288;
    expect_error(&t, pool, CL_ERR_FORMAT, "rows of 288 values; Q4_K needs a multiple of 256");
    free_matrix(&m);
    ca_pool_destroy(&pool);
}

static void test_levels(void **state) {
    (void)state;
    assert_null(cl_kernels_find("sse9"));
    assert_string_equal(cl_kernels_level_name(0), "ref");
    assert_string_equal(cl_kernels_level(cl_kernels_find("ref")), "ref");
    if (cl_kernels_level_name(1)) {
        assert_int_equal(setenv("CATTN_LEVEL", "ref", 1), 0);
        assert_string_equal(cl_kernels_level(cl_kernels_find(cl_kernels_level_name(1))), "ref");
        assert_int_equal(unsetenv("CATTN_LEVEL"), 0);
    }
}

/* Row operations: every level has the same bits, and they are near double. */
static void test_ops(void **state) {
    (void)state;
    enum { N = 1003 };
    static float x[N], y[N], weight[N], wide[N], expected[11][N], got[N];
    for (int i = 0; i < N; i++) {
        x[i] = next_float() * (i % 3 ? 3 : 80);
        y[i] = next_float();
        weight[i] = next_float();
        wide[i] = 20 * next_float();
    }
    const unsigned fp = ca_fp_enter();
    cl_kernels_ref.row_ops.rms_norm(x, weight, N, 1e-5f, expected[0]);
    cl_kernels_ref.row_ops.swiglu(x, y, N, expected[1]);
    memcpy(expected[2], x, sizeof x);
    cl_kernels_ref.row_ops.add(expected[2], y, N);
    memcpy(expected[3], x, sizeof x);
    cl_kernels_ref.row_ops.rope(expected[3], weight, 10, 96, 64);
    cl_kernels_ref.row_ops.geglu(x, y, N, expected[4]);
    memcpy(expected[5], x, sizeof x);
    cl_kernels_ref.row_ops.rope_halves(expected[5], weight, 10, 96, 64);
    cl_kernels_ref.row_ops.swiglu_clamped(x, wide, N, expected[6]);
    memcpy(expected[7], x, sizeof x);
    cl_kernels_ref.row_ops.add_scaled(expected[7], y, N, 0.3f);
    cl_kernels_ref.row_ops.layer_norm(x, weight, N, 1e-5f, expected[8]);
    memcpy(expected[9], x, sizeof x);
    cl_kernels_ref.row_ops.gelu(expected[9], N);
    memcpy(expected[10], x, sizeof x);
    cl_kernels_ref.row_ops.cut(expected[10], N, 0.5f);
    const float dot = cl_kernels_ref.row_ops.dot(x, y, N);
    for (int level = 0; cl_kernels_level_name(level); level++) {
        const cl_kernels *k = cl_kernels_find(cl_kernels_level_name(level));
        assert_non_null(k);
        k->row_ops.rms_norm(x, weight, N, 1e-5f, got);
        assert_memory_equal(got, expected[0], sizeof got);
        k->row_ops.swiglu(x, y, N, got);
        assert_memory_equal(got, expected[1], sizeof got);
        memcpy(got, x, sizeof x);
        k->row_ops.add(got, y, N);
        assert_memory_equal(got, expected[2], sizeof got);
        memcpy(got, x, sizeof x);
        k->row_ops.rope(got, weight, 10, 96, 64);
        assert_memory_equal(got, expected[3], sizeof got);
        k->row_ops.geglu(x, y, N, got);
        assert_memory_equal(got, expected[4], sizeof got);
        memcpy(got, x, sizeof x);
        k->row_ops.rope_halves(got, weight, 10, 96, 64);
        assert_memory_equal(got, expected[5], sizeof got);
        k->row_ops.swiglu_clamped(x, wide, N, got);
        assert_memory_equal(got, expected[6], sizeof got);
        memcpy(got, x, sizeof x);
        k->row_ops.add_scaled(got, y, N, 0.3f);
        assert_memory_equal(got, expected[7], sizeof got);
        k->row_ops.layer_norm(x, weight, N, 1e-5f, got);
        assert_memory_equal(got, expected[8], sizeof got);
        memcpy(got, x, sizeof x);
        k->row_ops.gelu(got, N);
        assert_memory_equal(got, expected[9], sizeof got);
        memcpy(got, x, sizeof x);
        k->row_ops.cut(got, N, 0.5f);
        assert_memory_equal(got, expected[10], sizeof got);
        assert_true(k->row_ops.dot(x, y, N) == dot);
    }
    ca_fp_leave(fp);

    double mean = 0, sum = 0, products = 0, sizes = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        mean += (double)x[i] * x[i] / N;
        sum += x[i];
        products += (double)x[i] * y[i];
        sizes += fabs((double)x[i] * y[i]);
    }
    for (int i = 0; i < N; i++) squares += (x[i] - sum / N) * (x[i] - sum / N);
    const double cut = sum / N + 0.5 * sqrt(squares / N);
    assert_true(fabs(dot - products) <= 70 * 0x1p-24 * sizes); /* 63 steps a lane, 4 more, and the product */
    for (int i = 0; i < N; i++) /* the mean and the deviation are each as near as that, of values of up to 80 */
        assert_true(fabs(expected[10][i] - fmax(x[i] - cut, 0)) <= 140 * 0x1p-24 * 80);
    for (int i = 0; i < N; i++) {
        /* The sum of squares has 63 steps a lane and 4 more, all of one sign; its root halves the error. */
        const double norm = x[i] / sqrt(mean + 1e-5) * weight[i], act = x[i] / (1 + exp(-(double)x[i])) * y[i];
        assert_true(fabs(expected[0][i] - norm) <= 40 * 0x1p-24 * fabs(norm));
        assert_true(fabs(expected[1][i] - act) <= 4e-7 * fabs(act)); /* e^x to 3e-7, three more roundings */
        const double g = fmin(x[i], 7), limited = fmax(fmin(wide[i], 7), -7);
        const double clamped = g / (1 + exp(-1.702 * g)) * (limited + 1);
        /* As SiLU, but 1.702 g rounds twice before it is an exponent, and e^x ends at x = 88. */
        assert_true(fabs(expected[6][i] - clamped) <= (5e-7 + 2.1 * 0x1p-24 * fabs(1.702 * g)) * fabs(clamped) + 1e-35);
        /* As SiLU; the relative error of u, some 5 roundings, counts 2 |u| times in e^-2u. */
        const double u = sqrt(2 / M_PI) * (x[i] + 0.044715 * pow(x[i], 3)), gelu = x[i] * (1 / (1 + exp(-2 * u))) * y[i];
        assert_true(fabs(expected[4][i] - gelu) <= (5e-7 + 2 * fabs(u) * 3e-7) * fabs(gelu) + 1e-35);
        const int pair = i % 96 & ~1;
        if (i >= 960 || pair >= 64) {
            assert_true(expected[3][i] == x[i] && expected[5][i] == x[i]);
            continue;
        }
        const double a = x[i & ~1], b = x[i | 1], c = weight[pair], s = weight[pair + 1];
        const double turned = i % 2 ? a * s + b * c : a * c - b * s;
        assert_true(fabs(expected[3][i] - turned) <= 2 * 0x1p-24 * (fabs(a) + fabs(b)));
        const int at = i - i % 96, k = i % 96 % 32;
        const double first = x[at + k], second = x[at + 32 + k], c2 = weight[2 * k], s2 = weight[2 * k + 1];
        const double halves = i % 96 < 32 ? first * c2 - second * s2 : first * s2 + second * c2;
        assert_true(fabs(expected[5][i] - halves) <= 2 * 0x1p-24 * (fabs(first) + fabs(second)));
    }
}

/* What draws use: every level has the same bits, whatever the number of logits. */
static void test_logits(void **state) {
    (void)state;
    enum { N = 1003, BLOCKS = N / CL_OPS_WEIGHTS + 1 };
    static float x[N], weights[2][N];
    static double sums[2][BLOCKS];
    const float temperature = 0.7f;
    const unsigned fp = ca_fp_enter();
    for (int n = 1; n <= N; n += n < 40 ? 1 : 107) {
        for (int i = 0; i < n; i++) x[i] = i % 7 == 3 ? -INFINITY : i % 11 == 5 ? NAN : floorf(next_float() * 16) * 4;
        int32_t largest = 0;
        double sum = 0;
        for (int32_t i = 1; i < n; i++)
            if (x[i] > x[largest]) largest = i;
        cl_kernels_ref.row_ops.weigh(x, n, x[largest], 1 / temperature, weights[0], sums[0]);
        for (int i = 0; i < n; i++) {
            const double power = ((double)x[i] - (double)x[largest]) * (double)(1 / temperature);
            if (!(power > -80)) { /* or NaN */
                assert_true(weights[0][i] == 0);
                continue;
            }
            /* The power is rounded twice, and log2(e) as well; the polynomial adds some four roundings. */
            const double error = (double)weights[0][i] / exp(power) - 1;
            assert_true(fabs(error) <= 0x1p-24 * (4 - 2.25 * power));
            sum += (double)weights[0][i];
        }
        for (int i = 0; i * CL_OPS_WEIGHTS < n; i++) sum -= sums[0][i];
        assert_true(fabs(sum) < 1e-11);
        for (int level = 0; cl_kernels_level_name(level); level++) {
            const cl_row_ops *ops = &cl_kernels_find(cl_kernels_level_name(level))->row_ops;
            assert_int_equal(ops->argmax(x, n), largest);
            ops->weigh(x, n, x[largest], 1 / temperature, weights[1], sums[1]);
            assert_memory_equal(weights[0], weights[1], (size_t)n * sizeof *x);
            assert_memory_equal(sums[0], sums[1], sizeof(double) * (size_t)((n + CL_OPS_WEIGHTS - 1) / CL_OPS_WEIGHTS));
        }
    }
    ca_fp_leave(fp);
}

int main(int argc, char **argv) {
    if (argc > 2) {
        every = atoi(argv[1]);
        from = atoi(argv[2]) % every;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),      cmocka_unit_test(test_matrices),
        cmocka_unit_test(test_not_a_number),   cmocka_unit_test(test_products),
        cmocka_unit_test(test_finish),         cmocka_unit_test(test_gated),
        cmocka_unit_test(test_against_double), cmocka_unit_test(test_errors),
        cmocka_unit_test(test_levels),         cmocka_unit_test(test_ops),
        cmocka_unit_test(test_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
