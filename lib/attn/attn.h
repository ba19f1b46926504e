/*
 * Running the kernels over a plan: chunk-first and sequence-first are the items' order, and each row's states merge at the end.
 */
#ifndef LIB_ATTN_ATTN_H
#define LIB_ATTN_ATTN_H

#include "base/alloc.h"
#include "kernels.h"
#include "lib/cache/plan.h"

typedef struct ca_attn_worker ca_attn_worker;

/* Memory whose contents need not outlast a step. */
typedef struct ca_attn_buffer {
    void *at;
    size_t size; /* bytes */
} ca_attn_buffer;

/* What cattn_config has to say on scores, in natural units; zeros: nothing. */
typedef struct ca_attn_options {
    float softcap;
    const float *alibi_slopes; /* [n_heads] */
    const float *sink_logits;  /* [n_layers][n_heads] */
} ca_attn_options;

typedef struct ca_attn {
    const ca_kernel *kernel;
    const ca_layout *layout;
    const ca_chunk_pool *pool;
    ca_alloc *alloc;
    cattn_parallel parallel;
    int32_t n_threads;
    int32_t group;    /* query heads a K/V head */
    int32_t max_rows; /* rows of a block: as many as fit with all their heads into one tile, at least 1 */
    float scale_log2; /* the softmax scale times log2(e) */
    float softcap;    /* base 2, as the next two; 0: none */
    float *slopes;    /* [n_heads], NULL: none */
    float *sinks;     /* [n_layers][n_heads], NULL: none */
    size_t state_bytes, query_bytes;
    ca_attn_buffer states;   /* of chains that are spread over tasks */
    ca_attn_worker *workers; /* [n_threads] */
} ca_attn;

/* The pointers are borrowed until ca_attn_free, but for the options', whose arrays are copied. */
cattn_status ca_attn_init(ca_attn *attn, const ca_kernel *kernel, const ca_layout *layout, const ca_chunk_pool *pool,
                          ca_alloc *alloc, const cattn_parallel *parallel, int32_t n_threads, int32_t group, float scale,
                          const ca_attn_options *options);
void ca_attn_free(ca_attn *attn);

/* Bytes that ca_attn_reserve would take in addition, and taking them: what the most demanding of some plans needs. */
size_t ca_attn_missing(const ca_attn *attn, const ca_plan *plans, size_t n_plans);
cattn_status ca_attn_reserve(ca_attn *attn, const ca_plan *plans, size_t n_plans);

/* Free what ca_attn_reserve took. */
void ca_attn_release(ca_attn *attn);

/* Room [CA_VIEW_ROWS][d_k + d_v] for a worker that converts rows of the caller's; its contents are lost when it attends. */
float *ca_attn_rows(const ca_attn *attn, int32_t worker);

/* Attend the plan's rows in one layer; views as in cattn_step_attend. */
void ca_attn_run(const ca_attn *attn, const ca_plan *plan, int32_t layer, const cattn_view *q, const cattn_view *out,
                 float *lse);

#endif
