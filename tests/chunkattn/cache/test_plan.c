/*
 * The plan against plan.h, over random trees and batches: each row passes exactly once over each position that it sees, in
 * ascending order and in the chunk that holds it; chunks that no row sees are left out; and each row of each block is in
 * exactly one task.
 */
#include "tests/support/testing.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/cache/plan.h"
#include "small_layout.h"
#include "tests/support/rng.h"

enum { MOST_SEQS = 24, LONGEST = 2500, GROUP = 2, MAX_PLANS = 4 };

typedef struct fixture {
    ca_alloc alloc;
    ca_chunk_layout layout;
    ca_chunk_pool *pool;
    ca_tree *tree;
    ca_plan plans[MAX_PLANS];
    int n_plans;
    rng r;
    cattn_seq seqs[MOST_SEQS];
    int n_seqs;
    ca_plan_entry entries[MOST_SEQS];
    int n_entries;
    int n_rebuilt, n_reused;
} fixture;

static bool sees(const ca_plan *plan, int64_t row_position, int64_t p) {
    const ca_plan_config *c = &plan->config;
    return p <= row_position && (c->window == 0 || p > row_position - c->window || p < c->n_sink_tokens);
}

static bool sees_some(const ca_plan *plan, int64_t row_position, int64_t begin, int64_t end) {
    while (begin < end && !sees(plan, row_position, begin)) begin++;
    return begin < end;
}

/* The first position from p on that a row sees; the one after its own if there is none. */
static int64_t next_seen(const ca_plan *plan, int64_t row_position, int64_t p) {
    while (p <= row_position && !sees(plan, row_position, p)) p++;
    return p;
}

/* A row reads position p in a chunk other than the one that holds it; the row's step must copy it there. */
static void check_branch_copy(const fixture *f, const ca_seq *seq, int64_t row_position, int64_t p, ca_chunk_id chunk) {
    ca_kv_command at[LONGEST];
    const int32_t n = ca_path_branch_copies(f->tree, seq->leaf, 0, row_position, NULL);
    bool found = false;
    assert_true(n <= LONGEST);
    assert_int_equal(ca_path_branch_copies(f->tree, seq->leaf, 0, row_position, at + n), n);
    for (const ca_kv_command *copy = at; copy < at + n; copy++)
        found = found || (copy->to == chunk && copy->begin == 0 && copy->end > p % f->layout.c);
    assert_true(found);
    const ca_kv_commands all = {at, (size_t)n, LONGEST};
    ca_path_undo_branch_copies(f->tree, &all);
}

/* Follow a row's walk over its context, which has come to position `at`, through one item. Returns the next position. */
static int64_t follow_item(const fixture *f, const ca_plan *plan, const ca_section *s, const ca_item *item, int32_t row,
                           const ca_seq *seq, int64_t at) {
    const int c = f->layout.c;
    const int64_t pos = s->position.at[row];
    if (row < item->row_begin || row >= item->row_end) return at;
    for (int32_t i = 0; i < item->n_chunks; i++) {
        const ca_chunk_id chunk = s->chunks.at[item->chunk + i];
        const int64_t start = (int64_t)(item->first_chunk + i) * c;
        for (int64_t p = start; p < start + c; p++) {
            if (!item->partial) assert_true(sees(plan, pos, p));
            if (!sees(plan, pos, p)) continue;
            assert_int_equal(p, at);
            if (chunk != ca_path_chunk(f->tree, seq->leaf, p)) check_branch_copy(f, seq, pos, p, chunk);
            at = next_seen(plan, pos, at + 1);
        }
    }
    return at;
}

/* Each chunk of each item is seen by some row of it, or lies between chunks that two of its rows see. */
static void check_items(const fixture *f, const ca_plan *plan, const ca_section *s) {
    for (size_t i = 0; i < s->items.n; i++) {
        const ca_item *item = &s->items.at[i];
        for (int64_t j = item->first_chunk; j < item->first_chunk + item->n_chunks; j++) {
            const int64_t begin = j * f->layout.c, end = begin + f->layout.c;
            bool seen = false, before = false, behind = false;
            for (int32_t r = item->row_begin; r < item->row_end && !seen; r++) {
                const int64_t pos = s->position.at[r];
                seen = sees_some(plan, pos, begin, end);
                before = before || pos < begin;
                behind = behind || pos - plan->config.window >= end - 1;
            }
            assert_true(seen || (before && behind));
        }
    }
}

static void check_section(const fixture *f, const ca_plan *plan, const ca_section *s) {
    check_items(f, plan, s);
    for (size_t i = 0; i < s->seqs.n; i++) {
        const ca_section_seq *q = &s->seqs.at[i];
        const ca_plan_entry *e = &f->entries[q->entry];
        assert_ptr_equal(e->seq, q->seq);
        assert_int_equal(e->n_rows, q->n_rows);
        for (int32_t r = q->row_begin; r < q->row_begin + q->n_rows; r++) {
            const int64_t pos = s->position.at[r];
            assert_int_equal(pos, e->first_pos + r - q->row_begin);
            assert_int_equal(s->source.at[r], e->row + r - q->row_begin);
            int64_t at = next_seen(plan, pos, 0);
            for (int32_t b = s->first_block.at[r]; b < s->first_block.at[r + 1]; b++) {
                const ca_block *block = &s->blocks.at[s->row_blocks.at[b]];
                assert_int_equal(at >> plan->config.log2_segment, block->segment); /* the row sees something of it */
                assert_true(r >= block->row_begin && r < block->row_end);
                for (int32_t k = block->item_begin; k < block->item_end; k++)
                    at = follow_item(f, plan, s, &s->items.at[k], r, q->seq, at);
            }
            assert_int_equal(at, pos + 1);
        }
    }
    if (plan->config.together) return;
    for (size_t i = 0; i < s->items.n; i++) {
        size_t owner = 0;
        while (s->items.at[i].row_begin >= s->seqs.at[owner].row_begin + s->seqs.at[owner].n_rows) owner++;
        assert_true(s->items.at[i].row_end <= s->seqs.at[owner].row_begin + s->seqs.at[owner].n_rows);
    }
}

/* Mark state `at` of n as used. False if it was already, or does not exist. */
static bool take_state(uint8_t *states, int64_t n, int64_t at) { return at >= 0 && at < n && states[at]++ == 0; }

/* Each row of each block is in one task, which has all blocks of the row unless its chain is spread; no state is used twice. */
static void check_tasks(const ca_plan *plan) {
    uint8_t *spread = calloc((size_t)plan->n_states + 1, 1), *own = calloc((size_t)plan->n_chain_states + 1, 1);
    int64_t n_rows = 0;
    for (size_t i = 0; i < plan->sections.n; i++) {
        const ca_section *s = plan->sections.at[i];
        for (size_t k = 0; k < s->blocks.n; k++) n_rows += s->blocks.at[k].row_end - s->blocks.at[k].row_begin;
    }
    for (size_t i = 0; i < plan->tasks.n; i++) {
        const ca_plan_task *t = &plan->tasks.at[i];
        assert_true(i == 0 || plan->tasks.at[i - 1].cost >= t->cost);
        for (ca_block_at k = t->begin; !ca_block_same(k, t->end); k = ca_block_after(plan, k)) {
            const ca_section *s = plan->sections.at[k.section];
            const ca_block *b = &s->blocks.at[k.block];
            if (k.block == 0 || s->blocks.at[k.block - 1].chain_end == k.block) memset(own, 0, (size_t)plan->n_chain_states);
            if (!b->spread) assert_true(t->end.section > k.section || b->chain_end <= t->end.block);
            for (int32_t r = b->row_begin; r < b->row_end; r++) {
                if (r < t->row_begin || r >= t->row_end) continue;
                const int64_t at = b->state + r - b->row_begin;
                n_rows--;
                assert_true(b->spread ? take_state(spread, plan->n_states, at) : take_state(own, plan->n_chain_states, at));
            }
        }
    }
    assert_int_equal(n_rows, 0);
    for (int64_t i = 0; i < plan->n_states; i++) assert_int_equal(spread[i], 1);
    free(spread);
    free(own);
}

/* Update the plans for f->entries, and check them. */
static void plan_and_check(fixture *f) {
    int64_t n_rows = 0;
    assert_int_equal(ca_plan_update(f->plans, (size_t)f->n_plans, f->entries, f->n_entries), CATTN_OK);
    for (int i = 0; i < f->n_entries; i++) {
        assert_int_equal(f->entries[i].seq->step_entry, -1);
        n_rows += f->entries[i].n_rows;
    }
    for (const ca_plan *plan = f->plans; plan < f->plans + f->n_plans; plan++) {
        int64_t sum = 0;
        for (size_t i = 0; i < plan->sections.n; i++) {
            check_section(f, plan, plan->sections.at[i]);
            sum += plan->sections.at[i]->n_rows;
        }
        assert_int_equal(sum, n_rows);
        check_tasks(plan);
    }
}

/* A step of some sequences with some rows each, which ends or is aborted. */
static void step(fixture *f) {
    int32_t row = 0;
    f->n_entries = 0;
    const int most = rng_chance(&f->r, 3) ? 200 : 1;
    for (int i = 0; i < f->n_seqs; i++) {
        if (rng_chance(&f->r, 10)) continue;
        ca_seq *seq = ca_tree_find(f->tree, f->seqs[i]);
        const int64_t first = ca_path_n_claimed(seq->leaf), n = ca_path_claim(seq->leaf, rng_range(&f->r, 1, most));
        f->entries[f->n_entries++] = (ca_plan_entry){seq, first, (int32_t)n, row};
        row += (int32_t)n;
    }
    const bool had_one = f->plans[0].sections.n > 0;
    const ca_section *before = had_one ? f->plans[0].sections.at[0] : NULL;
    const uint64_t version = had_one ? before->version : 0;
    plan_and_check(f);
    if (had_one && f->plans[0].sections.n > 0) {
        if (f->plans[0].sections.at[0] == before && before->version == version)
            f->n_reused++;
        else
            f->n_rebuilt++;
    }
    const bool commit = !rng_chance(&f->r, 8);
    for (int i = 0; i < f->n_entries; i++) {
        if (commit)
            ca_path_commit(f->entries[i].seq->leaf);
        else
            ca_path_unclaim(f->entries[i].seq->leaf);
    }
}

static void join(fixture *f) {
    static int32_t tokens[LONGEST];
    if (f->n_seqs == MOST_SEQS) return;
    const int64_t n = rng_chance(&f->r, 6) ? rng_range(&f->r, 1, LONGEST) : rng_range(&f->r, 1, 200);
    const int32_t family = (int32_t)rng_range(&f->r, 1, 3);
    for (int64_t i = 0; i < n; i++) tokens[i] = family;
    for (int64_t i = rng_range(&f->r, 0, n); i < n; i++)
        tokens[i] = (int32_t)rng_range(&f->r, 0, 1); /* where the prompt leaves the family */
    assert_int_equal(ca_tree_join(f->tree, tokens, n, 0, 0, 0, &f->seqs[f->n_seqs], NULL, NULL), CATTN_OK);
    f->n_seqs++;
}

static void change(fixture *f) {
    const int what = (int)rng_range(&f->r, 0, 9);
    if (f->n_seqs == 0 || what < 3) {
        join(f);
        return;
    }
    const int i = (int)rng_range(&f->r, 0, f->n_seqs - 1);
    ca_seq *seq = ca_tree_find(f->tree, f->seqs[i]);
    const int32_t token = (int32_t)rng_range(&f->r, 0, 9);
    if (what == 3) {
        ca_tree_leave(f->tree, seq);
        f->seqs[i] = f->seqs[--f->n_seqs];
    } else if (what == 4 && f->n_seqs < MOST_SEQS) {
        assert_int_equal(ca_tree_fork(f->tree, seq, 0, &f->seqs[f->n_seqs], NULL), CATTN_OK);
        f->n_seqs++;
    } else if (what == 5) {
        assert_int_equal(ca_tree_truncate(f->tree, seq, rng_range(&f->r, 1, seq->n_tokens), NULL), CATTN_OK);
    } else if (what == 6) {
        for (int k = 0; k < f->n_seqs; k++) /* a decode step's appends */
            assert_int_equal(ca_tree_append(f->tree, ca_tree_find(f->tree, f->seqs[k]), &token, 1, NULL), CATTN_OK);
    }
}

static void open_fixture(fixture *f, int32_t c, cattn_retention retention, const ca_plan_config *config) {
    f->n_plans = 1;
    f->alloc = ca_alloc_default();
    small_layout(&f->layout, 1, 64, c);
    assert_int_equal(ca_chunk_pool_create(&f->pool, &f->alloc, f->layout.chunk_bytes, (uint64_t)1 << 30), CATTN_OK);
    const ca_tree_config tree = {.sharing = CATTN_SHARED, .retention = retention};
    assert_int_equal(ca_tree_create(&f->tree, &tree, &f->layout, f->pool, &f->alloc), CATTN_OK);
    ca_plan_init(&f->plans[0], config, f->tree, &f->layout, &f->alloc);
}

static void close_fixture(fixture *f) {
    for (int i = 0; i < f->n_plans; i++) ca_plan_free(&f->plans[i]);
    ca_tree_destroy(&f->tree);
    ca_chunk_pool_destroy(&f->pool);
    small_layout_free(&f->layout);
    assert_int_equal(f->alloc.bytes, 0);
}

static void run(uint64_t seed, bool together) {
    fixture f = {.r = {seed}};
    const int32_t c = 16 << rng_range(&f.r, 0, 2);
    const cattn_retention retention = rng_chance(&f.r, 2) ? CATTN_RETAIN_LRU : CATTN_RETAIN_NONE;
    ca_plan_config config = {.together = together,
                             .group = GROUP,
                             .max_rows = (int32_t)rng_range(&f.r, 4, 64),
                             .min_slice = 16,
                             .chunk_cost = 8,
                             .min_tasks = (int32_t)rng_range(&f.r, 1, 12),
                             .task_step = (int32_t)rng_range(&f.r, 1, 4),
                             .log2_segment = CA_LOG2_SEGMENT - (int32_t)rng_range(&f.r, 0, 2)};
    open_fixture(&f, c, retention, &config);
    /* One plan without a window, one with a small window, and two with larger ones, of which one has sink tokens. */
    for (; f.n_plans < MAX_PLANS; f.n_plans++) {
        config.window =
            f.n_plans == 1 ? (int32_t)rng_range(&f.r, 1, 40) : c * (int32_t)rng_range(&f.r, 1, 30) + rng_chance(&f.r, 2);
        if (f.n_plans == 3) config.n_sink_tokens = (int32_t)rng_range(&f.r, 1, rng_chance(&f.r, 3) ? 1500 : 70);
        ca_plan_init(&f.plans[f.n_plans], &config, f.tree, &f.layout, &f.alloc);
    }
    for (int i = 0; i < 120; i++) {
        change(&f);
        if (f.n_seqs > 0) step(&f);
        if (f.n_seqs > 0 && rng_chance(&f.r, 2)) step(&f); /* often without a change in between */
    }
    assert_true(f.n_reused > 0 && f.n_rebuilt > 0);
    close_fixture(&f);
}

static void each_row_sees_each_position_once(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 25; seed++) run(seed, true);
}

static void nothing_is_read_together_without_sharing(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) run(seed, false);
}

/* ---- What an update does not do ---- */

enum { N_ROOTS = 3, A_ROOT = 3, C = 16, START = 2 * C + 3 };

/* Join sequence i with these n tokens, and make all but the last ready. */
static void join_ready(fixture *f, int i, const int32_t *tokens, int n) {
    assert_int_equal(ca_tree_join(f->tree, tokens, n, 0, 0, 0, &f->seqs[i], NULL, NULL), CATTN_OK);
    ca_seq *seq = ca_tree_find(f->tree, f->seqs[i]);
    ca_path_claim(seq->leaf, n - 1 - ca_path_n_claimed(seq->leaf));
    ca_path_commit(seq->leaf);
}

/* Join sequence i below root i % N_ROOTS: START tokens, of which the sequences of a root share n_shared. */
static void join_decoding(fixture *f, int i, int n_shared) {
    int32_t tokens[START];
    for (int k = 0; k < START; k++) tokens[k] = k < n_shared ? i % N_ROOTS : 100 + i;
    join_ready(f, i, tokens, START);
}

static void open_decoding(fixture *f, int n_shared) {
    static const ca_plan_config config = {.together = true,
                                          .group = GROUP,
                                          .max_rows = 64,
                                          .min_slice = 16,
                                          .chunk_cost = 8,
                                          .min_tasks = 1,
                                          .task_step = 1,
                                          .log2_segment = CA_LOG2_SEGMENT};
    open_fixture(f, C, CATTN_RETAIN_LRU, &config);
    for (int i = 0; i < N_ROOTS * A_ROOT; i++) join_decoding(f, i, n_shared);
    f->n_seqs = N_ROOTS * A_ROOT;
}

/* A step with one row of each sequence, then append a token to each. Entry i is sequence (i + first) % n_seqs. */
static void decode(fixture *f, int first) {
    const int32_t token = 7;
    f->n_entries = f->n_seqs;
    for (int i = 0; i < f->n_seqs; i++) {
        ca_seq *seq = ca_tree_find(f->tree, f->seqs[(i + first) % f->n_seqs]);
        f->entries[i] = (ca_plan_entry){seq, ca_path_n_claimed(seq->leaf), 1, i};
        assert_int_equal(ca_path_claim(seq->leaf, 1), 1);
    }
    plan_and_check(f);
    for (int i = 0; i < f->n_seqs; i++) ca_path_commit(f->entries[i].seq->leaf);
    for (int i = 0; i < f->n_seqs; i++) assert_int_equal(ca_tree_append(f->tree, f->entries[i].seq, &token, 1, NULL), CATTN_OK);
}

static void expect(const fixture *f, uint64_t built, uint64_t divided, bool only_moved) {
    assert_int_equal(f->plans[0].n_built, built);
    assert_int_equal(f->plans[0].n_divided, divided);
    assert_int_equal(f->plans[0].only_moved, only_moved);
}

static void decoding_builds_nothing_until_a_chunk_is_full(void **state) {
    (void)state;
    fixture f = {0};
    open_decoding(&f, C + 5);
    decode(&f, 0);
    expect(&f, N_ROOTS, 1, false);
    for (int i = START; i < 3 * C; i++) { /* positions up to the chunk's last */
        decode(&f, 0);
        expect(&f, N_ROOTS, 1, true);
    }
    decode(&f, 0);
    expect(&f, 2 * N_ROOTS, 2, false);
    decode(&f, 0);
    expect(&f, 2 * N_ROOTS, 2, true);
    close_fixture(&f);
}

static void a_change_builds_only_its_root(void **state) {
    (void)state;
    fixture f = {0};
    open_decoding(&f, C + 5);
    decode(&f, 0);
    ca_tree_leave(f.tree, ca_tree_find(f.tree, f.seqs[1]));
    join_decoding(&f, 1, C + 5);
    decode(&f, 0);
    expect(&f, N_ROOTS + 1, 2, false);
    decode(&f, 0);
    expect(&f, N_ROOTS + 1, 2, true);
    close_fixture(&f);
}

/* Every plan finds its sections by the order of the update before. */
static void another_order_of_entries_builds_nothing(void **state) {
    (void)state;
    fixture f = {0};
    open_decoding(&f, C + 5);
    ca_plan_config windowed = f.plans[0].config;
    windowed.window = 3 * C;
    ca_plan_init(&f.plans[f.n_plans++], &windowed, f.tree, &f.layout, &f.alloc);
    decode(&f, 0);
    decode(&f, N_ROOTS); /* the roots are met in the same order */
    expect(&f, N_ROOTS, 1, false);
    decode(&f, N_ROOTS);
    expect(&f, N_ROOTS, 1, true);
    decode(&f, 1);
    expect(&f, N_ROOTS, 2, false); /* in another order, and tasks name sections by their index */
    assert_int_equal(f.plans[1].n_built, N_ROOTS);
    assert_int_equal(f.plans[1].n_divided, 2);
    close_fixture(&f);
}

/* Rows whose paths separate within the first chunk have nothing to read together. */
static void rows_that_share_no_chunk_are_chains_of_their_own(void **state) {
    (void)state;
    for (int n_shared = C - 2; n_shared <= C; n_shared += 2) {
        fixture f = {0};
        open_decoding(&f, n_shared);
        decode(&f, 0);
        for (int i = 0; i < N_ROOTS; i++) {
            const ca_section *s = f.plans[0].sections.at[i];
            assert_int_equal(s->n_rows, A_ROOT);
            assert_int_equal(s->blocks.n, n_shared < C ? A_ROOT : 1);
            for (size_t k = 0; k < s->blocks.n; k++) assert_int_equal(s->blocks.at[k].chain_end, k + 1);
        }
        close_fixture(&f);
    }
}

/* The chain must be sliced into n_slices: those wanted or possible, rounded down to a multiple of task_step. */
static void slice_uneven_segments(int32_t min_slice, int32_t min_tasks, int32_t task_step, size_t n_slices) {
    enum { N = 9, SHARED = 2 * CA_SEGMENT };
    const ca_plan_config config = {.together = true,
                                   .group = GROUP,
                                   .max_rows = 64,
                                   .min_slice = min_slice,
                                   .chunk_cost = 8,
                                   .min_tasks = min_tasks,
                                   .task_step = task_step,
                                   .log2_segment = CA_LOG2_SEGMENT};
    fixture f = {0};
    open_fixture(&f, C, CATTN_RETAIN_LRU, &config);
    for (int i = 0; i < N; i++) {
        int32_t tokens[SHARED + C];
        for (int k = 0; k < SHARED + C; k++) tokens[k] = k < SHARED ? 1 : 100 + i;
        join_ready(&f, i, tokens, SHARED + C);
    }
    f.n_seqs = N;
    decode(&f, 0);
    assert_int_equal(f.plans[0].sections.at[0]->blocks.n, 3); /* two large segments, one small */
    assert_int_equal(f.plans[0].n_states, 0);
    assert_int_equal(f.plans[0].tasks.n, n_slices);
    for (size_t i = 0; i < n_slices; i++) assert_true(f.plans[0].tasks.at[i].cost == f.plans[0].tasks.at[0].cost);
    close_fixture(&f);
}

static void rows_are_sliced_where_segments_are_uneven(void **state) {
    (void)state;
    slice_uneven_segments(GROUP, 3, 1, 3);
    slice_uneven_segments(3 * GROUP, 4, 1, 3);
    slice_uneven_segments(3 * GROUP, 4, 2, 2);
    slice_uneven_segments(3 * GROUP, 4, 4, 3); /* fewer than task_step */
}

static void *no_memory(void *ctx, size_t size, size_t align) {
    (void)ctx, (void)size, (void)align;
    return NULL;
}

static void an_update_without_memory_leaves_nothing_behind(void **state) {
    (void)state;
    fixture f = {0};
    open_decoding(&f, C + 5);
    decode(&f, 0);
    int32_t tokens[400];
    for (int i = 0; i < 400; i++) tokens[i] = 50 + i;
    assert_int_equal(ca_tree_join(f.tree, tokens, 400, 0, 0, 0, &f.seqs[f.n_seqs], NULL, NULL), CATTN_OK);
    ca_seq *seq = ca_tree_find(f.tree, f.seqs[f.n_seqs++]);
    f.entries[f.n_entries++] = (ca_plan_entry){seq, 0, (int32_t)ca_path_claim(seq->leaf, 400), f.n_entries};
    const ca_alloc alloc = f.alloc;
    f.alloc.alloc = no_memory;
    assert_int_equal(ca_plan_update(f.plans, 1, f.entries, f.n_entries), CATTN_ERR_NOMEM);
    assert_int_equal(f.plans[0].sections.n + f.plans[0].tasks.n, 0);
    for (int i = 0; i < f.n_entries; i++) assert_int_equal(f.entries[i].seq->step_entry, -1);
    f.alloc.alloc = alloc.alloc;
    plan_and_check(&f);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_sees_each_position_once),
        cmocka_unit_test(nothing_is_read_together_without_sharing),
        cmocka_unit_test(decoding_builds_nothing_until_a_chunk_is_full),
        cmocka_unit_test(a_change_builds_only_its_root),
        cmocka_unit_test(another_order_of_entries_builds_nothing),
        cmocka_unit_test(rows_that_share_no_chunk_are_chains_of_their_own),
        cmocka_unit_test(rows_are_sliced_where_segments_are_uneven),
        cmocka_unit_test(an_update_without_memory_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
