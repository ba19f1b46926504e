/* The forward pass on a CUDA device (cl_backend_cuda): what its tests see of it. */
#ifndef CHUNKLLAMA_MODEL_DEVICE_FORWARD_H
#define CHUNKLLAMA_MODEL_DEVICE_FORWARD_H

#include "forward.h"

/*
 * Compute attention of a layer of the open step in another way, which tests do that compare everything else with the CPU. All
 * pointers are to device memory and [n_rows][heads of the layer][head_dim] f32; k and v are NULL where the layer has none.
 */
typedef cl_status cl_device_attend(void *ctx, int32_t layer, int32_t n_rows, const float *q, const float *k, const float *v,
                                   float *attended);
void cl_device_forward_splice(cl_forward *f, cl_device_attend *attend, void *ctx);

/* Whether decode steps may be graphs, as they are at first; how many steps have replayed one. */
void cl_device_forward_set_graphs(cl_forward *f, bool on);
uint64_t cl_device_forward_n_replays(const cl_forward *f);

#endif
