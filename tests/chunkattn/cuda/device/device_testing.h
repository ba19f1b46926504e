/* cmocka for tests on a device. */
#ifndef TESTS_CHUNKATTN_CUDA_DEVICE_DEVICE_TESTING_H
#define TESTS_CHUNKATTN_CUDA_DEVICE_DEVICE_TESTING_H

#include <math.h>

#include "test_device.h"
#include "tests/support/status.h"

/* A test after which the emulation must have found nothing wrong with any kernel or copy. */
#define DEVICE_TEST(test) cmocka_unit_test_teardown(test, no_device_errors)

static inline int no_device_errors(void **state) {
    (void)state;
    assert_int_equal(dev_errors(), 0);
    return 0;
}

/* A row of a head [dim], and its lse in base 2. */
typedef struct head_row {
    const float *out;
    double lse;
} head_row;

/* The row of a head with a sink logit must be that of a head without one, less the sink's share. */
static inline void expect_sink(float sink, head_row without, head_row with, int dim) {
    const double sum = exp2(without.lse), all = sum + exp((double)sink);
    assert_true(fabs(with.lse - log2(all)) < 1e-5);
    for (int i = 0; i < dim; i++) assert_true(fabs((double)with.out[i] - (double)without.out[i] * sum / all) < 1e-5);
}

#endif
