/*
 * Running the kernels over a plan: chunk-first and sequence-first are the items' order, and each row's states merge at the end.
 */
#ifndef LIB_ATTN_ATTN_H
#define LIB_ATTN_ATTN_H

#include "base/alloc.h"
#include "kernels.h"
#include "lib/cache/plan.h"

typedef struct ca_attn_worker ca_attn_worker;

typedef struct ca_attn {
    const ca_kernel *kernel;
    const ca_layout *layout;
    const ca_chunk_pool *pool;
    ca_alloc *alloc;
    cattn_parallel parallel;
    int32_t n_threads;
    int32_t group;    /* query heads a K/V head */
    int32_t max_rows; /* rows of a block: what the kernel takes at once, divided by the group */
    float scale_log2; /* the softmax scale times log2(e) */
    size_t state_bytes, query_bytes;
    void *states;
    size_t states_size;      /* bytes */
    ca_attn_worker *workers; /* [n_threads] */
} ca_attn;

/* The pointers are borrowed until ca_attn_free. */
cattn_status ca_attn_init(ca_attn *attn, const ca_kernel *kernel, const ca_layout *layout, const ca_chunk_pool *pool,
                          ca_alloc *alloc, const cattn_parallel *parallel, int32_t n_threads, int32_t group, float scale);
void ca_attn_free(ca_attn *attn);

/* Bytes that ca_attn_reserve would take in addition, and taking them. */
size_t ca_attn_missing(const ca_attn *attn, const ca_plan *plan);
cattn_status ca_attn_reserve(ca_attn *attn, const ca_plan *plan);

/* Attend the plan's rows in one layer; views as in cattn_step_attend. */
void ca_attn_run(const ca_attn *attn, const ca_plan *plan, int32_t layer, const cattn_view *q, const cattn_view *out,
                 float *lse);

#endif
