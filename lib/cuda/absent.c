/* What a build without a CUDA compiler has in place of backend.cu. */
#include "backend.h"

const ca_cuda_backend *ca_cuda_get(void) { return NULL; }
