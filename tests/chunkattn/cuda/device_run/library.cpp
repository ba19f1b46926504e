/*
 * Times libchunkattn on a CUDA device through its public calls: plans, assignment and kernels together, which `bench` does not
 * see.
 *
 * library SHAPE [MODE]   a shape that --list names; MODE shared (default), shared_storage or private
 *
 * A decode shape joins its sequences, writes K/V of all their tokens, and replays a graph that attends in each of its layers,
 * whose K/V are several times as large as L2 together. A prefill shape replays the attention of all rows of one prompt. Prints
 * a line of tab-separated values: shape, mode, microseconds a layer (median), the same in GB/s of what the mode has to read or
 * in TFLOP/s, microseconds of the host for a step's begin without structural change (median), and a hash of the outputs, which
 * must be the same for all modes. Exits with 77 without a device.
 */
#define CATTN_EXPERIMENTAL
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "chunkattn_cuda.h"
#include "tests/chunkattn/cuda/kernels/machine.h"

namespace {

enum { DIM = 128, STEP_ROWS = 8192 };

struct shape {
    const char *name;
    int n_seqs, heads, kv_heads, tokens, n_shared;
    bool prefill;
};
const shape shapes[] = {
    {"prefill_4096", 1, 32, 8, 4096, 0, true},           {"prefill_8192", 1, 32, 8, 8192, 0, true},
    {"shared_4096", 32, 32, 32, 4096, 4096, false},      {"shared_2048", 32, 32, 32, 2048, 2048, false},
    {"shared_1024", 32, 32, 32, 1024, 1024, false},      {"private_32x4096", 32, 32, 32, 4096, 0, false},
    {"private_8x32k", 8, 32, 8, 32768, 0, false},        {"table3_1024_512", 32, 32, 32, 1024, 512, false},
    {"table3_1024_768", 32, 32, 32, 1024, 768, false},   {"table3_2048_1024", 32, 32, 32, 2048, 1024, false},
    {"table3_2048_1536", 32, 32, 32, 2048, 1536, false}, {"table3_4096_2048", 32, 32, 32, 4096, 2048, false},
    {"table3_4096_3072", 32, 32, 32, 4096, 3072, false}, {"gqa_64x2048", 64, 32, 8, 2048, 1536, false},
};
const char *const modes[] = {"shared", "shared_storage", "private"}; /* as cattn_sharing */

cattn_error error;

void check(cattn_status status) {
    if (status == CATTN_OK) return;
    fprintf(stderr, "%s: %s\n", cattn_status_name(status), error.message);
    exit(status == CATTN_ERR_UNSUPPORTED ? 77 : 1);
}

/* A tensor [rows][heads][DIM] of bf16 in device memory. */
cattn_view tensor(int64_t rows, int heads) {
    return {machine::alloc((size_t)rows * (size_t)heads * DIM * 2), CATTN_BF16, heads * DIM, DIM};
}

uint32_t mixed(uint32_t x) {
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

struct run {
    const shape &s;
    cattn_cache *cache;
    std::vector<std::vector<int32_t>> tokens; /* of each sequence */
    std::vector<cattn_entry> entries;
    int n_layers;
};

/* K and V of the rows of the open step, from their tokens; pairs of bf16 with magnitudes in [0.5, 1). */
void write_rows(run &r, const cattn_view &k, const cattn_view &v) {
    const int words = r.s.kv_heads * DIM / 2;
    std::vector<uint32_t> rows;
    for (size_t i = 0; i < r.entries.size(); i++)
        for (int64_t pos = r.entries[i].first_pos; pos < r.entries[i].first_pos + r.entries[i].n_rows; pos++)
            for (int w = 0; w < words; w++)
                rows.push_back((mixed((uint32_t)r.tokens[i][(size_t)pos] * 40503u + (uint32_t)w) & 0x807f807fu) | 0x3f003f00u);
    if (rows.empty()) return;
    machine::to_device(k.data, rows.data(), rows.size() * 4);
    for (uint32_t &w : rows) w ^= 0x80000000u;
    machine::to_device(v.data, rows.data(), rows.size() * 4);
    for (int layer = 0; layer < r.n_layers; layer++)
        check(cattn_cuda_step_write(r.cache, layer, &k, &v, machine::stream(), &error));
}

int64_t begin_step(run &r, int64_t limit) {
    check(
        cattn_cuda_step_begin(r.cache, r.entries.data(), (int32_t)r.entries.size(), limit, machine::stream(), nullptr, &error));
    int64_t n = 0;
    for (const cattn_entry &e : r.entries) n += e.n_rows;
    return n;
}

/* Microseconds a layer of the open step's attention, over replays of one graph. */
double time_attention(const run &r, const cattn_view &q, const cattn_view &out) {
    machine::graph *g = machine::record([&] {
        for (int layer = 0; layer < r.n_layers; layer++)
            check(cattn_cuda_step_attend(r.cache, layer, &q, &out, nullptr, machine::stream(), &error));
    });
    const double us = machine::median(machine::replay(g, 12)) / r.n_layers;
    machine::drop(g);
    return us;
}

int measure(const shape &s, int mode) {
    const int64_t n_stored = s.n_shared + (int64_t)s.n_seqs * (s.tokens - s.n_shared);
    const int64_t read = mode == CATTN_SHARED ? n_stored : (int64_t)s.n_seqs * s.tokens,
                  token_bytes = (int64_t)s.kv_heads * DIM * 4;
    const int64_t stored_bytes = (mode == CATTN_PRIVATE ? (int64_t)s.n_seqs * s.tokens : n_stored) * token_bytes;
    run r = {s, nullptr, {}, std::vector<cattn_entry>((size_t)s.n_seqs), 1};
    if (!s.prefill) r.n_layers = (int)std::max<int64_t>(4, std::min<int64_t>(32, 500000000 / stored_bytes));
    const cattn_cuda_config device = {0};
    cattn_config config;
    cattn_config_init(&config);
    config.n_layers = r.n_layers, config.n_heads = s.heads, config.n_kv_heads = s.kv_heads, config.head_dim = DIM;
    config.cuda = &device, config.sharing = (cattn_sharing)mode;
    config.budget_bytes = (uint64_t)(stored_bytes + (128ll << 20)) * (uint64_t)r.n_layers * 5 / 4 + (4ull << 30);
    check(cattn_cache_create(&config, &r.cache, &error));
    for (int i = 0; i < s.n_seqs; i++) {
        std::vector<int32_t> t((size_t)s.tokens);
        for (int p = 0; p < s.tokens; p++) t[(size_t)p] = p < s.n_shared ? p : 1000000 * (i + 1) + p;
        r.tokens.push_back(t);
        r.entries[(size_t)i].max_rows = STEP_ROWS;
        check(cattn_seq_join(r.cache, t.data(), s.tokens, nullptr, &r.entries[(size_t)i].seq, nullptr, &error));
    }
    const int64_t n_rows = s.prefill ? s.tokens : s.n_seqs;
    const cattn_view k = tensor(STEP_ROWS, s.kv_heads), v = tensor(STEP_ROWS, s.kv_heads), q = tensor(n_rows, s.heads),
                     out = tensor(n_rows, s.heads);
    std::vector<uint32_t> queries((size_t)(n_rows * s.heads * DIM / 2));
    for (size_t i = 0; i < queries.size(); i++) queries[i] = (mixed((uint32_t)i + 77) & 0x807f807fu) | 0x3f003f00u;
    machine::to_device(q.data, queries.data(), queries.size() * 4);
    double us = 0;
    std::vector<double> host;
    while (int64_t rows = begin_step(r, STEP_ROWS)) {
        write_rows(r, k, v);
        if (s.prefill && rows == s.tokens) us = time_attention(r, q, out);
        check(cattn_step_end(r.cache, &error));
    }
    check(cattn_step_end(r.cache, &error));
    for (int step = 0; !s.prefill && step < 20; step++) {
        const int32_t token = 5000000 + step;
        for (size_t i = 0; i < r.entries.size(); i++) {
            const int32_t own = token + 100 * (int32_t)i;
            check(cattn_seq_append(r.cache, r.entries[i].seq, &own, 1, &error));
            r.tokens[i].push_back(own);
        }
        const auto begin = std::chrono::steady_clock::now();
        begin_step(r, 0);
        if (step > 2)
            host.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
        write_rows(r, k, v);
        if (step == 19) us = time_attention(r, q, out);
        check(cattn_step_end(r.cache, &error));
    }
    machine::wait();
    const double flop = 2.0 * s.tokens * s.tokens * s.heads * DIM; /* causal: half of 4 n^2 */
    printf("%s\t%s\t%.2f\t%.1f\t%.2f\t%016llx\n", s.name, modes[mode], us,
           s.prefill ? flop / us / 1e6 : (double)(read * token_bytes) / us / 1e3, host.empty() ? 0 : machine::median(host),
           (unsigned long long)machine::hash(out.data, (size_t)(n_rows * s.heads * DIM * 2)));
    cattn_cache_destroy(&r.cache);
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (const shape &s : shapes) printf("%s\n", s.name);
        return 0;
    }
    for (const shape &s : shapes)
        for (int mode = 0; mode < 3; mode++)
            if (argc >= 2 && s.name == std::string(argv[1]) && modes[mode] == std::string(argc > 2 ? argv[2] : "shared"))
                return measure(s, mode);
    fprintf(stderr, "usage: library SHAPE [shared|shared_storage|private], or library --list\n");
    return 2;
}
