/*
 * Chunks for a call, and promises of chunks to come.
 *
 * A promise is kept physically: chunks that are free in committed slabs, with those that are merely retained, are always at
 * least as many as are promised. So other memory of the same budget may grow without breaking one.
 */
#include "tree_internal.h"

/* ---- Promises ---- */

int64_t ca_reservation(const ca_tree *tree, int64_t n_tokens, int64_t reserve_to, bool owns_tail) {
    if (reserve_to <= n_tokens) return 0;
    /* Without the tail, going on means a chunk of its own for the same positions. */
    const int64_t n_owned = owns_tail ? ca_chunks_for(tree, n_tokens) : ca_chunk_of(tree, n_tokens);
    return ca_chunks_for(tree, reserve_to) - n_owned;
}

void ca_reservation_update(ca_tree *tree, ca_node *node) {
    for (ca_seq *seq = node->ending; seq; seq = seq->next) {
        const int64_t promise = ca_reservation(tree, seq->n_tokens, seq->reserve_to, ca_node_tail_is_free(tree, node, seq));
        tree->counts.chunks_reserved += (uint64_t)(promise - seq->n_reserved);
        seq->n_reserved = promise;
    }
}

/* ---- Room for a call ---- */

size_t ca_budget_trim(ca_tree *tree, size_t bytes, size_t n_keep) {
    ca_kv_carry_out(&tree->commands);
    return ca_chunk_pool_trim(tree->pool, bytes, n_keep);
}

cattn_status ca_budget_secure(ca_tree *tree, const ca_demand *demand, cattn_error *error) {
    ca_chunk_pool *pool = tree->pool;
    const char *call = demand->call;
    const int64_t promised = (int64_t)tree->counts.chunks_reserved, taken = demand->n_chunks + demand->n_reserved;
    const int64_t evictable = (int64_t)tree->counts.chunks_retained + demand->n_released - demand->n_revived;
    const int64_t needed = taken + demand->n_revived - demand->n_released;
    if (needed > 0 || demand->adds_seq || demand->n_bytes > 0) { /* more than was promised */
        const size_t growth = demand->n_bytes + (demand->branch ? ca_branch_growth(tree, demand->branch) : 0);
        const size_t excess = ca_chunk_pool_excess(pool, growth);
        if (excess > 0) {
            const size_t given = ca_budget_trim(tree, excess, (size_t)ca_max(promised + taken, 0));
            const int64_t n_spare = (int64_t)ca_chunk_pool_n_committed_free(pool) + evictable - promised - taken;
            if (given < excess && n_spare < (int64_t)ca_chunk_pool_slab_chunks(pool)) /* nor could eviction give a slab back */
                return ca_fail(error, CATTN_ERR_BUDGET, -1,
                               "%s: metadata exceeds budget_bytes by %zu; raise it or let sequences leave", call,
                               excess - given);
        }
        const int64_t available = (int64_t)ca_chunk_pool_n_free(pool) + (int64_t)tree->counts.chunks_retained - promised;
        if (needed > available)
            return ca_fail(error, CATTN_ERR_BUDGET, -1,
                           "%s: needs %lld chunks, but %lld are available beside %lld promised; raise budget_bytes, reserve "
                           "less or let sequences leave",
                           call, (long long)needed, (long long)ca_max(available, 0), (long long)promised);
    }
    /* Commit what promises will rest on, and rather than evict. */
    const int64_t n_free = (int64_t)ca_chunk_pool_n_free(pool);
    const int64_t n_commit = ca_max(ca_min(demand->n_chunks, n_free), promised + taken - evictable);
    if (n_commit > 0 && ca_chunk_pool_prepare(pool, (size_t)n_commit) != CATTN_OK)
        return ca_fail(error, CATTN_ERR_NOMEM, -1, "%s: the system gave no memory for %lld chunks", call, (long long)n_commit);
    return demand->branch && ca_branch_reserve(tree, demand->branch) != 0 ? ca_no_memory(error, call) : CATTN_OK;
}

void ca_budget_evict_for(ca_tree *tree, int64_t n_chunks) {
    while ((int64_t)ca_chunk_pool_n_committed_free(tree->pool) < n_chunks) {
        const bool evicted = ca_evict_one(tree);
        assert(evicted); /* secured */
        if (!evicted) break;
    }
}

void ca_budget_restore(ca_tree *tree) {
    const size_t excess = ca_chunk_pool_excess(tree->pool, 0);
    if (excess > 0) ca_tree_make_room(tree, excess);
}

/* ---- Calls ---- */

cattn_status ca_tree_reserve(ca_tree *tree, ca_seq *seq, int64_t n_tokens, cattn_error *error) {
    const int64_t reserve_to = seq->n_tokens + n_tokens;
    const bool owns_tail = ca_node_tail_is_free(tree, seq->leaf, seq);
    const ca_demand demand = {.call = "reserve",
                              .n_reserved = ca_reservation(tree, seq->n_tokens, reserve_to, owns_tail) - seq->n_reserved};
    const cattn_status status = ca_budget_secure(tree, &demand, error);
    if (status != CATTN_OK) return status;
    seq->reserve_to = reserve_to;
    ca_reservation_update(tree, seq->leaf);
    return CATTN_OK;
}

/* Retained chunks stand for part of the promises; the rest must stay free. */
static size_t n_reserved_free(const ca_tree *tree) {
    const ca_tree_counts *counts = &tree->counts;
    return counts->chunks_reserved > counts->chunks_retained ? counts->chunks_reserved - counts->chunks_retained : 0;
}

void ca_tree_drop_retained(ca_tree *tree) {
    while (ca_evict_one(tree)) {
    }
    ca_budget_trim(tree, SIZE_MAX, n_reserved_free(tree));
}

bool ca_tree_may_have_room(const ca_tree *tree, size_t bytes) {
    const size_t n_spare = ca_chunk_pool_n_committed_free(tree->pool) + tree->counts.chunks_retained;
    if (n_spare < tree->counts.chunks_reserved) return false;
    const size_t n_slabs = (n_spare - tree->counts.chunks_reserved) / ca_chunk_pool_slab_chunks(tree->pool);
    return n_slabs * ca_chunk_pool_slab_bytes(tree->pool) >= bytes;
}

bool ca_tree_make_room(ca_tree *tree, size_t bytes) {
    for (size_t given = 0;;) {
        given += ca_budget_trim(tree, bytes - given, n_reserved_free(tree));
        if (given >= bytes) return true;
        const size_t n_spare = ca_chunk_pool_n_committed_free(tree->pool) + tree->counts.chunks_retained;
        if (n_spare < tree->counts.chunks_reserved + ca_chunk_pool_slab_chunks(tree->pool)) return false;
        if (!ca_evict_one(tree)) return false;
    }
}
