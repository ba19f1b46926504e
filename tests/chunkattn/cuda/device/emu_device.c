/* The emulated device: see test_device.h. */
#include "test_device.h"

#include "chunkattn/cuda/emu/emu_runtime.h"

void *dev_alloc(size_t bytes, const char *name) { return emu_alloc(bytes, name); }
void dev_free(void *p) { emu_free(p); }
void *dev_stream(int i) { return emu_stream(i); }
void dev_finish(void) { emu_finish(); }
void dev_delay(bool waits, uint64_t seed) { emu_set_streams(waits ? EMU_DEFERRED : EMU_IMMEDIATE, seed); }
int dev_errors(void) { return emu_errors(); }
void dev_begin_capture(void) { emu_begin_capture(); }
int dev_end_capture(uint64_t graph) { return emu_end_capture(graph); }
bool dev_replay(uint64_t graph) { return emu_replay(graph, emu_stream(0)); }
void dev_drop_graphs(void) { emu_drop_graphs(); }
