/*
 * The image of a plan executed as a device's kernels do it, part by part and job by job, but one row and one chunk at a time,
 * by the reference level's functions. It knows nothing of the plan but the image: what it gets right, kernels can.
 */
#ifndef TESTS_CUDA_SCALAR_H
#define TESTS_CUDA_SCALAR_H

#include "../support/rng.h"
#include "lib/attn/attn.h"
#include "lib/cuda/image.h"

/* As ca_attn_run. attn: for its kernel, layout, pool and options. Parts take turns as r has it. */
void scalar_run(const ca_image *image, const ca_attn *attn, int32_t layer, const cattn_view *q, const cattn_view *out,
                float *lse, rng *r);

#endif
