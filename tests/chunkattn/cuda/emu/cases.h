/* Reads the files of cases, whose format make_cases.py explains. Plain C++, for the emulation and for a device. */
#ifndef TESTS_CHUNKATTN_CUDA_EMU_CASES_H
#define TESTS_CHUNKATTN_CUDA_EMU_CASES_H

#include <cstdint>
#include <map>
#include <string>
#include <vector>

struct test_case {
    std::string name, source, run;
    int threads = 0;
    bool blocks = false; /* the kernel must not end */
    double within = 0;   /* 0: bits are equal; otherwise the error of f32, relative to numbers above 1 */
    std::vector<uint32_t> arg, device;
    std::map<uint32_t, uint32_t> shared, after; /* word by byte offset */
    std::vector<std::vector<uint32_t>> in, out; /* [registers][threads] */
    std::vector<std::vector<bool>> wanted;      /* of out: not every thread's register is prescribed */
};

/*
 * The arguments of a case's kernel (case_args). `copy` puts words into the memory of the machine that runs it, where results
 * are filled with ones.
 */
template <class A, class F> A place_case(const test_case &c, F copy) {
    const std::vector<uint32_t> unset((c.out.size() + 1) * (size_t)c.threads + c.after.size(), 0xffffffff);
    std::vector<uint32_t> in, image_at, image, after_at;
    for (const auto &r : c.in) in.insert(in.end(), r.begin(), r.end());
    for (const auto &w : c.shared) image_at.push_back(w.first), image.push_back(w.second);
    for (const auto &w : c.after) after_at.push_back(w.first);
    A a = {};
    a.in = copy(in), a.out = copy(unset), a.device = copy(c.device);
    a.image_at = copy(image_at), a.image = copy(image), a.n_image = (int)image.size();
    a.after_at = copy(after_at), a.after = copy(unset), a.n_after = (int)after_at.size();
    a.threads = c.threads;
    a.n_args = (int)c.arg.size();
    for (size_t i = 0; i < c.arg.size(); i++) a.arg[i] = c.arg[i];
    return a;
}

/* Prints which results are not those prescribed, and returns their number. out, after: as in case_args. */
int count_wrong(const test_case &c, const uint32_t *out, const uint32_t *after);

/* An empty list: the file cannot be read or has an unknown line, which *why names. */
std::vector<test_case> read_cases(const std::string &path, std::string *why);

#endif
