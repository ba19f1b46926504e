/*
 * Shapes of the tree after each kind of call, drawn as text (check_tree.h explains a line). c = 4 throughout, and tokens are
 * letters.
 */
#include "tests/support/testing.h"

#include "small_tree.h"

static void expect(world *w, const char *drawing) {
    char text[4096];
    check_tree(w->tree, w->pool, &w->layout);
    check_canonical(w->tree);
    draw_tree(w->tree, &w->layout, w->seqs, w->n_seqs, text, sizeof text);
    assert_string_equal(text, drawing);
}

/* ---- Join ---- */

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

/* Chunks that serve later joins only do not count as live, as they would not exist without sharing. */
static void branches_supersede_chunks(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 64);
    join(&w, "abcdefgh");
    compute(&w, 1, 8);
    leave(&w, 1);
    assert_int_equal(join(&w, "abxx"), 2);
    assert_int_equal(join(&w, "abyy"), 2);
    expect(&w, "0..1 ab | A0-1 | 2 3\n"
               "  2..7 cdefgh | A2-3 B0-3 |\n"
               "  2..3 xx | C2-3 | 2 =2\n"
               "  2..3 yy | D2-3 | 3 =3\n");
    assert_int_equal(ca_tree_get_counts(w.tree)->chunks_live, 3);
    assert_int_equal(ca_tree_get_counts(w.tree)->chunks_unshared, 2);
    assert_int_equal(ca_tree_count_superseded(w.tree), 1); /* A */
    ca_tree_note_peaks(w.tree);
    assert_int_equal(ca_tree_get_counts(w.tree)->chunks_live_peak, 2);
    assert_int_equal(join(&w, "abcdz"), 4); /* attends over A as a whole */
    assert_int_equal(ca_tree_count_superseded(w.tree), 0);
    leave(&w, 4);
    assert_int_equal(ca_tree_count_superseded(w.tree), 1);
    cut_to(&w, 2, 2); /* ends within A */
    assert_int_equal(ca_tree_count_superseded(w.tree), 0);
    teardown(&w);
}

/* A match ends before a prompt's last token, so the same prompt computes its end again; that is not retained a second time. */
static void what_is_retained_already_is_dropped(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 64);
    for (int i = 1; i <= 4; i++) {
        assert_int_equal(join(&w, "abcdefgh"), i == 1 ? 0 : 6);
        compute(&w, i, i == 1 ? 8 : 2);
        leave(&w, i);
        expect(&w, "0..7 abcdefgh | A0-3 B0-3 |\n");
    }
    join(&w, "abcdefgh"); /* the prompt's end and a longer answer, in which what is retained is contained */
    append(&w, 5, "wxyz");
    compute(&w, 5, 6);
    join(&w, "abcdefgh"); /* the beginning of the same answer */
    append(&w, 6, "wx");
    compute(&w, 6, 4);
    leave(&w, 5);
    expect(&w, "0..5 abcdef | A0-3 B0-1 | 6\n"
               "  6..11 ghwxyz | C2-3 D0-3 |\n"
               "  6..9 ghwx | E2-3 F0-1 | 6 =6\n");
    leave(&w, 6);
    expect(&w, "0..5 abcdef | A0-3 B0-1 |\n"
               "  6..11 ghwxyz | C2-3 D0-3 |\n");
    check_tree(w.tree, w.pool, &w.layout);
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

/* A twin that ends at an odd position has none of the tokens behind it; nothing behind the leaf's own tokens is read (ASan). */
static void a_twin_may_be_a_token_shorter(void **state) {
    (void)state;
    world w;
    setup(&w, CATTN_SHARED, CATTN_RETAIN_LRU, 64);
    join(&w, "ab");
    compute(&w, 1, 2);
    fork_of(&w, 1);
    append(&w, 1, "cdefghijklmnopq");
    append(&w, 2, "cdefghijklmn");
    append(&w, 2, "opqr");
    assert_int_equal(at(&w, 2)->leaf->tokens_capacity, 16); /* 64 bytes, which the allocator does not round up */
    compute(&w, 1, 15);
    compute(&w, 2, 16);
    leave(&w, 2);
    assert_int_equal(ca_tree_get_counts(w.tree)->tokens_retained, 16);
    check_tree(w.tree, w.pool, &w.layout);
    teardown(&w);
}

/* ---- Without sharing ---- */

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal),
        cmocka_unit_test(longer),
        cmocka_unit_test(shorter),
        cmocka_unit_test(diverging_inside_a_chunk),
        cmocka_unit_test(diverging_at_the_start),
        cmocka_unit_test(growing_past_a_chunk),
        cmocka_unit_test(a_single_token_grows_past_its_sibling),
        cmocka_unit_test(forks_diverge),
        cmocka_unit_test(forks_diverge_at_an_odd_length),
        cmocka_unit_test(truncating),
        cmocka_unit_test(leaving_from_the_middle),
        cmocka_unit_test(leaving_from_the_ends),
        cmocka_unit_test(leaving_with_retention),
        cmocka_unit_test(branches_supersede_chunks),
        cmocka_unit_test(what_is_retained_already_is_dropped),
        cmocka_unit_test(another_sequence_claims_unready_tokens),
        cmocka_unit_test(the_readier_twin_is_matched),
        cmocka_unit_test(a_twin_may_be_a_token_shorter),
        cmocka_unit_test(private_sequences_share_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
