/* The public functions that look at a cache: its numbers, whether a request fits, the nodes of the tree. */
#include <string.h>

#include "cache_handle.h"
#include "checks.h"
#include "chunkattn/base/fail.h"
#include "file_tier.h"
#include "public_struct.h"
#include "step.h"

/* ---- Numbers ---- */

static cattn_status write_stats(const cattn_cache *c, uint64_t n_superseded, cattn_stats *stats) {
    if (!stats) return CATTN_ERR_ARG;
    const ca_tree_counts *t = ca_tree_get_counts(c->tree);
    const uint64_t bytes = ca_cache_bytes(c);
    cattn_stats now = {
        .budget_bytes = c->budget_bytes,
        .bytes_in_use = bytes,
        .bytes_peak = bytes > c->bytes_peak ? bytes : c->bytes_peak,
        .chunk_bytes = c->layout.chunk_bytes,
        .chunks_live = t->chunks_live - n_superseded,
        .chunks_live_peak = t->chunks_live_peak,
        .chunks_retained = t->chunks_retained + n_superseded,
        .chunks_reserved = t->chunks_reserved,
        .chunks_capacity = ca_chunk_pool_capacity(c->pool),
        .chunks_unshared = t->chunks_unshared,
        .chunks_unshared_peak = t->chunks_unshared_peak,
        .tokens_stored = t->tokens_stored,
        .tokens_referenced = t->tokens_referenced,
        .tokens_joined = t->tokens_joined,
        .tokens_matched = t->tokens_matched,
        .tokens_evicted = t->tokens_evicted,
        .n_seqs = t->n_seqs,
        .n_nodes = t->n_nodes,
        .chunks_superseded = n_superseded,
        .tokens_retained = t->tokens_retained,
        .slots_padding = (t->chunks_live + t->chunks_retained) * (uint64_t)c->layout.c - t->tokens_stored,
        .chunks_pinned = c->chunks_pinned,
        .tokens_imported = t->tokens_imported,
    };
    ca_file_tier_stats(c, &now);
    return CA_STRUCT_WRITE(cattn_stats, tokens_imported, stats, &now, NULL);
}

cattn_status cattn_cache_stats(const cattn_cache *c, cattn_stats *stats) {
    CA_CALL(c, "cache", NULL);
    return write_stats(c, ca_tree_count_superseded(c->tree), stats);
}

cattn_status cattn_cache_stats_fast(const cattn_cache *c, cattn_stats *stats) {
    CA_CALL(c, "cache", NULL);
    return write_stats(c, 0, stats);
}

/* ---- Whether a request fits ---- */

void cattn_fit_request_init(cattn_fit_request *request) {
    *request = (cattn_fit_request){.struct_size = sizeof *request, .n_seqs = 1};
}

static cattn_status read_fit_request(const cattn_fit_request *request, cattn_fit_request *r, cattn_error *error) {
    cattn_status s;
    if ((s = ca_need(request, "request", error))) return s;
    cattn_fit_request_init(r);
    if ((s = CA_STRUCT_READ(cattn_fit_request, headroom_bytes, r, request, error))) return s;
    if ((s = ca_check_at_least("n_tokens", r->n_tokens, 1, error)) || (s = ca_check_at_least("n_seqs", r->n_seqs, 1, error)))
        return s;
    return ca_check_at_least("reserve_tokens", r->reserve_tokens, 0, error);
}

cattn_status cattn_cache_can_fit(const cattn_cache *c, const cattn_fit_request *request, cattn_fit_result *result,
                                 cattn_error *error) {
    cattn_fit_request r;
    cattn_status s;
    if ((s = ca_need(c, "cache", error)) || (s = read_fit_request(request, &r, error))) return s;
    const ca_fit fit = {r.n_tokens, r.n_seqs, r.reserve_tokens};
    const uint64_t other = r.headroom_bytes < c->max_budget_bytes ? c->empty_bytes + r.headroom_bytes : c->max_budget_bytes;
    const uint64_t chunk_bytes = c->layout.chunk_bytes, n_chunks = (uint64_t)ca_fit_chunks(c->tree, &fit);
    const cattn_fit_result now = {
        .max_reserve_tokens = ca_fit_max_reserve(c->tree, &fit, other),
        .bytes_needed = n_chunks > UINT64_MAX / chunk_bytes ? UINT64_MAX : n_chunks * chunk_bytes,
        .bytes_available = ca_chunk_pool_capacity_beside(c->pool, other) * chunk_bytes,
    };
    if (result && (s = CA_STRUCT_WRITE(cattn_fit_result, bytes_available, result, &now, error))) return s;
    if (ca_fit_holds(c->tree, &fit, other)) return CATTN_OK;
    return ca_fail(
        error, CATTN_ERR_BUDGET, -1,
        "%lld prompt tokens and %lld sequences of %lld more need %llu bytes of K/V beside metadata; budget_bytes holds "
        "%llu: shorten the request or raise the budget",
        (long long)r.n_tokens, (long long)r.n_seqs, (long long)r.reserve_tokens, (unsigned long long)now.bytes_needed,
        (unsigned long long)now.bytes_available);
}

/* ---- Nodes ---- */

/* Count which nodes are covered by which kinds of sequences, for ca_tree_describe. */
static void count_covered(const cattn_cache *c) {
    ca_tree_count_covered(c->tree);
    for (size_t i = 0; i < c->step.seqs.n; i++)
        if (c->step.entries.at[i].n_rows > 0) ca_tree_count_in_step(c->tree, c->step.seqs.at[i].id);
}

void cattn_walk_options_init(cattn_walk_options *options) {
    *options = (cattn_walk_options){.struct_size = sizeof *options, .max_nodes = 256};
}

static cattn_status read_options(const cattn_walk_options *options, cattn_walk_options *o, cattn_error *error) {
    cattn_walk_options_init(o);
    const cattn_status s = options ? CA_STRUCT_READ(cattn_walk_options, node_id, o, options, error) : CATTN_OK;
    if (s) return s;
    if (o->max_nodes < 1 || o->max_nodes > CATTN_MAX_WALK_NODES)
        return ca_fail(error, CATTN_ERR_ARG, -1, "max_nodes is %lld; it must be from 1 to %d", (long long)o->max_nodes,
                       CATTN_MAX_WALK_NODES);
    if (o->min_tokens < 0)
        return ca_fail(error, CATTN_ERR_ARG, -1, "min_tokens is %lld; it must not be negative", (long long)o->min_tokens);
    return CATTN_OK;
}

static int32_t depth_of(const ca_node *node) {
    int32_t depth = -1;
    for (; node->parent; node = node->parent) depth++;
    return depth;
}

/* The node where a walk begins or goes on; NULL: it has ended. *end: the depth at which it ends, -1 for that of the root. */
static cattn_status find_next(const cattn_cache *c, const cattn_walk_options *o, uint64_t cursor, const ca_node **next,
                              int32_t *depth, int32_t *end, cattn_error *error) {
    *end = -1;
    if (!ca_tree_resume_walk(c->tree, cursor, next))
        return ca_fail(error, CATTN_ERR_STATE, -1, "cursor is %llu, which is of no walk that the cache remembers; begin with 0",
                       (unsigned long long)cursor);
    *depth = *next ? depth_of(*next) : 0;
    if (o->node_id == 0) return CATTN_OK;
    if (cursor != 0)
        return ca_fail(error, CATTN_ERR_ARG, -1, "node_id is %llu, with a cursor; set one of them to 0",
                       (unsigned long long)o->node_id);
    for (int i = 0; i < CATTN_MAX_SEARCH_NODES && *next && (*next)->id != o->node_id; i++) *next = ca_tree_next(*next, depth);
    *end = *depth;
    if (*next && (*next)->id == o->node_id) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_ARG, -1, "node_id is %llu, which is none of the first %d nodes",
                   (unsigned long long)o->node_id, CATTN_MAX_SEARCH_NODES);
}

/* The tokens of a node with extra hashes, to be freed; NULL without memory. */
static int32_t *copy_tokens(const cattn_cache *c, ca_alloc *alloc, const ca_node *node) {
    int32_t *tokens = ca_new(alloc, (size_t)node->n_tokens, sizeof *tokens);
    if (!tokens) return NULL;
    memcpy(tokens, node->tokens, (size_t)node->n_tokens * sizeof *tokens);
    ca_tree_show_extras(c->tree, tokens, NULL, node->n_tokens);
    return tokens;
}

/* Call fn for a node at this depth. *stop: what it returns. */
static cattn_status report(const cattn_cache *c, const ca_node *node, int32_t depth,
                           int (*fn)(void *ctx, const cattn_node_info *node), void *ctx, int *stop, cattn_error *error) {
    ca_alloc beside_budget = c->alloc;
    cattn_node_info info = ca_tree_describe(c->tree, node);
    const bool has_extras = ca_tree_has_extras(c->tree, node);
    int32_t *tokens = has_extras ? copy_tokens(c, &beside_budget, node) : NULL;
    info.depth = depth;
    if (has_extras && !tokens)
        return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the %lld tokens of a node with extra hashes",
                       (long long)node->n_tokens);
    if (tokens) info.tokens = tokens;
    *stop = fn(ctx, &info);
    ca_delete(&beside_budget, tokens, (size_t)node->n_tokens, sizeof *tokens);
    return CATTN_OK;
}

cattn_status cattn_cache_walk(const cattn_cache *c, const cattn_walk_options *options, uint64_t *cursor,
                              int (*fn)(void *ctx, const cattn_node_info *node), void *ctx, cattn_error *error) {
    cattn_status s;
    cattn_walk_options o;
    const ca_node *next;
    int32_t depth, end;
    CA_CALL(c, "cache", error);
    if ((s = ca_need(cursor, "cursor", error))) return s;
    if (!fn) return ca_fail(error, CATTN_ERR_ARG, -1, "fn is NULL");
    if ((s = read_options(options, &o, error)) || (s = find_next(c, &o, *cursor, &next, &depth, &end, error))) return s;
    count_covered(c);
    int64_t n_reported = 0;
    int stop = 0;
    for (int64_t n_visited = 0; next && !stop && n_reported < o.max_nodes && n_visited < 4 * o.max_nodes; n_visited++) {
        const ca_node *node = next;
        const int32_t node_depth = depth;
        next = ca_tree_next(node, &depth);
        if (o.node_id != 0 && depth <= end) next = NULL; /* it is not below */
        if (node->n_children == 0 && node->n_tokens < o.min_tokens) continue;
        n_reported++;
        if ((s = report(c, node, node_depth, fn, ctx, &stop, error))) next = node;
        if (s) break;
    }
    *cursor = ca_tree_suspend_walk(c->tree, *cursor, o.node_id == 0 ? next : NULL);
    return s;
}
