/* See kernel_table.h. */
#include "kernel_table.h"

#pragma weak cl_cuda_linked_kernels /* NULL where nothing defines it */

const ca_cuda_kernel *cl_cuda_kernels(void) { return cl_cuda_linked_kernels ? cl_cuda_linked_kernels() : NULL; }
