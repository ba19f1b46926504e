/*
 * All of libchunkattn's internals that cattn-bench uses; no other file of bench/ includes anything below chunkattn/.
 *
 *   method_flash  calls the library's kernels on K/V of its own layout: chunkattn/attn/kernels.h, chunkattn/cache/layout.h
 *   retention     makes tokens ready without a step: chunkattn/api/cache_handle.h
 */
#ifndef BENCH_METHODS_LIBRARY_INTERNALS_H
#define BENCH_METHODS_LIBRARY_INTERNALS_H

#include "chunkattn/api/cache_handle.h"
#include "chunkattn/attn/kernels.h"
#include "chunkattn/cache/layout.h"

#endif
