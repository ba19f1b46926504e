/*
 * Times decode attention of one layer in the shapes of shapes.h, in every way that its lists of work items allow. A graph has
 * one launch for each layer. Each layer has K/V of its own, and all layers' K/V together are several times as large as L2, so a
 * layer's K/V have left L2 before they are read again. A time is the median of the graph's replays, divided by the number of
 * layers. All ways over one form of K/V must give the same output, bit by bit.
 *
 * K/V are own chunks of bf16 (kernel decode), the same memory as foreign pages of 64 tokens in the layout HND (decode_pages),
 * or own chunks of e4m3 (decode_e4m3).
 *
 *   bench SHAPE                            all ways, a line of tab-separated values for each
 *   bench SHAPE --once METHOD KERNEL ROWS  one launch, for a profiler
 *   bench SHAPE --stamps ROWS              when each block began and ended (method chunk, kernel decode)
 *   bench --list                           the shapes
 */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "chunkattn.h"
#include "run_kernels.h"
#include "shapes.h"
#include "tests/chunkattn/cuda/kernels/machine.h"

namespace {

constexpr int D = 128;

/* A kernel, and the form of K/V that it reads. */
struct reader {
    const char *name, *kernel;
    bool pages, e4m3;

    int64_t tile_bytes() const { return CA_CUDA_CHUNK * (e4m3 ? D + 4 : D * 2); } /* K or V of a chunk and KV head */
    int form() const { return pages ? 1 : e4m3 ? 2 : 0; }
};
const reader readers[] = {{"decode", "decode_bf16_128", false, false},
                          {"decode_pages", "decode_pages_bf16_128", true, false},
                          {"decode_e4m3", "decode_e4m3_128", false, true}};

const reader &find_reader(const char *name) {
    for (const reader &r : readers)
        if (!strcmp(r.name, name)) return r;
    fprintf(stderr, "no kernel %s; there are decode, decode_pages and decode_e4m3\n", name);
    exit(2);
}

/* What a step needs on the device besides its lists. */
struct store : machine::owner {
    step_shape s;
    bool shared_storage;
    int64_t tile_bytes;
    int n_layers;
    unsigned char *kv;
    ca_cuda_attend_args args;

    /* What a step reads of K/V, each stored chunk once. */
    double layer_bytes() const { return (double)stored_chunks(s, shared_storage) * s.kv_heads * 2 * (double)tile_bytes; }

    store(const step_shape &shape, bool shared, const reader &by);
};

store::store(const step_shape &shape, bool shared, const reader &by)
    : s(shape), shared_storage(shared), tile_bytes(by.tile_bytes()), args() {
    const machine::info &m = machine::open();
    const int n_chunks = stored_chunks(s, shared);
    const double fit = 0.6 * (double)m.memory_bytes / layer_bytes();
    n_layers = (int)std::min(fit, std::min(256.0, std::max(4.0, 8 * (double)m.l2_bytes / layer_bytes())));
    if (m.emulated) n_layers = 2;
    args.chunk_bytes = (int64_t)n_layers * s.kv_heads * 2 * tile_bytes;
    kv = unset<unsigned char>((size_t)n_chunks * (size_t)args.chunk_bytes);
    std::vector<int32_t> content((size_t)n_chunks); /* copies of a shared chunk have equal content */
    for (int r = 0; r < s.b; r++)
        for (int c = 0; c < s.chunks(); c++) content[(size_t)chunk_id(s, shared, r, c)] = chunk_id(s, true, r, c);
    const run_fill_args fill = {kv, args.chunk_bytes, array(content), n_chunks};
    machine::launch(*machine::find("run_fill"), std::min(n_chunks, 4 * m.n_processors), &fill);

    std::mt19937_64 rng(1);
    std::vector<uint16_t> q((size_t)s.b * (size_t)s.heads * D);
    for (uint16_t &x : q) x = (uint16_t)((rng() & 0x807f) | 0x3f00); /* bf16, magnitudes in [0.5, 1) */
    std::vector<int32_t> position((size_t)s.b, s.n - 1), source;
    for (int r = 0; r < s.b; r++) source.push_back(r);
    const int64_t row = (int64_t)s.heads * D * 2;
    args.position = array(position);
    args.source = array(source);
    args.q = {array(q), row, D * 2, CATTN_BF16, 0};
    args.out = {unset<unsigned char>((size_t)(s.b * row)), row, D * 2, CATTN_BF16, 0};
    args.arrivals = array(std::vector<uint32_t>((size_t)(s.b * s.kv_heads)));
    args.scale_log2 = 1.442695041f / std::sqrt((float)D);
    args.n_kv_heads = s.kv_heads;
    args.group = s.group();
    args.group_inverse = (65536u + (uint32_t)s.group() - 1) / (uint32_t)s.group();
    machine::wait();
}

struct way {
    method how;
    reader by;
    int tile_rows;
    bool chained;
    int blocks_per_sm;
};

/* Where the chunks of the work items lie in pages of 64 tokens: chunk i is page i. */
std::vector<ca_work_item_pages> pages_of(const step_lists &lists) {
    std::vector<ca_work_item_pages> pages;
    for (const ca_work_item &work : lists.items) {
        ca_work_item_pages p;
        for (int i = 0; i < CA_CUDA_SEGMENT_CHUNKS * CA_CUDA_QUARTERS; i++)
            p.quarter[i] = work.chunk[i / CA_CUDA_QUARTERS] * CA_CUDA_QUARTERS + i % CA_CUDA_QUARTERS;
        pages.push_back(p);
    }
    return pages;
}

/* One way of a step: its lists in device memory, and the arguments of each layer. */
struct task : machine::owner {
    const store &in;
    const machine::kernel &k;
    step_lists lists;
    int blocks;
    std::vector<ca_cuda_attend_args> layers;

    task(const store &st, const way &w, const machine::kernel &kernel)
        : in(st), k(kernel), blocks(w.blocks_per_sm * machine::open().n_processors) {
        lists = make_lists(st.s, w.how, w.tile_rows, w.chained, blocks);
        if (!covers(st.s, w.how, lists)) {
            fprintf(stderr, "%s: the lists leave out a chunk, or have one twice\n", st.s.name);
            exit(1);
        }
        const size_t rows = (size_t)lists.n_states * (size_t)st.s.heads;
        ca_cuda_attend_args a = st.args;
        a.items = array(lists.items);
        a.parts = array(lists.parts);
        a.merge_begin = array(lists.merge_begin);
        a.merge = array(lists.merge);
        a.o = unset<float>(rows * D);
        a.ml = unset<float>(rows * 2);
        if (w.by.pages) a.pages.items = array(pages_of(lists));
        a.pages.log2_quarters = 2;
        for (int l = 0; l < st.n_layers; l++) {
            const int64_t pair = 2 * st.tile_bytes;
            unsigned char *kv = st.kv + l * st.s.kv_heads * pair;
            a.kv = kv;
            a.pages.k = {kv, a.chunk_bytes, D * 2, pair};
            a.pages.v = {kv + st.tile_bytes, a.chunk_bytes, D * 2, pair};
            layers.push_back(a);
        }
    }

    /* Launch the first layer. Returns a hash of its output. */
    uint64_t run_once() const {
        const std::vector<unsigned char> unset((size_t)(in.s.b * in.args.out.row_stride), 0xff);
        machine::to_device(in.args.out.data, unset.data(), unset.size());
        machine::launch(k, blocks, &layers[0]);
        machine::wait();
        return machine::hash(in.args.out.data, unset.size());
    }
    std::vector<double> times() const {
        machine::graph *g = machine::record([&] {
            for (const ca_cuda_attend_args &a : layers) machine::launch(k, blocks, &a);
        });
        const double first = machine::replay(g, 1)[0];
        std::vector<double> us = {first};
        if (!machine::open().emulated) us = machine::replay(g, (int)std::max(20.0, std::min(300.0, 250e3 / first)));
        machine::drop(g);
        for (double &t : us) t /= (double)layers.size();
        std::sort(us.begin(), us.end());
        return us;
    }
};

std::vector<way> ways_of(const step_shape &s, bool shared_storage, const reader &by, const machine::kernel &k) {
    std::vector<way> ways;
    const int resident = machine::resident_blocks(k);
    for (int blocks = s.all ? 1 : resident; blocks <= resident; blocks++) {
        const bool chain = s.b * s.kv_heads >= 2 * blocks * machine::open().n_processors;
        for (const method how : {PAGED, PAGED_SHARED, CHUNK}) {
            if ((how != PAGED) != shared_storage || (s.n_shared == 0 && how != CHUNK)) continue;
            for (const int rows : {8, 16, 32})
                if (rows == 32 || (how == CHUNK && s.n_shared && s.all)) ways.push_back({how, by, rows, false, blocks});
            if (chain && (how != CHUNK || s.n_shared == 0)) ways.push_back({how, by, 32, true, blocks});
        }
    }
    return ways;
}

void print_times(const step_shape &s, const way &w, const task &t, uint64_t bits) {
    const std::vector<double> us = t.times();
    const double median = machine::median(us), bytes = t.in.layer_bytes();
    printf("%s\t%s\t%s\t%d\t%d\t%d\t%zu\t%d\t%.2f\t%.2f\t%.2f\t%.1f\t%.1f\t%016llx\n", s.name, method_names[w.how], w.by.name,
           w.tile_rows, w.chained, t.blocks, t.lists.items.size(), t.in.n_layers, median, us[0], us[us.size() * 9 / 10],
           bytes / 1e6, bytes / median / 1e3, (unsigned long long)bits);
    fflush(stdout);
}

int time_all(const step_shape &s) {
    uint64_t first[3] = {};
    int n_other = 0;
    printf(
        "shape\tmethod\tkernel\ttile_rows\tchained\tblocks\titems\tlayers\tmedian us\tleast us\tp90 us\tK/V MB\tGB/s\tbits\n");
    for (const bool shared_storage : {true, false}) {
        if (s.n_shared == 0 && !shared_storage) continue; /* the same */
        for (const reader &by : readers) {
            const machine::kernel *k = machine::find(by.kernel);
            if (!k || ((by.pages || by.e4m3) && !s.all)) continue;
            const store st(s, shared_storage, by);
            for (const way &w : ways_of(s, shared_storage, by, *k)) {
                const task t(st, w, *k);
                const uint64_t bits = t.run_once();
                uint64_t &same = first[by.form()];
                if (same == 0) same = bits;
                n_other += bits != same;
                print_times(s, w, t, bits);
            }
        }
    }
    if (n_other) printf("FAILED: %d ways have other bits than the first of their form\n", n_other);
    return n_other != 0;
}

/* NULL, after a message, if the device lacks the kernel. The program then ends with status 77. */
const machine::kernel *find_kernel(const std::string &name) {
    const machine::kernel *k = machine::find(name);
    if (!k) fprintf(stderr, "no kernel %s on this device\n", name.c_str());
    return k;
}

int run_once(const step_shape &s, const char *method_name, const char *family, int tile_rows) {
    const reader &by = find_reader(family);
    const machine::kernel *k = find_kernel(by.kernel);
    if (!k) return 77;
    method how = CHUNK;
    for (const method m : {PAGED, PAGED_SHARED})
        if (!strcmp(method_name, method_names[m])) how = m;
    const store st(s, how != PAGED, by);
    const task t(st, {how, by, tile_rows, false, machine::resident_blocks(*k)}, *k);
    printf("%s\t%s\t%s\t%016llx\n", s.name, method_names[how], family, (unsigned long long)t.run_once());
    return 0;
}

int print_stamps(const step_shape &s, int tile_rows) {
    const machine::kernel *k = find_kernel("run_stamped");
    if (!k) return 77;
    const reader &by = find_reader("decode");
    const store st(s, true, by);
    const task t(st, {CHUNK, by, tile_rows, false, machine::resident_blocks(*k)}, *k);
    std::vector<run_stamp> stamps((size_t)t.blocks);
    run_stamped_args a = {t.layers[0], machine::array(stamps)};
    for (const ca_cuda_attend_args &layer : t.layers) { /* the last one counts */
        a.attend = layer;
        machine::launch(*k, t.blocks, &a);
    }
    machine::wait();
    machine::from_device(stamps.data(), a.stamps, stamps.size() * sizeof stamps[0]);
    machine::release(a.stamps);
    uint64_t begin = stamps[0].begin_ns;
    for (const run_stamp &b : stamps) begin = std::min(begin, b.begin_ns);
    printf("block\titems\tchunks\tbegin ns\tend ns\tcycles\n");
    for (size_t b = 0; b < stamps.size(); b++) {
        int chunks = 0;
        for (int j = t.lists.parts[b]; j < t.lists.parts[b + 1]; j++) chunks += t.lists.items[(size_t)j].n_chunks;
        printf("%zu\t%d\t%d\t%llu\t%llu\t%llu\n", b, t.lists.parts[b + 1] - t.lists.parts[b], chunks,
               (unsigned long long)(stamps[b].begin_ns - begin), (unsigned long long)(stamps[b].end_ns - begin),
               (unsigned long long)(stamps[b].end_cycle - stamps[b].begin_cycle));
    }
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    const std::string first = argc > 1 ? argv[1] : "", option = argc > 2 ? argv[2] : "";
    for (step_shape s : step_shapes) {
        if (first == "--list") printf("%s\n", s.name);
        if (first != s.name) continue;
        if (machine::open().emulated) s = tiny(s);
        if (argc == 2) return time_all(s);
        if (option == "--once" && argc == 6) return run_once(s, argv[3], argv[4], atoi(argv[5]));
        if (option == "--stamps" && argc == 4) return print_stamps(s, atoi(argv[3]));
    }
    if (first == "--list") return 0;
    fprintf(stderr, "usage: bench SHAPE [--once METHOD KERNEL ROWS | --stamps ROWS] or bench --list\n");
    return 2;
}
