/*
 * Compares a device with the same cases as the emulation:
 *
 *   device_cases FILE ...          all cases of the files, e.g. tests/chunkattn/cuda/emu/cases/warp_groups.txt
 *   device_cases --only NAME FILE  one of them; a process whose kernel faults can run no other one
 *
 * The exit status is 0 if all results are those prescribed, 1 if not, 77 without a device.
 */
#include "case_kernels.cuh"
#include "cases.h"

#include <cstdio>
#include <cstring>
#include <cuda_runtime_api.h>

typedef void (*kernel)(const case_args);

static kernel find_kernel(const std::string &name) {
#define CASE_KERNEL(n, function)                                                                                               \
    if (name == #n) return run_##n;
#include "case_kernels.def"
#undef CASE_KERNEL
    return nullptr;
}

/* The compute capability that a kernel's primitives need. */
static int needed_sm(const std::string &run) {
    for (const char *part : {"wgmma", "bulk_copy", "mbar_ops"})
        if (run.rfind(part, 0) == 0) return 90;
    return 80;
}

static void check(cudaError_t e, const char *what) {
    if (e == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

static u32 *on_device(const std::vector<u32> &words) {
    void *p;
    check(cudaMalloc(&p, (words.size() + 4) * 4), "cudaMalloc");
    check(cudaMemcpy(p, words.data(), words.size() * 4, cudaMemcpyHostToDevice), "cudaMemcpy");
    return (u32 *)p;
}
static std::vector<u32> from_device(const u32 *p, size_t n) {
    std::vector<u32> words(n);
    check(cudaMemcpy(words.data(), p, n * 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return words;
}

static bool run_case(const test_case &c) {
    const kernel k = find_kernel(c.run);
    if (!k) {
        printf("%s: no kernel %s\n", c.name.c_str(), c.run.c_str());
        return false;
    }
    case_args a = place_case<case_args>(c, on_device);
    const int shared_bytes = 48 << 10;
    void *args[] = {&a};
    check(cudaLaunchKernel((const void *)k, dim3(1), dim3((unsigned)c.threads), args, shared_bytes, nullptr), c.name.c_str());
    check(cudaDeviceSynchronize(), c.name.c_str());
    return count_wrong(c, from_device(a.out, c.out.size() * (size_t)c.threads).data(),
                       from_device(a.after, c.after.size()).data()) == 0;
}

int main(int argc, char **argv) {
    int n_devices = 0, n_right = 0, n_wrong = 0, n_skipped = 0;
    if (cudaGetDeviceCount(&n_devices) != cudaSuccess || n_devices == 0) {
        printf("skipped: no device\n");
        return 77;
    }
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
    const int sm = device.major * 10 + device.minor, first = argc > 2 && !strcmp(argv[1], "--only") ? 3 : 1;
    printf("%s, sm_%d\n", device.name, sm);
    for (int i = first; i < argc; i++) {
        std::string why;
        const std::vector<test_case> cases = read_cases(argv[i], &why);
        if (cases.empty()) {
            fprintf(stderr, "%s\n", why.c_str());
            return 1;
        }
        for (const test_case &c : cases) {
            if (first == 3 && c.name != argv[2]) continue;
            const bool wgmma_elsewhere = c.run.rfind("wgmma", 0) == 0 && device.major != 9;
            if (c.blocks || sm < needed_sm(c.run) || wgmma_elsewhere)
                n_skipped++;
            else if (run_case(c))
                n_right++;
            else
                n_wrong++;
        }
    }
    printf("%d right, %d wrong, %d skipped\n", n_right, n_wrong, n_skipped);
    return n_wrong != 0;
}
