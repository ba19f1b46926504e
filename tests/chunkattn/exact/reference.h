/* The attention of a row in double precision, and what the arithmetic of kernels may differ from it. */
#ifndef TESTS_CHUNKATTN_EXACT_REFERENCE_H
#define TESTS_CHUNKATTN_EXACT_REFERENCE_H

#include "world.h"

/*
 * The largest error of a row's out [n_heads][head_dim_v] and lse [n_heads] in one layer, in units of what the arithmetic of a
 * device or of the CPU allows: more than 1 is too much. Rows whose context is not finite only need results that are not finite,
 * either, on a device; on the CPU they are not compared, nor if a window hides what is not. Nor are those of int8
 * (tests/chunkattn/kcheck compares them).
 */
double reference_error(const world *w, const world_seq *s, int64_t position, int layer, bool on_device, const float *out,
                       const float *lse);

#endif
