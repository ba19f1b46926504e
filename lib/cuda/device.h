/* Whether a cache can be kept on a CUDA device. */
#ifndef LIB_CUDA_DEVICE_H
#define LIB_CUDA_DEVICE_H

#include "chunkattn.h"

/*
 * Never CATTN_OK in this version: CATTN_ERR_ARG if no device has this number; otherwise CATTN_ERR_UNSUPPORTED, with a message
 * that says what is missing and what to do. May be called from any thread.
 */
cattn_status ca_cuda_check_device(int32_t device, cattn_error *error);

#endif
