/* Means and percentiles equal values computed by hand, which are NumPy's, too. */
#include "tests/support/testing.h"

#include <math.h>

#include "bench/loadgen/quantiles.h"
#include "bench/loadgen/report.h"

static void assert_near(double x, double y) { assert_true(fabs(x - y) < 1e-12); }

static void test_percentiles(void **state) {
    (void)state;
    double x[] = {4, 1, 3, 2};
    const load_stats s = load_stats_of(x, 4);
    assert_int_equal(s.n, 4);
    assert_near(s.mean, 2.5);
    assert_near(s.median, 2.5);
    assert_near(s.p90, 3.7);
    assert_near(s.p99, 3.97);
    assert_near(s.max, 4);
    assert_near(load_quantile(x, 4, 0), 1);
    assert_near(load_quantile(x, 4, 1), 4);
    assert_near(load_quantile(x, 3, 0.5), 2);
}

static void test_few(void **state) {
    (void)state;
    double one = 5;
    const load_stats s = load_stats_of(&one, 1), none = load_stats_of(&one, 0);
    assert_near(s.mean, 5);
    assert_near(s.median, 5);
    assert_near(s.p99, 5);
    assert_int_equal(none.n, 0);
    assert_near(none.mean, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_percentiles), cmocka_unit_test(test_few)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
