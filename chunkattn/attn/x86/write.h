/*
 * How the x86 levels write K and V of some tokens into a tile. Rows of f32 are rounded to the type one by one. Up to eight rows
 * go into K together, transposed in registers, and rows that share words of V are stored at once.
 *
 * A single token, as in decode, touches a cache line for each word of its K, unless its slot group is open (layout.h). These
 * lines are rarely in a cache, so the next tile's are prefetched while a token is written.
 *
 * All levels use 256-bit vectors, since the time goes into cache lines.
 */
#ifndef CHUNKATTN_ATTN_X86_WRITE_H
#define CHUNKATTN_ATTN_X86_WRITE_H

#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "chunkattn/attn/head_sizes.h"
#include "halves.h"
#include "int8_round.h"
#include "open_group.h"

enum { WRITE_BLOCK = 8 };

/* Elements of a word of K or V: as ca_type_neighbours, and what a word takes in bytes. */
X86_INLINE int32_t word_elements(cattn_type type) { return type == CATTN_I8 ? 4 : type == CATTN_BF16 ? 2 : 1; }
X86_INLINE size_t word_bytes(cattn_type type) { return type == CATTN_F16 ? 2 : 4; }

/* ---- Rounding a row ---- */

/* Up to WRITE_BLOCK rows as they are stored. */
typedef struct stored {
    const char *row[WRITE_BLOCK];
    char room[WRITE_BLOCK][CA_MAX_HEAD_SIZE * 2];
} stored;

/* n rows from the first-th on, of f32 or, which stay where they are, of the type itself. */
X86_INLINE void store_rows(cattn_type type, cattn_type from, const void *rows, ptrdiff_t stride, int32_t first, int32_t n,
                           int32_t d, stored *to, float *scales) {
    for (int32_t i = 0; i < n; i++) {
        const char *row = (const char *)rows + (first + i) * stride * (ptrdiff_t)ca_type_size(from);
        const float *x = (const float *)row;
        to->row[i] = from == type ? row : to->room[i];
        if (type == CATTN_I8) {
            float inverse;
            scales[i] = scale_of_row(x, d, &inverse);
            round_i8(x, d, inverse, to->room[i]);
        } else if (from != type) {
            narrow(type, x, d, to->room[i]);
        }
    }
}

/* ---- K: word w of a row goes to line w, at its slot ---- */

/* Eight words of eight rows to eight lines of `line` bytes. */
X86_INLINE void write_k_block(cattn_type type, const stored *r, int32_t word, char *to, ptrdiff_t line) {
    __m256i x[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        x[i] = type == CATTN_F16 ? _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(r->row[i] + 2 * word)))
                                 : _mm256_loadu_si256((const __m256i *)(r->row[i] + 4 * word));
    transpose(x);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        if (type == CATTN_F16)
            _mm_storeu_si128((__m128i *)(to + i * line), _mm256_castsi256_si128(pack_halves(x[i], x[i])));
        else
            _mm256_storeu_si256((__m256i *)(to + i * line), x[i]);
    }
}

/* Prefetch the lines that the next token's K goes to. */
X86_INLINE void prefetch_k(cattn_type type, const ca_write *w) {
    const ptrdiff_t size = (ptrdiff_t)word_bytes(type), line = w->c * size;
    const int32_t words = key_words(type, w->d_k), slot = w->next_slot;
    const int32_t together = in_open_group(type, w->next_open, slot) ? words_together(words) : 0;
    const char *next = w->next_k;
    if (!next) return;
    for (int32_t k = 0; k < together; k += CA_SLOT_GROUP) __builtin_prefetch(next + open_at(slot, line) + k * line, 1);
    for (int32_t k = together; k < words; k++) __builtin_prefetch(next + k * line + slot * size, 1);
}

X86_INLINE void write_k(cattn_type type, const ca_write *w, const stored *r, int32_t slot, int32_t n) {
    const ptrdiff_t size = (ptrdiff_t)word_bytes(type), line = w->c * size;
    const int32_t words = key_words(type, w->d_k);
    char *tile = w->k_tile;
    int32_t done = 0;
    if (n == WRITE_BLOCK && !in_open_group(type, w->open, slot) && !in_open_group(type, w->open, slot + n - 1))
        for (; done + 8 <= words; done += 8) write_k_block(type, r, done, tile + slot * size + done * line, line);
    for (int32_t i = 0; i < n; i++) {
        const int32_t together = in_open_group(type, w->open, slot + i) ? words_together(words) : done;
        for (int32_t k = done; k < together; k += CA_SLOT_GROUP)
            memcpy(tile + open_at(slot + i, line) + k * line, r->row[i] + k * size, OPEN_LINE);
        for (int32_t k = together; k < words; k++)
            memcpy(tile + k * line + (slot + i) * size, r->row[i] + k * size, (size_t)size);
    }
}

/* ---- V: rows that share words, one of each in a lane ---- */

/* Eight elements in the low bits of lanes. */
X86_INLINE __m256i lanes_of(cattn_type type, const char *from) {
    return type == CATTN_BF16 ? _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from))
                              : _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from));
}

/* Two rows of halves that fill the words at `to`. */
X86_INLINE void write_v_pairs(const char *a, const char *b, int32_t d, char *to) {
    for (int32_t k = 0; k < d; k += 16) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(a + 2 * k)),
                      y = _mm256_loadu_si256((const __m256i *)(b + 2 * k));
        const __m256i low = _mm256_unpacklo_epi16(x, y), high = _mm256_unpackhi_epi16(x, y);
        _mm256_storeu_si256((__m256i *)(to + 4 * k), _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256((__m256i *)(to + 4 * k) + 1, _mm256_permute2x128_si256(low, high, 0x31));
    }
}

/* Rows [first, end) of the block, which share the words at `to`; the first one's place in them is `place`. */
X86_INLINE void write_v_words(cattn_type type, const stored *r, int32_t first, int32_t end, int32_t place, int32_t d,
                              char *to) {
    const int32_t per = word_elements(type), bits = 32 / per;
    const uint32_t one = type == CATTN_BF16 ? 0xffff : 0xff;
    uint32_t written = 0;
    for (int32_t i = first; i < end; i++) written |= one << (place + i - first) * bits;
    const __m256i mask = _mm256_set1_epi32((int)written);
    for (int32_t k = 0; k < d; k += 8) {
        __m256i x = _mm256_setzero_si256();
        for (int32_t i = first; i < end; i++) {
            const __m256i lanes = lanes_of(type, r->row[i] + (size_t)(k * (4 / per)));
            x = _mm256_or_si256(x, _mm256_sll_epi32(lanes, _mm_cvtsi32_si128((place + i - first) * bits)));
        }
        __m256i *at = (__m256i *)(to + 4 * (size_t)k);
        if (written != ~0u) x = _mm256_or_si256(x, _mm256_andnot_si256(mask, _mm256_loadu_si256(at)));
        _mm256_storeu_si256(at, x);
    }
}

X86_INLINE void prefetch_v(cattn_type type, const ca_write *w) {
    const size_t size = word_bytes(type) * (size_t)w->d_v;
    if (!w->next_v) return;
    const char *next = (const char *)w->next_v + (size_t)(w->next_slot / word_elements(type)) * size;
    for (size_t i = 0; i < size; i += 64) __builtin_prefetch(next + i, 1);
}

X86_INLINE void write_v(cattn_type type, const ca_write *w, const stored *r, int32_t slot, int32_t n) {
    const int32_t per = word_elements(type);
    const size_t line = word_bytes(type) * (size_t)w->d_v;
    for (int32_t i = 0, end; i < n; i = end) {
        const int32_t place = (slot + i) % per, left = n - i;
        char *to = (char *)w->v_tile + (size_t)((slot + i) / per) * line;
        end = i + (per - place < left ? per - place : left);
        if (per == 1)
            memcpy(to, r->row[i], line);
        else if (type == CATTN_BF16 && end - i == 2)
            write_v_pairs(r->row[i], r->row[i + 1], w->d_v, to);
        else
            write_v_words(type, r, i, end, place, w->d_v, to);
    }
}

/* ---- Tokens ---- */

X86_INLINE void write_tokens(cattn_type type, const ca_write *w) {
    stored r;
    float scales[WRITE_BLOCK];
    prefetch_k(type, w);
    prefetch_v(type, w);
    for (int32_t at = 0; at < w->n; at += WRITE_BLOCK) {
        const int32_t n = w->n - at < WRITE_BLOCK ? w->n - at : WRITE_BLOCK, slot = w->slot + at;
        const size_t scale_bytes = (size_t)n * sizeof *scales;
        store_rows(type, w->type, w->k, w->k_stride, at, n, w->d_k, &r, scales);
        if (type == CATTN_I8) {
            memcpy((char *)w->k_tile + ca_layout_scales(w->d_k, w->c) + (size_t)slot * sizeof *scales, scales, scale_bytes);
            for (int32_t i = 0; i < n; i++) /* K is unsigned */
                for (int32_t k = 0; k < w->d_k; k += 16) {
                    __m128i *bytes = (__m128i *)(r.room[i] + k);
                    _mm_storeu_si128(bytes, _mm_xor_si128(_mm_loadu_si128(bytes), _mm_set1_epi8(-128)));
                }
        }
        write_k(type, w, &r, slot, n);
        store_rows(type, w->type, w->v, w->v_stride, at, n, w->d_v, &r, scales);
        if (type == CATTN_I8)
            memcpy((char *)w->v_tile + ca_layout_scales(w->d_v, w->c) + (size_t)slot * sizeof *scales, scales, scale_bytes);
        write_v(type, w, &r, slot, n);
    }
}

#endif
