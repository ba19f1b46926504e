/* Finding the kernels of kernels.def, and running lists of jobs with them. */
#include <cstdio>
#include <cstring>

#include "chunkattn/cuda/emu/emu_kernels.h"
#include "problem.h"

namespace {

template <class A> struct launcher;
template <> struct launcher<ca_cuda_attend_args> {
    static void set(kernel_entry &k, void (*f)(const ca_cuda_attend_args &)) { k.attend = f; }
};
template <> struct launcher<ca_cuda_write_args> {
    static void set(kernel_entry &k, void (*f)(const ca_cuda_write_args &)) { k.write = f; }
};
template <> struct launcher<ca_cuda_copy_args> {
    static void set(kernel_entry &k, void (*f)(const ca_cuda_copy_args &)) { k.copy = f; }
};

#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    void start_##name(const args &a) { ca_cuda_##name(a); }
#include "chunkattn/cuda/kernels.def"
#undef CA_CUDA_KERNEL

std::vector<kernel_entry> make_kernels() {
    std::vector<kernel_entry> all;
#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function)                                              \
    all.push_back({#name, threads, blocks, shared, sm, nullptr, nullptr, nullptr});                                            \
    launcher<args>::set(all.back(), start_##name);
#include "chunkattn/cuda/kernels.def"
#undef CA_CUDA_KERNEL
    return all;
}

} // namespace

const kernel_entry &find_kernel(const std::string &name) {
    static const std::vector<kernel_entry> all = make_kernels();
    for (const kernel_entry &k : all)
        if (name == k.name) return k;
    fprintf(stderr, "no kernel %s\n", name.c_str());
    abort();
}

std::string attend_name(const char *family, const problem &p) {
    return std::string(family) + "_" + kv_name(p) + "_" + std::to_string(p.d);
}

/* Blocks of a multiprocessor: as many as the registers allow (kernels.def), or fewer if shared memory has no room. */
static int blocks_that_fit(const kernel_entry &k, int sm) {
    int blocks = k.blocks;
    while (blocks > 1 && k.shared * (size_t)blocks > emu::shared_bytes_of(sm)) blocks--;
    return blocks;
}

int run_jobs(const problem &p, memory &m, const job_lists &lists, const std::string &kernel, const run_options &o,
             emu::counts *counts) {
    const kernel_entry &k = find_kernel(kernel);
    emu::device &device = m.device;
    const size_t per_state = (size_t)p.heads(), d = (size_t)p.d;
    auto array = [&](const std::vector<int> &v, const char *name) {
        int *to = device.array<int>(v.size(), name);
        memcpy(to, v.data(), v.size() * sizeof(int));
        return to;
    };
    ca_cuda_attend_args a = m.args;
    a.o = device.array<float>((size_t)lists.n_states * per_state * d, "states");
    a.ml = device.array<float>((size_t)lists.n_states * per_state * 2, "M, l");
    a.carry =
        device.array<float>((size_t)lists.n_carried * per_state * CA_CUDA_QUARTERS * (d + CA_CUDA_CARRY), "carried states");
    a.merge_begin = array(lists.merge_begin, "merge_begin");
    a.merge = array(lists.merge, "merge");
    memset(m.args.out.data, 0xff, m.out_bytes);
    memset(m.args.lse, 0xff, (size_t)p.rows() * per_state * 4);
    int errors = 0;
    std::vector<void *> temporary = {a.o, a.ml, a.carry, (void *)a.merge_begin, (void *)a.merge};
    for (const auto &phase : lists.phases) {
        std::vector<int> parts = {0};
        std::vector<ca_cuda_job> jobs;
        for (const auto &block : phase) {
            jobs.insert(jobs.end(), block.begin(), block.end());
            parts.push_back((int)jobs.size());
        }
        ca_cuda_job *list = device.array<ca_cuda_job>(jobs.size(), "jobs");
        memcpy((void *)list, jobs.data(), jobs.size() * sizeof jobs[0]);
        a.jobs = list;
        a.parts = array(parts, "parts");
        temporary.push_back(list);
        temporary.push_back((void *)a.parts);
        if (kernel.find("_pages_") != std::string::npos) {
            const std::vector<ca_cuda_job_pages> pages = pages_of(m, jobs);
            ca_cuda_job_pages *to = device.array<ca_cuda_job_pages>(pages.size(), "pages of jobs");
            memcpy((void *)to, pages.data(), pages.size() * sizeof pages[0]);
            a.pages.jobs = to;
            temporary.push_back(to);
        }
        emu::config c;
        c.blocks = (int)phase.size();
        c.threads = k.threads;
        c.shared_bytes = k.shared;
        c.seed = o.seed;
        c.resident = o.resident;
        c.sm = o.sm ? o.sm : k.sm;
        c.blocks_per_sm = blocks_that_fit(k, c.sm);
        const emu::report r = device.launch(c, [&] { k.attend(a); });
        if (!r.errors.empty()) printf("%s", r.text().c_str());
        errors += (int)r.errors.size();
        if (counts) *counts = r.n;
    }
    for (size_t i = 0; i < (size_t)(p.rows() * p.n_kv_heads); i++)
        if (m.args.arrivals[i]) {
            printf("a counter of arrivals is left at %u\n", m.args.arrivals[i]);
            m.args.arrivals[i] = 0;
            errors++;
        }
    for (void *t : temporary) device.free(t);
    return errors;
}
