/*
 * Random calls, each made of the tree and of the model. See tree_model.h.
 *
 * In faulty worlds each call is first tried with its first allocation failing, then with its second, and so on until it
 * succeeds.
 */
#include "tests/support/testing.h"

#include "tree_model.h"

#include <string.h>

/* ---- Failures ---- */

static void begin_call(world *w) { w->fault_in = w->n_before_fault = w->faulty ? 0 : -1; }

/* Whether the call failed by a fault; then the fault moves one allocation on, and the call is to be tried again. */
static bool was_fault(world *w, cattn_status status, uint64_t hash_before) {
    if (status != CATTN_ERR_NOMEM) {
        w->fault_in = -1;
        return false;
    }
    assert_true(w->faulty);
    assert_true(hash_tree(w->tree, w->pool) == hash_before);
    w->n_faults++;
    w->fault_in = ++w->n_before_fault;
    return true;
}

static bool refused(world *w, cattn_status status, uint64_t hash_before, const cattn_error *error) {
    if (status == CATTN_OK) return false;
    assert_int_equal(status, CATTN_ERR_BUDGET);
    assert_int_equal(error->code, CATTN_ERR_BUDGET);
    assert_true(hash_tree(w->tree, w->pool) == hash_before);
    w->n_refused++;
    return true;
}

/* ---- The budget ---- */

static size_t table_bytes(const world *w) { return w->tree->seqs_capacity * sizeof(ca_seq_ref); }

/* Bytes of the whole slabs that chunks fill which are free or retained and not reserved. */
static size_t spare_bytes(const world *w) {
    const ca_tree_counts *counts = ca_tree_get_counts(w->tree);
    const size_t n_unused = ca_chunk_pool_n_committed_free(w->pool) + counts->chunks_retained;
    const size_t n_slabs = (n_unused - counts->chunks_reserved) / ca_chunk_pool_slab_chunks(w->pool);
    return n_slabs * ca_chunk_pool_slab_bytes(w->pool);
}

/*
 * Upper bound of the bytes of a node: its struct; ids of tokens and chunks, in arrays that double or are made with room for
 * more; and its place in its parent's array of children, which doubles, too.
 */
static size_t node_bytes(const world *w, int64_t n_tokens) {
    const int64_t capacity = 2 * n_tokens + ca_leaf_slack(w->tree, INT64_MAX), n_chunks = 2 * (capacity / w->layout.c + 2);
    const size_t place = 2 * (w->tree->counts.n_nodes + 2) * sizeof(ca_node *);
    return sizeof(ca_node) + (size_t)capacity * sizeof(int32_t) + (size_t)n_chunks * sizeof(ca_chunk_id) + place;
}

/*
 * Memory in use stays within the budget: live and reserved chunks, metadata, and other memory. Whole slabs may exceed it, as
 * far as their other chunks are spare, since a slab with a live chunk cannot be returned. Beyond that, only the metadata of
 * calls that must succeed because their chunks are reserved, or that need no chunk, may exceed the budget:
 *
 *   an append within its reservation   one node that grows, or two where its sequence branches off at an odd length
 *   a truncate                         two nodes where it cuts one
 *   a call that is refused             the table of sequences, which was doubled before the refusal
 *
 * These calls set w->unchecked. Their sum is not bounded by a constant: each running sequence can add one or two nodes, with as
 * many ids as it has reserved. No join, fork or append beyond a reservation is accepted before spare chunks make up for the
 * sum.
 */
void world_check_budget(world *w, size_t before) {
    const size_t allowed = spare_bytes(w) > before ? spare_bytes(w) : before;
    assert_true(ca_chunk_pool_excess(w->pool, 0) <= allowed + w->unchecked);
}

/* ---- Calls that change sequences ---- */

void world_join(world *w) {
    if (w->n_seqs == MAX_SEQS) return;
    static int32_t tokens[MAX_TOKENS];
    const int32_t *source = w->templates[world_skewed_below(w, N_TEMPLATES)];
    if (w->n_seqs > 0 && world_below(w, 2)) source = w->seqs[world_below(w, w->n_seqs)].tokens;
    const int64_t n = 1 + world_skewed_below(w, world_below(w, 4) ? 3 * w->layout.c : 500);
    const int64_t n_same = world_below(w, 3) ? world_below(w, n + 1) : n;
    memcpy(tokens, source, (size_t)n_same * sizeof *tokens);
    for (int64_t i = n_same; i < n; i++) tokens[i] = world_token(w);
    if (world_below(w, 4) == 0) memcpy(w->templates[world_below(w, N_TEMPLATES)], tokens, (size_t)n * sizeof *tokens);

    const uint32_t domain = world_below(w, 5) == 0;
    const int64_t expected = world_expected_match(w, tokens, n, domain);
    const int64_t reserve = world_below(w, 2) ? world_skewed_below(w, 3 * w->layout.c) : 0;
    const uint64_t hash = hash_tree(w->tree, w->pool);
    const size_t table = table_bytes(w);
    cattn_error error;
    cattn_join_result result;
    model_seq *s = &w->seqs[w->n_seqs];
    cattn_status status;
    const uint32_t account = (uint32_t)n % 4;
    begin_call(w);
    do status = ca_tree_open_account(w->tree, account, (double)account, &error);
    while (was_fault(w, status, hash));
    begin_call(w);
    do status = ca_tree_join(w->tree, tokens, n, domain, reserve, 0, &s->id, &result, &error);
    while (was_fault(w, status, hash));
    if (refused(w, status, hash, &error)) {
        assert_int_equal(s->id, 0);
        w->unchecked = table_bytes(w) - table;
        return;
    }
    assert_true(ca_chunk_pool_excess(w->pool, 0) <= spare_bytes(w));
    w->n_seqs++;
    ca_tree_find(w->tree, s->id)->account = (uint16_t)account;
    s->domain = domain;
    model_set_tokens(s, 0, tokens, n);
    s->reserve_to = n + reserve;
    s->n_ready = result.n_ready;
    /* A match may be shorter only if it is retained and the budget has no room for all of it. */
    if (w->config.retention == CATTN_RETAIN_NONE)
        assert_int_equal(result.n_matched, expected);
    else
        assert_true(result.n_matched <= expected);
    w->n_shortened += result.n_matched < expected;
    assert_int_equal(result.n_ready, ca_path_n_ready(world_find(w, s)->leaf));
    assert_true(result.n_ready <= result.n_matched);
    world_restore(w, s);
}

void world_append(world *w, model_seq *s) {
    static int32_t tokens[MAX_TOKENS];
    const int64_t n = 1 + (world_below(w, 3) ? 0 : world_skewed_below(w, 2 * w->layout.c));
    if (s->n + n > MAX_TOKENS) return;
    for (int64_t i = 0; i < n; i++) tokens[i] = world_token(w);
    const uint64_t hash = hash_tree(w->tree, w->pool);
    cattn_error error;
    cattn_status status;
    begin_call(w);
    do status = ca_tree_append(w->tree, world_find(w, s), tokens, n, &error);
    while (was_fault(w, status, hash));
    if (s->n + n <= s->reserve_to) {
        assert_int_equal(status, CATTN_OK);
        w->unchecked = node_bytes(w, s->n + n) + node_bytes(w, 1);
    }
    if (refused(w, status, hash, &error)) return;
    model_set_tokens(s, s->n, tokens, n);
}

void world_truncate(world *w, model_seq *s) {
    const int64_t n = world_below(w, 4) ? s->n - world_skewed_below(w, s->n < 20 ? s->n : 20) : 1 + world_below(w, s->n);
    const uint64_t hash = hash_tree(w->tree, w->pool);
    cattn_error error;
    cattn_status status;
    begin_call(w);
    do status = ca_tree_truncate(w->tree, world_find(w, s), n, &error);
    while (was_fault(w, status, hash));
    if (refused(w, status, hash, &error)) return;
    w->unchecked = node_bytes(w, s->n) + node_bytes(w, 1);
    s->n = n;
    if (s->n_ready > n) s->n_ready = n;
    ca_tree_drop_orphans(w->tree);
}

void world_fork(world *w, const model_seq *s) {
    if (w->n_seqs == MAX_SEQS) return;
    const int64_t reserve = world_below(w, 2) ? world_skewed_below(w, 3 * w->layout.c) : 0;
    const uint64_t hash = hash_tree(w->tree, w->pool);
    cattn_error error;
    cattn_seq id;
    cattn_status status;
    const size_t table = table_bytes(w);
    begin_call(w);
    do status = ca_tree_fork(w->tree, world_find(w, s), reserve, &id, &error);
    while (was_fault(w, status, hash));
    if (refused(w, status, hash, &error)) {
        w->unchecked = table_bytes(w) - table;
        return;
    }
    assert_true(ca_chunk_pool_excess(w->pool, 0) <= spare_bytes(w));
    model_seq *fork = &w->seqs[w->n_seqs++];
    *fork = *s;
    fork->id = id;
    fork->reserve_to = s->n + reserve;
}

/* Pin some of what is ready. To the tree, and here, a pin is a sequence like others, which need not end unchanged. */
void world_pin(world *w, const model_seq *s) {
    if (w->n_seqs == MAX_SEQS || w->config.sharing == CATTN_PRIVATE || s->n_ready < 2) return;
    const int64_t n = 2 + 2 * world_below(w, s->n_ready / 2);
    const uint64_t hash = hash_tree(w->tree, w->pool);
    const size_t table = table_bytes(w);
    cattn_error error;
    cattn_seq id;
    cattn_status status;
    begin_call(w);
    do status = ca_tree_pin(w->tree, world_find(w, s), n, &id, &error);
    while (was_fault(w, status, hash));
    if (refused(w, status, hash, &error)) {
        assert_int_equal(id, 0);
        w->unchecked = table_bytes(w) - table;
        return;
    }
    assert_true(ca_chunk_pool_excess(w->pool, 0) <= spare_bytes(w));
    model_seq *pin = &w->seqs[w->n_seqs++];
    *pin = *s;
    pin->id = id;
    pin->n = pin->n_ready = pin->reserve_to = n;
}

void world_reserve(world *w, model_seq *s) {
    const int64_t n = world_skewed_below(w, 4 * w->layout.c);
    const uint64_t hash = hash_tree(w->tree, w->pool);
    cattn_error error;
    cattn_status status;
    begin_call(w);
    do status = ca_tree_reserve(w->tree, world_find(w, s), n, &error);
    while (was_fault(w, status, hash));
    if (refused(w, status, hash, &error)) return;
    s->reserve_to = s->n + n;
}

void world_leave(world *w, int i) {
    const cattn_seq id = w->seqs[i].id;
    world_write_behind(w, &w->seqs[i]);
    begin_call(w); /* leaving cannot fail */
    ca_tree_leave(w->tree, world_find(w, &w->seqs[i]));
    ca_tree_drop_orphans(w->tree);
    w->fault_in = -1;
    assert_null(ca_tree_find(w->tree, id));
    w->seqs[i] = w->seqs[--w->n_seqs];
}

/* ---- Steps and other memory ---- */

static void note_branch_copies(world *w, const ca_seq *seq, int64_t first, int64_t last) {
    w->after.n += (size_t)ca_path_branch_copies(w->tree, seq->leaf, first, last, NULL);
    assert_true(w->after.n <= w->after.capacity);
    ca_path_branch_copies(w->tree, seq->leaf, first, last, w->after.at + w->after.n);
}

void world_step(world *w) {
    static ca_chunk_id chunks[MAX_SEQS * 64];
    static int slots[MAX_SEQS * 64];
    int n_written = 0;
    w->before.n = w->after.n = 0;
    ca_kv_take(ca_tree_pending(w->tree), &w->before);
    world_execute(w, w->before.at, w->before.n);
    for (int i = 0; i < w->n_seqs; i++) {
        if (world_below(w, 3) == 0) continue;
        model_seq *s = &w->seqs[i];
        ca_node *leaf = world_find(w, s)->leaf;
        if (ca_path_n_coming(leaf) > ca_path_n_ready(leaf)) continue; /* its next token is on the way */
        const int64_t max_rows = 1 + world_skewed_below(w, 64), first = ca_path_n_claimed(leaf);
        const int64_t n = ca_path_claim(leaf, max_rows);
        assert_true(first >= s->n_ready && n >= 0 && n <= max_rows && first + n <= s->n);
        assert_true(n == max_rows || first + n == s->n);
        assert_int_equal(ca_path_n_claimed(leaf), first + n);
        for (int64_t p = first; p < first + n; p++) {
            const ca_chunk_id chunk = ca_path_chunk(w->tree, leaf, p);
            const int slot = (int)(p % w->layout.c);
            assert_int_equal(w->written[chunk * w->layout.c + slot]++, 0);
            world_write_slot(w, chunk, slot, s->path[p]);
            chunks[n_written] = chunk;
            slots[n_written++] = slot;
        }
        if (n > 0) note_branch_copies(w, world_find(w, s), first, first + n - 1);
    }
    const bool ends = world_below(w, 5) > 0;
    if (ends || w->rng.state % 2) world_execute(w, w->after.at, w->after.n);
    if (!ends) ca_path_undo_branch_copies(w->tree, &w->after);
    for (int i = 0; i < w->n_seqs; i++) (ends ? ca_path_commit : ca_path_unclaim)(world_find(w, &w->seqs[i])->leaf);
    for (int i = 0; i < n_written; i++) {
        w->written[chunks[i] * w->layout.c + slots[i]] = 0;
        if (!ends) world_write_slot(w, chunks[i], slots[i], 0);
    }
    for (int i = 0; i < w->n_seqs; i++) {
        const ca_seq *seq = world_find(w, &w->seqs[i]);
        assert_int_equal(ca_path_n_claimed(seq->leaf), ca_path_n_ready(seq->leaf));
    }
}

void world_workspace(world *w, uint64_t budget) {
    ca_delete(&w->alloc, w->workspace, w->workspace_bytes, 1);
    w->workspace_bytes = (size_t)world_below(w, (int64_t)budget / 4);
    w->workspace = ca_new(&w->alloc, w->workspace_bytes, 1);
    const uint64_t reserved = ca_tree_get_counts(w->tree)->chunks_reserved;
    size_t excess;
    while ((excess = ca_chunk_pool_excess(w->pool, 0)) > 0 && ca_tree_make_room(w->tree, excess)) continue;
    assert_true(ca_tree_get_counts(w->tree)->chunks_reserved <= reserved); /* fewer if a sequence owns its last chunk again */
    if (excess == 0) return;
    ca_delete(&w->alloc, w->workspace, w->workspace_bytes, 1);
    w->workspace = NULL;
}
