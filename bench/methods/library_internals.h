/*
 * All of libchunkattn's internals that cattn-bench uses; no other file of bench/ includes anything below lib/.
 *
 *   method_flash       calls the library's kernels on K/V of its own layout: lib/attn/kernels.h, lib/cache/layout.h
 *   method_chunk_only  walks a cache's plan with those kernels: lib/cache_handle.h
 *   planned, plan      count and time what a plan holds, without arithmetic: lib/cache_handle.h
 *   retention          makes tokens ready without a step: lib/cache_handle.h
 */
#ifndef BENCH_METHODS_LIBRARY_INTERNALS_H
#define BENCH_METHODS_LIBRARY_INTERNALS_H

#include "lib/attn/kernels.h"
#include "lib/cache/layout.h"
#include "lib/cache_handle.h"

#endif
