/*
 * What tests of caches and pages need of a device, besides the library's own calls. emu_device.c is the emulated one, and
 * ../device_run/cuda_device.cpp a CUDA device, on which a call that fails ends the program with a message.
 */
#ifndef TESTS_CHUNKATTN_CUDA_DEVICE_TEST_DEVICE_H
#define TESTS_CHUNKATTN_CUDA_DEVICE_TEST_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Memory of the device, which the host may access while no work that uses it is queued. */
void *dev_alloc(size_t bytes, const char *name);
void dev_free(void *p);

/* A stream, as the calls of chunkattn_cuda.h take it; different for each i from 0 on. */
void *dev_stream(int i);

/* Wait until all that was queued has been computed. */
void dev_finish(void);

/* An emulated device lets work wait for a random time from now on, or none. */
void dev_delay(bool waits, uint64_t seed);

/* Errors so far that the emulation has found. */
int dev_errors(void);

/* What is queued on stream 0 is captured and not run, until dev_end_capture, which returns how many launches it was. */
void dev_begin_capture(void);
int dev_end_capture(uint64_t graph);

/* Queue the launches of the graph of a number on stream 0; false if there is none. */
bool dev_replay(uint64_t graph);

/* Numbers of graphs are those of one cache. */
void dev_drop_graphs(void);

#ifdef __cplusplus
}
#endif

#endif
