/*
 * Tiles of rows and panels over quantised weights, for the AVX-512 levels, which differ in how they multiply int8 only.
 *
 * The including file defines before:
 *   dot_block(R, V, codes, weights, tile, scaled)   scaled[r][v] = (float)sum * scale of one block of R rows and V panels
 * where weights[v] points to panel v's record in the form `codes`. R, V and `codes` are constants after inlining, so that
 * arrays live in registers.
 *
 * Few rows read the packed record; many rows have it unpacked once into the task's scratch.
 */
#ifndef LLAMA_X86_LINEAR_AVX512_TILES_H
#define LLAMA_X86_LINEAR_AVX512_TILES_H

#include <immintrin.h>
#include <stdbool.h>

#include "llama/linear_kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

enum {
    UNPACKED_BYTES = 640, /* a Q4 record unpacked: [8][16][4] codes, f32 d[16], f32 m[16] */
    DIRECT_ROWS = 32,     /* up to this many rows, unpacking once costs more than it saves */
    PREFETCH_BYTES = 3072 /* ahead in the stream of packed records: 2 to 4 KB are alike */
};

typedef enum codes { CODES_Q4, CODES_Q4_UNPACKED, CODES_Q8 } codes;

INLINE size_t record_bytes(codes form) {
    return form == CODES_Q4 ? LINEAR_Q4_BYTES : form == CODES_Q8 ? LINEAR_Q8_BYTES : UNPACKED_BYTES;
}

/* Inputs 4j .. 4j + 3 of a block: u8 codes, 16 outputs. */
INLINE __m512i load_codes(codes form, const uint8_t *record, int j) {
    if (form != CODES_Q4) return _mm512_loadu_si512(record + 64 * j);
    const __m512i both = _mm512_loadu_si512(record + 64 * (j & 3));
    return _mm512_and_si512(j < 4 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
}

INLINE __m512 load_scale(codes form, const uint8_t *record) {
    if (form == CODES_Q4_UNPACKED) return _mm512_loadu_ps(record + 512);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(record + (form == CODES_Q4 ? 256 : 512))));
}

INLINE __m512 load_min(codes form, const uint8_t *record) {
    if (form == CODES_Q4_UNPACKED) return _mm512_loadu_ps(record + 576);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(record + 288)));
}

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

INLINE void dot_block(int R, int V, codes form, const uint8_t *const *weights, const uint8_t *tile, __m512 (*scaled)[2]);

/* R rows of one tile by V panels. */
INLINE void multiply_tile(const int R, const int V, const codes form, const linear_task *t, const uint8_t *const *panels,
                          const uint8_t *tile, float *y, __mmask16 last) {
    const size_t bytes = record_bytes(form);
    const uint8_t *weights[2];
    __m512 acc[8][2];
    UNROLL for (int v = 0; v < V; v++) weights[v] = panels[v];
    UNROLL for (int r = 0; r < R; r++) { UNROLL for (int v = 0; v < V; v++) acc[r][v] = _mm512_setzero_ps(); }
    for (int32_t b = t->n_in / LINEAR_BLOCK; b > 0; b--) {
        if (form != CODES_Q4_UNPACKED) {
            UNROLL for (int v = 0; v < V; v++) {
                for (size_t i = 0; i < bytes; i += 64) _mm_prefetch(weights[v] + PREFETCH_BYTES + i, _MM_HINT_T0);
            }
        }
        __m512 scaled[8][2];
        dot_block(R, V, form, weights, tile, scaled);
        UNROLL for (int v = 0; v < V; v++) {
            const __m512 d = load_scale(form, weights[v]);
            UNROLL for (int r = 0; r < R; r++) acc[r][v] = _mm512_fmadd_ps(scaled[r][v], d, acc[r][v]);
        }
        if (form != CODES_Q8) {
            __m512 m[2];
            UNROLL for (int v = 0; v < V; v++) m[v] = load_min(form, weights[v]);
            UNROLL for (int r = 0; r < R; r++) {
                const __m512 weighted = _mm512_set1_ps(load_f32(tile + 40 * R + 4 * r));
                UNROLL for (int v = 0; v < V; v++) acc[r][v] = _mm512_fmadd_ps(weighted, m[v], acc[r][v]);
            }
        }
        UNROLL for (int v = 0; v < V; v++) weights[v] += bytes;
        tile += LINEAR_ROW_BYTES * R;
    }
    UNROLL for (int r = 0; r < R; r++) {
        UNROLL for (int v = 0; v < V; v++)
            _mm512_mask_storeu_ps(y + (size_t)r * t->y_stride + 16 * v, v == V - 1 ? last : 0xffff, acc[r][v]);
    }
}

/* All rows of the task by V panels. */
INLINE void multiply_rows(const int V, const codes form, const linear_task *t, const uint8_t *const *panels, float *y,
                          __mmask16 last) {
    const size_t row_bytes = (size_t)(t->n_in / LINEAR_BLOCK) * LINEAR_ROW_BYTES;
    for (int32_t row = 0; row < t->n_rows; row += LINEAR_TILE) {
        const uint8_t *tile = t->tiles + (size_t)row * row_bytes;
        float *to = y + (size_t)row * t->y_stride;
        switch (t->n_rows - row) {
        case 1: multiply_tile(1, V, form, t, panels, tile, to, last); break;
        case 2: multiply_tile(2, V, form, t, panels, tile, to, last); break;
        case 3: multiply_tile(3, V, form, t, panels, tile, to, last); break;
        case 4: multiply_tile(4, V, form, t, panels, tile, to, last); break;
        case 5: multiply_tile(5, V, form, t, panels, tile, to, last); break;
        case 6: multiply_tile(6, V, form, t, panels, tile, to, last); break;
        case 7: multiply_tile(7, V, form, t, panels, tile, to, last); break;
        default: multiply_tile(8, V, form, t, panels, tile, to, last); break;
        }
    }
}

static void unpack_q4(const uint8_t *panel, int32_t n_blocks, uint8_t *to) {
    for (int32_t b = 0; b < n_blocks; b++, panel += LINEAR_Q4_BYTES, to += UNPACKED_BYTES) {
        UNROLL for (int i = 0; i < LINEAR_Q4_BYTES; i += 64) _mm_prefetch(panel + PREFETCH_BYTES + i, _MM_HINT_T0);
        UNROLL for (int j = 0; j < 8; j++) _mm512_store_si512(to + 64 * j, load_codes(CODES_Q4, panel, j));
        _mm512_store_ps(to + 512, load_scale(CODES_Q4, panel));
        _mm512_store_ps(to + 576, load_min(CODES_Q4, panel));
    }
}

/* Panels one by one, straight from the packed records. */
INLINE void multiply_direct(const codes form, const linear_task *t) {
    const size_t panel_bytes = (size_t)(t->n_in / LINEAR_BLOCK) * record_bytes(form);
    for (int32_t p = 0; p < t->n_panels; p++) {
        const uint8_t *panel = t->panels + (size_t)p * panel_bytes;
        const __mmask16 last = (__mmask16)(p == t->n_panels - 1 ? (1u << t->n_last) - 1 : 0xffff);
        multiply_rows(1, form, t, &panel, t->y + 16 * (size_t)p, last);
    }
}

static void multiply_q8(const linear_task *t) { multiply_direct(CODES_Q8, t); }

static void multiply_q4(const linear_task *t) {
    if (t->n_rows <= DIRECT_ROWS) {
        multiply_direct(CODES_Q4, t);
        return;
    }
    const int32_t n_blocks = t->n_in / LINEAR_BLOCK;
    const uint8_t *const unpacked[2] = {t->scratch, t->scratch + (size_t)n_blocks * UNPACKED_BYTES};
    for (int32_t p = 0; p < t->n_panels; p += 2) {
        const bool pair = p + 1 < t->n_panels;
        const __mmask16 last = (__mmask16)(p + 2 >= t->n_panels ? (1u << t->n_last) - 1 : 0xffff);
        const uint8_t *panel = t->panels + (size_t)p * (size_t)n_blocks * LINEAR_Q4_BYTES;
        unpack_q4(panel, n_blocks, t->scratch);
        if (pair)
            unpack_q4(panel + (size_t)n_blocks * LINEAR_Q4_BYTES, n_blocks, t->scratch + (size_t)n_blocks * UNPACKED_BYTES);
        if (pair)
            multiply_rows(2, CODES_Q4_UNPACKED, t, unpacked, t->y + 16 * (size_t)p, last);
        else
            multiply_rows(1, CODES_Q4_UNPACKED, t, unpacked, t->y + 16 * (size_t)p, last);
    }
}

#endif
