/* Running lists of work items on a machine. A problem stays in the host's memory, and is copied for each run. */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "machine.h"
#include "problem.h"

std::string attend_name(const char *family, const problem &p) {
    return std::string(family) + "_" + kv_name(p) + "_" + std::to_string(p.d);
}

namespace {

/* Of the host's memory. */
struct mirror : machine::owner {
    template <class T> T *copy(const T *from, size_t n) {
        if (!from) return nullptr;
        auto *to = unset<std::remove_const_t<T>>(n);
        machine::to_device(to, from, n * sizeof(T));
        return to;
    }
    unsigned char *copy_bytes(const void *from, size_t n) { return copy(static_cast<const unsigned char *>(from), n); }
};

ca_cuda_attend_args on_machine(mirror &m, const problem &p, const memory &host, const work_lists &lists) {
    ca_cuda_attend_args a = host.args;
    const size_t rows = (size_t)p.rows(), heads = (size_t)p.heads(), d = (size_t)p.d;
    a.kv = m.copy_bytes(host.kv, (size_t)p.n_chunks * (size_t)a.chunk_bytes);
    if (host.page_bytes) {
        a.pages.k.data = m.copy_bytes(host.args.pages.k.data, host.page_bytes);
        a.pages.v.data = a.pages.k.data + (host.args.pages.v.data - host.args.pages.k.data);
    }
    a.q.data = m.copy_bytes(a.q.data, rows * (size_t)a.q.row_stride);
    a.out.data = m.copy_bytes(a.out.data, host.out_bytes);
    a.lse = m.copy(a.lse, rows * heads);
    a.position = m.copy(a.position, rows);
    a.source = m.copy(a.source, rows);
    a.slopes = m.copy(a.slopes, heads);
    a.sinks = m.copy(a.sinks, heads);
    a.arrivals = m.copy(a.arrivals, rows * (size_t)p.n_kv_heads);
    a.merge_begin = m.array(lists.merge_begin);
    a.merge = m.array(lists.merge);
    a.o = m.unset<float>((size_t)lists.n_states * heads * d);
    a.ml = m.unset<float>((size_t)lists.n_states * heads * 2);
    a.carry = m.unset<float>((size_t)lists.n_carried * heads * CA_CUDA_QUARTERS * (d + CA_CUDA_CARRY));
    return a;
}

} // namespace

int run_items(const problem &p, memory &host, const work_lists &lists, const std::string &kernel) {
    if (kernel.find("wgmma") != std::string::npos && machine::open().sm != 90) {
        printf("this device has no wgmma\n");
        exit(77);
    }
    const machine::kernel *k = machine::find(kernel);
    if (!k) {
        printf("no kernel %s on this device\n", kernel.c_str());
        return 1;
    }
    const size_t lse_bytes = (size_t)(p.rows() * p.heads()) * 4, n_arrivals = (size_t)(p.rows() * p.n_kv_heads);
    memset(host.args.out.data, 0xff, host.out_bytes);
    memset(host.args.lse, 0xff, lse_bytes);
    mirror m;
    ca_cuda_attend_args a = on_machine(m, p, host, lists);
    for (const auto &phase : lists.phases) {
        std::vector<int32_t> parts = {0};
        std::vector<ca_work_item> items;
        for (const auto &block : phase) {
            items.insert(items.end(), block.begin(), block.end());
            parts.push_back((int32_t)items.size());
        }
        a.items = m.array(items);
        a.parts = m.array(parts);
        if (host.page_bytes) a.pages.items = m.array(pages_of(host, items));
        machine::launch(*k, (int)phase.size(), &a);
    }
    machine::wait();
    machine::from_device(host.args.out.data, a.out.data, host.out_bytes);
    machine::from_device(host.args.lse, a.lse, lse_bytes);
    std::vector<uint32_t> arrivals(n_arrivals);
    machine::from_device(arrivals.data(), a.arrivals, n_arrivals * 4);
    int errors = 0;
    for (const uint32_t n : arrivals)
        if (n) {
            printf("a counter of arrivals is left at %u\n", n);
            errors++;
        }
    return errors;
}
