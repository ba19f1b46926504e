/*
 * The table of chunkattn/cuda/runtime.h on the emulation: a device with few multiprocessors, whose memory is the
 * host's, and streams that run immediately or later. In a program that links it, device 0 is this one.
 *
 * In a deferred stream, work waits until a later call happens to run some of it, so memory that is reused too early gives wrong
 * results. Errors that the emulation finds in a kernel are printed and counted. One thread at a time may call these functions.
 */
#ifndef CHUNKATTN_CUDA_EMU_EMU_RUNTIME_H
#define CHUNKATTN_CUDA_EMU_EMU_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkattn/cuda/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum emu_streams { EMU_IMMEDIATE, EMU_DEFERRED } emu_streams;

/* How streams run from now on, and the seed of their delays, of the kernels' threads and of the number of multiprocessors. */
void emu_set_streams(emu_streams how, uint64_t seed);

/* Whether the device says that prefill may use wgmma, to caches that are created from now on. */
void emu_set_wgmma(bool by_wgmma);

/* From now on the device is of a kind that the library has not seen. spoiled: the way whose sums differ (products.h); -1: none.
 */
void emu_set_unknown_sums(int spoiled);

/* Device memory for the test itself, which the host may access while no work that uses it is queued. */
void *emu_alloc(size_t bytes, const char *name);
void emu_free(void *p);

/* Run everything that is queued. */
void emu_finish(void);

/* Streams for tests: 0 is the default stream, others are different from each other. */
ca_cuda_stream emu_stream(int i);

/* Errors so far: reports of kernels, and copies and clears outside of device memory. Each is printed when it is found. */
int emu_errors(void);

/*
 * Let one allocation of device memory or pinned memory fail: after n more that succeed; with n = -1 none fails. Returns what
 * is left of the previous n, which is -1 if that allocation has failed.
 */
int emu_fail_allocation(int n);

/* Let one copy fail: after n more that succeed. */
void emu_fail_copy(int n);

/* Allocations and events that exist, but for the test's own. */
int emu_n_live(void);

/* ---- Capture ---- */

/* Launches are noted and not run, until emu_end_capture. Any other call on a stream meanwhile is an error. */
void emu_begin_capture(void);

/* The launches noted are the graph of that number from now on; returns how many they are. */
int emu_end_capture(uint64_t graph);

/* Queue the launches of a graph; false if there is none of that number. */
bool emu_replay(uint64_t graph, ca_cuda_stream stream);

/* Numbers of graphs are those of one cache. */
void emu_drop_graphs(void);

/* ---- What ran ---- */

typedef struct emu_totals {
    uint64_t launches, copies, copied_bytes;
    uint64_t graphs;   /* that were run by the runtime's table */
    uint64_t kv_bytes; /* that attention kernels copied to shared memory */
    uint64_t wgmma;    /* products of warp groups */
} emu_totals;

emu_totals emu_get_totals(void);

#ifdef __cplusplus
}
#endif

#endif
