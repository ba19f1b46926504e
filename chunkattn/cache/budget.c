/*
 * Keeping a tree within its budget: memory for its calls, and for chunks that are reserved for sequences.
 *
 * Reservations are backed by memory: the free chunks of committed slabs, together with the retained chunks, are never fewer
 * than the chunks that are reserved. Other memory of the same budget can therefore grow without breaking a reservation.
 */
#include "tree_internal.h"

/* ---- Memory for a call ---- */

/* Chunks that the call takes or reserves. */
static int64_t n_taken(const ca_demand *demand) { return demand->n_chunks + demand->n_reserved; }

/* Chunks that can be evicted when the call takes its own. */
static int64_t n_evictable(const ca_tree *tree, const ca_demand *demand) {
    return (int64_t)tree->counts.chunks_retained + demand->n_released - demand->n_revived;
}

/* Bytes that remain to be allocated. */
static size_t growth_of(const ca_tree *tree, const ca_demand *demand) {
    return (demand->branch ? ca_branch_growth(demand->branch) : 0) +
           (demand->grows ? ca_node_growth(tree, demand->grows, demand->grows_to) : 0);
}

/* Bytes of whole slabs that n_spare chunks fill. */
static size_t whole_slabs(const ca_tree *tree, int64_t n_spare) {
    const size_t n_slabs = (size_t)ca_max(n_spare, 0) / ca_chunk_pool_slab_chunks(tree->pool);
    return n_slabs * ca_chunk_pool_slab_bytes(tree->pool);
}

/*
 * Whether the budget holds the metadata that remains to be allocated, if necessary after slabs have been returned.
 *
 * Spare chunks count as if they could be returned, even if no slab can be emptied because each has a live chunk. Memory in use
 * never exceeds the budget then, and a call is not refused while most chunks are free or retained.
 */
static cattn_status secure_metadata(ca_tree *tree, const ca_demand *demand, int64_t n_needed, cattn_error *error) {
    const size_t excess = ca_chunk_pool_excess(tree->pool, growth_of(tree, demand));
    if (excess == 0) return CATTN_OK;
    const size_t returned = ca_budget_trim(tree, excess, (size_t)ca_max(n_needed, 0));
    const int64_t n_spare = (int64_t)ca_chunk_pool_n_committed_free(tree->pool) + n_evictable(tree, demand) - n_needed;
    if (returned + whole_slabs(tree, n_spare) >= excess) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_BUDGET, -1, "%s: metadata exceeds budget_bytes by %zu; raise it or let sequences leave",
                   demand->call, excess - returned);
}

/* Whether the headroom stays when the call has taken `needed` chunks. */
static cattn_status check_headroom(const ca_tree *tree, const ca_demand *demand, int64_t needed, cattn_error *error) {
    const uint64_t taken = tree->counts.chunks_live + tree->counts.chunks_reserved + (uint64_t)needed;
    if (demand->headroom == 0 || taken <= ca_chunk_pool_capacity_with(tree->pool, growth_of(tree, demand) + demand->headroom))
        return CATTN_OK;
    return ca_fail(error, CATTN_ERR_BUDGET, -1,
                   "%s: leaves less than %zu bytes of budget_bytes for the plan and workspace of a step of its rows; raise it, "
                   "let sequences leave, or set a smaller max_step_rows",
                   demand->call, demand->headroom);
}

/* Whether `needed` chunks are free or can be evicted, beside those that are reserved. */
static cattn_status check_chunks(const ca_tree *tree, const ca_demand *demand, int64_t needed, cattn_error *error) {
    const int64_t reserved = (int64_t)tree->counts.chunks_reserved;
    const int64_t n_free = (int64_t)ca_chunk_pool_n_free(tree->pool, growth_of(tree, demand));
    const int64_t available = n_free + (int64_t)tree->counts.chunks_retained - reserved;
    if (needed <= available) return check_headroom(tree, demand, needed, error);
    return ca_fail(
        error, CATTN_ERR_BUDGET, -1,
        "%s: needs %lld chunks, but %lld are available beside %lld reserved; raise budget_bytes, reserve less or let "
        "sequences leave",
        demand->call, (long long)needed, (long long)ca_max(available, 0), (long long)reserved);
}

/*
 * Make room for the call's K/V copies. Where all wait for a step, they are so few that a step can take them: no more than the
 * chunks that can be live, and some.
 */
static cattn_status reserve_copies(ca_tree *tree, const ca_demand *demand, cattn_error *error) {
    const size_t n = (size_t)demand->n_copies, most = ca_chunk_pool_capacity(tree->pool) + CA_KV_PENDING;
    if (n > 0 && !tree->commands.executor.run && tree->commands.n + n > most)
        return ca_fail(error, CATTN_ERR_STATE, -1,
                       "%s: %zu copies of K and V wait for the next step, of at most %zu; run a step first", demand->call,
                       tree->commands.n, most);
    return ca_kv_reserve(&tree->commands, &tree->beside_budget, n) == 0 ? CATTN_OK : ca_no_memory(error, demand->call);
}

static int allocate_growth(ca_tree *tree, const ca_demand *demand) {
    if (demand->branch && ca_branch_reserve(tree, demand->branch) != 0) return -1;
    return demand->grows ? ca_node_reserve_tokens(tree, demand->grows, demand->grows_to) : 0;
}

static cattn_status secure(ca_tree *tree, const ca_demand *demand, int64_t *n_needed, cattn_error *error) {
    *n_needed = (int64_t)tree->counts.chunks_reserved + n_taken(demand);
    const int64_t unreserved = n_taken(demand) + demand->n_revived - demand->n_released;
    if (unreserved > 0 || demand->unreserved) {
        cattn_status status = secure_metadata(tree, demand, *n_needed, error);
        if (status == CATTN_OK) status = check_chunks(tree, demand, unreserved, error);
        if (status != CATTN_OK) return status;
    }
    const cattn_status status = reserve_copies(tree, demand, error);
    if (status != CATTN_OK) return status;
    if (allocate_growth(tree, demand) != 0) return ca_no_memory(error, demand->call);
    /* Commit slabs to back reservations, and for the chunks to take if the budget allows it, since that is better than to
     * evict. */
    const int64_t n_free = (int64_t)ca_chunk_pool_n_free(tree->pool, 0);
    const int64_t n_backing = *n_needed - n_evictable(tree, demand);
    const int64_t n_commit = ca_max(ca_min(demand->n_chunks, n_free), n_backing);
    if (n_commit <= 0 || ca_chunk_pool_prepare(tree->pool, (size_t)n_commit) == CATTN_OK) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_NOMEM, -1, "%s: the system gave no memory for %lld chunks", demand->call,
                   (long long)n_commit);
}

cattn_status ca_budget_secure(ca_tree *tree, const ca_demand *demand, int64_t *n_needed, cattn_error *error) {
    const cattn_status status = secure(tree, demand, n_needed, error);
    if (status != CATTN_OK && demand->branch) ca_branch_abandon(tree, demand->branch);
    return status;
}

/* Chunks that must stay free because n_needed are reserved or about to be taken; the retained chunks back part of them. */
static size_t n_keep(const ca_tree *tree, int64_t n_needed) {
    return (size_t)ca_max(n_needed - (int64_t)tree->counts.chunks_retained, 0);
}

bool ca_budget_evict_one(ca_tree *tree) {
    int64_t n_left;
    ca_node *leaf = ca_evict_choose(tree, &n_left);
    if (!leaf) return false;
    ca_node *parent = leaf->parent;
    if (n_left > 0) {
        ca_node_trim(tree, leaf, n_left);
        ca_evict_update(tree, leaf);
    } else {
        ca_evict_forget(tree, leaf);
        ca_node_remove(tree, leaf);
        ca_node_settle(tree, parent);
    }
    return true;
}

/* Bytes of slabs that evicting everything would empty, if n_needed chunks must stay. */
static size_t returnable(const ca_tree *tree, int64_t n_needed) {
    const int64_t n_unused = (int64_t)(ca_chunk_pool_n_committed_free(tree->pool) + tree->counts.chunks_retained);
    const size_t idle = ca_chunk_pool_n_idle_slabs(tree->pool) * ca_chunk_pool_slab_bytes(tree->pool);
    const size_t spare = whole_slabs(tree, n_unused - n_needed);
    return idle < spare ? idle : spare;
}

/* As ca_tree_make_room, if n_needed chunks must stay. Nothing is evicted if no slab can be emptied. */
static bool make_room(ca_tree *tree, size_t bytes, int64_t n_needed) {
    for (size_t returned = 0;;) {
        returned += ca_budget_trim(tree, bytes - returned, n_keep(tree, n_needed));
        if (returned >= bytes) return true;
        if (returnable(tree, n_needed) == 0 || !ca_budget_evict_one(tree)) return false;
    }
}

void ca_budget_provide(ca_tree *tree, int64_t n_chunks, int64_t n_needed) {
    const size_t excess = ca_chunk_pool_excess(tree->pool, 0);
    if (excess > 0) make_room(tree, excess, n_needed);
    while ((int64_t)ca_chunk_pool_n_committed_free(tree->pool) < n_chunks) {
        const bool evicted = ca_budget_evict_one(tree);
        assert(evicted); /* the chunks have been secured */
        if (!evicted) break;
    }
}

void ca_tree_shrink(ca_tree *tree) {
    const size_t excess = ca_chunk_pool_excess(tree->pool, 0);
    if (excess > 0) ca_tree_make_room(tree, excess);
}

/* ---- Memory for reservations and others ---- */

cattn_status ca_tree_reserve(ca_tree *tree, ca_seq *seq, int64_t n_tokens, cattn_error *error) {
    const int64_t reserve_to = seq->n_tokens + n_tokens;
    const bool owns_tail = ca_node_tail_is_free(tree, seq->leaf, seq);
    const ca_demand demand = {.call = "reserve",
                              .n_reserved = ca_reservation(tree, seq->n_tokens, reserve_to, owns_tail) - seq->n_reserved};
    int64_t n_needed;
    const cattn_status status = ca_budget_secure(tree, &demand, &n_needed, error);
    if (status != CATTN_OK) return status;
    seq->reserve_to = reserve_to;
    ca_reservation_update(tree, seq->leaf);
    return CATTN_OK;
}

size_t ca_budget_trim(ca_tree *tree, size_t bytes, size_t n_keep) {
    ca_kv_carry_out(&tree->commands);
    return ca_chunk_pool_trim(tree->pool, bytes, n_keep);
}

void ca_tree_drop_retained(ca_tree *tree) {
    while (ca_budget_evict_one(tree)) {
    }
    ca_budget_trim(tree, SIZE_MAX, n_keep(tree, (int64_t)tree->counts.chunks_reserved));
}

bool ca_tree_may_have_room(const ca_tree *tree, size_t bytes) {
    return returnable(tree, (int64_t)tree->counts.chunks_reserved) >= bytes;
}

bool ca_tree_make_room(ca_tree *tree, size_t bytes) { return make_room(tree, bytes, (int64_t)tree->counts.chunks_reserved); }
