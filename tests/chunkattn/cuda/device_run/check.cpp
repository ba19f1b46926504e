/*
 * run_jobs of tests/chunkattn/cuda/kernels on a machine: the check programs of that folder, linked with it, hold a device's
 * kernels against the reference and against themselves. A problem stays in the host's memory, and is copied for each run.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "machine.h"
#include "tests/chunkattn/cuda/kernels/problem.h"

std::string attend_name(const char *family, const problem &p) {
    return std::string(family) + "_" + kv_name(p) + "_" + std::to_string(p.d);
}

namespace {

struct mirror {
    std::vector<void *> owned;
    void *keep(void *p) {
        owned.push_back(p);
        return p;
    }
    template <class T> T *room(size_t n) { return static_cast<T *>(keep(machine::alloc((n + 1) * sizeof(T)))); }
    template <class T> T *copy(const T *from, size_t n) {
        if (!from) return nullptr;
        T *to = room<T>(n);
        machine::to_device(const_cast<std::remove_const_t<T> *>(to), from, n * sizeof(T));
        return to;
    }
    template <class T> T *copy(const std::vector<T> &v) { return static_cast<T *>(keep(machine::array(v))); }
    void *copy_bytes(const void *from, size_t n) { return copy(static_cast<const unsigned char *>(from), n); }
    mirror() = default;
    ~mirror() {
        for (void *p : owned) machine::release(p);
    }
    mirror(const mirror &) = delete;
    mirror &operator=(const mirror &) = delete;
};

ca_cuda_attend_args on_machine(mirror &m, const problem &p, const memory &host, const job_lists &lists) {
    ca_cuda_attend_args a = host.args;
    const size_t rows = (size_t)p.rows(), heads = (size_t)p.heads(), d = (size_t)p.d;
    a.kv = m.copy_bytes(host.kv, (size_t)p.n_chunks * (size_t)a.chunk_bytes);
    if (host.page_bytes) {
        a.pages.k.data = static_cast<unsigned char *>(m.copy_bytes(host.args.pages.k.data, host.page_bytes));
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
    a.merge_begin = m.copy(lists.merge_begin);
    a.merge = m.copy(lists.merge);
    a.o = m.room<float>((size_t)lists.n_states * heads * d);
    a.ml = m.room<float>((size_t)lists.n_states * heads * 2);
    a.carry = m.room<float>((size_t)lists.n_carried * heads * CA_CUDA_QUARTERS * (d + CA_CUDA_CARRY));
    return a;
}

} // namespace

int run_jobs(const problem &p, memory &host, const job_lists &lists, const std::string &kernel, const run_options &,
             emu::counts *) {
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
        std::vector<ca_cuda_job> jobs;
        for (const auto &block : phase) {
            jobs.insert(jobs.end(), block.begin(), block.end());
            parts.push_back((int32_t)jobs.size());
        }
        a.jobs = m.copy(jobs);
        a.parts = m.copy(parts);
        if (host.page_bytes) a.pages.jobs = m.copy(pages_of(host, jobs));
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
