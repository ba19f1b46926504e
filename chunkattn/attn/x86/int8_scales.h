/* The scales [c] behind an int8 tile of K or V, layout.h. */
#ifndef CHUNKATTN_ATTN_X86_INT8_SCALES_H
#define CHUNKATTN_ATTN_X86_INT8_SCALES_H

#include <immintrin.h>

#include "chunkattn/cache/layout.h"

static inline const float *int8_scales(const void *tile, int32_t d, int32_t c) {
    return (const float *)((const char *)tile + ca_layout_scales(d, c));
}

/* They are few, so they are prefetched at once. tile may be NULL: nothing is prefetched. */
static inline void prefetch_scales(const void *tile, int32_t d, int32_t c) {
    for (int32_t i = 0; tile && i < c; i += 16) _mm_prefetch((const char *)(int8_scales(tile, d, c) + i), _MM_HINT_T1);
}

#endif
