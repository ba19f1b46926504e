/* AVX2 with FMA and F16C: a panel in two halves of 8 outputs, up to 4 rows at once. */
#include <immintrin.h>

#include "base/cpu.h"
#include "llama/linear_kernels.h"
#include "llama/ops.h"
#include "quantize_avx2.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

enum { ROWS = 4, PREFETCH_BYTES = 3072 };

INLINE int32_t load_i32(const uint8_t *p) {
    int32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

INLINE float load_f32(const uint8_t *p) {
    float v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

INLINE __m256 load_f16(const uint8_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p)); }

/* The first n of 16 outputs. */
INLINE void store_outputs(float *y, __m256 low, __m256 high, int32_t n) {
    if (n == LINEAR_LANES) {
        _mm256_storeu_ps(y, low);
        _mm256_storeu_ps(y + 8, high);
        return;
    }
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_maskstore_ps(y, _mm256_cmpgt_epi32(_mm256_set1_epi32(n), index), low);
    if (n > 8) _mm256_maskstore_ps(y + 8, _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), index), high);
}

/*
 * Integer sums of one block. vpmaddubsw saturates its sums of two products at 16 bits. Codes up to 15 stay below even when all
 * 8 sums of a block are added up (8 * 2 * 15 * 127 = 30480). 8-bit weights are multiplied by magnitude, their sign given to the
 * activation: at most 2 * 128 * 127 = 32512, added up in 32 bits.
 */
INLINE void dot_block(const int R, const linear_layout layout, const uint8_t *record, const uint8_t *x, size_t x_step,
                      __m256i (*sum)[2]) {
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL for (int r = 0; r < R; r++) sum[r][0] = sum[r][1] = _mm256_setzero_si256();
    UNROLL for (int j = 0; j < 8; j++, x += x_step) {
        UNROLL for (int h = 0; h < 2; h++) {
            if (layout == LINEAR_Q4) {
                const __m256i both = _mm256_loadu_si256((const void *)(record + 64 * (j & 3) + 32 * h));
                const __m256i w = _mm256_and_si256(j < 4 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
                UNROLL for (int r = 0; r < R; r++) {
                    const __m256i xr = _mm256_set1_epi32(load_i32(x + 4 * r));
                    sum[r][h] = _mm256_add_epi16(sum[r][h], _mm256_maddubs_epi16(w, xr));
                }
            } else {
                const __m256i codes = _mm256_loadu_si256((const void *)(record + 64 * j + 32 * h));
                const __m256i w = _mm256_xor_si256(codes, _mm256_set1_epi8(-128)), magnitude = _mm256_abs_epi8(w);
                UNROLL for (int r = 0; r < R; r++) {
                    const __m256i xr = _mm256_sign_epi8(_mm256_set1_epi32(load_i32(x + 4 * r)), w);
                    sum[r][h] = _mm256_add_epi32(sum[r][h], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, xr), ones));
                }
            }
        }
    }
    if (layout == LINEAR_Q4) {
        UNROLL for (int r = 0; r < R; r++) {
            UNROLL for (int h = 0; h < 2; h++) sum[r][h] = _mm256_madd_epi16(sum[r][h], ones);
        }
    }
}

/* R rows, from the first at `tile`, of a tile of tile_rows, by one panel. */
INLINE void block_tile(const int R, const linear_layout layout, int32_t n_blocks, const uint8_t *record, const uint8_t *tile,
                       int32_t tile_rows, float *y, size_t y_stride, int32_t n_outputs) {
    const size_t bytes = layout == LINEAR_Q4 ? LINEAR_Q4_BYTES : LINEAR_Q8_BYTES;
    const size_t row_step = 4 * (size_t)tile_rows;
    __m256 acc[ROWS][2];
    UNROLL for (int r = 0; r < R; r++) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    for (int32_t b = 0; b < n_blocks; b++, record += bytes, tile += LINEAR_ROW_BYTES * (size_t)tile_rows) {
        for (size_t i = 0; i < bytes; i += 64) _mm_prefetch(record + PREFETCH_BYTES + i, _MM_HINT_T0);
        __m256i sum[ROWS][2];
        dot_block(R, layout, record, tile, row_step, sum);
        const uint8_t *scales = tile + 8 * row_step, *d = record + (layout == LINEAR_Q4 ? 256 : 512);
        UNROLL for (int h = 0; h < 2; h++) {
            const __m256 dh = load_f16(d + 16 * h);
            UNROLL for (int r = 0; r < R; r++) {
                const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[r][h]), _mm256_set1_ps(load_f32(scales + 4 * r)));
                acc[r][h] = _mm256_fmadd_ps(scaled, dh, acc[r][h]);
            }
            if (layout == LINEAR_Q4) {
                const __m256 mh = load_f16(d + 32 + 16 * h);
                UNROLL for (int r = 0; r < R; r++) acc[r][h] =
                    _mm256_fmadd_ps(_mm256_set1_ps(load_f32(scales + 2 * row_step + 4 * r)), mh, acc[r][h]);
            }
        }
    }
    UNROLL for (int r = 0; r < R; r++) store_outputs(y + (size_t)r * y_stride, acc[r][0], acc[r][1], n_outputs);
}

INLINE void multiply_blocks(const linear_layout layout, const linear_task *t) {
    const int32_t n_blocks = t->n_in / LINEAR_BLOCK;
    const size_t panel_bytes = (size_t)n_blocks * (layout == LINEAR_Q4 ? LINEAR_Q4_BYTES : LINEAR_Q8_BYTES);
    for (int32_t p = 0; p < t->n_panels; p++) {
        const uint8_t *panel = t->panels + (size_t)p * panel_bytes;
        const int32_t n_outputs = p == t->n_panels - 1 ? t->n_last : LINEAR_LANES;
        for (int32_t row = 0, n; row < t->n_rows; row += n) {
            const int32_t first = row - row % LINEAR_TILE, left = t->n_rows - first;
            const int32_t tile_rows = left < LINEAR_TILE ? left : LINEAR_TILE;
            const uint8_t *x = t->tiles + (size_t)first * (size_t)n_blocks * LINEAR_ROW_BYTES + 4 * (size_t)(row - first);
            float *y = t->y + (size_t)row * t->y_stride + 16 * (size_t)p;
            n = t->n_rows - row < ROWS ? t->n_rows - row : ROWS;
            switch (n) {
            case 1: block_tile(1, layout, n_blocks, panel, x, tile_rows, y, t->y_stride, n_outputs); break;
            case 2: block_tile(2, layout, n_blocks, panel, x, tile_rows, y, t->y_stride, n_outputs); break;
            case 3: block_tile(3, layout, n_blocks, panel, x, tile_rows, y, t->y_stride, n_outputs); break;
            default: block_tile(4, layout, n_blocks, panel, x, tile_rows, y, t->y_stride, n_outputs); break;
            }
        }
    }
}

static void multiply_q4(const linear_task *t) { multiply_blocks(LINEAR_Q4, t); }
static void multiply_q8(const linear_task *t) { multiply_blocks(LINEAR_Q8, t); }

/* Weights of one input for half a panel. */
INLINE __m256 load_weights(const linear_layout layout, const uint8_t *panel, size_t k, int h) {
    if (layout == LINEAR_F32) return _mm256_loadu_ps((const float *)(panel + 64 * k + 32 * (size_t)h));
    const uint8_t *half = panel + 32 * k + 16 * (size_t)h;
    if (layout == LINEAR_F16) return load_f16(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)half)), 16));
}

INLINE void float_tile(const int R, const linear_layout layout, const linear_task *t, const uint8_t *panel, const float *x,
                       float *y, int32_t n_outputs) {
    __m256 acc[ROWS][2];
    UNROLL for (int r = 0; r < R; r++) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
    for (size_t k = 0; k < (size_t)t->n_in; k++) {
        const __m256 low = load_weights(layout, panel, k, 0), high = load_weights(layout, panel, k, 1);
        UNROLL for (int r = 0; r < R; r++) {
            const __m256 xr = _mm256_set1_ps(x[(size_t)r * t->x_stride + k]);
            acc[r][0] = _mm256_fmadd_ps(xr, low, acc[r][0]);
            acc[r][1] = _mm256_fmadd_ps(xr, high, acc[r][1]);
        }
    }
    UNROLL for (int r = 0; r < R; r++) store_outputs(y + (size_t)r * t->y_stride, acc[r][0], acc[r][1], n_outputs);
}

INLINE void multiply_float(const linear_layout layout, const linear_task *t) {
    const size_t panel_bytes = (size_t)t->n_in * (layout == LINEAR_F32 ? 64 : 32);
    for (int32_t p = 0; p < t->n_panels; p++) {
        const uint8_t *panel = t->panels + (size_t)p * panel_bytes;
        const int32_t n_outputs = p == t->n_panels - 1 ? t->n_last : LINEAR_LANES;
        const float *x = t->x;
        float *y = t->y + 16 * (size_t)p;
        int32_t row = 0;
        for (; row + ROWS <= t->n_rows; row += ROWS, x += ROWS * t->x_stride, y += ROWS * t->y_stride)
            float_tile(ROWS, layout, t, panel, x, y, n_outputs);
        for (; row < t->n_rows; row++, x += t->x_stride, y += t->y_stride) float_tile(1, layout, t, panel, x, y, n_outputs);
    }
}

static void multiply_f32(const linear_task *t) { multiply_float(LINEAR_F32, t); }
static void multiply_f16(const linear_task *t) { multiply_float(LINEAR_F16, t); }
static void multiply_bf16(const linear_task *t) { multiply_float(LINEAR_BF16, t); }

const linear_kernel linear_avx2 = {
    .name = "avx2",
    .features = CA_CPU_AVX2,
    .quantize = linear_quantize_avx2,
    .multiply = {multiply_f32, multiply_f16, multiply_bf16, multiply_q4, multiply_q8},
    .rms_norm = ops_rms_norm,
    .add = ops_add,
    .swiglu = ops_swiglu,
    .geglu = ops_geglu,
    .rope = ops_rope,
    .rope_halves = ops_rope_halves,
};
