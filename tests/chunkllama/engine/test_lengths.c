/* The expected rest of a completion, from those that ended. */
#include "tests/support/testing.h"

#include <math.h>

#include "chunkllama/engine/lengths.h"

static void nothing_is_known_at_first(void **state) {
    (void)state;
    cl_lengths l = {0};
    assert_true(cl_lengths_left(&l, 0, 64) == 64);
    cl_lengths_add(&l, 10);
    assert_true(cl_lengths_left(&l, 0, 64) == 10);
    assert_true(cl_lengths_left(&l, 16, 64) == 64); /* none was that long */
}

/* The mean over lengths that are drawn evenly from 1 to 400: what is left is half of what remains of the range. */
static void the_rest_is_the_conditional_mean(void **state) {
    (void)state;
    cl_lengths l = {0};
    for (int64_t i = 0; i < 20000; i++) cl_lengths_add(&l, 1 + i * 263 % 400);
    for (int64_t k = 0; k < 300; k += 10) {
        const double left = cl_lengths_left(&l, k, -1), expected = (400.0 - (double)k) / 2;
        if (fabs(left - expected) > 0.25 * expected + 2) fail_msg("after %d tokens: %g left, not %g", (int)k, left, expected);
    }
}

/* After a change of the load, the estimate follows within some hundred completions. */
static void old_completions_decay(void **state) {
    (void)state;
    cl_lengths l = {0};
    for (int i = 0; i < 10000; i++) cl_lengths_add(&l, 1000);
    assert_true(fabs(cl_lengths_left(&l, 100, -1) - 900) < 1e-6);
    for (int i = 0; i < 1000; i++) cl_lengths_add(&l, 100);
    assert_true(cl_lengths_left(&l, 0, -1) < 101);
    assert_true(cl_lengths_left(&l, 200, -1) == -1); /* what is left of the old weight is too little */
    cl_lengths_add(&l, INT64_C(1) << 40);
    assert_true(isfinite(cl_lengths_left(&l, INT64_C(1) << 50, -1)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_at_first),
        cmocka_unit_test(the_rest_is_the_conditional_mean),
        cmocka_unit_test(old_completions_decay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
