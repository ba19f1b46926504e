/* The CUDA backend, if it is linked: the shared library of a build with CUDA has it, programs may link libchunkattn_cuda.a. */
#include "runtime.h"

#pragma weak ca_cuda_linked /* NULL where nothing defines it */

const ca_cuda_runtime *ca_cuda_get(void) { return ca_cuda_linked ? ca_cuda_linked() : NULL; }
