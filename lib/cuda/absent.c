/* Takes the place of backend.cu in a build without a CUDA compiler. */
#include "backend.h"

const ca_cuda_backend *ca_cuda_get(void) { return NULL; }
