/* The emulation against the files in cases/, which say what the PTX ISA prescribes, under several orders of threads. */
#include "support.h"

#include "case_kernels.cuh"
#include "cases.h"

namespace {

using kernel = void (*)(const case_args);
const std::map<std::string, kernel> kernels = {
#define CASE_KERNEL(name) {#name, run_##name},
#include "case_kernels.def"
#undef CASE_KERNEL
};

struct buffers {
    emu::device device;
    case_args a = {};
    std::vector<u32> wanted_after;

    template <class V> u32 *copy(const V &words, const char *name) {
        u32 *p = device.array<u32>(words.size() + 4, name);
        std::copy(words.begin(), words.end(), p);
        return p;
    }
    explicit buffers(const test_case &c) {
        std::vector<u32> in, image_at, image, after_at;
        for (const auto &r : c.in) in.insert(in.end(), r.begin(), r.end());
        for (const auto &w : c.shared) image_at.push_back(w.first), image.push_back(w.second);
        for (const auto &w : c.after) after_at.push_back(w.first), wanted_after.push_back(w.second);
        a.in = copy(in, "in");
        a.out = device.array<u32>((c.out.size() + 1) * (size_t)c.threads, "out");
        a.device = copy(c.device, "device");
        a.image_at = copy(image_at, "image_at");
        a.image = copy(image, "image");
        a.after_at = copy(after_at, "after_at");
        a.after = device.array<u32>(after_at.size() + 1, "after");
        a.n_image = (int)image.size();
        a.n_after = (int)after_at.size();
        a.threads = c.threads;
        a.n_args = (int)c.arg.size();
        std::copy(c.arg.begin(), c.arg.end(), a.arg);
    }
};

void check_results(const test_case &c, const buffers &b) {
    for (size_t r = 0; r < c.out.size(); r++)
        for (size_t t = 0; t < c.out[r].size(); t++) {
            const u32 got = b.a.out[r * (size_t)c.threads + t];
            if (c.wanted[r][t] && !agrees(c, got, c.out[r][t]))
                fail_msg("%s: register %zu of thread %zu is %08x, not %08x (%s)", c.name.c_str(), r, t, got, c.out[r][t],
                         c.source.c_str());
        }
    for (size_t i = 0; i < b.wanted_after.size(); i++)
        if (b.a.after[i] != b.wanted_after[i])
            fail_msg("%s: shared memory at %u is %08x, not %08x (%s)", c.name.c_str(), b.a.after_at[i], b.a.after[i],
                     b.wanted_after[i], c.source.c_str());
}

void run_case(const test_case &c, u64 seed) {
    const auto k = kernels.find(c.run);
    if (k == kernels.end()) fail_msg("%s: no kernel %s", c.name.c_str(), c.run.c_str());
    assert_true(c.arg.size() <= CASE_ARGS);
    buffers b(c);
    emu::config config;
    config.threads = c.threads;
    config.shared_bytes = 48 << 10;
    config.seed = seed;
    const emu::report report = b.device.launch(config, [&] { k->second(b.a); });
    if (c.blocks) {
        if (report.errors.size() != 1 || report.errors[0].what != emu::kind::deadlock)
            fail_msg("%s should block, but %s", c.name.c_str(), report.text().c_str());
        return;
    }
    if (!report.errors.empty()) fail_msg("%s: %s", c.name.c_str(), report.text().c_str());
    check_results(c, b);
}

std::vector<test_case> read(const char *file) {
    std::string why;
    std::vector<test_case> cases = read_cases(std::string(CASES_FOLDER) + "/" + file, &why);
    if (cases.empty()) fail_msg("%s", why.c_str());
    return cases;
}

void run_file(void **state) {
    for (const test_case &c : read(static_cast<const char *>(*state)))
        for (u64 seed = 1; seed <= 3; seed++) run_case(c, seed);
}

const char *const files[] = {"warp_matrices.txt", "warp_groups.txt", "exchange.txt", "arithmetic.txt", "copies.txt"};

void every_kernel_has_a_case(void **) {
    std::map<std::string, int> n;
    for (const char *file : files)
        for (const test_case &c : read(file)) n[c.run]++;
    for (const auto &k : kernels)
        if (!n[k.first]) fail_msg("no case runs %s", k.first.c_str());
}

} // namespace

int main() {
    std::vector<CMUnitTest> tests;
    for (const char *file : files) tests.push_back({file, run_file, nullptr, nullptr, const_cast<char *>(file)});
    tests.push_back(cmocka_unit_test(every_kernel_has_a_case));
    return _cmocka_run_group_tests("cases", tests.data(), tests.size(), nullptr, nullptr);
}
