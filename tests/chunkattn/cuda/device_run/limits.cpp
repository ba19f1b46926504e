/*
 * Measures what a machine can do at most. The results replace the assumptions of the estimate in docs/cuda.md. Prints
 * tab-separated lines.
 *
 *   limits device | bandwidth | launch | chase | mma
 */
#include <chrono>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>

#include "run_kernels.h"
#include "tests/chunkattn/cuda/kernels/machine.h"

namespace {

bool emulated() { return machine::open().emulated; }
const machine::kernel &kernel(const char *name) { return *machine::find(name); }

/* Median microseconds of one launch within a graph of n. */
double in_graph(const char *name, int blocks, const void *args, int n, int replays) {
    const machine::kernel &k = kernel(name);
    machine::launch(k, blocks, args); /* loads the kernel, which must not happen while a graph is recorded */
    machine::wait();
    machine::graph *g = machine::record([&] {
        for (int i = 0; i < n; i++) machine::launch(k, blocks, args);
    });
    const double us = machine::median(machine::replay(g, replays)) / n;
    machine::drop(g);
    return us;
}

void print_device() {
    const machine::info &m = machine::open();
    printf("device\t%s\nsm\t%d\nmultiprocessors\t%d\nL2 MiB\t%.1f\nmemory GiB\t%.1f\n", m.name.c_str(), m.sm, m.n_processors,
           (double)m.l2_bytes / (1 << 20), (double)m.memory_bytes / (1 << 30));
    const run_span_args none = {};
    machine::launch(kernel("run_empty"), 1, &none);
    machine::wait();
    printf("an empty kernel\truns\n");
    for (const char *name :
         {"decode_bf16_128", "decode_pages_bf16_128", "decode_e4m3_128", "prefill_bf16_128", "prefill_e4m3_128"})
        if (const machine::kernel *k = machine::find(name))
            printf("blocks a multiprocessor of %s\t%d\n", name, machine::resident_blocks(*k));
}

void print_bandwidth() {
    const size_t most = emulated() ? 1 << 16 : (size_t)4 << 30;
    void *from = machine::alloc(most), *to = machine::alloc(most);
    printf("bytes\tread us\tread GB/s\tcopy us\tcopy GB/s, both ways\n");
    for (size_t bytes = emulated() ? 1 << 14 : 1 << 20; bytes <= most; bytes *= 2) {
        const run_span_args a = {from, to, (int64_t)(bytes / 16)};
        const int blocks = machine::open().n_processors * 8, n = bytes > ((size_t)1 << 28) ? 1 : 8;
        const double read = in_graph("run_read", blocks, &a, n, 15), copy = in_graph("run_copy", blocks, &a, n, 15);
        printf("%zu\t%.2f\t%.1f\t%.2f\t%.1f\n", bytes, read, (double)bytes / read / 1e3, copy, 2 * (double)bytes / copy / 1e3);
        fflush(stdout);
    }
    machine::release(from);
    machine::release(to);
}

double host_us(int n, void (*once)()) {
    once();
    machine::wait();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < n; i++) once();
    machine::wait();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / n;
}
void launch_empty() {
    const run_span_args none = {};
    machine::launch(kernel("run_empty"), 1, &none);
}

void print_launch() {
    const run_span_args none = {};
    const int n = emulated() ? 2 : 2000;
    printf("launch\tus\n");
    printf("one after the other, host clock\t%.2f\n", host_us(n, launch_empty));
    printf("launch and wait, host clock\t%.2f\n", host_us(n, [] {
               launch_empty();
               machine::wait();
           }));
    for (const int nodes : {1, 10, 100}) {
        printf("in a graph of %d, 1 block\t%.2f\n", nodes, in_graph("run_empty", 1, &none, nodes, 200));
        const int blocks = 2 * machine::open().n_processors;
        printf("in a graph of %d, %d blocks\t%.2f\n", nodes, blocks, in_graph("run_empty", blocks, &none, nodes, 200));
    }
}

/* One cycle through all lines of 128 bytes, in random order. */
std::vector<uint32_t> random_chain(size_t bytes) {
    const uint32_t lines = (uint32_t)(bytes / 128);
    std::vector<uint32_t> order(lines), next(bytes / 4);
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin() + 1, order.end(), std::mt19937(1));
    for (uint32_t i = 0; i < lines; i++) next[(size_t)order[i] * 32] = order[(i + 1) % lines] * 32;
    return next;
}

void print_chase() {
    printf("bytes\tns a hop\n");
    const std::vector<size_t> sizes =
        emulated() ? std::vector<size_t>{1 << 12} : std::vector<size_t>{1 << 16, 1 << 22, 1 << 24, 1 << 28, (size_t)1 << 30};
    for (const size_t bytes : sizes) {
        uint32_t *next = machine::array(random_chain(bytes)), *end = static_cast<uint32_t *>(machine::alloc(16));
        /* Four passes over the chain, so its lines stay in L2 if they fit. Of the longest chains one replay visits 2 million
         * lines: 256 MB, more than L2 holds. */
        const int hops = emulated() ? 32 : (int)std::min<size_t>(bytes / 128 * 4, 2000000);
        const run_chase_args a = {next, end, hops};
        printf("%zu\t%.1f\n", bytes, in_graph("run_chase", 1, &a, 1, 3) * 1e3 / hops);
        fflush(stdout);
        machine::release(next);
        machine::release(end);
    }
}

void print_mma() {
    const int n = emulated() ? 4 : 20000, blocks = 2 * machine::open().n_processors;
    float *out = static_cast<float *>(machine::alloc((size_t)blocks * 256 * 4));
    const run_mma_args a = {out, n};
    printf("mma.m16n8k16 bf16, dependent, ns\t%.2f\n", in_graph("run_mma_chain", 1, &a, 1, 5) * 1e3 / n);
    const double flop = 2.0 * 16 * 8 * 16 * 8 * n * 8 * blocks; /* 8 products a round, 8 warps a block */
    printf("mma.m16n8k16 bf16, TFLOP/s\t%.1f\n", flop / in_graph("run_mma_peak", blocks, &a, 1, 5) / 1e6);
    machine::release(out);
}

const struct {
    const char *name;
    void (*print)();
} parts[] = {
    {"device", print_device}, {"bandwidth", print_bandwidth}, {"launch", print_launch}, {"chase", print_chase},
    {"mma", print_mma},
};

} // namespace

int main(int argc, char **argv) {
    for (const auto &p : parts)
        if (argc == 2 && !strcmp(argv[1], p.name)) {
            machine::open();
            p.print();
            return 0;
        }
    fprintf(stderr, "usage: limits device | bandwidth | launch | chase | mma\n");
    return 2;
}
