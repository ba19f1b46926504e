/* Rows of the caller's tensors (cattn_view), which may be f32, f16 or bf16, as the f32 rows that kernels read. */
#ifndef CHUNKATTN_ATTN_VIEW_H
#define CHUNKATTN_ATTN_VIEW_H

#include "chunkattn/cache/layout.h"
#include "kernels.h"

/* Rows that are converted at a time: they stay in the first-level cache, and fill the blocks in which kernels write K and V. */
enum { CA_VIEW_ROWS = 8 };

/* [rows][dim] f32, `stride` floats from one row to the next. */
typedef struct ca_f32_rows {
    const float *at;
    ptrdiff_t stride;
} ca_f32_rows;

/* The first element of a row's head. */
static inline void *ca_view_at(const cattn_view *view, int64_t row, int64_t head) {
    return (char *)view->data + (row * view->row_stride + head * view->head_stride) * (int64_t)ca_type_size(view->type);
}

/* How many of n rows one call of ca_view_widen may have. f32 is not converted. */
static inline int32_t ca_view_rows_at_once(cattn_type type, int32_t n) {
    return type == CATTN_F32 || n < CA_VIEW_ROWS ? n : CA_VIEW_ROWS;
}

/*
 * n rows of dim elements of `type`, `stride` elements apart from `from` on, as f32: where they are if they are f32, else
 * converted to room [CA_VIEW_ROWS][dim].
 */
static inline ca_f32_rows ca_view_widen(const ca_kernel *kernel, cattn_type type, const void *from, ptrdiff_t stride, int32_t n,
                                        int32_t dim, float *room) {
    if (type == CATTN_F32) return (ca_f32_rows){from, stride};
    for (int32_t i = 0; i < n; i++)
        kernel->widen(type, (const char *)from + i * stride * (ptrdiff_t)ca_type_size(type), dim, room + i * (ptrdiff_t)dim);
    return (ca_f32_rows){room, dim};
}

#endif
