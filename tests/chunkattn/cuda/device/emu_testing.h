/* cmocka for tests on an emulated device. */
#ifndef TESTS_CHUNKATTN_CUDA_DEVICE_EMU_TESTING_H
#define TESTS_CHUNKATTN_CUDA_DEVICE_EMU_TESTING_H

#include "chunkattn/cuda/emu/emu_runtime.h"
#include "tests/support/status.h"

/* A test after which the emulation must have found nothing wrong with any kernel or copy. */
#define EMU_TEST(test) cmocka_unit_test_teardown(test, no_emu_errors)

static inline int no_emu_errors(void **state) {
    (void)state;
    assert_int_equal(emu_errors(), 0);
    return 0;
}

#endif
