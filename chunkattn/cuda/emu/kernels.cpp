/* The library's kernels, compiled for the emulation: by far the file that takes longest to compile. */
#include "chunkattn/cuda/kernels.cu"
#include "emu_kernels.h"
