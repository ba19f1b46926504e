/* What a cattn_cache is made of. */
#ifndef LIB_CACHE_HANDLE_H
#define LIB_CACHE_HANDLE_H

#include "base/array.h"
#include "base/threads.h"
#include "chunkattn.h"
#include "lib/attn/attn.h"
#include "lib/cache/chunk_pool.h"
#include "lib/cache/layout.h"
#include "lib/cache/plan.h"
#include "lib/cache/tree.h"

/* Where one row's K and V go. */
typedef struct ca_row {
    ca_chunk_id chunk;
    int32_t slot;
} ca_row;

/* What a step needs of an entry's sequence: found once for as long as the tree stays as it is. */
typedef struct ca_step_seq {
    cattn_seq id;
    ca_node *leaf;
} ca_step_seq;

/* The open step, or what is left of the last one: the next is often like it but for the positions. */
typedef struct ca_step {
    bool open;
    bool has_rows;         /* rows are those of the plan's last update */
    uint64_t tree_version; /* as seqs were found */
    CA_ARRAY(ca_step_seq) seqs;
    CA_ARRAY(ca_plan_entry) entries; /* of the same sequences */
    CA_ARRAY(ca_row) rows;           /* in the caller's order */
    /* K/V commands for each layer: to carry out before its rows are written, and after them (kv_commands.h). */
    ca_kv_commands before, after;
    CA_ARRAY(bool) prepared; /* [n_layers] where `before` has been carried out */
} ca_step;

struct cattn_cache {
    ca_alloc alloc; /* counts everything but the slabs */
    uint64_t budget_bytes, bytes_peak;
    uint64_t empty_bytes; /* of metadata when the cache was created */
    int32_t n_threads;
    const char *level;
    ca_pool *threads; /* NULL where the caller brings its own */
    cattn_parallel parallel;
    ca_layout layout;
    ca_chunk_pool *pool;
    ca_tree *tree;
    CA_ARRAY(ca_plan) plans; /* one for each window that a layer has */
    int32_t *layer_plan;     /* [n_layers] index in plans */
    ca_attn attn;
    ca_step step;
};

#endif
