/*
 * What the kernels cost, counted: sectors of K and V, wavefronts of shared memory, and instructions for each chunk and warp.
 * The counts of a chunk are the difference between a segment of eight chunks and one of four. Foreign pages have 16 slots,
 * whose lines have no gaps.
 */
#include <cstdio>
#include <cstring>

#include "chunkattn.h"
#include "problem.h"

namespace {

int failures;
void expect(bool ok, const char *what, const std::string &kernel, int rows, double got, double want) {
    if (ok) return;
    printf("FAILED: %s of %s, %d rows: %g, allowed %g\n", what, kernel.c_str(), rows, got, want);
    failures++;
}

/* The counts of a launch over rows that all see the same n whole chunks. With `e4m3` K and V are e4m3, and `type` is F16. */
emu::counts measure(const char *family, element type, bool e4m3, int d, int rows, int n, int tile_rows) {
    problem p = {};
    p.type = type;
    p.e4m3 = e4m3;
    p.d = d;
    p.n_kv_heads = p.group = 1;
    p.q_type = p.out_type = type == BF16 ? CATTN_BF16 : CATTN_F16;
    p.seed = 1;
    p.n_chunks = n;
    for (int r = 0; r < rows; r++) {
        p.position.push_back(n * CA_CUDA_CHUNK - 1);
        p.chunks.emplace_back();
        for (int c = 0; c < n; c++) p.chunks.back().push_back(c);
    }
    memory m(p);
    if (strstr(family, "pages")) add_pages(p, m, 16, true, (uint64_t)d);
    machine::order_threads(1, 1);
    failures += run_items(p, m, make_items(p, 0, tile_rows, 1, 1), attend_name(family, p));
    return machine::last_counts();
}

struct bar { /* instructions of one warp for one chunk */
    const char *family;
    int d, rows, warps, mma, ldmatrix, movmatrix, votes;
    int wgmma = 0; /* of all warps together */
};

/*
 * decode: d / 16 products a tile of 8 rows for K, as many for V; an ldmatrix for each 16 dimensions of K and of V, and where
 * queries do not stay in registers one for each tile of 8 rows and 32 of their dimensions. prefill: 16 rows, four quarters.
 */
const bar bars[] = {
    {"decode", 64, 8, 4, 8, 8, 2, 1},        {"decode", 64, 32, 4, 32, 8, 8, 1},   {"decode", 96, 16, 4, 24, 12, 4, 1},
    {"decode", 96, 32, 4, 48, 24, 8, 1},     {"decode", 128, 8, 4, 16, 16, 2, 1},  {"decode", 128, 16, 4, 32, 16, 4, 1},
    {"decode", 128, 32, 4, 64, 32, 8, 1},    {"decode", 256, 16, 8, 32, 32, 2, 1}, {"decode", 256, 32, 8, 64, 48, 4, 1},
    {"prefill", 64, 64, 4, 64, 32, 0, 4},    {"prefill", 96, 64, 4, 96, 48, 0, 4}, {"prefill", 128, 64, 4, 128, 64, 0, 4},
    {"prefill", 256, 64, 4, 256, 192, 0, 4},
};

/*
 * By wgmma, each with 64 rows: of 64 slots for K and of 16 for V; V of d = 96 takes two, one for its half part. A vote for each
 * four quarters. Up to d = 128 two groups of four warps share K and V.
 */
const bar wgmma_bars[] = {
    {"prefill_wgmma", 64, 128, 8, 0, 0, 0, 1, 2 * (4 + 4)},
    {"prefill_wgmma", 96, 128, 8, 0, 0, 0, 1, 2 * (6 + 8)},
    {"prefill_wgmma", 128, 128, 8, 0, 0, 0, 1, 2 * (8 + 4)},
    {"prefill_wgmma", 256, 64, 4, 0, 0, 0, 1, 16 + 4},
};

/* Over foreign pages the same. */
const bar page_bars[] = {
    {"decode_pages", 64, 8, 4, 8, 8, 2, 1},       {"decode_pages", 96, 32, 4, 48, 24, 8, 1},
    {"decode_pages", 128, 8, 4, 16, 16, 2, 1},    {"decode_pages", 128, 32, 4, 64, 32, 8, 1},
    {"decode_pages", 256, 32, 8, 64, 48, 4, 1},   {"prefill_pages", 96, 64, 4, 96, 48, 0, 4},
    {"prefill_pages", 128, 64, 4, 128, 64, 0, 4},
};

/* The same in e4m3: an ldmatrix has 32 dimensions of K or V in place of 16. */
const bar e4m3_bars[] = {
    {"decode", 64, 8, 4, 8, 4, 2, 1},        {"decode", 96, 32, 4, 48, 18, 8, 1},  {"decode", 128, 8, 4, 16, 8, 2, 1},
    {"decode", 128, 16, 4, 32, 8, 4, 1},     {"decode", 128, 32, 4, 64, 24, 8, 1}, {"decode", 256, 32, 8, 64, 32, 4, 1},
    {"prefill", 64, 64, 4, 64, 16, 0, 4},    {"prefill", 96, 64, 4, 96, 24, 0, 4}, {"prefill", 128, 64, 4, 128, 32, 0, 4},
    {"prefill", 256, 64, 4, 256, 128, 0, 4},
};

void check(const bar &b, element type, bool e4m3) {
    const emu::counts four = measure(b.family, type, e4m3, b.d, b.rows, 4, b.rows),
                      eight = measure(b.family, type, e4m3, b.d, b.rows, 8, b.rows);
    const std::string name = std::string(b.family) + (e4m3 ? " e4m3" : "") + " d " + std::to_string(b.d);
    const double chunks = 4.0 * b.warps;
    auto per_chunk = [&](uint64_t emu::counts::*field) { return (double)(eight.*field - four.*field) / chunks; };
    auto equal = [&](uint64_t emu::counts::*field, const char *what, int want) {
        expect(per_chunk(field) == want, what, name, b.rows, per_chunk(field), want);
    };
    equal(&emu::counts::mma, "mma a chunk and warp", b.mma);
    equal(&emu::counts::ldmatrix, "ldmatrix a chunk and warp", b.ldmatrix);
    equal(&emu::counts::movmatrix, "movmatrix a chunk and warp", b.movmatrix);
    equal(&emu::counts::votes, "votes a chunk and warp", b.votes);
    const double wgmma = (double)(eight.wgmma - four.wgmma) / 4;
    expect(wgmma == b.wgmma, "wgmma a chunk", name, b.rows, wgmma, b.wgmma);
    const double ideal = 8.0 * 2 * CA_CUDA_CHUNK * (e4m3 ? b.d + 4 : b.d * 2) / 32;
    const double sectors = (double)eight.async_sectors + (double)eight.bulk_bytes / 32;
    expect(sectors == ideal, "sectors of K and V", name, b.rows, sectors, ideal);
    const double wavefronts = (double)eight.shared_wavefronts / (double)eight.shared_least;
    expect(wavefronts <= 1.05, "wavefronts of shared memory to the least", name, b.rows, wavefronts, 1.05);
}

} // namespace

int main() {
    for (const bar &b : bars) check(b, BF16, false);
    for (const bar &b : wgmma_bars)
        for (const element e : {BF16, F16}) check(b, e, false);
    for (const bar &b : page_bars) check(b, BF16, false);
    check(bars[6], F16, false);
    for (const bar &b : e4m3_bars) check(b, F16, true);
    printf("%zu bars, %d failures\n",
           (sizeof bars + 2 * sizeof wgmma_bars + sizeof page_bars + sizeof e4m3_bars) / sizeof *bars + 1, failures);
    return failures != 0;
}
