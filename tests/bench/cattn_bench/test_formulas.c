/* The formulas that measurements are held against: by values worked out by hand, against the paper's, and against counting. */
#include "bench/shared/formulas.h"

#include "tests/support/testing.h"

static void flops(void **state) {
    (void)state;
    assert_float_equal(formula_flops(32, 128, 4097), 4.0 * 4096 * 4097, 0.5);
    assert_float_equal(formula_flops(1, 64, 1), 256, 0);
}

/* ---- A whole layer ---- */

static const layer_shape llama2 = {4096, 11008, 32000, 32, 32, 128};
static const layer_shape grouped = {576, 1536, 49152, 9, 3, 64};

static void check(const layer_shape *s, layer_part part, int64_t batch, int64_t context, int64_t rows, double flops,
                  double bytes) {
    const layer_cost cost = layer_cost_of(s, part, batch, context, rows);
    assert_true(cost.flops == flops);
    assert_true(cost.bytes == bytes);
}

/* 6 b D^2 and 2 (3 D^2 + 4 b D); 4 b (n + 1) D and 2 b (2 D + 2 (n + 1) D + 2 h n); 6 b D F and 2 (3 D F + b (3 D + 3 F)) */
static void test_paper(void **state) {
    (void)state;
    check(&llama2, LAYER_QKV, 1, 2048, 1, 100663296, 100696064);
    check(&llama2, LAYER_ATTENTION, 1, 2048, 1, 33570816, 33849344);
    check(&llama2, LAYER_MLP, 1, 2048, 1, 270532608, 270623232);
    check(&llama2, LAYER_QKV, 32, 2048, 1, 3221225472, 101711872);
    check(&llama2, LAYER_ATTENTION, 32, 2048, 1, 1074266112, 1083179008);
    check(&llama2, LAYER_MLP, 32, 2048, 1, 8657043456, 273432576);
}

/* 2 b D V and 2 (D V + b (D + V)), in prefill as in decode. */
static void test_output_layer(void **state) {
    (void)state;
    check(&llama2, LAYER_OUTPUT, 32, 2048, 1, 8388608000, 264454144);
    check(&llama2, LAYER_OUTPUT, 32, 0, 1024, 8388608000, 264454144);
}

static void test_grouped_heads(void **state) {
    (void)state;
    /* 576 + 2 * 192 outputs */
    check(&grouped, LAYER_QKV, 2, 100, 1, 2.0 * 2 * 576 * 960, 2.0 * (576 * 960 + 2 * (576 + 960)));
    check(&grouped, LAYER_ATTENTION, 2, 100, 1, 2.0 * 4 * 101 * 576, 2.0 * 2 * (2 * 576 + 2 * 101 * 192 + 2 * 9 * 100));
}

/* Rows of a prefill one by one, each a decode step; K and V are read once, not by each. */
static void test_prefill_is_a_sum_of_rows(void **state) {
    (void)state;
    for (int64_t context = 0; context <= 40; context += 40)
        for (int64_t rows = 1; rows <= 65; rows += 8) {
            const layer_cost all = layer_cost_of(&grouped, LAYER_ATTENTION, 3, context, rows);
            double flops = 0, bytes = 3 * 2.0 * 2 * (double)(context + rows) * 192;
            for (int64_t i = 0; i < rows; i++) {
                const layer_cost one = layer_cost_of(&grouped, LAYER_ATTENTION, 3, context + i, 1);
                flops += one.flops;
                bytes += one.bytes - 3 * 2.0 * 2 * (double)(context + i + 1) * 192;
            }
            assert_true(all.flops == flops);
            assert_true(all.bytes == bytes);
        }
    check(&llama2, LAYER_ATTENTION, 1, 0, 1024, 2.0 * 1024 * 1025 * 4096, 2.0 * (4.0 * 1024 * 4096 + 32.0 * 1024 * 1023));
}

/* Linear parts see only how many rows there are. */
static void test_linear_parts_count_rows(void **state) {
    (void)state;
    for (layer_part part = LAYER_QKV; part < LAYER_OUTPUT; part++) {
        if (part == LAYER_ATTENTION) continue;
        const layer_cost decode = layer_cost_of(&llama2, part, 1024, 4096, 1),
                         prefill = layer_cost_of(&llama2, part, 2, 0, 512);
        assert_true(decode.flops == prefill.flops);
        assert_true(decode.bytes == prefill.bytes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flops),
        cmocka_unit_test(test_paper),
        cmocka_unit_test(test_output_layer),
        cmocka_unit_test(test_grouped_heads),
        cmocka_unit_test(test_prefill_is_a_sum_of_rows),
        cmocka_unit_test(test_linear_parts_count_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
