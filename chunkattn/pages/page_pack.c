/*
 * Packing foreign pages: K is transposed, and in bf16 neighbouring tokens of V are interleaved.
 *
 * The compiler's 128-bit vectors serve every CPU without a kernel level, which is enough, since memory takes most of the time.
 * Eight tokens are packed at a time, while the same tokens of the next page are prefetched.
 */
#include "page_pack.h"

#include <string.h>

#include "chunkattn/attn/prefetch.h"

enum { AT_ONCE = 8 }; /* tokens */

typedef uint32_t words __attribute__((vector_size(16)));
typedef uint16_t halves __attribute__((vector_size(16)));

#define INLINE static inline __attribute__((always_inline))

INLINE words load_words(const char *from) {
    words x;
    memcpy(&x, from, sizeof x);
    return x;
}
INLINE halves load_halves(const char *from) {
    halves x;
    memcpy(&x, from, sizeof x);
    return x;
}

INLINE halves low_halves(halves a, halves b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
INLINE halves high_halves(halves a, halves b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
INLINE words low_words(words a, words b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
INLINE words high_words(words a, words b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }
INLINE words low_pairs(words a, words b) { return __builtin_shufflevector(a, b, 0, 1, 4, 5); }
INLINE words high_pairs(words a, words b) { return __builtin_shufflevector(a, b, 2, 3, 6, 7); }

/* Four words of four tokens to four lines of `line` bytes. */
INLINE void transpose_words(ca_page_rows from, char *to, ptrdiff_t line) {
    const words a = load_words(from.at), b = load_words(from.at + from.stride);
    const words c = load_words(from.at + 2 * from.stride), d = load_words(from.at + 3 * from.stride);
    const words ab = low_words(a, b), cd = low_words(c, d), ab2 = high_words(a, b), cd2 = high_words(c, d);
    const words lines[4] = {low_pairs(ab, cd), high_pairs(ab, cd), low_pairs(ab2, cd2), high_pairs(ab2, cd2)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) memcpy(to + i * line, &lines[i], sizeof lines[i]);
}

/* Eight halves of eight tokens to eight lines. */
INLINE void transpose_halves(ca_page_rows from, char *to, ptrdiff_t line) {
    words x[8], y[8];
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) { /* y: halves 0 to 3 of two tokens, and halves 4 to 7 */
        const halves a = load_halves(from.at + i * from.stride), b = load_halves(from.at + (i + 1) * from.stride);
        y[i] = (words)low_halves(a, b);
        y[i + 1] = (words)high_halves(a, b);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) { /* x: two halves of four tokens each */
        x[4 * i] = low_words(y[4 * i], y[4 * i + 2]);
        x[4 * i + 1] = high_words(y[4 * i], y[4 * i + 2]);
        x[4 * i + 2] = low_words(y[4 * i + 1], y[4 * i + 3]);
        x[4 * i + 3] = high_words(y[4 * i + 1], y[4 * i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const words even = low_pairs(x[i], x[4 + i]), odd = high_pairs(x[i], x[4 + i]);
        memcpy(to + (ptrdiff_t)(2 * i) * line, &even, sizeof even);
        memcpy(to + (ptrdiff_t)(2 * i + 1) * line, &odd, sizeof odd);
    }
}

/* K of eight tokens to the slots that begin at `to`. A line is one word of each slot (f16: one element). */
static void pack_keys(const ca_page_pack *p, ca_page_rows k, char *to) {
    const int32_t size = p->type == CATTN_F16 ? 2 : 4, bytes = p->d_k * (p->type == CATTN_F32 ? 4 : 2);
    const ptrdiff_t line = (ptrdiff_t)p->c * size;
    for (int32_t at = 0; at < bytes; at += 16, k.at += 16, to += 16 / size * line) {
        if (p->type == CATTN_F16) {
            transpose_halves(k, to, line);
            continue;
        }
        transpose_words(k, to, line);
        transpose_words((ca_page_rows){k.at + 4 * k.stride, k.stride}, to + 16, line);
    }
}

/* V of eight tokens to the lines that begin at `to`. */
static void pack_values(const ca_page_pack *p, ca_page_rows v, char *to) {
    const size_t bytes = (size_t)p->d_v * (p->type == CATTN_F32 ? 4 : 2);
    if (p->type != CATTN_BF16) {
        for (int i = 0; i < AT_ONCE; i++) memcpy(to + (size_t)i * bytes, v.at + i * v.stride, bytes);
        return;
    }
    for (int i = 0; i < AT_ONCE; i += 2, v.at += 2 * v.stride)
        for (size_t at = 0; at < bytes; at += 16, to += 32) {
            const halves a = load_halves(v.at + at), b = load_halves(v.at + v.stride + at);
            const halves low = low_halves(a, b), high = high_halves(a, b);
            memcpy(to, &low, sizeof low);
            memcpy(to + 16, &high, sizeof high);
        }
}

CA_PREFETCH void prefetch_rows(ca_page_rows rows, int32_t first, int32_t n, size_t bytes) {
    for (int32_t i = first; i < first + AT_ONCE && i < n; i++) ca_prefetch_bytes(rows.at + i * rows.stride, bytes);
}

void ca_pack_page(const ca_page_pack *p) {
    const size_t size = ca_type_size(p->type), slot = p->type == CATTN_F16 ? 2 : 4;
    for (int32_t i = 0; i < p->n || i < p->n_next; i += AT_ONCE) {
        prefetch_rows(p->next_k, i, p->n_next, (size_t)p->d_k * size);
        prefetch_rows(p->next_v, i, p->n_next, (size_t)p->d_v * size);
        if (i >= p->n) continue;
        pack_keys(p, (ca_page_rows){p->k.at + i * p->k.stride, p->k.stride}, p->k_tile + (size_t)i * slot);
        pack_values(p, (ca_page_rows){p->v.at + i * p->v.stride, p->v.stride}, p->v_tile + (size_t)i * (size_t)p->d_v * size);
    }
}
