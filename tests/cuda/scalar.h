/*
 * Executes the image of a plan as a device's kernels do, queue by queue and head task by head task, but one row and one chunk
 * at a time, with the functions of the level `ref`. It reads the image and never the plan, so it shows that the image suffices.
 */
#ifndef TESTS_CUDA_SCALAR_H
#define TESTS_CUDA_SCALAR_H

#include "../support/rng.h"
#include "lib/attn/attn.h"
#include "lib/cuda/image.h"

/* As ca_attn_run, with the kernel, layout, pool and options of attn. `r` draws the order in which queues advance. */
void scalar_run(const ca_image *image, const ca_attn *attn, int32_t layer, const cattn_view *q, const cattn_view *out,
                float *lse, rng *r);

#endif
