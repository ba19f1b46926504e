/*
 * The attention kernels: a random problem is run in several ways, whose bits must be the same. The first way must agree with
 * the reference. The test is compiled for the emulation and, in tests/chunkattn/cuda/device_run, for a device.
 *
 *   test_attend decode    in every shape of work items
 *   test_attend prefill   by the kernels of decode and of prefill. A prompt may be cut anywhere: rows of any tile have the bits
 * of rows alone test_attend pages     over foreign pages of any size and layout, and over chunks of the library's own
 *   test_attend wgmma     by the prefill kernels with mma and with wgmma. In the emulation both sum alike; on a device this
 * passes only where `products` finds that they do
 *
 * Behind these: [first seed [problems [d]]]
 */
#include <cstdio>
#include <cstring>

#include "chunkattn.h"
#include "problem.h"

/* A family's kernel over work items of one shape (work_shape), of at most max_rows rows each. */
struct way {
    const char *family; /* *_pages: the problem's K/V are copied into pages of a random size */
    int shape, max_rows;
};

/* Prints what is wrong, and returns the number of failures. */
static int check_ways(const problem &p, const std::vector<way> &ways) {
    memory m(p);
    machine::context = p.text();
    std::mt19937_64 rng(p.seed);
    std::vector<uint32_t> first;
    int failures = 0;
    for (const way &w : ways) {
        const bool pages = strstr(w.family, "_pages");
        if (pages) add_pages(p, m, 16 << rng() % 4, rng() % 2, rng());
        const work_lists lists = make_items(p, w.shape, w.max_rows, 1 + (int)(rng() % 4), rng());
        machine::order_threads(rng(), 1 + (int)(rng() % 3));
        failures += run_items(p, m, lists, attend_name(w.family, p));
        if (pages) remove_pages(m);
        const std::vector<uint32_t> bits = output_bits(p, m);
        if (first.empty()) {
            const double worst = compare_with_reference(p, m);
            if (!(worst <= 1)) printf("error %g of what is allowed\n", worst), failures++;
            first = bits;
        }
        if (bits == first) continue;
        printf("%s in shape %d: other bits than %s\n", w.family, w.shape, ways[0].family);
        failures++;
    }
    if (failures) printf("FAILED: %s\n", p.text().c_str());
    return failures;
}

struct subject {
    const char *name;
    int max_rows, max_tokens, max_prompt; /* of a problem; max_prompt 0: no prompts */
    bool plain;                           /* problems as they are random, rather than those of bits_problem */
    int e4m3;                             /* every n-th problem in e4m3 as well; 0: none */
    std::vector<way> ways;
};
const subject subjects[] = {
    {"decode",
     32,
     1400,
     0,
     true,
     2,
     {{"decode", SHAPE_CARRY, 32},
      {"decode", SHAPE_ALONE | SHAPE_CHAIN, 16},
      {"decode", SHAPE_RANDOM | SHAPE_CARRY | SHAPE_CHAIN, 32},
      {"decode", SHAPE_RANDOM, 16}}},
    {"prefill",
     64,
     700,
     90,
     false,
     1,
     {{"decode", SHAPE_RANDOM, 16},
      {"prefill", SHAPE_CHAIN, 64},
      {"prefill", SHAPE_RANDOM | SHAPE_CARRY, 64},
      {"prefill", SHAPE_RANDOM | SHAPE_CHAIN, 64}}},
    {"pages",
     32,
     700,
     0,
     false,
     0,
     {{"decode", SHAPE_RANDOM, 16},
      {"decode_pages", SHAPE_CARRY, 32},
      {"decode_pages", SHAPE_RANDOM | SHAPE_CHAIN, 16},
      {"prefill_pages", SHAPE_RANDOM | SHAPE_CARRY, 64}}},
    {"wgmma",
     64,
     700,
     150,
     false,
     0,
     {{"prefill", SHAPE_RANDOM, 64},
      {"prefill_wgmma", 0, 0},
      {"prefill_wgmma", SHAPE_CHAIN, 0},
      {"prefill_wgmma", SHAPE_RANDOM | SHAPE_CARRY, 0},
      {"prefill_wgmma", SHAPE_RANDOM | SHAPE_CARRY | SHAPE_CHAIN, 0}}},
};

/*
 * A problem for comparisons of bits. A rounded output hides the last bits, so most outputs are f32, and only wide scores show
 * in which order weights are summed. Half of the problems are prompts of up to max_prompt tokens, if that is not 0: each of
 * their rows must not see the later ones.
 */
static problem bits_problem(const subject &s, problem p) {
    if (p.seed % 3) p.out_type = CATTN_F32;
    if (p.seed % 5 < 2) p.how = WIDE_SCORES;
    if (s.max_prompt == 0 || (p.seed + p.seed / 8) % 2 == 0) return p;
    return prompt_problem(p, 1 + (int)(p.seed * 37 % (uint64_t)s.max_prompt), (int)(p.seed * 61 % (uint64_t)s.max_tokens));
}

/* The ways of a problem. By wgmma a work item has whole tokens for each warp group. */
static std::vector<way> ways_of(const subject &s, const problem &p) {
    std::vector<way> ways = s.ways;
    for (way &w : ways)
        if (w.max_rows == 0) w.max_rows = (p.d == 256 ? 1 : 2) * (64 / p.group * p.group);
    return ways;
}

static int check_subject(const subject &s, uint64_t begin, uint64_t n, int d) {
    const int sizes[] = {64, 96, 128, 256};
    int failures = 0, in_both = 0;
    for (uint64_t seed = begin; seed < begin + n; seed++) {
        problem p = random_problem(seed, seed % 2 ? BF16 : F16, d ? d : sizes[seed / 2 % 4], s.max_rows, s.max_tokens);
        if (!s.plain) p = bits_problem(s, p);
        failures += check_ways(p, ways_of(s, p));
        if (s.e4m3 == 0 || (s.e4m3 == 2 && seed % 2 == 0)) continue;
        failures += check_ways(in_e4m3(p), ways_of(s, p));
        in_both++;
    }
    printf("%d problems, %d of them in e4m3 as well: %d failures\n", (int)n, in_both, failures);
    return failures != 0;
}

int main(int argc, char **argv) {
    const auto number = [&](int i, uint64_t otherwise) { return argc > i ? strtoull(argv[i], nullptr, 10) : otherwise; };
    for (const subject &s : subjects)
        if (argc > 1 && !strcmp(argv[1], s.name)) return check_subject(s, number(2, 1), number(3, 8), (int)number(4, 0));
    fprintf(stderr, "usage: test_attend decode|prefill|pages|wgmma [first seed [problems [d]]]\n");
    return 2;
}
