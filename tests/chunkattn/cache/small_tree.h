/* A tree with chunks of four slots, and calls on its sequences by number, with letters as tokens. Included after cmocka. */
#ifndef TESTS_CHUNKATTN_CACHE_SMALL_TREE_H
#define TESTS_CHUNKATTN_CACHE_SMALL_TREE_H

#include "check_tree.h"
#include "chunkattn/cache/tree_internal.h"
#include "small_layout.h"

enum { C = 4, MAX_SEQS = 8 };

typedef struct world {
    ca_chunk_layout layout;
    ca_alloc alloc;
    ca_chunk_pool *pool;
    ca_tree *tree;
    cattn_seq seqs[MAX_SEQS];
    int n_seqs;
} world;

static inline void setup(world *w, cattn_sharing sharing, cattn_retention retention, int n_chunks) {
    *w = (world){.alloc = ca_alloc_default()};
    const ca_tree_config config = {.sharing = sharing, .retention = retention};
    small_layout(&w->layout, 1, 32, C); /* a chunk has 1 KiB, a page four chunks */
    const uint64_t metadata = 1 << 16;
    assert_int_equal(
        ca_chunk_pool_create(&w->pool, &w->alloc, w->layout.chunk_bytes, metadata + (uint64_t)n_chunks * w->layout.chunk_bytes),
        CATTN_OK);
    assert_int_equal(ca_tree_create(&w->tree, &config, &w->layout, w->pool, &w->alloc), CATTN_OK);
}

static inline void teardown(world *w) {
    ca_tree_destroy(&w->tree);
    ca_chunk_pool_destroy(&w->pool);
    small_layout_free(&w->layout);
    assert_int_equal(w->alloc.bytes, 0);
}

static inline int64_t parse(const char *letters, int32_t *tokens) {
    int64_t n = 0;
    for (; letters[n]; n++) tokens[n] = letters[n] - '0';
    return n;
}

static inline ca_seq *at(world *w, int i) { return ca_tree_find(w->tree, w->seqs[i - 1]); }

/* Sequences are numbered from 1 in the order in which they start. */
static inline int64_t join_domain(world *w, const char *letters, uint32_t domain) {
    int32_t tokens[64];
    cattn_join_result result;
    const int64_t n = parse(letters, tokens);
    assert_int_equal(ca_tree_join(w->tree, tokens, n, domain, 0, 0, &w->seqs[w->n_seqs++], &result, NULL), CATTN_OK);
    return result.n_matched;
}

static inline int64_t join(world *w, const char *letters) { return join_domain(w, letters, 0); }

static inline void append(world *w, int i, const char *letters) {
    int32_t tokens[64];
    const int64_t n = parse(letters, tokens);
    assert_int_equal(ca_tree_append(w->tree, at(w, i), tokens, n, NULL), CATTN_OK);
}

static inline void fork_of(world *w, int i) {
    assert_int_equal(ca_tree_fork(w->tree, at(w, i), 0, &w->seqs[w->n_seqs++], NULL), CATTN_OK);
}

static inline void leave(world *w, int i) { ca_tree_leave(w->tree, at(w, i)); }

static inline void cut_to(world *w, int i, int64_t n) {
    assert_int_equal(ca_tree_truncate(w->tree, at(w, i), n, NULL), CATTN_OK);
}

/* A step in which sequence i computes its next n rows. */
static inline void compute(world *w, int i, int64_t n) {
    assert_int_equal(ca_path_claim(at(w, i)->leaf, n), n);
    ca_path_commit(at(w, i)->leaf);
}

#endif
