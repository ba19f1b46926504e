/* Times the linear parts of a layer: ChunkLlama's linear layers on random weights. */
#ifndef BENCH_SHARED_LINEAR_TIME_H
#define BENCH_SHARED_LINEAR_TIME_H

#include <stdbool.h>
#include <stddef.h>

#include "chunkattn/base/threads.h"
#include "chunkllama/linear/linear.h"
#include "formulas.h"

typedef struct linear_timer linear_timer;

/* Find a weight type by its name in `chunkllama info`, in lower case. False: there is none. */
bool linear_time_type(const char *name, uint32_t *type);

/*
 * Weights of LAYER_QKV, LAYER_MLP or LAYER_OUTPUT, in enough copies that reading all of them reads at least cold_bytes. The
 * pool is borrowed. NULL with a message on stderr: no memory, or the type's blocks do not divide the shape.
 */
linear_timer *linear_timer_create(const layer_shape *shape, layer_part part, uint32_t type, const cl_kernels *kernel,
                                  int32_t max_rows, size_t cold_bytes, ca_pool *pool);
void linear_timer_destroy(linear_timer **timer);

/* Median of n_steps steps with n_rows rows, in microseconds; quantising the rows is part of it. */
double linear_timer_us(linear_timer *timer, int32_t n_rows, int n_steps);

#endif
