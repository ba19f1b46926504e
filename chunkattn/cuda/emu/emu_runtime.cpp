/* The table of runtime.h on the emulation. */
#include "emu_runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "chunkattn/base/fp.h"
#include "chunkattn/cuda/products.h"
#include "emu_kernels.h"

struct ca_cuda_event {
    int recorded = 0, passed = 0;
};

namespace {

struct noted_launch {
    const emu::kernel *kernel;
    int blocks;
    std::vector<unsigned char> args;
};

} // namespace

struct ca_cuda_graph {
    std::vector<noted_launch> launches;
};

namespace {

struct machine {
    emu::device device;
    emu_streams how = EMU_IMMEDIATE;
    std::mt19937_64 rng{1};
    std::map<ca_cuda_stream, std::deque<std::function<void()>>> queues;
    std::set<const void *> own; /* device memory that the library has allocated */
    std::set<const ca_cuda_kernel *> prepared;
    int errors = 0, n_live = 0, fail_at = -1, fail_copy_at = -1, current = 0, n_processors = 2;
    bool by_wgmma = false, capturing = false, entered = false;
    std::vector<noted_launch> noted;
    std::map<uint64_t, std::vector<noted_launch>> graphs;
    emu_totals totals = {};
    int n_kinds = 0, spoiled = -1; /* kinds of device whose sums are not known, and the way of the last one that differs */
};

machine &m() {
    static machine *one = new machine;
    return *one;
}

void complain(const char *what) {
    printf("emulated device: %s\n", what);
    m().errors++;
}

/* ---- Streams ---- */

void run_first(std::deque<std::function<void()>> &queue) {
    const std::function<void()> work = queue.front();
    queue.pop_front();
    work();
}

void run_some() {
    for (auto &queue : m().queues)
        for (uint64_t n = m().rng() % 8 ? m().rng() % 3 : m().rng() % 40; n > 0 && !queue.second.empty(); n--)
            run_first(queue.second);
}

void run_all() {
    for (auto &queue : m().queues)
        while (!queue.second.empty()) run_first(queue.second);
}

void queue_work(ca_cuda_stream stream, std::function<void()> work) {
    if (m().capturing) complain("a call that cannot be captured");
    m().queues[stream].push_back(std::move(work));
    if (m().how == EMU_DEFERRED)
        run_some();
    else
        run_all();
}

/* ---- Devices ---- */

const char *count_devices(int32_t *n) {
    *n = 1;
    return nullptr;
}

const char *get_device(int32_t, ca_cuda_device *info) {
    *info = {"", 9, 0, m().n_processors, (uint64_t)1 << 30, 232448, 233472, m().by_wgmma, m().n_kinds == 0};
    snprintf(info->name, sizeof info->name, "emulated device %d", m().n_kinds);
    return nullptr;
}

/* Calls that another thread's capture would forbid are allowed between the two. */
const char *enter(int32_t device, ca_cuda_caller *before) {
    *before = {m().current, m().entered};
    m().current = device;
    m().entered = true;
    return nullptr;
}

void leave(const ca_cuda_caller *before) {
    m().current = before->device;
    m().entered = before->capture_mode;
}

void check_entered(const char *what) {
    if (!m().entered) printf("%s: ", what), complain("a call outside of enter and leave");
}

/* ---- Memory ---- */

bool fails() { return m().fail_at >= 0 && m().fail_at-- == 0; }

const char *allocate(void **p, size_t bytes) {
    *p = nullptr;
    check_entered("allocate");
    if (m().capturing) complain("memory is allocated during a capture");
    if (fails()) return "out of memory, as the test wants it";
    *p = m().device.alloc(bytes, "cache's memory " + std::to_string(bytes));
    m().own.insert(*p);
    m().n_live++;
    return nullptr;
}

void free_now(void *p) {
    if (m().own.erase(p) == 0) {
        complain("memory is freed that was not allocated");
        return;
    }
    m().device.free(p);
    m().n_live--;
}

const char *free_memory(void *p) {
    check_entered("free_memory");
    if (!p) return nullptr;
    for (const auto &queue : m().queues)
        if (!queue.second.empty()) complain("memory is freed while work is queued");
    free_now(p);
    return nullptr;
}

const char *acquire(void **p, size_t bytes, ca_cuda_stream) { return allocate(p, bytes); }

const char *release(void *p, ca_cuda_stream stream) {
    if (p) queue_work(stream, [p] { free_now(p); });
    return nullptr;
}

const char *allocate_host(void **p, size_t bytes) {
    check_entered("allocate_host");
    *p = fails() ? nullptr : malloc(bytes);
    if (!*p) return "out of pinned memory, as the test wants it";
    memset(*p, 0xff, bytes);
    m().n_live++;
    return nullptr;
}

const char *free_host(void *p) {
    if (p) m().n_live--;
    free(p);
    return nullptr;
}

const char *copy(void *to, const void *from, size_t bytes, ca_cuda_stream stream) {
    if (m().fail_copy_at >= 0 && m().fail_copy_at-- == 0) return "the copy fails, as the test wants it";
    queue_work(stream, [=] {
        if (!m().device.owns(to, bytes)) complain("a copy to what is no device memory");
        memcpy(to, from, bytes);
        m().totals.copies++;
        m().totals.copied_bytes += bytes;
    });
    return nullptr;
}

const char *zero(void *p, size_t bytes, ca_cuda_stream stream) {
    queue_work(stream, [=] {
        if (!m().device.owns(p, bytes)) complain("what is cleared is no device memory");
        memset(p, 0, bytes);
    });
    return nullptr;
}

const char *copy_back(void *to, const void *from, size_t bytes, ca_cuda_stream stream) {
    queue_work(stream, [=] {
        if (!m().device.owns(from, bytes)) complain("a copy from what is no device memory");
        memcpy(to, from, bytes);
    });
    return nullptr;
}

const char *create_stream(ca_cuda_stream *stream) {
    check_entered("create_stream");
    *stream = reinterpret_cast<ca_cuda_stream>(new char);
    m().n_live++;
    return nullptr;
}

void destroy_stream(ca_cuda_stream stream) {
    if (!m().queues[stream].empty()) complain("a stream is destroyed that has work");
    m().queues.erase(stream);
    delete reinterpret_cast<char *>(stream);
    m().n_live--;
}

const char *wait(ca_cuda_stream stream) {
    check_entered("wait");
    while (!m().queues[stream].empty()) run_first(m().queues[stream]);
    return nullptr;
}

/* ---- Launches ---- */

const char *prepare(const ca_cuda_kernel *kernel) {
    m().prepared.insert(kernel);
    return nullptr;
}

void run_kernel(const noted_launch &l) {
    const emu::kernel &k = *l.kernel;
    const uint64_t seed = m().rng();
    const emu::config c = k.launch_of(l.blocks, seed, 1 + (int)(m().rng() % 4));
    const unsigned mode = k.flushes ? ca_fp_enter() : 0;
    const emu::report r = m().device.launch(c, [&] { k.run(l.args.data()); });
    if (k.flushes) ca_fp_leave(mode);
    if (!r.errors.empty()) {
        printf("%s:\n", k.name);
        complain(r.text().c_str());
    }
    m().totals.launches++;
    if (k.attends) m().totals.kv_bytes += r.n.async_bytes + r.n.bulk_bytes;
    m().totals.wgmma += r.n.wgmma;
}

const char *launch(const ca_cuda_kernel *kernel, int32_t blocks, const void *args, ca_cuda_stream stream) {
    if (!m().prepared.count(kernel)) complain("a kernel is launched that was not prepared");
    const unsigned char *a = static_cast<const unsigned char *>(args);
    const emu::kernel &k = *static_cast<const emu::kernel *>(kernel->function);
    noted_launch l = {&k, blocks, {a, a + k.args_bytes}};
    if (!strncmp(k.name, "products_", 9)) reinterpret_cast<ca_cuda_products_args *>(l.args.data())->spoiled = m().spoiled;
    if (m().capturing)
        m().noted.push_back(l);
    else
        queue_work(stream, [l] { run_kernel(l); });
    return nullptr;
}

/* ---- Graphs ---- */

const char *begin_graph(ca_cuda_stream) {
    check_entered("begin_graph");
    if (m().capturing) complain("a capture begins within another one");
    emu_begin_capture();
    return nullptr;
}

const char *end_graph(ca_cuda_stream, ca_cuda_graph **graph) {
    m().capturing = false;
    *graph = nullptr;
    if (fails()) return "out of memory for a graph, as the test wants it";
    *graph = new ca_cuda_graph{m().noted};
    m().n_live++;
    return nullptr;
}

const char *run_graph(ca_cuda_graph *graph, ca_cuda_stream stream) {
    m().totals.graphs++;
    for (const noted_launch &l : graph->launches) queue_work(stream, [l] { run_kernel(l); });
    return nullptr;
}

void destroy_graph(ca_cuda_graph *graph) {
    if (graph) m().n_live--;
    delete graph;
}

/* ---- Events ---- */

const char *create_event(ca_cuda_event **event) {
    *event = new ca_cuda_event;
    m().n_live++;
    return nullptr;
}

void destroy_event(ca_cuda_event *event) {
    delete event;
    m().n_live--;
}

const char *record(ca_cuda_event *event, ca_cuda_stream stream) {
    event->recorded++;
    queue_work(stream, [event] { event->passed++; });
    return nullptr;
}

bool passed(ca_cuda_event *event) {
    check_entered("passed");
    return event->passed == event->recorded;
}

std::vector<ca_cuda_kernel> own_kernels() {
    std::vector<ca_cuda_kernel> all;
    all.reserve(emu::kernels.size());
    for (const emu::kernel &k : emu::kernels) all.push_back({k.name, &k, k.threads, (int32_t)k.shared});
    return all;
}

ca_cuda_runtime runtime = {
    count_devices, get_device, enter,     leave,         allocate,      free_memory,    acquire, release, allocate_host,
    free_host,     copy,       zero,      copy_back,     create_stream, destroy_stream, wait,    prepare, launch,
    begin_graph,   end_graph,  run_graph, destroy_graph, create_event,  destroy_event,  record,  passed,  nullptr,
};

} // namespace

extern "C" {

const ca_cuda_runtime *ca_cuda_linked(void) {
    static const std::vector<ca_cuda_kernel> all = own_kernels();
    runtime.kernels = all.data();
    return &runtime;
}

void emu_set_streams(emu_streams how, uint64_t seed) {
    run_all();
    m().how = how;
    m().rng.seed(seed);
    m().n_processors = 1 + (int)(seed % 3);
}

void emu_set_unknown_sums(int spoiled) {
    m().n_kinds++;
    m().spoiled = spoiled;
}
void emu_set_wgmma(bool by_wgmma) { m().by_wgmma = by_wgmma; }

void *emu_alloc(size_t bytes, const char *name) { return m().device.alloc(bytes, name); }
void emu_free(void *p) { m().device.free(p); }
void emu_finish(void) { run_all(); }
ca_cuda_stream emu_stream(int i) {
    static char places[16];
    return i == 0 ? nullptr : reinterpret_cast<ca_cuda_stream>(&places[i]);
}
int emu_errors(void) { return m().errors; }
int emu_fail_allocation(int n) {
    std::swap(n, m().fail_at);
    return n;
}
void emu_fail_copy(int n) { m().fail_copy_at = n; }
int emu_n_live(void) { return m().n_live; }
emu_totals emu_get_totals(void) { return m().totals; }

void emu_begin_capture(void) {
    m().noted.clear();
    m().capturing = true;
}
int emu_end_capture(uint64_t graph) {
    m().capturing = false;
    m().graphs[graph] = m().noted;
    return (int)m().noted.size();
}
bool emu_replay(uint64_t graph, ca_cuda_stream stream) {
    const auto found = m().graphs.find(graph);
    if (found == m().graphs.end()) return false;
    for (const noted_launch &l : found->second) queue_work(stream, [l] { run_kernel(l); });
    return true;
}
void emu_drop_graphs(void) { m().graphs.clear(); }

} // extern "C"
