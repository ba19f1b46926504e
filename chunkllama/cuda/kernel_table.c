/* See kernel_table.h. */
#include "kernel_table.h"

#pragma weak cl_cuda_linked /* NULL where nothing defines it */

const cl_cuda_link *cl_cuda_get(void) { return cl_cuda_linked ? cl_cuda_linked() : NULL; }
