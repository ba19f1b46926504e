/* The public functions that show the nodes of the tree. */
#include "cache_handle.h"
#include "chunkattn/base/fail.h"
#include "public_struct.h"

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

cattn_status cattn_cache_walk(const cattn_cache *c, const cattn_walk_options *options, uint64_t *cursor,
                              int (*fn)(void *ctx, const cattn_node_info *node), void *ctx, cattn_error *error) {
    cattn_status s;
    cattn_walk_options o;
    const ca_node *next;
    int32_t depth, end;
    if ((s = ca_need(c, "cache", error)) || (s = ca_need(cursor, "cursor", error))) return s;
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
        cattn_node_info info = ca_tree_describe(c->tree, node);
        info.depth = node_depth;
        n_reported++;
        stop = fn(ctx, &info);
    }
    *cursor = ca_tree_suspend_walk(c->tree, *cursor, o.node_id == 0 ? next : NULL);
    return CATTN_OK;
}
