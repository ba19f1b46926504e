/* The rows of kernels.def for the host: what a launch of each kernel needs. */
#ifndef CHUNKATTN_CUDA_KERNEL_LIST_H
#define CHUNKATTN_CUDA_KERNEL_LIST_H

#include <stdint.h>

typedef struct ca_kernel_row {
    const char *name;
    int32_t blocks; /* thread blocks of a multiprocessor that its registers allow */
    int32_t shared; /* bytes of dynamic shared memory of a thread block */
    int32_t sm;     /* the least compute capability, 80 or 90 */
} ca_kernel_row;

/* The row with a ca_cuda_kernel_id. */
const ca_kernel_row *ca_kernel_row_at(int32_t id);

/* The id of the kernel with a name; -1 if there is none. */
int32_t ca_kernel_find_id(const char *name);

#endif
