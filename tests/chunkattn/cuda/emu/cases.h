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

/* Whether a register may hold `got` where `want` is prescribed. */
bool agrees(const test_case &c, uint32_t got, uint32_t want);

/* An empty list: the file cannot be read or has an unknown line, which *why names. */
std::vector<test_case> read_cases(const std::string &path, std::string *why);

#endif
