/* The kernels that store K and V: each element where the layout says, whatever type and strides it comes from. */
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>

#include "chunkattn.h"
#include "lib/cuda/tile.cuh"
#include "problem.h"

namespace {

int failures;
void expect(bool ok, const char *what, int d, int seed) {
    if (ok) return;
    printf("FAILED: %s, d %d, seed %d\n", what, d, seed);
    failures++;
}

/* The layout as tile.cuh's comment draws it, written down a second time. */
size_t place(int d, int slot, int i) {
    const int part = i / 64, unit = i % 64 / 8;
    if (d - part * 64 >= 64) return (size_t)(part * 64 * 128 + slot * 128 + (unit ^ slot % 8) * 16 + i % 8 * 2);
    return (size_t)(part * 64 * 128 + slot * 64 + (unit ^ slot / 2 % 4) * 16 + i % 8 * 2);
}

u16 rounded(element e, float f) { return e == BF16 ? emu::float_to_bf16(f) : emu::float_to_half(f); }

emu::counts launch(emu::device &device, const kernel_entry &k, int seed, const std::function<void()> &kernel) {
    emu::config c;
    c.blocks = 2;
    c.threads = k.threads;
    c.shared_bytes = k.shared;
    c.seed = (uint64_t)seed;
    c.sm = k.sm;
    const emu::report r = device.launch(c, kernel);
    if (!r.errors.empty()) printf("%s", r.text().c_str()), failures++;
    return r.n;
}

void check_write(element e, int d, int seed) {
    std::mt19937_64 rng((uint64_t)seed);
    std::normal_distribution<float> normal;
    emu::device device;
    const int rows = 1 + (int)(rng() % 9), heads = 1 + (int)(rng() % 3), chunks = rows + 3;
    const size_t tile = (size_t)(64 * d * 2), chunk_bytes = tile * 2 * (size_t)heads + 512;
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
            for (int h = 0; h < heads; h++)
                for (int i = 0; i < d; i++) {
                    float f = normal(rng) * (rng() % 16 ? 1 : 1e6f);
                    if (rng() % 256 == 0) f = INFINITY;
                    unsigned char *at =
                        (unsigned char *)view.data + source[r] * view.row_stride + h * view.head_stride + i * size;
                    if (type == CATTN_F32) {
                        memcpy(at, &f, 4);
                    } else {
                        const u16 x = rounded(type == CATTN_BF16 ? BF16 : F16, f);
                        memcpy(at, &x, 2);
                        f = type == CATTN_BF16 ? as_float((u32)x << 16) : emu::half_to_float(x);
                    }
                    const u16 x = rounded(e, f);
                    memcpy(&want[(size_t)chunk[r] * chunk_bytes + (size_t)(h * 2 + v) * tile + place(d, position[r] % 64, i)],
                           &x, 2);
                }
        (v ? a.v : a.k) = view;
    }
    const kernel_entry &k = find_kernel(std::string("write") + (e == BF16 ? "_bf16_" : "_f16_") + std::to_string(d));
    const emu::counts n = launch(device, k, seed, [&] { k.write(a); });
    expect(!memcmp(kv, want.data(), want.size()), "written", d, seed);
    expect(n.store_sectors * 32 == (uint64_t)(rows * heads * 2 * d * 2), "full sectors are written", d, seed);
}

void check_copy(int d, int seed) {
    std::mt19937_64 rng((uint64_t)seed);
    emu::device device;
    const int tiles = 1 + (int)(rng() % 3), chunks = 5, n = (int)(rng() % 8);
    const size_t tile = (size_t)(64 * d * 2), chunk_bytes = tile * 2 * (size_t)tiles + 64;
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
            for (int s = copies[c].begin; s < copies[c].end; s++)
                for (int i = 0; i < d; i++) {
                    const size_t at = (size_t)t * tile + place(d, s, i);
                    memcpy(&want[(size_t)to * chunk_bytes + at], &want[(size_t)from * chunk_bytes + at], 2);
                }
    }
    const kernel_entry &k = find_kernel("copy_" + std::to_string(d));
    const ca_cuda_copy_args a = {n_copies, copies, kv, (int64_t)chunk_bytes, tiles};
    launch(device, k, seed, [&] { k.copy(a); });
    expect(!memcmp(kv, want.data(), want.size()), "copied", d, seed);
}

} // namespace

int main() {
    for (const int d : {64, 96, 128, 256})
        for (int seed = 1; seed <= 4; seed++) {
            check_write(BF16, d, seed);
            check_write(F16, d, seed);
            check_copy(d, seed);
        }
    printf("%d failures\n", failures);
    return failures != 0;
}
