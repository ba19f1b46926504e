/*
 * Shapes of the tree after each kind of call, drawn as text (check_tree.h explains a line). c = 4 throughout, and tokens are
 * letters.
 */
#include "../support/testing.h"

#include "check_tree.h"
#include "lib/cache/tree_internal.h"

#include <stdio.h>
#include <string.h>

enum { C = 4, MAX_SEQS = 8 };

typedef struct world {
    ca_layout layout;
    ca_alloc alloc;
    ca_chunk_pool *pool;
    ca_tree *tree;
    cattn_seq seqs[MAX_SEQS];
    int n_seqs;
} world;

static void setup(world *w, cattn_sharing sharing, cattn_retention retention, int n_chunks) {
    *w = (world){.alloc = ca_alloc_default()};
    const ca_tree_config config = {.sharing = sharing, .retention = retention};
    ca_layout_init(&w->layout, CATTN_F32, 1, 1, 32, 32, C); /* a chunk has 1 KiB, a page four chunks */
    const uint64_t metadata = 1 << 16;
    assert_int_equal(ca_chunk_pool_create(&w->pool, &w->alloc, w->layout.n_tiles, w->layout.tile_bytes,
                                          metadata + (uint64_t)n_chunks * w->layout.chunk_bytes),
                     CATTN_OK);
    assert_int_equal(ca_tree_create(&w->tree, &config, &w->layout, w->pool, &w->alloc), CATTN_OK);
}

static void teardown(world *w) {
    ca_tree_destroy(&w->tree);
    ca_chunk_pool_destroy(&w->pool);
    assert_int_equal(w->alloc.bytes, 0);
}

static int64_t parse(const char *letters, int32_t *tokens) {
    int64_t n = 0;
    for (; letters[n]; n++) tokens[n] = letters[n] - 'a';
    return n;
}

static ca_seq *at(world *w, int i) { return ca_tree_find(w->tree, w->seqs[i - 1]); }

/* Sequences are numbered from 1 in the order in which they start. */
static int64_t join_domain(world *w, const char *letters, uint32_t domain) {
    int32_t tokens[64];
    cattn_join_result result;
    const int64_t n = parse(letters, tokens);
    assert_int_equal(ca_tree_join(w->tree, tokens, n, domain, 0, &w->seqs[w->n_seqs++], &result, NULL), CATTN_OK);
    return result.n_matched;
}

static int64_t join(world *w, const char *letters) { return join_domain(w, letters, 0); }

static void append(world *w, int i, const char *letters) {
    int32_t tokens[64];
    const int64_t n = parse(letters, tokens);
    assert_int_equal(ca_tree_append(w->tree, at(w, i), tokens, n, NULL), CATTN_OK);
}

static void fork_of(world *w, int i) {
    assert_int_equal(ca_tree_fork(w->tree, at(w, i), 0, &w->seqs[w->n_seqs++], NULL), CATTN_OK);
}

static void leave(world *w, int i) { ca_tree_leave(w->tree, at(w, i)); }

static void cut_to(world *w, int i, int64_t n) { assert_int_equal(ca_tree_truncate(w->tree, at(w, i), n, NULL), CATTN_OK); }

/* A step in which sequence i computes its next n rows. */
static void compute(world *w, int i, int64_t n) {
    assert_int_equal(ca_path_claim(at(w, i)->leaf, n), n);
    ca_path_commit(at(w, i)->leaf);
}

static void expect(world *w, const char *drawing) {
    char text[4096];
    check_tree(w->tree, w->pool, &w->layout);
    check_canonical(w->tree);
    draw_tree(w->tree, &w->layout, w->seqs, w->n_seqs, text, sizeof text);
    assert_string_equal(text, drawing);
}

/* ---- Join ---- */

static void first(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    expect(&w, "");
    assert_int_equal(join(&w, "aaaaaaaabb"), 0);
    expect(&w, "0..9 aaaaaaaabb | A0-3 B0-3 C0-1 | 1 =1\n");
    teardown(&w);
}

static void equal(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join(&w, "abcdefgh");
    assert_int_equal(join(&w, "abcdefgh"), 6); /* the last token is never matched, and a match is even */
    expect(&w, "0..5 abcdef | A0-3 B0-1 | 1 2\n"
               "  6..7 gh | B2-3 | 1 =1\n"
               "  6..7 gh | C2-3 | 2 =2\n");
    assert_int_equal(join(&w, "abcdefghi"), 8); /* continues below one of the twins */
    expect(&w, "0..5 abcdef | A0-3 B0-1 | 1 2 3\n"
               "  6..7 gh | B2-3 | 1 3 =1\n"
               "    8..8 i | C0-0 | 3 =3\n"
               "  6..7 gh | D2-3 | 2 =2\n");
    teardown(&w);
}

static void longer(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join(&w, "abcdefgh");
    assert_int_equal(join(&w, "abcdefghijk"), 8);
    expect(&w, "0..7 abcdefgh | A0-3 B0-3 | 1 2 =1\n"
               "  8..10 ijk | C0-2 | 2 =2\n");
    /* Inside a chunk that another sequence may still fill, the new sequence starts a chunk of its own. */
    join(&w, "uvwxyz");
    assert_int_equal(join(&w, "uvwxyzabc"), 6);
    expect(&w, "0..7 abcdefgh | A0-3 B0-3 | 1 2 =1\n"
               "  8..10 ijk | C0-2 | 2 =2\n"
               "0..5 uvwxyz | D0-3 E0-1 | 3 4 =3\n"
               "  6..8 abc | F2-3 G0-0 | 4 =4\n");
    append(&w, 3, "st"); /* the first sequence fills it */
    expect(&w, "0..7 abcdefgh | A0-3 B0-3 | 1 2 =1\n"
               "  8..10 ijk | C0-2 | 2 =2\n"
               "0..5 uvwxyz | D0-3 E0-1 | 3 4\n"
               "  6..8 abc | F2-3 G0-0 | 4 =4\n"
               "  6..7 st | E2-3 | 3 =3\n");
    teardown(&w);
}

static void shorter(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join(&w, "abcdefghij");
    assert_int_equal(join(&w, "abcdefg"), 6);
    expect(&w, "0..5 abcdef | A0-3 B0-1 | 1 2\n"
               "  6..6 g | C2-2 | 2 =2\n"
               "  6..9 ghij | B2-3 D0-1 | 1 =1\n");
    assert_int_equal(join(&w, "ab"), 0);
    expect(&w, "0..5 abcdef | A0-3 B0-1 | 1 2\n"
               "  6..6 g | C2-2 | 2 =2\n"
               "  6..9 ghij | B2-3 D0-1 | 1 =1\n"
               "0..1 ab | E0-1 | 3 =3\n");
    teardown(&w);
}

static void diverging_inside_a_chunk(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join(&w, "aaaaaaaabb");
    assert_int_equal(join(&w, "aaaaaacc"), 6);
    expect(&w, "0..5 aaaaaa | A0-3 B0-1 | 1 2\n"
               "  6..9 aabb | B2-3 C0-1 | 1 =1\n"
               "  6..7 cc | D2-3 | 2 =2\n");
    /* At an odd position, the token before it is stored in both children. */
    assert_int_equal(join(&w, "aaaaaaaxyz"), 6);
    expect(&w, "0..5 aaaaaa | A0-3 B0-1 | 1 2 3\n"
               "  6..9 aabb | B2-3 C0-1 | 1 =1\n"
               "  6..9 axyz | D2-3 E0-1 | 3 =3\n"
               "  6..7 cc | F2-3 | 2 =2\n");
    teardown(&w);
}

static void diverging_at_a_border(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join(&w, "abcdefgh");
    assert_int_equal(join(&w, "abcdxyz"), 4);
    expect(&w, "0..3 abcd | A0-3 | 1 2\n"
               "  4..7 efgh | B0-3 | 1 =1\n"
               "  4..6 xyz | C0-2 | 2 =2\n");
    teardown(&w);
}

static void diverging_at_the_start(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join(&w, "mnop");
    assert_int_equal(join(&w, "abcd"), 0);
    assert_int_equal(join_domain(&w, "abcdef", 1), 0); /* nor does another domain share */
    expect(&w, "0..3 abcd | A0-3 | 2 =2\n"
               "0..3 mnop | B0-3 | 1 =1\n"
               "0..5 abcdef | C0-3 D0-1 | 3 =3\n");
    teardown(&w);
}

/* ---- Append, fork, truncate ---- */

static void growing_past_a_chunk(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join(&w, "abc");
    const ca_node *root = ca_tree_root(w.tree)->children[0];
    const uint64_t version = root->version;
    append(&w, 1, "d");
    compute(&w, 1, 4);
    assert_int_equal(root->version, version); /* the same chunk: plans depend on it no more than by positions */
    append(&w, 1, "e");
    assert_int_not_equal(root->version, version);
    append(&w, 1, "fghij");
    expect(&w, "0..9 abcdefghij | A0-3 B0-3 C0-1 | 1 =1\n");
    teardown(&w);
}

static void a_single_token_grows_past_its_sibling(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join(&w, "a");
    join(&w, "ab");
    expect(&w, "0..0 a | A0-0 | 1 =1\n"
               "0..1 ab | B0-1 | 2 =2\n");
    append(&w, 1, "c"); /* children stay sorted by their first pair */
    expect(&w, "0..1 ab | A0-1 | 2 =2\n"
               "0..1 ac | B0-1 | 1 =1\n");
    cut_to(&w, 1, 1);
    expect(&w, "0..0 a | A0-0 | 1 =1\n"
               "0..1 ab | B0-1 | 2 =2\n");
    teardown(&w);
}

static void forks_diverge(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join(&w, "abcdef");
    fork_of(&w, 1);
    expect(&w, "0..5 abcdef | A0-3 B0-1 | 1 2 =1 =2\n");
    append(&w, 1, "x"); /* the first that appends leaves the rest of the chunk to the other */
    expect(&w, "0..5 abcdef | A0-3 B0-1 | 1 2 =2\n"
               "  6..6 x | C2-2 | 1 =1\n");
    append(&w, 2, "xyz");
    expect(&w, "0..5 abcdef | A0-3 B0-1 | 1 2\n"
               "  6..6 x | C2-2 | 1 =1\n"
               "  6..8 xyz | B2-3 D0-0 | 2 =2\n");
    teardown(&w);
}

static void forks_diverge_at_an_odd_length(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join(&w, "abcdefg");
    compute(&w, 1, 7);
    fork_of(&w, 1);
    fork_of(&w, 1);
    append(&w, 1, "x"); /* g is copied */
    expect(&w, "0..5 abcdef | A0-3 B0-1 | 1 2 3\n"
               "  6..6 g | B2-2 | 2 3 =2 =3\n"
               "  6..7 gx | C2-3 | 1 =1\n");
    assert_int_equal(ca_path_n_ready(at(&w, 1)->leaf), 7);
    append(&w, 2, "y"); /* once more, without a cut */
    expect(&w, "0..5 abcdef | A0-3 B0-1 | 1 2 3\n"
               "  6..6 g | B2-2 | 3 =3\n"
               "  6..7 gx | C2-3 | 1 =1\n"
               "  6..7 gy | D2-3 | 2 =2\n");
    append(&w, 3, "z"); /* no other sequence ends there any more */
    expect(&w, "0..5 abcdef | A0-3 B0-1 | 1 2 3\n"
               "  6..7 gx | C2-3 | 1 =1\n"
               "  6..7 gy | D2-3 | 2 =2\n"
               "  6..7 gz | B2-3 | 3 =3\n");
    teardown(&w);
}

static void truncating(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 64);
    join(&w, "abcdefghij");
    compute(&w, 1, 10);
    cut_to(&w, 1, 7); /* no other sequence: in place, and nothing is retained */
    expect(&w, "0..6 abcdefg | A0-3 B0-2 | 1 =1\n");
    append(&w, 1, "hij");
    compute(&w, 1, 3);
    fork_of(&w, 1);
    cut_to(&w, 2, 8); /* even: a cut */
    expect(&w, "0..7 abcdefgh | A0-3 B0-3 | 1 2 =2\n"
               "  8..9 ij | C0-1 | 1 =1\n");
    cut_to(&w, 2, 5); /* odd: e is copied */
    expect(&w, "0..3 abcd | A0-3 | 1 2\n"
               "  4..4 e | B0-0 | 2 =2\n"
               "  4..9 efghij | C0-3 D0-1 | 1 =1\n");
    assert_int_equal(ca_path_n_ready(at(&w, 2)->leaf), 5);
    cut_to(&w, 2, 4); /* to a position inside the other's path */
    expect(&w, "0..3 abcd | A0-3 | 1 2 =2\n"
               "  4..9 efghij | B0-3 C0-1 | 1 =1\n");
    leave(&w, 1);
    cut_to(&w, 2, 3); /* what another sequence has left is retained */
    expect(&w, "0..1 ab | A0-1 | 2\n"
               "  2..2 c | B2-2 | 2 =2\n"
               "  2..9 cdefghij | A2-3 C0-3 D0-1 |\n");
    teardown(&w);
}

/* ---- Leave ---- */

static void leaving_from_the_middle(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join(&w, "abcd");
    join(&w, "abcdefgh");
    join(&w, "abcdefghij");
    expect(&w, "0..3 abcd | A0-3 | 1 2 3 =1\n"
               "  4..7 efgh | B0-3 | 2 3 =2\n"
               "    8..9 ij | C0-1 | 3 =3\n");
    leave(&w, 2);
    expect(&w, "0..3 abcd | A0-3 | 1 3 =1\n"
               "  4..9 efghij | B0-3 C0-1 | 3 =3\n");
    leave(&w, 1);
    expect(&w, "0..9 abcdefghij | A0-3 B0-3 C0-1 | 3 =3\n");
    /* If the child begins in a chunk of its own, the two stay apart: a node has one chunk for each absolute chunk. */
    join(&w, "abcdefxy");
    leave(&w, 3);
    expect(&w, "0..5 abcdef | A0-3 B0-1 | 4\n"
               "  6..7 xy | C2-3 | 4 =4\n");
    teardown(&w);
}

static void leaving_from_the_ends(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
    join(&w, "abcdef");
    join(&w, "abcdxy");
    join(&w, "abcdzz");
    leave(&w, 1);
    expect(&w, "0..3 abcd | A0-3 | 2 3\n"
               "  4..5 xy | B0-1 | 2 =2\n"
               "  4..5 zz | C0-1 | 3 =3\n");
    leave(&w, 3);
    expect(&w, "0..5 abcdxy | A0-3 B0-1 | 2 =2\n");
    leave(&w, 2);
    expect(&w, "");
    teardown(&w);
}

static void leaving_with_retention(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 64);
    join(&w, "abcdefgh");
    compute(&w, 1, 7);
    leave(&w, 1); /* ready tokens stay, up to where a match may end */
    expect(&w, "0..5 abcdef | A0-3 B0-1 |\n");
    assert_int_equal(join(&w, "abcdefxy"), 6); /* no sequence ends there: the same node and chunk continue */
    expect(&w, "0..7 abcdefxy | A0-3 B0-3 | 2 =2\n");
    assert_int_equal(ca_path_n_ready(at(&w, 2)->leaf), 6);
    leave(&w, 2);
    assert_int_equal(join(&w, "abcdef"), 4);
    expect(&w, "0..3 abcd | A0-3 | 3\n"
               "  4..5 ef | B0-1 |\n"
               "  4..5 ef | C0-1 | 3 =3\n");
    leave(&w, 3);
    expect(&w, "0..5 abcdef | A0-3 B0-1 |\n");
    teardown(&w);
}

static void another_sequence_claims_unready_tokens(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 64);
    join(&w, "abcdefghij");
    join(&w, "abcdefghxy");
    assert_int_equal(ca_path_claim(at(&w, 1)->leaf, 5), 5);
    assert_int_equal(ca_path_n_claimed(at(&w, 2)->leaf), 5);
    assert_int_equal(ca_path_claim(at(&w, 2)->leaf, 100), 5); /* three more of the prefix, and two of its own */
    assert_int_equal(ca_path_claim(at(&w, 1)->leaf, 100), 2);
    ca_path_unclaim(at(&w, 1)->leaf);
    ca_path_unclaim(at(&w, 2)->leaf);
    compute(&w, 1, 5);
    leave(&w, 1); /* before it has computed the prefix, which the other will compute */
    assert_int_equal(ca_path_n_ready(at(&w, 2)->leaf), 5);
    expect(&w, "0..9 abcdefghxy | A0-3 B0-3 C0-1 | 2 =2\n");
    teardown(&w);
}

static void the_readier_twin_is_matched(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 64);
    join(&w, "abcdefgh");
    join(&w, "abcdefgh");
    compute(&w, 2, 8); /* its own tokens, and those that both share */
    join(&w, "abcdefghi");
    expect(&w, "0..5 abcdef | A0-3 B0-1 | 1 2 3\n"
               "  6..7 gh | B2-3 | 1 =1\n"
               "  6..7 gh | C2-3 | 2 3 =2\n"
               "    8..8 i | D0-0 | 3 =3\n");
    assert_int_equal(ca_path_n_ready(at(&w, 3)->leaf), 8);
    teardown(&w);
}

/* ---- Reservations ---- */

/* All that the budget has left is reserved for sequence 1, which can use and free it; no other call gets any of it. */
static void a_reservation_of_the_whole_budget(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 16);
    join(&w, "abcd");
    join(&w, "mnop");
    compute(&w, 2, 4);
    leave(&w, 2);
    const int64_t n_chunks = (int64_t)ca_chunk_pool_n_free(w.pool, 0) + 1; /* with the retained chunk */
    assert_int_equal(ca_tree_reserve(w.tree, at(&w, 1), 4 * n_chunks, NULL), CATTN_OK);
    assert_int_equal(ca_tree_get_counts(w.tree)->chunks_reserved, n_chunks);

    cattn_error error = {0};
    const uint64_t hash = hash_tree(w.tree, w.pool);
    const int32_t other[2] = {20, 21};
    cattn_seq id;
    assert_int_equal(ca_tree_join(w.tree, other, 2, 0, 0, &id, NULL, &error), CATTN_ERR_BUDGET);
    assert_int_equal(error.code, CATTN_ERR_BUDGET);
    assert_non_null(strstr(error.message, "needs 1 chunks, but 0 are available"));
    const int32_t again[5] = {12, 13, 14, 15, 16}; /* matches what is retained, which backs the reservation */
    assert_int_equal(ca_tree_join(w.tree, again, 5, 0, 0, &id, NULL, NULL), CATTN_ERR_BUDGET);
    assert_int_equal(ca_tree_fork(w.tree, at(&w, 1), 1, &id, NULL), CATTN_ERR_BUDGET);
    assert_false(ca_tree_make_room(w.tree, 1));
    assert_true(hash_tree(w.tree, w.pool) == hash);

    for (int round = 0; round < 3; round++) {
        for (int64_t i = 0; i < n_chunks; i++) append(&w, 1, "efgh");
        assert_int_equal(ca_tree_get_counts(w.tree)->chunks_reserved, 0);
        assert_int_equal(ca_tree_append(w.tree, at(&w, 1), other, 1, NULL), CATTN_ERR_BUDGET);
        cut_to(&w, 1, 3); /* the chunks are reserved again */
        append(&w, 1, "d");
        assert_int_equal(ca_tree_get_counts(w.tree)->chunks_reserved, n_chunks);
        check_tree(w.tree, w.pool, &w.layout);
    }
    teardown(&w);
}

/* A prompt that is retained in several nodes holds more chunks than it would alone; if these are too many, less is shared. */
static void a_path_of_many_nodes_is_shared_as_far_as_the_budget_allows(void **state) {
    (void)state;
    enum { LONGEST = 2000 };
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 16);
    int32_t prompt[LONGEST], turn[LONGEST];
    for (int i = 0; i < LONGEST; i++) prompt[i] = i;
    cattn_seq id;
    const int64_t room = (int64_t)ca_chunk_pool_n_free(w.pool, 0);
    for (int64_t shared = 6; 3 * shared < 8 * room;
         shared += 8) { /* each leaves the prompt inside a chunk, and holds a copy of the slots before */
        memcpy(turn, prompt, (size_t)shared * sizeof *turn);
        turn[shared] = turn[shared + 1] = LONGEST;
        assert_int_equal(ca_tree_join(w.tree, turn, shared + 2, 0, 0, &id, NULL, NULL), CATTN_OK);
        ca_seq *seq = ca_tree_find(w.tree, id);
        assert_true(ca_path_claim(seq->leaf, shared + 2) > 0);
        ca_path_commit(seq->leaf);
        ca_tree_leave(w.tree, seq);
    }
    const int64_t available = (int64_t)ca_chunk_pool_n_free(w.pool, 0) + (int64_t)ca_tree_get_counts(w.tree)->chunks_retained;
    assert_in_range(4 * available, 1, LONGEST);
    cattn_join_result result;
    cattn_error error = {.code = CATTN_ERR_STATE}; /* unchanged if the call succeeds in the end */
    assert_int_equal(ca_tree_join(w.tree, prompt, 4 * (available * 5 / 6), 0, 4, &id, &result, &error), CATTN_OK);
    assert_int_equal(error.code, CATTN_ERR_STATE);
    assert_int_equal(ca_tree_get_counts(w.tree)->chunks_reserved, 1);
    assert_in_range(result.n_matched, 6, 4 * available / 2);
    check_tree(w.tree, w.pool, &w.layout);
    ca_tree_leave(w.tree, ca_tree_find(w.tree, id));
    teardown(&w);
}

/* ---- Metadata and the budget ---- */

/* Two slabs of four chunks, in each of which the first chunk is live and the others are retained. The budget is used up. */
static void *use_up_the_budget(world *w, size_t *n_bytes) {
    setup(w, CATTN_SHARED, CATTN_RETAIN_LRU, 16);
    assert_int_equal(ca_chunk_pool_slab_chunks(w->pool), 4);
    const char *prompts[] = {"abcd", "bcde", "cdef", "defg", "efgh", "fghi", "ghij", "hijk"};
    for (int i = 0; i < 8; i++) {
        join(w, prompts[i]);
        compute(w, i + 1, 4);
        if (i % 4 != 0) leave(w, i + 1);
    }
    const uint64_t budget = (1 << 16) + 16 * w->layout.chunk_bytes;
    *n_bytes = budget - ca_chunk_pool_bytes(w->pool) - w->alloc.bytes;
    return ca_new(&w->alloc, *n_bytes, 1);
}

static void nothing_is_evicted_if_no_slab_can_be_emptied(void **state) {
    (void)state;
    world w;
    size_t n_other;
    void *other = use_up_the_budget(&w, &n_other);
    const ca_tree_counts *counts = ca_tree_get_counts(w.tree);
    assert_int_equal(counts->chunks_retained, 6);
    assert_false(ca_tree_may_have_room(w.tree, 1));
    assert_false(ca_tree_make_room(w.tree, 1));
    assert_int_equal(counts->chunks_retained, 6);
    leave(&w, 1);
    assert_true(ca_tree_may_have_room(w.tree, ca_chunk_pool_slab_bytes(w.pool)));
    assert_false(ca_tree_may_have_room(w.tree, ca_chunk_pool_slab_bytes(w.pool) + 1));
    assert_true(ca_tree_make_room(w.tree, 1));
    assert_int_equal(ca_chunk_pool_bytes(w.pool), ca_chunk_pool_slab_bytes(w.pool));
    check_tree(w.tree, w.pool, &w.layout);
    ca_delete(&w.alloc, other, n_other, 1);
    teardown(&w);
}

/* A slab that has a live chunk cannot be returned, but its other chunks make up for metadata, up to the size of a slab here. */
static void spare_chunks_make_up_for_metadata(void **state) {
    (void)state;
    enum { MOST = 1000 };
    world w;
    size_t n_other;
    void *other = use_up_the_budget(&w, &n_other);
    cattn_seq forks[MOST];
    cattn_error error;
    cattn_status status = CATTN_OK;
    int n = 0;
    while (n < MOST && (status = ca_tree_fork(w.tree, at(&w, 1), 0, &forks[n], &error)) == CATTN_OK) {
        assert_in_range(ca_chunk_pool_excess(w.pool, 0), 1, ca_chunk_pool_slab_bytes(w.pool));
        n++;
    }
    assert_int_equal(status, CATTN_ERR_BUDGET);
    assert_non_null(strstr(error.message, "fork: metadata exceeds budget_bytes by "));
    assert_in_range(n, 1, MOST - 1);
    assert_int_equal(ca_tree_get_counts(w.tree)->chunks_retained, 6);
    for (int i = 0; i < n; i++) ca_tree_leave(w.tree, ca_tree_find(w.tree, forks[i]));
    ca_delete(&w.alloc, other, n_other, 1);
    teardown(&w);
}

static void a_merge_allocates_no_more_than_it_frees(void **state) {
    (void)state;
    enum { LONG = 1000 };
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 300);
    int32_t prompt[LONG];
    for (int i = 0; i < LONG; i++) prompt[i] = i;
    assert_int_equal(ca_tree_join(w.tree, prompt, LONG, 0, 0, &w.seqs[w.n_seqs++], NULL, NULL), CATTN_OK);
    assert_int_equal(ca_tree_fork(w.tree, at(&w, 1), 0, &w.seqs[w.n_seqs++], NULL), CATTN_OK);
    append(&w, 1, "abcdefgh"); /* more than the node has room for */
    append(&w, 2, "b");
    const size_t before = w.alloc.bytes;
    leave(&w, 2);
    assert_int_equal(ca_tree_get_counts(w.tree)->n_nodes, 1);
    assert_in_range(w.alloc.bytes, 1, before);
    teardown(&w);
}

/* ---- Eviction ---- */

static void leaves_go_first_least_recently_used_first(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 64);
    join(&w, "abcdefgh");
    compute(&w, 1, 8);
    join(&w, "abcdmnop");
    compute(&w, 2, 4);
    join(&w, "uvwxyz");
    compute(&w, 3, 6);
    leave(&w, 2);
    leave(&w, 3);
    leave(&w, 1);
    expect(&w, "0..3 abcd | A0-3 |\n"
               "  4..7 efgh | B0-3 |\n"
               "  4..7 mnop | C0-3 |\n"
               "0..5 uvwxyz | D0-3 E0-1 |\n");
    assert_true(ca_evict_one(w.tree));
    expect(&w, "0..7 abcdefgh | A0-3 B0-3 |\n"
               "0..5 uvwxyz | C0-3 D0-1 |\n");
    assert_true(ca_evict_one(w.tree)); /* one chunk at a time, from the end */
    expect(&w, "0..7 abcdefgh | A0-3 B0-3 |\n"
               "0..3 uvwx | C0-3 |\n");
    assert_true(ca_evict_one(w.tree));
    assert_true(ca_evict_one(w.tree));
    expect(&w, "0..3 abcd | A0-3 |\n");
    assert_int_equal(ca_tree_get_counts(w.tree)->tokens_evicted, 14);
    assert_true(ca_evict_one(w.tree));
    assert_false(ca_evict_one(w.tree));
    expect(&w, "");
    teardown(&w);
}

static void private_sequences_share_nothing(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_PRIVATE, CATTN_RETAIN_LRU, 64);
    join(&w, "abcde");
    compute(&w, 1, 5);
    assert_int_equal(join(&w, "abcde"), 0);
    fork_of(&w, 1);
    expect(&w, "0..4 abcde | A0-3 B0-0 | 1 =1\n"
               "0..4 abcde | C0-3 D0-0 | 2 =2\n"
               "0..4 abcde | E0-3 F0-0 | 3 =3\n");
    assert_int_equal(ca_path_n_ready(at(&w, 3)->leaf), 5);
    append(&w, 3, "xyz");
    cut_to(&w, 1, 3);
    leave(&w, 2);
    expect(&w, "0..2 abc | A0-2 | 1 =1\n"
               "0..7 abcdexyz | B0-3 C0-3 | 3 =3\n");
    teardown(&w);
}

/* ---- Order of joining ---- */

static const char *const prompts[6] = {"abcdefgh", "abcdefxy", "abcdmnop", "abcdmnqr", "stuvwxyz", "abcdmnop"};

static void join_in_order(world *w, const int *order) {
    static const char *const want = "0..3 abcd | A0-3 | 1 2 3 4 6\n"
                                    "  4..5 ef | B0-1 | 1 2\n"
                                    "    6..7 gh | B2-3 | 1 =1\n"
                                    "    6..7 xy | C2-3 | 2 =2\n"
                                    "  4..5 mn | D0-1 | 3 4 6\n"
                                    "    6..7 op | D2-3 | 3 =3\n"
                                    "    6..7 op | E2-3 | 6 =6\n"
                                    "    6..7 qr | F2-3 | 4 =4\n"
                                    "0..7 stuvwxyz | G0-3 H0-3 | 5 =5\n";
    cattn_seq by_prompt[6];
    for (int i = 0; i < 6; i++) {
        join(w, prompts[order[i]]);
        by_prompt[order[i]] = w->seqs[w->n_seqs - 1];
    }
    /* Of the two equal prompts, the one that joined first comes first. */
    if (by_prompt[2] > by_prompt[5]) {
        const cattn_seq swap = by_prompt[2];
        by_prompt[2] = by_prompt[5];
        by_prompt[5] = swap;
    }
    check_tree(w->tree, w->pool, &w->layout);
    check_canonical(w->tree);
    /* Which chunks are used depends on the order, so the drawings are compared without them. */
    char text[4096], expected[4096];
    draw_tree(w->tree, &w->layout, by_prompt, 6, text, sizeof text);
    const char *from[2] = {text, want};
    char *to[2] = {text, expected};
    for (int k = 0; k < 2; k++) {
        bool in_chunks = false;
        char *out = to[k];
        for (const char *in = from[k]; *in; in++) {
            if (*in == '|') in_chunks = !in_chunks;
            if (!in_chunks) *out++ = *in;
        }
        *out = 0;
    }
    assert_string_equal(text, expected);
}

static void any_order_gives_the_same_tree(void **state) {
    (void)state;
    for (int n = 0; n < 720; n++) {
        int order[6], left[6] = {0, 1, 2, 3, 4, 5};
        for (int i = 0, code = n; i < 6; i++) {
            const int pick = code % (6 - i);
            code /= 6 - i;
            order[i] = left[pick];
            memmove(left + pick, left + pick + 1, (size_t)(5 - i - pick) * sizeof *left);
        }
        world w;
        setup(&w, CATTN_SHARED, CATTN_RETAIN_NONE, 64);
        join_in_order(&w, order);
        for (int i = 1; i <= 6; i++) {
            leave(&w, 7 - i);
            check_tree(w.tree, w.pool, &w.layout);
            check_canonical(w.tree);
        }
        expect(&w, "");
        teardown(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first),
        cmocka_unit_test(equal),
        cmocka_unit_test(longer),
        cmocka_unit_test(shorter),
        cmocka_unit_test(diverging_inside_a_chunk),
        cmocka_unit_test(diverging_at_a_border),
        cmocka_unit_test(diverging_at_the_start),
        cmocka_unit_test(growing_past_a_chunk),
        cmocka_unit_test(a_single_token_grows_past_its_sibling),
        cmocka_unit_test(forks_diverge),
        cmocka_unit_test(forks_diverge_at_an_odd_length),
        cmocka_unit_test(truncating),
        cmocka_unit_test(leaving_from_the_middle),
        cmocka_unit_test(leaving_from_the_ends),
        cmocka_unit_test(leaving_with_retention),
        cmocka_unit_test(another_sequence_claims_unready_tokens),
        cmocka_unit_test(the_readier_twin_is_matched),
        cmocka_unit_test(a_reservation_of_the_whole_budget),
        cmocka_unit_test(a_path_of_many_nodes_is_shared_as_far_as_the_budget_allows),
        cmocka_unit_test(a_merge_allocates_no_more_than_it_frees),
        cmocka_unit_test(nothing_is_evicted_if_no_slab_can_be_emptied),
        cmocka_unit_test(spare_chunks_make_up_for_metadata),
        cmocka_unit_test(leaves_go_first_least_recently_used_first),
        cmocka_unit_test(private_sequences_share_nothing),
        cmocka_unit_test(any_order_gives_the_same_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
