/*
 * Exactness on an emulated device: see tests/chunkattn/exact/worlds.c. Prefill is by mma or by wgmma, work is deferred by
 * random times, and the emulation finds nothing wrong with any kernel.
 */
#include "tests/chunkattn/exact/worlds.h"

#include "chunkattn/cuda/emu/emu_runtime.h"
#include "device_backend.h"

static void (*open_device)(const plan_round *how);
static bool one_fails; /* an allocation of the round */
static uint64_t wgmma_before;

static void require(bool condition, const char *otherwise) {
    if (!condition) plan_fail(otherwise, otherwise);
}

static void begin_round(const plan_round *how) {
    emu_set_wgmma(how->wgmma);
    emu_set_streams(how->deferred ? EMU_DEFERRED : EMU_IMMEDIATE, (uint64_t)how->own);
    emu_fail_allocation((int)how->fail_device - 1);
    one_fails = how->fail_device > 0;
    wgmma_before = emu_get_totals().wgmma;
    open_device(how);
}

static bool allocation_failed(void) {
    const int left = emu_fail_allocation(-1);
    emu_fail_allocation(left);
    return one_fails && left < 0;
}

static void end_round(const plan_round *how, int64_t *counts) {
    const uint64_t wgmma = emu_get_totals().wgmma - wgmma_before;
    counts[COUNT_WGMMA] += (int64_t)wgmma;
    require(how->wgmma || wgmma == 0, "wgmma is used, which the device did not allow");
    require(emu_n_live() == 0, "allocations are left on the device");
    require(emu_errors() == 0, "the emulation has found errors");
}

int main(int argc, char **argv) {
    backend device = device_backend();
    open_device = device.open;
    device.open = begin_round;
    device.close = end_round;
    device.allocation_failed = allocation_failed;
    device.counts_wgmma = true;
    return worlds_main(argc, argv, &device);
}
