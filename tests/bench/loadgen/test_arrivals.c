/* Arrival times are a Poisson process of the requested rate, the same for the same seed. */
#include "tests/support/testing.h"

#include <math.h>
#include <string.h>

#include "bench/loadgen/load_requests.h"

enum { N = 20000 };
static double at[N], again[N];

static void test_rate_and_shape(void **state) {
    (void)state;
    static const double rates[] = {0.5, 5, 50};
    for (size_t k = 0; k < sizeof rates / sizeof *rates; k++) {
        const double rate = rates[k];
        load_arrivals(at, N, rate, 7);
        int n_long = 0;
        double squares = 0;
        for (int i = 1; i < N; i++) {
            const double gap = (at[i] - at[i - 1]) * rate;
            assert_true(gap >= 0);
            n_long += gap > 1;
            squares += gap * gap;
        }
        /* Exponential gaps of mean 1: P(gap > 1) = 1/e, E(gap^2) = 2. Bounds of five standard deviations. */
        assert_true(at[0] == 0);
        assert_true(fabs(at[N - 1] * rate / (N - 1) - 1) < 5 / sqrt(N));
        assert_true(fabs(n_long / (double)N - exp(-1)) < 5 * 0.49 / sqrt(N));
        assert_true(fabs(squares / N - 2) < 5 * sqrt(20. / N));
    }
}

static void test_seed(void **state) {
    (void)state;
    load_arrivals(at, N, 3, 1);
    load_arrivals(again, N, 3, 1);
    assert_memory_equal(at, again, sizeof at);
    load_arrivals(again, N, 3, 2);
    assert_true(memcmp(at, again, sizeof at) != 0);
    load_arrivals(again, 10, 3, 1); /* fewer are the first of more */
    assert_memory_equal(at, again, 10 * sizeof *at);
}

static void test_all_at_once(void **state) {
    (void)state;
    load_arrivals(at, 100, INFINITY, 1);
    for (int i = 0; i < 100; i++) assert_true(at[i] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rate_and_shape), cmocka_unit_test(test_seed),
                                       cmocka_unit_test(test_all_at_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
