/*
 * A random problem for the attention kernels: rows with paths through a tree of chunks, K/V with nasty values, and the same
 * problem as lists of work items in many shapes, all of which must give the same bits.
 */
#ifndef TESTS_CHUNKATTN_CUDA_KERNELS_PROBLEM_H
#define TESTS_CHUNKATTN_CUDA_KERNELS_PROBLEM_H

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "chunkattn/cuda/emu/emu.h"
#include "chunkattn/cuda/primitives.h"
#include "chunkattn/cuda/work_item.h"
#include "machine.h"
#include "tests/chunkattn/cuda/e4m3.h"

/*
 * WIDE_SCORES: weights that differ by factors of up to some 2^20. Sums of them are rounded, so another order of summation gives
 * other bits; sums of PLAIN weights are exact. ODD_VALUES: infinite V where only some rows see it.
 */
enum nasty { PLAIN, HUGE_SCORES, WIDE_SCORES, RISING, EQUAL, ODD_VALUES, N_NASTY };

struct problem {
    element type; /* of queries; of K and V, too, unless these are e4m3 */
    bool e4m3;    /* K and V are e4m3 with scales; `type` is F16 then */
    int d, n_kv_heads, group;
    int q_type, out_type; /* cattn_type */
    int window, n_sink_tokens;
    float softcap; /* natural units, 0: none */
    bool slopes, sinks;
    nasty how;
    uint64_t seed;

    /* [rows]; chunks[row][i]: id of absolute chunk i, up to that of the row's position. */
    std::vector<int> position;
    std::vector<std::vector<int>> chunks;
    int n_chunks;

    int rows() const { return (int)position.size(); }
    int heads() const { return n_kv_heads * group; }
    float scale() const;
    std::string text() const;
};

/* "bf16", "f16" or "e4m3", as in the names of kernels. */
const char *kv_name(const problem &p);

/* The problem with e4m3 K and V. */
problem in_e4m3(problem p);

/* Rows in the order of their tree: sequences that share a random prefix, some with several rows in a row. */
problem random_problem(uint64_t seed, element type, int d, int max_rows, int max_tokens);

/* The same with the rows of one sequence, n tokens from position `first` on. */
problem prompt_problem(problem p, int n, int first);

/* The problem in device memory. */
struct memory {
    emu::device device;
    ca_cuda_attend_args args;
    std::vector<float> q; /* [rows][heads][d], as the kernel rounds them */
    std::vector<float> slopes, sinks;
    unsigned char *kv;
    size_t out_bytes;
    int n_states, n_carried;
    std::vector<int> places; /* [chunk][quarter] as in ca_work_item_pages; empty before add_pages */
    size_t page_bytes = 0;   /* of all pages, from args.pages.k.data on */
    explicit memory(const problem &p);
    /* K or V of one chunk and KV head. */
    const unsigned char *kv_tile(const problem &p, int chunk, int head, bool v) const;
    u16 bits_of(const problem &p, int chunk, int head, bool v, int slot, int i) const; /* not of e4m3 */
    double element_of(const problem &p, int chunk, int head, bool v, int slot, int i) const;
    memory(const memory &) = delete;
    memory &operator=(const memory &) = delete;
};

/*
 * Copy the problem's K/V into foreign pages, which the kernels *_pages_* read: their quarters at random places, NHD or HND by
 * the seed, without gaps (`dense`) or with some. Quarters of which no row sees anything are in no page.
 */
void add_pages(const problem &p, memory &m, int page_size, bool dense, uint64_t seed);
void remove_pages(memory &m);

/* Where the chunks of these work items lie in the pages. */
std::vector<ca_work_item_pages> pages_of(const memory &m, const std::vector<ca_work_item> &items);

/* ---- Work items ---- */

enum work_shape {
    SHAPE_ALONE = 1,  /* every token by itself */
    SHAPE_CARRY = 2,  /* a segment in which rows part is cut: its common chunks are computed once and carried */
    SHAPE_CHAIN = 4,  /* consecutive segments of the same rows stay in one block */
    SHAPE_RANDOM = 8, /* tiles of random sizes */
    SHAPE_EVEN = 16,  /* nothing is random, and blocks have about the same cost; not with SHAPE_CARRY */
};

struct work_lists {
    std::vector<std::vector<std::vector<ca_work_item>>> phases; /* [launch][block][work item] */
    std::vector<int> merge_begin, merge;
    int n_states = 0, n_carried = 0;
};
work_lists make_items(const problem &p, int shape, int max_rows, int blocks, uint64_t seed);

/* ---- Elements of 16 bits ---- */

u16 to_16(element e, float f);
float from_16(element e, u16 h);
/* Where dimension i of a slot is in a tile, in bytes. */
size_t tile_place(int d, int slot, int i);

/* ---- e4m3 ---- */

/* A line of n numbers as codes and a scale. */
struct e4m3_line {
    float scale;
    std::vector<uint8_t> codes;
};
e4m3_line to_e4m3(const float *x, int n);

/* A dimension's code in a tile, where the 16 bits are that it shares with another, and where a slot's scale is. */
uint8_t get_e4m3(const unsigned char *tile, int d, int slot, int i);
void put_e4m3(unsigned char *tile, int d, int slot, int i, uint8_t code);
size_t e4m3_pair_place(int d, int slot, int i);
size_t e4m3_scale_place(int d, int slot);

/* Output and lse of all rows, bit by bit; any NaN is the same NaN. */
std::vector<uint32_t> output_bits(const problem &p, const memory &m);

/* ---- Running ---- */

std::string attend_name(const char *family, const problem &p); /* "decode" -> "decode_bf16_128" */

/* Runs the lists on the machine (machine.h), and returns the number of counters of arrivals that they leave above 0. */
int run_items(const problem &p, memory &m, const work_lists &lists, const std::string &kernel);

/* ---- The reference ---- */

/* The largest error of outputs and lse in units of what the arithmetic allows; more than 1 fails. */
double compare_with_reference(const problem &p, const memory &m);

#endif
