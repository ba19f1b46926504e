/*
 * Whether sums of products have the same bits by every instruction that could compute them: by mma with a row in A and with the
 * row in B, which decode and prefill rely on, and by wgmma (docs/cuda.md, "One arithmetic for every row"). Each tile is random
 * X Y^T, 64 x 256 sums, compared after each of four steps.
 *
 *   products [TILES [SPOILED]]   tiles of each type; SPOILED: one sum of this way is changed, to see that it is found
 *
 * Prints a line for each type and way: sums, those that differ from the first way's, and where one of them is. Exits with 1 if
 * the ways by mma differ.
 */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "chunkattn/cuda/primitives.h"
#include "run_kernels.h"
#include "tests/chunkattn/cuda/kernels/machine.h"

namespace {

enum { BATCH = 128 }; /* tiles of a launch */

int columns_of(int way) { return way < WGMMA ? PRODUCT_COLUMNS : 32 << (way - WGMMA) % 4; }

std::string name_of(int way) {
    static const char *const by_mma[] = {"mma, rows as A", "mma, rows as A in other places", "mma, rows as B"};
    if (way < WGMMA) return by_mma[way];
    const int form = (way - WGMMA) / 4;
    return "wgmma N " + std::to_string(columns_of(way)) + (form < 2 ? ", Y K-major" : ", Y MN-major") +
           (form % 2 ? ", X in registers" : ", X in shared memory");
}

/* ---- Random tiles ---- */

enum content { PLAIN, ALL_MAGNITUDES, WEIGHTS, CANCELLING, N_CONTENTS };

using generator = std::mt19937_64;
uint16_t to_16(element e, float f) { return e == BF16 ? emu::float_to_bf16(f) : emu::float_to_half(f); }

/* Any sign and mantissa; exponents so far apart that most of a sum is lost, but finite: 2^-40 to 2^40, or all of f16's. */
uint16_t any_number(generator &rng, element e) {
    const uint64_t bits = rng();
    if (e == F16) return (uint16_t)((bits & 0x83ff) | (bits >> 32) % 31 << 10);
    return (uint16_t)((bits & 0x807f) | (87 + (bits >> 32) % 81) << 7);
}

/* An element of the left operand. With CANCELLING, the products of two neighbours in k nearly cancel. */
uint16_t x_number(generator &rng, element e, content c) {
    std::normal_distribution<float> normal;
    if (c == ALL_MAGNITUDES) return any_number(rng, e);
    if (c == WEIGHTS) return to_16(e, std::exp2((e == F16 ? 14.0f : 0.0f) - (float)(rng() % 4096) / 128));
    return to_16(e, normal(rng));
}
uint16_t y_number(generator &rng, element e, content c) {
    std::normal_distribution<float> normal;
    return c == ALL_MAGNITUDES ? any_number(rng, e) : to_16(e, normal(rng));
}

struct tiles {
    std::vector<uint16_t> x, y, y_t;
};
void add_tile(tiles &t, generator &rng, element e, content c) {
    const size_t x0 = t.x.size(), y0 = t.y.size();
    for (int i = 0; i < PRODUCT_ROWS * PRODUCT_K; i++)
        t.x.push_back(c == CANCELLING && i % 2 ? t.x[x0 + (size_t)i - 1] : x_number(rng, e, c));
    for (int i = 0; i < PRODUCT_COLUMNS * PRODUCT_K; i++)
        t.y.push_back(c == CANCELLING && i % 2 ? (uint16_t)(t.y[y0 + (size_t)i - 1] ^ 0x8000 ^ (rng() % 4))
                                               : y_number(rng, e, c));
    for (int k = 0; k < PRODUCT_K; k++)
        for (int n = 0; n < PRODUCT_COLUMNS; n++) t.y_t.push_back(t.y[y0 + (size_t)(n * PRODUCT_K + k)]);
}

/* ---- A type ---- */

struct results {
    std::vector<uint32_t> n_differ;
    std::vector<run_difference> first;
    bool by_group; /* whether wgmma was executed */
};

results compare(element e, int n_tiles, int spoiled) {
    const std::string type = e == BF16 ? "bf16" : "f16";
    const machine::kernel *k = machine::find("run_products_" + type), *group = machine::find("run_products_wgmma_" + type);
    if (machine::open().sm != 90) group = nullptr; /* other devices have no wgmma */
    results r = {std::vector<uint32_t>(PRODUCT_WAYS), std::vector<run_difference>(PRODUCT_WAYS), group != nullptr};
    run_products_args a = {};
    a.n_differ = machine::array(r.n_differ);
    a.first = machine::array(r.first);
    a.sums =
        static_cast<float *>(machine::alloc((size_t)BATCH * PRODUCT_STEPS * PRODUCT_ROWS * PRODUCT_COLUMNS * sizeof(float)));
    generator rng(e + 1);
    for (int begin = 0; begin < n_tiles; begin += BATCH) {
        tiles t;
        a.n_tiles = std::min<int>(BATCH, n_tiles - begin);
        a.spoiled = begin == 0 ? spoiled : -1;
        for (int i = 0; i < a.n_tiles; i++) add_tile(t, rng, e, (content)((begin + i) % N_CONTENTS));
        uint16_t *const x = machine::array(t.x), *const y = machine::array(t.y), *const y_t = machine::array(t.y_t);
        a.x = x, a.y = y, a.y_t = y_t;
        machine::launch(*k, a.n_tiles, &a);
        if (group) machine::launch(*group, a.n_tiles, &a);
        machine::wait();
        for (void *p : {x, y, y_t}) machine::release(p);
    }
    machine::from_device(r.n_differ.data(), a.n_differ, r.n_differ.size() * sizeof r.n_differ[0]);
    machine::from_device(r.first.data(), a.first, r.first.size() * sizeof r.first[0]);
    machine::release(a.n_differ);
    machine::release(a.first);
    machine::release(a.sums);
    return r;
}

void print_way(const char *type, int way, int n_tiles, const results &r) {
    const double sums = (double)n_tiles * PRODUCT_STEPS * PRODUCT_ROWS * columns_of(way);
    printf("%s\t%s\t%.0f\t%u", type, name_of(way).c_str(), sums, r.n_differ[(size_t)way]);
    const run_difference &d = r.first[(size_t)way];
    if (r.n_differ[(size_t)way])
        printf("\ttile %d of its batch, step %d, row %d, column %d: %a, not %a", d.tile, d.step, d.row, d.column, d.got,
               d.want);
    printf("\n");
}

} // namespace

int main(int argc, char **argv) {
    const int n_tiles = argc > 1 ? atoi(argv[1]) : machine::open().emulated ? N_CONTENTS : 2048;
    const int spoiled = argc > 2 ? atoi(argv[2]) : -1;
    bool by_mma = true, by_group = true, any_group = false;
    printf("type\tway\tsums\tdiffer\tone of them\n");
    for (const element e : {BF16, F16}) {
        const results r = compare(e, n_tiles, spoiled);
        any_group |= r.by_group;
        for (int way = ROWS_AS_A_MOVED; way < (r.by_group ? PRODUCT_WAYS : WGMMA); way++) {
            print_way(e == BF16 ? "bf16" : "f16", way, n_tiles, r);
            (way < WGMMA ? by_mma : by_group) &= r.n_differ[(size_t)way] == 0;
        }
    }
    printf("%s\n", by_mma ? "rows as A, rows as B: equal bits" : "FAILED: rows as A, rows as B: other bits");
    if (any_group) printf("mma, wgmma: %s bits\n", by_group ? "equal" : "other");
    return !by_mma;
}
