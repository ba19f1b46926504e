/* Asking for the weights to come, shared by the AVX-512 levels. */
#ifndef LLAMA_LINEAR_X86_LINEAR_AVX512_STREAM_H
#define LLAMA_LINEAR_X86_LINEAR_AVX512_STREAM_H

#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "linear_x86.h"

enum { PREFETCH_BYTES = 3072 /* ahead in the stream of packed weights: 2 to 4 KB are alike */ };

/*
 * The weights to come, asked for while others are multiplied: a short distance ahead, or, where several row tiles go over the
 * same panels again and again, those behind these panels in equal steps all the while; or the first tile would wait for memory
 * that the others leave idle.
 *
 * They go into the first-level cache, or (linear_task.to_l2) only into the second: lines on their way to the first are few at
 * once on an Intel CPU with AMX, whose memory is far.
 */
typedef struct stream {
    const uint8_t *at;
    size_t step; /* a multiple of 64 bytes; 0: PREFETCH_BYTES ahead */
    bool to_l2;
} stream;

INLINE stream stream_ahead(const cl_linear_task *t) { return (stream){.to_l2 = t->to_l2}; }

/* `bytes` at `next` in n_steps steps. */
INLINE stream stream_spread(const cl_linear_task *t, const uint8_t *next, size_t bytes, size_t n_steps) {
    return (stream){next, (bytes / 64 + n_steps - 1) / n_steps * 64, t->to_l2};
}

INLINE void stream_ask(const stream *s, const uint8_t *from, size_t bytes) {
    if (s->to_l2) {
        for (size_t i = 0; i < bytes; i += 64) _mm_prefetch(from + i, _MM_HINT_T1);
    } else {
        for (size_t i = 0; i < bytes; i += 64) _mm_prefetch(from + i, _MM_HINT_T0);
    }
}

/* To be called once a step, in which `bytes` at `now` are multiplied. */
INLINE void stream_step(stream *s, const uint8_t *now, size_t bytes) {
    if (s->step == 0) {
        stream_ask(s, now + PREFETCH_BYTES, bytes);
        return;
    }
    stream_ask(s, s->at, s->step);
    s->at += s->step;
}

#endif
