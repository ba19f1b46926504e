/* Shared by the AVX-512 and AMX levels: prefetching of weights, and decoding of packed records in registers. */
#ifndef CHUNKLLAMA_LINEAR_X86_LINEAR_AVX512_H
#define CHUNKLLAMA_LINEAR_X86_LINEAR_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/linear/linear_kernels.h"
#include "linear_x86.h"

/* ---- Records ---- */

/* The form of unpacked records. If the format has a zero, codes in registers and unpacked codes are the weight plus 128. */
INLINE record_format unpacked_format(cl_linear_format f) {
    return (record_format){{.bits = 8, .scale_group = f.scale_group, .zero = f.zero ? 128 : 0, .min = f.min}, true};
}

/* Shift each byte right by n bits, or left if n is negative; bits of its neighbour are shifted in. */
INLINE __m512i shift_bits(__m512i x, int n) { return n < 0 ? _mm512_slli_epi16(x, -n) : _mm512_srli_epi16(x, n); }

/* Inputs 4 step to 4 step + 3 of 16 outputs in a record, unsigned. table: that of the task, in each 128-bit lane. */
INLINE __m512i load_codes(record_format w, __m512i table, const uint8_t *record, int step) {
    if (w.f.bits == 8) return _mm512_loadu_si512(record + 64 * step);
    __m512i codes = _mm512_setzero_si512();
    int shift = 0;
    if (w.f.bits & 4) {
        const __m512i both = _mm512_loadu_si512(record + 64 * (step & 3));
        codes = _mm512_and_si512(step < 4 ? both : _mm512_srli_epi16(both, 4), _mm512_set1_epi8(15));
        record += 256;
        shift = 4;
    }
    if (w.f.bits & 2) {
        const __m512i four = _mm512_loadu_si512(record + 64 * (step >> 2));
        const __m512i mask = _mm512_set1_epi8((char)(3 << shift));
        codes = _mm512_or_si512(codes, _mm512_and_si512(shift_bits(four, 2 * (step & 3) - shift), mask));
        record += 128;
        shift += 2;
    }
    if (w.f.bits & 1) {
        const __m512i mask = _mm512_set1_epi8((char)(1 << shift));
        codes = _mm512_or_si512(codes, _mm512_and_si512(shift_bits(_mm512_loadu_si512(record), step - shift), mask));
    }
    if (w.f.table) return _mm512_shuffle_epi8(table, codes);
    return w.f.zero ? _mm512_add_epi8(codes, _mm512_set1_epi8((char)(128 - w.f.zero))) : codes;
}

INLINE __m512i load_table(record_format w, const cl_linear_task *t) {
    return w.f.table ? _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)t->table)) : _mm512_setzero_si512();
}

INLINE __m512 load_f16(const uint8_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p)); }

/* 16 scales of a record. super: the scales of which these are factors, if any. */
INLINE __m512 load_scales(record_format w, const uint8_t *p, __m512 super) {
    if (w.unpacked) return _mm512_loadu_ps(p);
    if (w.f.powers) {
        const __m128i exponents = _mm_subs_epu8(_mm_loadu_si128((const void *)p), _mm_set1_epi8(1));
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(exponents), 23));
    }
    if (!w.f.super) return load_f16(p);
    return _mm512_mul_ps(super, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p))));
}

/* The place in a panel that is being read, and the f16 scales of its super-block. */
typedef struct cursor {
    const uint8_t *record;
    __m512 d, m;
} cursor;

/* Called before block b is read, for ascending b. */
INLINE void enter_block(record_format w, cursor *c, int32_t b) {
    if (!w.f.super || b % CL_LINEAR_SUPER) return;
    c->d = load_f16(c->record);
    if (w.f.super > 1) c->d = _mm512_mul_ps(c->d, _mm512_set1_ps(1.0f / (float)w.f.super));
    if (w.f.min) c->m = load_f16(c->record + 2 * CL_LINEAR_LANES);
    c->record += cl_linear_super_bytes(w.f);
}

/* Unpack scales and minima of the record at c to the one at `to`. */
INLINE void unpack_scales(record_format w, const cursor *c, uint8_t *to) {
    const record_format u = unpacked_format(w.f);
    UNROLL for (int g = 0; g < n_scale_groups(w); g++) {
        _mm512_store_ps(to + d_at(u, g), load_scales(w, c->record + d_at(w, g), c->d));
        if (w.f.min) _mm512_store_ps(to + m_at(u, g), load_scales(w, c->record + m_at(w, g), c->m));
    }
}

/* Unpack a panel to records of 8-bit codes. */
INLINE void unpack_panel(record_format w, const cl_linear_task *t, const uint8_t *panel, uint8_t *to) {
    const record_format u = unpacked_format(w.f);
    const __m512i table = load_table(w, t);
    cursor c = {.record = panel};
    for (int32_t b = 0; b < t->n_in / CL_LINEAR_BLOCK; b++, c.record += record_bytes(w), to += record_bytes(u)) {
        enter_block(w, &c, b);
        UNROLL for (int step = 0; step < 8; step++) {
            _mm512_store_si512(to + 64 * step, load_codes(w, table, c.record, step));
        }
        unpack_scales(w, &c, to);
    }
}

#endif
