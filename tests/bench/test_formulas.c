/* The formulas that measurements are held against, by values worked out by hand. */
#include "bench/shared/formulas.h"

#include "../support/testing.h"

static void moved_without_sharing_is_naive(void **state) {
    (void)state;
    /* 32 * 32 * 128 = 131072 rows' elements; 2 + 2 * 4096 = 8194 times that */
    assert_float_equal(formula_moved_naive(32, 32, 128, 4096), 131072.0 * 8194, 0.5);
    assert_float_equal(formula_moved_chunk(32, 32, 128, 64, 4096, 0), 131072.0 * 8194, 0.5);
}

static void moved_with_sharing(void **state) {
    (void)state;
    /* all shared: 8192 (1/32 + 1/64) + 2 = 256 + 128 + 2 = 386 */
    assert_float_equal(formula_moved_chunk(32, 32, 128, 64, 4096, 1), 131072.0 * 386, 0.5);
    /* half: 4096 (1/32 + 1/64) + 2 + 4096 = 128 + 64 + 2 + 4096 = 4290 */
    assert_float_equal(formula_moved_chunk(32, 32, 128, 64, 4096, 0.5), 131072.0 * 4290, 0.5);
}

static void flops(void **state) {
    (void)state;
    assert_float_equal(formula_flops(32, 128, 4097), 4.0 * 4096 * 4097, 0.5);
    assert_float_equal(formula_flops(1, 64, 1), 256, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moved_without_sharing_is_naive),
        cmocka_unit_test(moved_with_sharing),
        cmocka_unit_test(flops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
