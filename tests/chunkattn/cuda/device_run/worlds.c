/* Exactness on a CUDA device: see tests/chunkattn/exact/worlds.c. */
#include "tests/chunkattn/exact/worlds.h"

#include "tests/chunkattn/cuda/device/device_backend.h"

int main(int argc, char **argv) {
    const backend device = device_backend();
    return worlds_main(argc, argv, &device);
}
