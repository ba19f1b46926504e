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
#define CASE_KERNEL(n)                                                                                                         \
    if (name == #n) return run_##n;
#include "case_kernels.def"
#undef CASE_KERNEL
    return nullptr;
}

/* The compute capability that a kernel's primitives need. */
static int needed_sm(const std::string &run) {
    for (const char *part : {"stmatrix", "wgmma", "bulk_copy", "mbar_ops"})
        if (run.rfind(part, 0) == 0) return 90;
    return run == "widen_e4m3" ? 89 : 80;
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

static bool report(const test_case &c, const char *where, size_t i, size_t t, u32 got, u32 want) {
    printf("%s: %s %zu of thread %zu is %08x, not %08x (%s)\n", c.name.c_str(), where, i, t, got, want, c.source.c_str());
    return false;
}

static bool run_case(const test_case &c) {
    std::vector<u32> in, image_at, image, after_at, wanted;
    for (const auto &r : c.in) in.insert(in.end(), r.begin(), r.end());
    for (const auto &w : c.shared) image_at.push_back(w.first), image.push_back(w.second);
    for (const auto &w : c.after) after_at.push_back(w.first), wanted.push_back(w.second);
    case_args a = {};
    a.in = on_device(in);
    a.out = on_device(std::vector<u32>((c.out.size() + 1) * (size_t)c.threads));
    a.device = on_device(c.device);
    a.image_at = on_device(image_at);
    a.image = on_device(image);
    a.after_at = on_device(after_at);
    a.after = on_device(std::vector<u32>(after_at.size()));
    a.n_image = (int)image.size();
    a.n_after = (int)after_at.size();
    a.threads = c.threads;
    a.n_args = (int)c.arg.size();
    memcpy(a.arg, c.arg.data(), c.arg.size() * 4);

    const kernel k = find_kernel(c.run);
    if (!k) {
        printf("%s: no kernel %s\n", c.name.c_str(), c.run.c_str());
        return false;
    }
    const int shared_bytes = 48 << 10;
    void *args[] = {&a};
    check(cudaLaunchKernel((const void *)k, dim3(1), dim3((unsigned)c.threads), args, shared_bytes, nullptr), c.name.c_str());
    check(cudaDeviceSynchronize(), c.name.c_str());
    bool right = true;
    const std::vector<u32> out = from_device(a.out, c.out.size() * (size_t)c.threads),
                           after = from_device(a.after, wanted.size());
    for (size_t r = 0; r < c.out.size(); r++)
        for (size_t t = 0; t < c.out[r].size(); t++) {
            const u32 got = out[r * (size_t)c.threads + t];
            if (c.wanted[r][t] && !agrees(c, got, c.out[r][t])) right = report(c, "register", r, t, got, c.out[r][t]);
        }
    for (size_t i = 0; i < wanted.size(); i++)
        if (after[i] != wanted[i]) right = report(c, "shared memory at", after_at[i], 0, after[i], wanted[i]);
    for (const u32 *p :
         {a.in, (const u32 *)a.out, (const u32 *)a.device, a.image_at, a.image, a.after_at, (const u32 *)a.after})
        cudaFree((void *)p);
    return right;
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
