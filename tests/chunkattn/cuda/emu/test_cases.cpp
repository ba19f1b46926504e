/* The emulation against the files in cases/, which say what the PTX ISA prescribes, under several orders of threads. */
#include "support.h"

#include "case_kernels.cuh"
#include "cases.h"

namespace {

using kernel = void (*)(const case_args);
const std::map<std::string, kernel> kernels = {
#define CASE_KERNEL(name, function) {#name, run_##name},
#include "case_kernels.def"
#undef CASE_KERNEL
};

void run_case(const test_case &c, u64 seed) {
    const auto k = kernels.find(c.run);
    if (k == kernels.end()) fail_msg("%s: no kernel %s", c.name.c_str(), c.run.c_str());
    assert_true(c.arg.size() <= CASE_ARGS);
    emu::device device;
    const auto a = place_case<case_args>(c, [&](const std::vector<u32> &words) {
        u32 *p = device.array<u32>(words.size() + 4, "words");
        std::copy(words.begin(), words.end(), p);
        return p;
    });
    emu::config config;
    config.threads = c.threads;
    config.shared_bytes = 48 << 10;
    config.seed = seed;
    const emu::report report = device.launch(config, [&] { k->second(a); });
    if (c.blocks) {
        if (report.errors.size() != 1 || report.errors[0].what != emu::kind::deadlock)
            fail_msg("%s should block, but %s", c.name.c_str(), report.text().c_str());
        return;
    }
    if (!report.errors.empty()) fail_msg("%s: %s", c.name.c_str(), report.text().c_str());
    assert_int_equal(count_wrong(c, a.out, a.after), 0);
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
