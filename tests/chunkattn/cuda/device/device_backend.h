/* The backend of tests/chunkattn/exact/worlds.h that is a device. */
#ifndef TESTS_CHUNKATTN_CUDA_DEVICE_DEVICE_BACKEND_H
#define TESTS_CHUNKATTN_CUDA_DEVICE_DEVICE_BACKEND_H

#include "tests/chunkattn/exact/driver.h"

/* Device 0, with memory of test_device.h. The caller may change its functions; `open` has to call the one that was there. */
backend device_backend(void);

#endif
