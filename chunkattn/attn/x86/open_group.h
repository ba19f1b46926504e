/*
 * Open slot groups of K (layout.h) on the x86 levels: where a token's words are, and copying an open group as a closed one.
 *
 * All levels use 256-bit vectors: few slots of an open group are filled, and the time goes into their cache lines.
 */
#ifndef CHUNKATTN_ATTN_X86_OPEN_GROUP_H
#define CHUNKATTN_ATTN_X86_OPEN_GROUP_H

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#include "chunkattn/attn/kernels.h"
#include "chunkattn/cache/layout.h"

enum { OPEN_LINE = 64 }; /* bytes of 16 words */

/* Words of a token's K; of those, the ones that stand together in an open group, as ca_layout.open_words. */
static inline int32_t key_words(cattn_type type, int32_t d_k) { return d_k / (int32_t)ca_type_neighbours(type); }
static inline int32_t words_together(int32_t words) { return words / CA_SLOT_GROUP * CA_SLOT_GROUP; }

static inline bool in_open_group(cattn_type type, uint32_t open, int32_t slot) {
    return type != CATTN_F16 && (open & ca_slot_group_bit(slot)) != 0;
}

/* Bytes from a tile to the first of a slot's words that stand together; those from word 16 j on are 16 j lines behind it. */
static inline ptrdiff_t open_at(int32_t slot, ptrdiff_t line) {
    return slot % CA_SLOT_GROUP * line + slot / CA_SLOT_GROUP * (ptrdiff_t)OPEN_LINE;
}

/* Leading slots of a tile that are in closed groups. */
static inline int32_t closed_slots(const ca_tile *t) { return t->open ? __builtin_ctz(t->open) * CA_SLOT_GROUP : t->c; }

/* 8 x 8 words. */
static inline __attribute__((always_inline)) void transpose(__m256i x[8]) {
    __m256i a[8], b[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_epi32(x[i], x[i + 1]);
        a[i + 1] = _mm256_unpackhi_epi32(x[i], x[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
        b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
        b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
        b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        x[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
        x[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
    }
}

/* Words [word, word + 8) of up to 8 slots, `n` of which are filled, to lines of `to`. */
static inline void close_block(const char *from, ptrdiff_t line, int32_t n, char *to) {
    static const char nothing[32];
    __m256i x[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) x[i] = _mm256_loadu_si256((const __m256i *)(i < n ? from + i * line : nothing));
    transpose(x);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) _mm256_storeu_si256((__m256i *)(to + i * OPEN_LINE), x[i]);
}

/* Lines [words][16 slots] of the open group that begins with slot `first`: its first n > 0 slots; the others hold anything. */
static inline void copy_closed(const ca_tile *t, cattn_type type, int32_t first, int32_t n, char *lines) {
    const int32_t words = key_words(type, t->d_k), together = words_together(words);
    const ptrdiff_t line = 4 * (ptrdiff_t)t->c;
    const char *k = (const char *)t->k + first / CA_SLOT_GROUP * OPEN_LINE;
    for (int32_t word = 0; word < together; word += CA_SLOT_GROUP)
        for (int32_t slot = 0; slot < n; slot += 8)
            for (int32_t half = 0; half < CA_SLOT_GROUP; half += 8)
                close_block(k + (word + slot) * line + 4 * half, line, n - slot, lines + (word + half) * OPEN_LINE + 4 * slot);
    for (int32_t word = together; word < words; word++) memcpy(lines + word * OPEN_LINE, k + word * line, OPEN_LINE);
    __asm__ volatile("" ::: "memory"); /* gcc 12 does not know that a tile load reads them */
}

#endif
