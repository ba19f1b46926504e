/*
 * Running the kernels over a plan. The order of the items makes a step chunk-first, then sequence-first; the states of each row
 * are merged at the end.
 *
 * Errors: CATTN_ERR_NOMEM where a status is returned. One thread at a time may call these for one ca_attn; ca_attn_run uses the
 * workers of the cattn_parallel hook itself.
 */
#ifndef CHUNKATTN_ATTN_ATTN_H
#define CHUNKATTN_ATTN_ATTN_H

#include "chunkattn/base/alloc.h"
#include "chunkattn/cache/plan.h"
#include "kernels.h"

typedef struct ca_attn_worker ca_attn_worker;

/* Memory that steps reuse; its contents do not outlast a step. */
typedef struct ca_attn_buffer {
    void *at;
    size_t size; /* bytes */
} ca_attn_buffer;

/* The options of cattn_config that change scores, in natural units; zero or NULL: off. */
typedef struct ca_attn_options {
    float softcap;
    const float *alibi_slopes; /* [n_heads] */
    const float *sink_logits;  /* [n_layers][n_heads of the layer] */
} ca_attn_options;

/* What follows from a shape of the layers (ca_shape) and the kernel. */
typedef struct ca_attn_shape {
    int32_t n_heads, n_kv_heads;
    int32_t group;    /* query heads of a GQA group */
    int32_t max_rows; /* rows of a block: as many as fit with all their heads into one tile, at least 1 */
    float scale_log2; /* the softmax scale times log2(e) */
    size_t state_bytes, query_bytes;
    const ca_layout *tiles;
} ca_attn_shape;

/*
 * Where tiles come from if not from the pool: memory of another layout, from which a worker packs one chunk after the other.
 * `chunk` is an id from the plan; n_slots is how many leading slots of it are seen.
 */
typedef struct ca_tile_source {
    /*
     * The K tile, with the V tile behind it, of a chunk in the layer that is attended; all groups are closed. Valid until the
     * worker's next call.
     */
    const char *(*pack)(const void *ctx, int32_t worker, int32_t head, ca_chunk_id chunk, int32_t n_slots);
    /* A chunk that the worker packs soon, after the next one. */
    void (*announce)(const void *ctx, int32_t worker, int32_t head, ca_chunk_id chunk, int32_t n_slots);
    const void *ctx;
    /* Neighbouring KV heads that lie together in memory, in the layer that is attended: a worker takes a chunk of several of
     * them, up to CA_MOST_HEADS, before the next chunk. */
    int32_t heads_together;
} ca_tile_source;

enum { CA_MOST_HEADS = 8 };

typedef struct ca_attn {
    const ca_kernel *kernel;
    const ca_chunk_layout *layout;
    const ca_chunk_pool *pool;
    const ca_tile_source *source;
    ca_alloc *alloc;
    cattn_parallel parallel;
    int32_t n_threads;
    ca_attn_shape *shapes;   /* [layout->n_shapes] */
    float softcap;           /* base 2, as the next two; 0: none */
    float *slopes;           /* [n_heads], NULL: none */
    float *sinks;            /* [n_layers][n_heads of the layer], NULL: none */
    ca_attn_buffer states;   /* of chains that are spread over tasks */
    ca_attn_worker *workers; /* [n_threads] */
} ca_attn;

/* All but parallel and options are borrowed until ca_attn_free. Exactly one of pool and source is set. */
cattn_status ca_attn_init(ca_attn *attn, const ca_kernel *kernel, const ca_chunk_layout *layout, const ca_chunk_pool *pool,
                          const ca_tile_source *source, ca_alloc *alloc, const cattn_parallel *parallel, int32_t n_threads,
                          const ca_attn_options *options);
void ca_attn_free(ca_attn *attn);

/*
 * The workspace that the most demanding of n_plans plans needs: the bytes that are missing, and allocating them. What is there
 * is kept if it suffices.
 */
size_t ca_attn_missing(const ca_attn *attn, const ca_plan *plans, size_t n_plans);
/* The most that is missing for n_rows rows of one sequence, each with at most n_segments blocks, in layers of any shape. */
size_t ca_attn_most_missing(const ca_attn *attn, int64_t n_segments, int64_t n_rows);
cattn_status ca_attn_reserve(ca_attn *attn, const ca_plan *plans, size_t n_plans);

/* Free what ca_attn_reserve allocated. */
void ca_attn_release(ca_attn *attn);

/*
 * Room [CA_VIEW_ROWS][d_k + d_v], for the largest heads, in which a worker converts rows of the caller's tensors. ca_attn_run
 * overwrites it.
 */
float *ca_attn_rows(const ca_attn *attn, int32_t worker);

/* Attend the plan's rows in one layer, of the plan's shape; views as in cattn_step_attend. */
void ca_attn_run(const ca_attn *attn, const ca_plan *plan, int32_t layer, const cattn_view *q, const cattn_view *out,
                 float *lse);

#endif
