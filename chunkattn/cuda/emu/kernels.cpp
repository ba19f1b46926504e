/* The library's kernels, compiled for the emulation: by far the file that takes longest to compile. */
#include "kernels.h"
#include "chunkattn/cuda/kernels.cu"
