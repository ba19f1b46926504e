/* The attention of a row in double precision, and what the device's arithmetic may differ from it. */
#ifndef TESTS_CHUNKATTN_CUDA_DEVICE_REFERENCE_H
#define TESTS_CHUNKATTN_CUDA_DEVICE_REFERENCE_H

#include "tests/chunkattn/exact/world.h"

/*
 * The largest error of a row's out [n_heads][head_dim] and lse [n_heads] in one layer, in units of what the arithmetic allows:
 * more than 1 is too much. Rows whose context is not finite only need results that are not finite, either.
 */
double reference_error(const world *w, const world_seq *s, int64_t position, int layer, const float *out, const float *lse);

#endif
