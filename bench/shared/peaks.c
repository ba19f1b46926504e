/*
 * Loops that do nothing but one kind of arithmetic or reading, for the peaks of `cattn-bench machine`.
 *
 * Each section is compiled for its own instructions and runs only where the CPU has them, so that one file holds all levels.
 */
#include "peaks.h"

#include <string.h>

#include "chunkattn/base/cpu.h"

static uint64_t read_portable(const void *data, size_t bytes) {
    const uint64_t *p = data;
    uint64_t sums[8] = {0};
    for (size_t i = 0; i < bytes / sizeof *p; i += 8)
        for (int k = 0; k < 8; k++) sums[k] ^= p[i + k];
    for (int k = 1; k < 8; k++) sums[0] ^= sums[k];
    return sums[0];
}

#if defined(__x86_64__)
#include <immintrin.h>

/*
 * The numbers of independent sums: more than latency times issue width on any known CPU. Zen 5 issues two vdpbf16ps per cycle
 * with a latency of more than six cycles.
 */
enum { ACCUMULATORS = 12, BF16_ACCUMULATORS = 20 };

/* A loop of an instruction that adds the product of x and y to each of n sums; both are `factors`. */
#define SUM_PRODUCTS(name, instructions, sum, n, factors, x_value, y_value, add_product)                                       \
    __attribute__((target(instructions))) static void name(int64_t rounds) {                                                   \
        sum sums[n] = {0};                                                                                                     \
        const factors x = (factors)(x_value), y = (factors)(y_value);                                                          \
        for (int64_t r = 0; r < rounds; r++) {                                                                                 \
            _Pragma("GCC unroll 20") for (int i = 0; i < (n); i++) {                                                           \
                sums[i] = add_product;                                                                                         \
                __asm__ volatile("" : "+v"(sums[i]));                                                                          \
            }                                                                                                                  \
        }                                                                                                                      \
    }
SUM_PRODUCTS(fma_f32_avx2, "avx2,fma", __m256, ACCUMULATORS, __m256, _mm256_set1_ps(1.0f), _mm256_set1_ps(0.5f),
             _mm256_fmadd_ps(x, y, sums[i]))
SUM_PRODUCTS(fma_f32_avx512, "avx512f", __m512, ACCUMULATORS, __m512, _mm512_set1_ps(1.0f), _mm512_set1_ps(0.5f),
             _mm512_fmadd_ps(x, y, sums[i]))
SUM_PRODUCTS(dot_int8_avx_vnni, "avx2,avxvnni", __m256i, ACCUMULATORS, __m256i, _mm256_set1_epi8(1), _mm256_set1_epi8(2),
             _mm256_dpbusd_avx_epi32(sums[i], x, y))
SUM_PRODUCTS(dot_int8_vnni, "avx512f,avx512vnni", __m512i, ACCUMULATORS, __m512i, _mm512_set1_epi8(1), _mm512_set1_epi8(2),
             _mm512_dpbusd_epi32(sums[i], x, y))
SUM_PRODUCTS(dot_bf16, "avx512f,avx512bf16", __m512, BF16_ACCUMULATORS, __m512bh, _mm512_set1_epi16(0x3f80) /* 1 */,
             _mm512_set1_epi16(0x3f00) /* 0.5 */, _mm512_dpbf16_ps(sums[i], x, y))

/* In two multiplications and an addition. */
__attribute__((target("avx2,fma"))) static void dot_int8_avx2(int64_t rounds) {
    __m256i sums[ACCUMULATORS] = {0};
    __m256i x = _mm256_set1_epi8(1);
    const __m256i ones = _mm256_set1_epi16(1);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < ACCUMULATORS; i++) {
            __asm__ volatile("" : "+x"(x)); /* a new product each time, as far as the compiler knows */
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(x, x), ones));
            __asm__ volatile("" : "+x"(sums[i]));
        }
    }
}

__attribute__((target("avx2,fma"))) static uint64_t read_avx2(const void *data, size_t bytes) {
    const __m256i *p = data;
    __m256i sums[4] = {0};
    for (size_t i = 0; i < bytes / sizeof *p; i += 4)
        for (int k = 0; k < 4; k++) sums[k] = _mm256_xor_si256(sums[k], _mm256_load_si256(p + i + k));
    const __m256i sum = _mm256_xor_si256(_mm256_xor_si256(sums[0], sums[1]), _mm256_xor_si256(sums[2], sums[3]));
    return (uint64_t)_mm256_extract_epi64(sum, 0);
}

__attribute__((target("avx512f"))) static uint64_t read_avx512(const void *data, size_t bytes) {
    const __m512i *p = data;
    __m512i sums[4] = {0};
    for (size_t i = 0; i < bytes / sizeof *p; i += 4)
        for (int k = 0; k < 4; k++) sums[k] = _mm512_xor_si512(sums[k], _mm512_load_si512(p + i + k));
    const __m512i sum = _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]));
    return (uint64_t)_mm512_reduce_add_epi64(sum);
}

/* ---- AMX: products of tiles, all operands in registers. ---- */

#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,amx-int8")

#include "chunkattn/base/tiles.h"

static void clear_tiles(void) {
    ca_tile_shapes shapes = {0};
    for (int tile = 0; tile < 8; tile++) ca_tiles_shape(&shapes, tile, 16, 64);
    ca_tiles_use(&shapes);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
}

#define MULTIPLY(name, dot)                                                                                                    \
    static void name(int64_t rounds) {                                                                                         \
        clear_tiles();                                                                                                         \
        for (int64_t r = 0; r < rounds; r++) {                                                                                 \
            dot(0, 4, 6);                                                                                                      \
            dot(1, 5, 6);                                                                                                      \
            dot(2, 4, 7);                                                                                                      \
            dot(3, 5, 7);                                                                                                      \
        }                                                                                                                      \
        ca_tiles_leave();                                                                                                      \
    }
MULTIPLY(multiply_bf16, _tile_dpbf16ps)
MULTIPLY(multiply_int8, _tile_dpbusd)

#pragma GCC pop_options

#endif

/* Lowest level first. */
static const peak peaks[] = {
    {LIMIT_READ, 0, 0, NULL, read_portable},
#if defined(__x86_64__)
    {LIMIT_FMA, CA_CPU_AVX2, 2.0 * 8 * ACCUMULATORS, fma_f32_avx2, NULL},
    {LIMIT_FMA_AVX2, CA_CPU_AVX2, 2.0 * 8 * ACCUMULATORS, fma_f32_avx2, NULL},
    {LIMIT_INT8, CA_CPU_AVX2, 2.0 * 32 * ACCUMULATORS, dot_int8_avx2, NULL},
    {LIMIT_READ, CA_CPU_AVX2, 0, NULL, read_avx2},
    {LIMIT_INT8, CA_CPU_AVX_VNNI, 2.0 * 32 * ACCUMULATORS, dot_int8_avx_vnni, NULL},
    {LIMIT_INT8_AVX_VNNI, CA_CPU_AVX_VNNI, 2.0 * 32 * ACCUMULATORS, dot_int8_avx_vnni, NULL},
    {LIMIT_FMA, CA_CPU_AVX512, 2.0 * 16 * ACCUMULATORS, fma_f32_avx512, NULL},
    {LIMIT_READ, CA_CPU_AVX512, 0, NULL, read_avx512},
    {LIMIT_INT8, CA_CPU_AVX512_VNNI, 2.0 * 64 * ACCUMULATORS, dot_int8_vnni, NULL},
    {LIMIT_BF16, CA_CPU_AVX512_BF16, 2.0 * 32 * BF16_ACCUMULATORS, dot_bf16, NULL},
    {LIMIT_TILES, CA_CPU_AMX, 2.0 * 16 * 16 * 32 * 4, multiply_bf16, NULL},
    {LIMIT_INT8_TILES, CA_CPU_AMX, 2.0 * 16 * 16 * 64 * 4, multiply_int8, NULL},
#endif
};
enum { N_PEAKS = sizeof peaks / sizeof *peaks };

const peak *peak_find(limit kind) {
    const uint32_t features = ca_cpu_features();
    const peak *best = NULL;
    for (int i = 0; i < N_PEAKS; i++)
        if (peaks[i].kind == kind && (peaks[i].features & features) == peaks[i].features) best = &peaks[i];
    return best;
}

limit limit_of_level(const char *level, cattn_type kv_type) {
    static const struct {
        const char *level;
        cattn_type kv_type;
        limit kind;
    } others[] = {{"avx512_bf16", CATTN_BF16, LIMIT_BF16},
                  {"amx", CATTN_BF16, LIMIT_TILES},
                  {"amx", CATTN_I8, LIMIT_INT8_TILES},
                  {"avx512_vnni", CATTN_I8, LIMIT_INT8},
                  {"avx_vnni", CATTN_I8, LIMIT_INT8_AVX_VNNI}};
    if (strcmp(level, "ref") == 0) return N_LIMITS;
    if (strcmp(level, "avx2") == 0) return LIMIT_FMA_AVX2;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(level, others[i].level) == 0 && kv_type == others[i].kv_type) return others[i].kind;
    return LIMIT_FMA;
}
