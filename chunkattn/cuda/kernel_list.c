/* The rows of kernels.def for the host. */
#include "kernel_list.h"

#include <string.h>

#include "runtime.h"

static const ca_kernel_row rows[] = {
#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function) {#name, blocks, shared, sm},
#include "kernels.def"
#undef CA_CUDA_KERNEL
};

const ca_kernel_row *ca_kernel_row_at(int32_t id) { return &rows[id]; }

int32_t ca_kernel_find_id(const char *name) {
    for (int32_t i = 0; i < CA_CUDA_N_KERNELS; i++)
        if (!strcmp(rows[i].name, name)) return i;
    return -1;
}
