/* Shared by the x86 levels of all vector widths, and the kernels that are in the tables of several levels. */
#ifndef CHUNKLLAMA_LINEAR_X86_LINEAR_X86_H
#define CHUNKLLAMA_LINEAR_X86_LINEAR_X86_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/linear/linear_kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

/* Keep the order of additions to a vector: gcc 12 would compute all summands of a sum of integers first, and spill them. */
#define KEEP(sum) __asm__("" : "+v"(sum))

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

/* A line of a panel: the weights of one input, or of two with BF16. */
INLINE int line_inputs(const cl_linear_layout layout) { return layout == CL_LINEAR_BF16 ? 2 : 1; }
INLINE size_t line_bytes(const cl_linear_layout layout) { return layout == CL_LINEAR_F16 ? 32 : 64; }

/*
 * vpmaddubsw saturates its sums of two products at 16 bits. So the largest unsigned factor (a code, or the magnitude of a
 * weight whose sign goes to the activation) limits how many steps may be summed there: 8 * 2 * 15 * 127 = 30480, 4 * 2 * 32 *
 * 127 = 32512, 2 * 128 * 127 = 32512. These sums are then added in 32 bits.
 */
INLINE int steps_in_16_bits(int largest) {
    const int steps = 32767 / (2 * 127 * largest);
    return steps > 1 ? steps : 1;
}

/* ---- Prefetching ---- */

enum { PREFETCH_BYTES = 3072 /* the distance in the stream of packed weights; 2 to 4 KB perform alike */ };

/*
 * Prefetches weights while others are multiplied: a short distance ahead, or, if several row groups pass over the same panels,
 * the next panels, in equal steps over all of these passes. Otherwise the first row group would wait for memory, and memory
 * would be idle during the others.
 *
 * Weights are prefetched into the first-level cache, or (cl_linear_task.prefetch_to_l2) only into the second: an Intel CPU with
 * AMX has few lines in flight to its first-level cache, and a high memory latency.
 */
typedef struct prefetcher {
    const uint8_t *at;
    size_t step; /* a multiple of 64 bytes; 0: PREFETCH_BYTES ahead */
    bool prefetch_to_l2;
} prefetcher;

INLINE prefetcher prefetch_ahead(const cl_linear_task *t) { return (prefetcher){.prefetch_to_l2 = t->prefetch_to_l2}; }

/* Prefetch `bytes` at `next` in n_steps steps. */
INLINE prefetcher prefetch_spread(const cl_linear_task *t, const uint8_t *next, size_t bytes, size_t n_steps) {
    return (prefetcher){next, (bytes / 64 + n_steps - 1) / n_steps * 64, t->prefetch_to_l2};
}

INLINE void prefetch_lines(const prefetcher *s, const uint8_t *from, size_t bytes) {
    if (s->prefetch_to_l2) {
        for (size_t i = 0; i < bytes; i += 64) _mm_prefetch(from + i, _MM_HINT_T1);
    } else {
        for (size_t i = 0; i < bytes; i += 64) _mm_prefetch(from + i, _MM_HINT_T0);
    }
}

/* Called once in each step, which multiplies `bytes` at `now`. */
INLINE void prefetch_step(prefetcher *s, const uint8_t *now, size_t bytes) {
    if (s->step == 0) {
        prefetch_lines(s, now + PREFETCH_BYTES, bytes);
        return;
    }
    prefetch_lines(s, s->at, s->step);
    s->at += s->step;
}

/* ---- Records ---- */

enum {
    CODES_BYTES = 512, /* codes of an unpacked record, a byte each: [8][16][4]; then f32 d[16] of each scale group, and m[16] */
    UNPACKED_BYTES = 768 /* at most */
};

/* The form of a record: that of a layout, or, unpacked, codes of a byte with f32 scales. Constant after inlining. */
typedef struct record_format {
    cl_linear_format f;
    bool unpacked;
} record_format;

INLINE record_format packed_format(cl_linear_layout layout) { return (record_format){cl_linear_formats[layout], false}; }

INLINE int n_scale_groups(record_format w) { return CL_LINEAR_BLOCK / w.f.scale_group; }

INLINE size_t record_bytes(record_format w) {
    if (!w.unpacked) return cl_linear_record_bytes(w.f);
    return CODES_BYTES + (size_t)n_scale_groups(w) * (w.f.min ? 128 : 64);
}

INLINE size_t d_at(record_format w, int g) { return w.unpacked ? CODES_BYTES + 64 * (size_t)g : cl_linear_d_at(w.f, g); }
INLINE size_t m_at(record_format w, int g) { return w.unpacked ? d_at(w, n_scale_groups(w) + g) : cl_linear_m_at(w.f, g); }

/* ---- Kernels of more than one level ---- */

void cl_linear_quantize_avx2(const float *x, size_t row_stride, int32_t n_rows, int32_t n_blocks, uint8_t *row_group,
                             int32_t group_rows);

void cl_linear_f32_avx2(const cl_linear_task *t);
void cl_linear_f16_avx2(const cl_linear_task *t);
void cl_linear_bf16_avx2(const cl_linear_task *t);

void cl_linear_f32_avx512(const cl_linear_task *t);
void cl_linear_f16_avx512(const cl_linear_task *t);
void cl_linear_bf16_avx512(const cl_linear_task *t);

#define LINEAR_DECLARE(name, ...)                                                                                              \
    void cl_linear_##name##_avx512(const cl_linear_task *t);                                                                   \
    void cl_linear_##name##_avx512_vnni(const cl_linear_task *t);                                                              \
    void cl_linear_##name##_amx(const cl_linear_task *t);
LINEAR_QUANT_LAYOUTS(LINEAR_DECLARE)
#undef LINEAR_DECLARE

/* AMX: the rows of activations that are multiplied with quantised weights at once, and the fewest for which tiles are faster.
 */
enum { CL_AMX_ROWS = 16, CL_AMX_MIN_ROWS = 32 };

void cl_linear_round_avx512_bf16(const float *x, int32_t n_in, uint16_t *out);

#endif
