/* Mixtures of experts: a part's outputs have the bits that linear.h gives for its row alone, however rows choose experts. */
#include "tests/support/testing.h"

#include <stdio.h>

#include "chunkllama/linear/experts.h"
#include "chunkllama/linear/linear_kernels.h"
#include "random_matrix.h"

enum { N_EXPERTS = 9, N_USED = 3, N_IN = 256, N_FF = 96, N_OUT = 80, MAX_ROWS = 300, MAX_PARTS = MAX_ROWS * N_USED };

typedef struct mixture {
    cl_linear gate[N_EXPERTS], up[N_EXPERTS], down[N_EXPERTS];
    cl_linear_room down_room; /* the others have memory of their own */
    bool biased;
    float gate_bias[N_EXPERTS * N_FF], up_bias[N_EXPERTS * N_FF];
    unsigned forms, next_forms;
} mixture;

/* room: NULL: none. */
static void pack(uint32_t type, int n_out, int n_in, ca_pool *pool, cl_linear_room *room, cl_linear *to) {
    matrix m = make_matrix(type, n_out, n_in);
    assert_int_equal(room ? cl_linear_pack_into(&m.tensor, pool, room, to, NULL) : cl_linear_pack(&m.tensor, pool, to, NULL),
                     CL_OK);
    free_matrix(&m);
}

static void make_mixture(mixture *x, uint32_t type, uint32_t next, ca_pool *pool) {
    x->down_room = (cl_linear_room){.n = N_EXPERTS};
    for (int e = 0; e < N_EXPERTS; e++) {
        pack(type, N_FF, N_IN, pool, NULL, &x->gate[e]);
        pack(type, N_FF, N_IN, pool, NULL, &x->up[e]);
        pack(next, N_OUT, N_FF, pool, &x->down_room, &x->down[e]);
    }
    for (int i = 0; i < N_EXPERTS * N_FF; i++) {
        x->gate_bias[i] = next_float();
        x->up_bias[i] = next_float();
    }
    x->forms = cl_linear_forms(x->gate);
    x->next_forms = cl_linear_forms(x->down);
}

static void free_mixture(mixture *x) {
    for (int e = 0; e < N_EXPERTS; e++) {
        cl_linear_free(&x->gate[e]);
        cl_linear_free(&x->up[e]);
        cl_linear_free(&x->down[e]);
    }
    cl_linear_room_free(&x->down_room);
}

/* Some rows go to the same experts, so that one has more than a block of rows; the last expert is rarely chosen. */
static void choose(cl_routes *r, int n_rows) {
    for (int i = 0; i < n_rows; i++)
        for (int j = 0; j < N_USED; j++) {
            int32_t *e = &r->expert[i * N_USED + j];
            bool is_new;
            do {
                *e = (int32_t)(next_u32() % (i % 50 == 49 ? N_EXPERTS : N_EXPERTS - 1));
                if (j == 1 && i % 9) *e = 4;
                is_new = true;
                for (int k = 0; k < j; k++) is_new = is_new && r->expert[i * N_USED + k] != *e;
                if (!is_new && j == 1) *e = r->expert[i * N_USED] == 4 ? 5 : 4, is_new = r->expert[i * N_USED] != *e;
            } while (!is_new);
        }
}

static void check_routes(const cl_routes *r) {
    static bool seen[MAX_PARTS];
    memset(seen, 0, sizeof seen);
    assert_int_equal(r->first[0], 0);
    assert_int_equal(r->first[N_EXPERTS], r->n_rows * N_USED);
    for (int i = 0; i < r->n_rows * N_USED; i++) {
        const int32_t part = r->part[i], e = r->expert[i];
        assert_true(part >= r->first[e] && part < r->first[e + 1] && !seen[part]);
        assert_int_equal(r->row[part], i / N_USED);
        assert_true(part == r->first[e] || r->row[part - 1] < r->row[part]); /* rows ascend */
        seen[part] = true;
    }
}

/* From expert e on. */
static cl_linear_pair pair_at(const cl_kernels *kernel, const mixture *m, int e) {
    return (cl_linear_pair){&m->gate[e], &m->up[e], m->biased ? m->gate_bias + e * N_FF : NULL,
                            m->biased ? m->up_bias + e * N_FF : NULL, kernel->row_ops.swiglu};
}

/* The outputs of all experts for one row alone. */
static void compute_alone(const cl_kernels *kernel, const mixture *m, const float *x, ca_pool *pool, float *y) {
    cl_linear_input *in = cl_linear_input_create(kernel, m->forms, 1, N_IN, 1),
                    *next = cl_linear_input_create(kernel, m->next_forms, 1, N_FF, 1);
    float h[N_FF];
    cl_linear_set(in, x, N_IN, 1, N_IN);
    cl_linear_prepare(in, pool);
    for (int e = 0; e < N_EXPERTS; e++) {
        const cl_linear_pair pair = pair_at(kernel, m, e);
        cl_linear_apply_gated(in, &pair, h, &m->down[e], next, pool);
        cl_linear_apply(next, &(cl_linear_product){&m->down[e], y + e * N_OUT, N_OUT}, 1, NULL, pool);
    }
    cl_linear_input_free(&in);
    cl_linear_input_free(&next);
}

static void check_rows(const cl_kernels *kernel, const mixture *m, const float *x, int n_rows, const float *expected,
                       ca_pool *pool) {
    static float h[MAX_PARTS * N_FF], y[MAX_PARTS * N_OUT], gathered[MAX_PARTS * N_IN];
    cl_routes *r = cl_routes_create(N_EXPERTS, N_USED, n_rows);
    cl_linear_input *in = cl_linear_input_create(kernel, m->forms, n_rows * N_USED, N_IN, ca_pool_size(pool)),
                    *next = cl_linear_input_create(kernel, m->next_forms, n_rows * N_USED, N_FF, ca_pool_size(pool));
    assert_true(r && in && next);
    choose(r, n_rows);
    cl_routes_sort(r, n_rows);
    check_routes(r);
    memset(y, 0x77, sizeof y);
    cl_linear_gather(in, r, x, N_IN, N_IN, m->forms & CL_LINEAR_IN_INT8 ? NULL : gathered, pool);
    const cl_linear_pair pair = pair_at(kernel, m, 0);
    cl_linear_apply_gated_experts(in, r, &pair, h, m->down, next, pool);
    cl_linear_apply_experts(next, r, m->down, y, pool);
    for (int i = 0; i < n_rows * N_USED; i++)
        if (memcmp(y + (size_t)r->part[i] * N_OUT, expected + ((size_t)(i / N_USED) * N_EXPERTS + (size_t)r->expert[i]) * N_OUT,
                   sizeof(float) * N_OUT))
            fail_msg("%s: row %d of %d differs at expert %d", cl_kernels_level(kernel), i / N_USED, n_rows, r->expert[i]);
    for (size_t i = (size_t)(n_rows * N_USED) * N_OUT; i < sizeof y / sizeof *y; i++)
        assert_int_equal(ca_f32_bits(y[i]), 0x77777777);
    cl_linear_input_free(&in);
    cl_linear_input_free(&next);
    cl_routes_free(&r);
    assert_null(r);
}

static void parts_have_the_bits_of_rows_alone(void **state) {
    (void)state;
    static const uint32_t types[][2] = {{CL_TENSOR_Q4_K, CL_TENSOR_Q8_0},
                                        {CL_TENSOR_Q6_K, CL_TENSOR_Q4_1},
                                        {CL_TENSOR_F16, CL_TENSOR_F32},
                                        {CL_TENSOR_BF16, CL_TENSOR_BF16}};
    static const int n_rows[] = {1, 2, 13, 40, MAX_ROWS};
    static float x[MAX_ROWS * N_IN], expected[MAX_ROWS * N_EXPERTS * N_OUT];
    ca_pool *pools[] = {ca_pool_create(1), ca_pool_create(2), ca_pool_create(3)};
    static mixture m;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        make_mixture(&m, types[t][0], types[t][1], pools[0]);
        m.biased = t % 2;
        make_rows(x, MAX_ROWS, N_IN);
        for (int i = 0; i < MAX_ROWS * N_IN; i++) x[i] = fmodf(x[i], 4); /* or activations overflow */
        for (int level = 0; cl_kernels_level_name(level); level++) {
            const cl_kernels *kernel = cl_kernels_find(cl_kernels_level_name(level));
            for (int i = 0; i < MAX_ROWS; i++)
                compute_alone(kernel, &m, x + (size_t)i * N_IN, pools[0], expected + (size_t)i * N_EXPERTS * N_OUT);
            for (int n = 0; n < 5; n++) check_rows(kernel, &m, x, n_rows[n], expected, pools[n % 3]);
        }
        free_mixture(&m);
    }
    for (int i = 0; i < 3; i++) ca_pool_destroy(&pools[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_have_the_bits_of_rows_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
