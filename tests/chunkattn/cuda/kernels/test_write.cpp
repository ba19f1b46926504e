/* The kernels that store K and V: each element where the layout says, whatever type and strides it comes from. */
#include <cmath>
#include <cstdio>
#include <cstring>

#include "chunkattn.h"
#include "chunkattn/cuda/emu/emu_kernels.h"
#include "problem.h"

namespace {

int failures;
void expect(bool ok, const char *what, int d, int seed) {
    if (ok) return;
    printf("FAILED: %s, d %d, seed %d\n", what, d, seed);
    failures++;
}

emu::counts launch(emu::device &device, const std::string &kernel, int seed, const void *args) {
    const emu::kernel &k = emu::find_kernel(kernel);
    const emu::report r = device.launch(k.launch_of(2, (uint64_t)seed, 2), [&] { k.run(args); });
    if (!r.errors.empty()) printf("%s", r.text().c_str()), failures++;
    return r.n;
}

/* One number of a caller's line. e4m3: also what makes tokens zero, tiny, huge, infinite or a tie. */
float made_up(std::mt19937_64 &rng, bool e4m3, int kind) {
    std::normal_distribution<float> normal;
    const float f = normal(rng);
    if (!e4m3) return rng() % 256 == 0 ? INFINITY : f * (rng() % 16 ? 1 : 1e6f);
    switch (kind) {
    case 0: return 0;
    case 1: return std::ldexp(f, -127); /* the scale is below the normal numbers */
    case 2: return std::ldexp(f, -116); /* and just above */
    case 3: return std::ldexp(f, 124);
    case 4: return rng() % 64 ? f : rng() % 2 ? INFINITY : NAN;
    case 5: return rng() % 8 ? (float)(rng() % 897) / 2 : -448;            /* the scale is 1, and many are ties */
    case 6: return rng() % 8 ? std::ldexp((float)(rng() % 64), -12) : 448; /* the same below the smallest normal e4m3 */
    default: return f;
    }
}

/* e4m3: the type is F16. */
void check_write(element e, bool e4m3, int d, int seed) {
    std::mt19937_64 rng((uint64_t)seed);
    emu::device device;
    const int rows = 1 + (int)(rng() % 9), heads = 1 + (int)(rng() % 3), chunks = rows + 3;
    const size_t tile = (size_t)(64 * (e4m3 ? d + 4 : d * 2)), chunk_bytes = tile * 2 * (size_t)heads + 512;
    unsigned char *kv = device.array<unsigned char>(chunk_bytes * (size_t)chunks, "K/V");
    std::vector<unsigned char> want(chunk_bytes * (size_t)chunks, 0xff);
    int *n_rows = device.array<int>(1, "n"), *source = device.array<int>((size_t)rows, "source"),
        *position = device.array<int>((size_t)rows, "position"), *chunk = device.array<int>((size_t)rows, "chunk");
    *n_rows = rows;
    ca_cuda_write_args a = {n_rows, source, position, chunk, kv, (int64_t)chunk_bytes, {}, {}, heads};
    for (int r = 0; r < rows; r++) {
        source[r] = rows - 1 - r;
        position[r] = (int)(rng() % 5000);
        chunk[r] = r + 2;
    }
    for (int v = 0; v < 2; v++) {
        const int type = (int)(rng() % 3), size = type == CATTN_F32 ? 4 : 2;
        ca_cuda_view view = {nullptr, (int64_t)(heads * d * size + 16 * (int)(rng() % 3)), d * size, type, 0};
        view.data = device.alloc((size_t)(rows * view.row_stride), v ? "v" : "k");
        for (int r = 0; r < rows; r++)
            for (int h = 0; h < heads; h++) {
                unsigned char *to = &want[(size_t)chunk[r] * chunk_bytes + (size_t)(h * 2 + v) * tile];
                std::vector<float> line;
                const int kind = (int)(rng() % 9);
                for (int i = 0; i < d; i++) {
                    float f = made_up(rng, e4m3, kind);
                    unsigned char *at =
                        (unsigned char *)view.data + source[r] * view.row_stride + h * view.head_stride + i * size;
                    if (type == CATTN_F32) {
                        memcpy(at, &f, 4);
                    } else {
                        const element of_caller = type == CATTN_BF16 ? BF16 : F16;
                        const u16 x = to_16(of_caller, f);
                        memcpy(at, &x, 2);
                        f = from_16(of_caller, x);
                    }
                    line.push_back(f);
                    const u16 x = to_16(e, f);
                    if (!e4m3) memcpy(to + tile_place(d, position[r] % 64, i), &x, 2);
                }
                if (!e4m3) continue;
                const e4m3_line stored = to_e4m3(line.data(), d);
                for (int i = 0; i < d; i++) put_e4m3(to, d, position[r] % 64, i, stored.codes[(size_t)i]);
                memcpy(to + e4m3_scale_place(d, position[r] % 64), &stored.scale, 4);
            }
        (v ? a.v : a.k) = view;
    }
    const char *type = e4m3 ? "e4m3" : e == BF16 ? "bf16" : "f16";
    const emu::counts n = launch(device, std::string("write_") + type + "_" + std::to_string(d), seed, &a);
    expect(!memcmp(kv, want.data(), want.size()), e4m3 ? "written in e4m3" : "written", d, seed);
    const int sectors = e4m3 ? d / 32 + 1 : d / 16; /* of a line; the scale has one of its own */
    expect(n.store_sectors == (uint64_t)(rows * heads * 2 * sectors), "full sectors are written", d, seed);
}

/* The reference's rounding against a search through all codes. */
void check_rounding() {
    std::mt19937_64 rng(1);
    for (int n = 0; n < 4000; n++) {
        const double y = n < 2000 ? (double)(rng() % 1795) / 4 : std::ldexp((double)(rng() % 512), -14);
        int best = 0;
        for (int code = 0; code < 0x7f; code++) { /* 0x7f is NaN */
            const double error = std::fabs(y - e4m3_value((uint8_t)code)), least = std::fabs(y - e4m3_value((uint8_t)best));
            if (error < least || (error == least && code % 2 == 0)) best = code;
        }
        if (nearest_e4m3(y) != best || nearest_e4m3(-y) != best + 0x80) failures++;
    }
    if (failures) printf("FAILED: nearest_e4m3\n");
}

void check_copy(bool e4m3, int d, int seed) {
    std::mt19937_64 rng((uint64_t)seed);
    emu::device device;
    const int tiles = 1 + (int)(rng() % 3), chunks = 5, n = (int)(rng() % 8);
    const size_t tile = (size_t)(64 * (e4m3 ? d + 4 : d * 2)), chunk_bytes = tile * 2 * (size_t)tiles + 64;
    unsigned char *kv = device.array<unsigned char>(chunk_bytes * chunks, "K/V");
    for (size_t i = 0; i < chunk_bytes * chunks; i++) kv[i] = (unsigned char)rng();
    std::vector<unsigned char> want(kv, kv + chunk_bytes * chunks);
    ca_cuda_copy *copies = device.array<ca_cuda_copy>((size_t)n + 1, "copies");
    int *n_copies = device.array<int>(1, "n");
    *n_copies = n;
    for (int c = 0; c < n; c++) {
        const int from = (int)(rng() % chunks), to = (from + 1 + (int)(rng() % (chunks - 1))) % chunks,
                  begin = (int)(rng() % 64);
        copies[c] = {from, to, begin, begin + 1 + (int)(rng() % (uint64_t)(64 - begin))};
        for (int t = 0; t < 2 * tiles; t++)
            for (int s = copies[c].begin; s < copies[c].end; s++) {
                auto move = [&](size_t place_in_tile, size_t bytes) {
                    const size_t at = (size_t)t * tile + place_in_tile;
                    memcpy(&want[(size_t)to * chunk_bytes + at], &want[(size_t)from * chunk_bytes + at], bytes);
                };
                for (int i = 0; i < d; i++) move(e4m3 ? e4m3_pair_place(d, s, i) : tile_place(d, s, i), 2);
                if (e4m3) move(e4m3_scale_place(d, s), 4);
            }
    }
    const ca_cuda_copy_args a = {n_copies, copies, kv, (int64_t)chunk_bytes, tiles};
    launch(device, std::string("copy_") + (e4m3 ? "e4m3_" : "") + std::to_string(d), seed, &a);
    expect(!memcmp(kv, want.data(), want.size()), e4m3 ? "copied in e4m3" : "copied", d, seed);
}

} // namespace

int main() {
    check_rounding();
    for (const int d : {64, 96, 128, 256})
        for (int seed = 1; seed <= 4; seed++) {
            check_write(BF16, false, d, seed);
            check_write(F16, false, d, seed);
            check_write(F16, true, d, seed);
            check_write(F16, true, d, seed + 4);
            check_copy(false, d, seed);
            check_copy(true, d, seed);
        }
    printf("%d failures\n", failures);
    return failures != 0;
}
