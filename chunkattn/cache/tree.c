/* The tree as a whole: its creation and destruction, its counters. */
#include "chunkattn/base/clock.h"
#include "tree_internal.h"

/* ---- Accounts ---- */

cattn_status ca_tree_open_account(ca_tree *tree, uint32_t account, double weight, cattn_error *error) {
    if (CA_RESERVE(&tree->beside_budget, &tree->accounts, (size_t)account + 1) != 0) return ca_no_memory(error, "join");
    while (tree->accounts.n <= account) tree->accounts.at[tree->accounts.n++] = (ca_account){.weight = 1};
    if (weight > 0) tree->accounts.at[account].weight = weight;
    return CATTN_OK;
}

/* ---- Creation and destruction ---- */

cattn_status ca_tree_create(ca_tree **tree, const ca_tree_config *config, const ca_chunk_layout *layout, ca_chunk_pool *pool,
                            ca_alloc *alloc) {
    *tree = NULL;
    ca_tree *t = ca_new_zero(alloc, 1, sizeof *t);
    if (!t) return CATTN_ERR_NOMEM;
    *t = (ca_tree){.config = *config, .layout = layout, .pool = pool, .alloc = alloc, .free_ref = UINT32_MAX};
    t->beside_budget = *alloc;
    t->beside_budget.bytes = 0;
    t->number = ca_tree_new_number();
    t->commands.executor = config->executor;
    t->born = clock_seconds();
    if (ca_tree_open_account(t, 0, 0, NULL)) goto fail_account;
    t->root = ca_node_new(t, 0, 0, 0);
    if (!t->root) goto fail_root;
    if (ca_tree_retains(t) && ca_reuse_init(&t->reuse, alloc, ca_chunk_pool_capacity(pool), layout->chunk_bytes))
        goto fail_reuse;
    *tree = t;
    return CATTN_OK;

fail_reuse:
    ca_node_free(t, t->root);
fail_root:
    CA_ARRAY_FREE(&t->beside_budget, &t->accounts);
fail_account:
    ca_delete(alloc, t, 1, sizeof *t);
    return CATTN_ERR_NOMEM;
}

void ca_tree_destroy(ca_tree **tree) {
    ca_tree *t = *tree;
    if (!t) return;
    if (t->config.tier) ca_tree_detach_tier(t);
    t->commands.n = 0; /* nothing will read what they would copy */
    for (size_t i = 0; i < t->seqs_capacity; i++)
        if (t->seqs[i].seq) ca_tree_leave(t, t->seqs[i].seq);
    for (ca_node *node = t->root; node->n_children > 0 || node->parent;) {
        if (node->n_children > 0) {
            node = node->children[node->n_children - 1];
        } else {
            ca_node *parent = node->parent;
            ca_evict_forget(t, node);
            ca_node_remove(t, node);
            node = parent;
        }
    }
    ca_node_free(t, t->root);
    CA_ARRAY_FREE(t->alloc, &t->restores);
    CA_ARRAY_FREE(&t->beside_budget, &t->accounts);
    CA_ARRAY_FREE(&t->beside_budget, &t->commands);
    ca_reuse_free(&t->reuse, t->alloc);
    ca_extras_free(&t->extras, t->alloc);
    ca_delete(t->alloc, t->seqs, t->seqs_capacity, sizeof *t->seqs);
    ca_delete(t->alloc, t, 1, sizeof *t);
    *tree = NULL;
}

ca_node *ca_tree_root(ca_tree *tree) { return tree->root; }

const ca_tree_counts *ca_tree_get_counts(const ca_tree *tree) { return &tree->counts; }

void ca_tree_note_peaks(ca_tree *tree) {
    ca_tree_counts *n = &tree->counts;
    if (n->chunks_live > n->chunks_live_peak)
        n->chunks_live_peak =
            (uint64_t)ca_max((int64_t)n->chunks_live_peak, (int64_t)(n->chunks_live - ca_tree_count_superseded(tree)));
    if (n->chunks_unshared > n->chunks_unshared_peak) n->chunks_unshared_peak = n->chunks_unshared;
}

uint64_t ca_tree_version(const ca_tree *tree) { return tree->n_versions; }

ca_kv_pending *ca_tree_pending(ca_tree *tree) { return &tree->commands; }

/* ---- Tokens with extra hashes ---- */

static cattn_status grow_extras(ca_tree *tree) {
    const size_t excess = ca_chunk_pool_excess(tree->pool, ca_extras_growth(&tree->extras));
    if (excess > 0 && !(ca_tree_may_have_room(tree, excess) && ca_tree_make_room(tree, excess))) return CATTN_ERR_BUDGET;
    return ca_extras_grow(&tree->extras, tree->alloc) == 0 ? CATTN_OK : CATTN_ERR_NOMEM;
}

cattn_status ca_tree_hold_extras(ca_tree *tree, int32_t *tokens, int64_t n, uint64_t hash) {
    cattn_status status = CATTN_OK;
    int64_t done = ca_extras_hold(&tree->extras, tokens, n, hash);
    while (done < n && (status = grow_extras(tree)) == CATTN_OK)
        done += ca_extras_hold(&tree->extras, tokens + done, n - done, hash);
    return status;
}

void ca_tree_find_extras(const ca_tree *tree, int32_t *tokens, int64_t n, uint64_t hash) {
    ca_extras_find(&tree->extras, tokens, n, hash);
}

void ca_tree_end_hold_extras(ca_tree *tree, const int32_t *ids, int64_t n) { ca_extras_end_hold(&tree->extras, ids, n); }

bool ca_tree_has_extras(const ca_tree *tree, const ca_node *node) {
    int32_t bits = 0;
    for (int64_t i = 0; tree->extras.n > 0 && i < node->n_tokens; i++) bits |= node->tokens[i];
    return bits < 0;
}

void ca_tree_show_extras(const ca_tree *tree, int32_t *ids, uint64_t *hashes, int64_t n) {
    ca_extras_show(&tree->extras, ids, hashes, n);
}
