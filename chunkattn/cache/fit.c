/* Whether a request can ever fit, that is, into a tree that holds nothing else. */
#include "tree_internal.h"

/* More than chunk ids can address, and so small that no sum or product below overflows. */
static const int64_t MAX_TOKENS = INT64_C(1) << 40, MAX_SEQS = INT64_C(1) << 25;

static ca_fit clamped(const ca_fit *fit) {
    return (ca_fit){ca_min(fit->n_tokens, MAX_TOKENS), ca_min(fit->n_seqs, MAX_SEQS), ca_min(fit->reserve_tokens, MAX_TOKENS)};
}

int64_t ca_fit_chunks(const ca_tree *tree, const ca_fit *of) {
    const ca_fit fit = clamped(of);
    const int64_t n_prompt = ca_chunks_for(tree, fit.n_tokens), reserve_to = fit.n_tokens + fit.reserve_tokens;
    if (tree->config.sharing == CATTN_PRIVATE) return fit.n_seqs * ca_chunks_for(tree, reserve_to);
    return n_prompt + fit.n_seqs * ca_reservation(tree, fit.n_tokens, reserve_to, fit.n_seqs == 1);
}

/* Upper bound, in bytes, of a node with room for n_ids tokens, and of its place in its parent's array of children, which
 * doubles. */
static uint64_t node_bytes(const ca_tree *tree, int64_t n_ids) {
    const uint64_t n_chunks = (uint64_t)ca_chunks_for(tree, n_ids) + 2; /* it may begin inside a chunk, and its array doubles */
    return sizeof(ca_node) + (uint64_t)n_ids * sizeof(int32_t) + n_chunks * sizeof(ca_chunk_id) + 2 * sizeof(ca_node *);
}

/*
 * Upper bound of the tokens for which a node has room that grows to n_tokens: it has a chunk more when it never grows, and
 * twice what it had when it grows by its last token.
 */
static int64_t grown_ids(const ca_tree *tree, int64_t n_tokens) {
    return ca_max(n_tokens + tree->layout->c, 2 * (n_tokens - 1));
}

uint64_t ca_fit_metadata(const ca_tree *tree, const ca_fit *of) {
    enum { MIN_REFS = 16 }; /* the smallest table of sequences */
    const ca_fit fit = clamped(of);
    const uint64_t n_seqs = (uint64_t)fit.n_seqs;
    const uint64_t seqs = n_seqs * sizeof(ca_seq) + (2 * n_seqs > MIN_REFS ? 2 * n_seqs : MIN_REFS) * sizeof(ca_seq_ref);
    const bool is_private = tree->config.sharing == CATTN_PRIVATE;
    const uint64_t prompt = node_bytes(tree, fit.n_tokens + ca_leaf_slack(tree, fit.reserve_tokens));
    if (fit.reserve_tokens == 0) return seqs + (is_private ? n_seqs : 1) * prompt;
    /* A prompt of one token is in the nodes that the sequences append to, as each node begins at an even position. */
    const bool one_node_each = is_private || n_seqs == 1 || fit.n_tokens == 1;
    if (one_node_each) return seqs + n_seqs * node_bytes(tree, grown_ids(tree, fit.n_tokens + fit.reserve_tokens));
    /* A longer prompt of odd length gives its last token to each of the nodes below it. */
    return seqs + prompt + n_seqs * node_bytes(tree, grown_ids(tree, fit.reserve_tokens + 1));
}

bool ca_fit_holds(const ca_tree *tree, const ca_fit *of, uint64_t other_bytes) {
    const ca_fit fit = clamped(of);
    const int64_t n_chunks = ca_fit_chunks(tree, &fit);
    if (n_chunks > (int64_t)ca_chunk_pool_capacity_beside(tree->pool, other_bytes)) return false;
    const uint64_t metadata = ca_fit_metadata(tree, &fit);
    if (metadata > UINT64_MAX - other_bytes) return false;
    return n_chunks <= (int64_t)ca_chunk_pool_capacity_beside(tree->pool, other_bytes + metadata);
}

int64_t ca_fit_max_reserve(const ca_tree *tree, const ca_fit *of, uint64_t other_bytes) {
    ca_fit fit = clamped(of);
    int64_t fits = -1, too_large = MAX_TOKENS;
    while (too_large - fits > 1) {
        fit.reserve_tokens = fits + (too_large - fits) / 2;
        if (ca_fit_holds(tree, &fit, other_bytes))
            fits = fit.reserve_tokens;
        else
            too_large = fit.reserve_tokens;
    }
    return fits;
}
