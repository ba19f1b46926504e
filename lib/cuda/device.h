/* Whether a cache can be kept on a CUDA device. */
#ifndef LIB_CUDA_DEVICE_H
#define LIB_CUDA_DEVICE_H

#include "chunkattn.h"

/* CATTN_ERR_ARG for a number that no device has; else CATTN_ERR_UNSUPPORTED, with what is missing and what to do. */
cattn_status ca_cuda_check_device(int32_t device, cattn_error *error);

#endif
