/* The structs behind cattn_cache. */
#ifndef CHUNKATTN_API_CACHE_HANDLE_H
#define CHUNKATTN_API_CACHE_HANDLE_H

#include "chunkattn.h"
#include "chunkattn/attn/backend.h"
#include "chunkattn/base/array.h"
#include "chunkattn/base/guard.h"
#include "chunkattn/cache/chunk_pool.h"
#include "chunkattn/cache/plan.h"
#include "chunkattn/cache/tree.h"
#include "chunkattn/tier/tier.h"

/* Where the K and V of a row go. */
typedef struct ca_row {
    ca_chunk_id chunk;
    int32_t slot;
} ca_row;

/* An entry's sequence and its leaf, valid as long as the tree's version is the same. */
typedef struct ca_step_seq {
    cattn_seq id;
    ca_node *leaf;
} ca_step_seq;

/* The open step, or the remains of the last one: often the next differs only in positions. */
typedef struct ca_step {
    bool open;
    bool has_rows;         /* rows belong to the plan's last update */
    uint64_t tree_version; /* of the tree when seqs were found */
    CA_ARRAY(ca_step_seq) seqs;
    CA_ARRAY(ca_plan_entry) entries; /* of the same sequences */
    CA_ARRAY(ca_row) rows;           /* in the caller's order */
    /* K/V commands to execute in each layer: before its rows are written, and after them (kv_commands.h). */
    ca_kv_commands before, after;
    CA_ARRAY(bool) prepared; /* [n_layers] whether `before` has been executed; used by the CPU alone */
} ca_step;

struct cattn_cache {
    ca_guard guard;
    ca_alloc alloc;            /* counts everything but the slabs */
    uint64_t max_budget_bytes; /* as configured */
    uint64_t budget_bytes;     /* at present */
    uint64_t bytes_peak;
    uint64_t pin_bytes;     /* limit of the chunks that pins cover */
    uint64_t chunks_pinned; /* sum over the pins */
    uint64_t empty_bytes;   /* of metadata when the cache was created */
    cattn_sharing sharing;
    ca_compute compute;
    ca_chunk_layout layout;
    ca_record_format record; /* of the file tier and of exports */
    uint64_t model[2];       /* the caller's fingerprint; as `record` only on the CPU */
    ca_chunk_pool *pool;
    ca_tree *tree;
    CA_ARRAY(ca_plan) plans; /* one for each shape and window that layers have */
    int32_t *layer_plan;     /* [n_layers] index in plans */
    ca_tier *tier;           /* owned; NULL: there is no file tier */
    double row_seconds;      /* that steps of many rows take for a row; 0: not measured, or no tier */
    double step_began;       /* seconds; of the open step, where there is a tier */
    ca_step step;
};

#endif
