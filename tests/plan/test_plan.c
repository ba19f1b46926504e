/*
 * The plan against its promise: over random trees and batches, each row passes over each position of its context exactly once,
 * chunk by chunk, in the chunk that holds it, and tasks cover every row of every block once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/cache/plan.h"
#include "lib/cache/section.h"
#include "tests/exact/rng.h"

enum { MOST_SEQS = 24, LONGEST = 2500, GROUP = 2 };

typedef struct fixture {
    ca_alloc alloc;
    ca_layout layout;
    ca_chunk_pool *pool;
    ca_tree *tree;
    ca_plan plan;
    rng r;
    cattn_seq seqs[MOST_SEQS];
    int n_seqs;
    ca_plan_entry entries[MOST_SEQS];
    int n_entries;
    int n_rebuilt, n_kept;
} fixture;

/* What the rows [item.row_begin, item.row_end) of one item add to this row's walk over its context. */
static int64_t follow_item(const fixture *f, const ca_section *s, const ca_item *item, int32_t row, const ca_seq *seq,
                           int64_t at) {
    const int c = f->layout.c;
    const int64_t pos = s->position.at[row];
    if (row < item->row_begin || row >= item->row_end) return at;
    assert_true(item->n_pieces == item->n_chunks || item->n_chunks == 1);
    for (int32_t i = 0; i < item->n_pieces; i++) {
        const ca_plan_piece *piece = &s->pieces.at[item->piece + i];
        const int64_t start = (int64_t)(item->first_chunk + (item->n_pieces == item->n_chunks ? i : 0)) * c;
        assert_int_equal(piece->begin % 2, 0);
        for (int64_t p = start + piece->begin; p < start + piece->end && p <= pos; p++) {
            assert_int_equal(p, at);
            assert_int_equal(piece->chunk, ca_seq_chunk(f->tree, seq, p));
            at++;
        }
        if (!item->partial) assert_true(start + piece->end <= pos + 1);
    }
    return at;
}

static void check_section(const fixture *f, const ca_section *s) {
    for (size_t i = 0; i < s->seqs.n; i++) {
        const ca_section_seq *q = &s->seqs.at[i];
        const ca_plan_entry *e = &f->entries[q->seq->step_entry];
        assert_ptr_equal(e->seq, q->seq);
        assert_int_equal(e->n_rows, q->n_rows);
        for (int32_t r = q->row_begin; r < q->row_begin + q->n_rows; r++) {
            assert_int_equal(s->position.at[r], e->first_pos + r - q->row_begin);
            assert_int_equal(s->source.at[r], e->row + r - q->row_begin);
            int64_t at = 0;
            for (int32_t b = s->first_block.at[r]; b < s->first_block.at[r + 1]; b++) {
                const ca_block *block = &s->blocks.at[s->row_blocks.at[b]];
                assert_int_equal(at % CA_SEGMENT, 0); /* each block begins a segment */
                assert_true(r >= block->row_begin && r < block->row_end);
                for (int32_t k = block->item_begin; k < block->item_end; k++)
                    at = follow_item(f, s, &s->items.at[k], r, q->seq, at);
            }
            assert_int_equal(at, s->position.at[r] + 1);
        }
    }
    if (f->plan.config.together) return;
    for (size_t i = 0; i < s->items.n; i++) {
        size_t owner = 0;
        while (s->items.at[i].row_begin >= s->seqs.at[owner].row_begin + s->seqs.at[owner].n_rows) owner++;
        assert_true(s->items.at[i].row_end <= s->seqs.at[owner].row_begin + s->seqs.at[owner].n_rows);
    }
}

/* Whether state `at` of n was free; takes it. */
static bool take_state(uint8_t *states, int64_t n, int64_t at) { return at >= 0 && at < n && states[at]++ == 0; }

/* Each row of each block is in one task, which has all of the row's blocks unless they are spread; no two states meet. */
static void check_tasks(const ca_plan *plan) {
    uint8_t *spread = calloc((size_t)plan->n_states + 1, 1), *own = calloc((size_t)plan->n_chain_states + 1, 1);
    int64_t n_rows = 0;
    for (size_t i = 0; i < plan->order.n; i++) n_rows += plan->order.at[i].block->row_end - plan->order.at[i].block->row_begin;
    for (size_t i = 0; i < plan->tasks.n; i++) {
        const ca_plan_task *t = &plan->tasks.at[i];
        assert_true(i == 0 || plan->tasks.at[i - 1].cost >= t->cost);
        for (int32_t k = t->begin; k < t->end; k++) {
            const ca_section *s = plan->order.at[k].section;
            const ca_block *b = plan->order.at[k].block;
            const int32_t index = (int32_t)(b - s->blocks.at);
            if (index == 0 || s->blocks.at[index - 1].chain_end == index) memset(own, 0, (size_t)plan->n_chain_states);
            if (!b->spread) assert_true(k + b->chain_end - index <= t->end);
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

/* A batch of some sequences, some rows each; then check, and make them ready or not. */
static void step(fixture *f) {
    int32_t row = 0;
    int64_t sum = 0;
    f->n_entries = 0;
    const int most = rng_chance(&f->r, 3) ? 200 : 1;
    for (int i = 0; i < f->n_seqs; i++) {
        if (rng_chance(&f->r, 10)) continue;
        ca_seq *seq = ca_tree_find(f->tree, f->seqs[i]);
        const int64_t first = ca_seq_n_claimed(seq), n = ca_seq_claim(seq, rng_range(&f->r, 1, most));
        seq->step_entry = f->n_entries;
        f->entries[f->n_entries++] = (ca_plan_entry){seq, first, (int32_t)n, row};
        row += (int32_t)n;
    }
    const bool had_one = f->plan.sections.n > 0;
    const ca_section *before = had_one ? f->plan.sections.at[0] : NULL;
    const uint64_t version = had_one ? before->version : 0;
    assert_int_equal(ca_plan_update(&f->plan, f->entries, f->n_entries), CATTN_OK);
    if (had_one && f->plan.sections.n > 0) {
        if (f->plan.sections.at[0] == before && before->version == version)
            f->n_kept++;
        else
            f->n_rebuilt++;
    }
    for (size_t i = 0; i < f->plan.sections.n; i++) {
        check_section(f, f->plan.sections.at[i]);
        sum += f->plan.sections.at[i]->n_rows;
    }
    assert_int_equal(sum, row);
    check_tasks(&f->plan);
    const bool commit = !rng_chance(&f->r, 8);
    for (int i = 0; i < f->n_entries; i++) {
        if (commit)
            ca_seq_commit(f->entries[i].seq);
        else
            ca_seq_unclaim(f->entries[i].seq);
        f->entries[i].seq->step_entry = -1;
    }
}

static void join(fixture *f) {
    static int32_t tokens[LONGEST];
    if (f->n_seqs == MOST_SEQS) return;
    const int64_t n = rng_chance(&f->r, 6) ? rng_range(&f->r, 1, LONGEST) : rng_range(&f->r, 1, 200);
    const int32_t family = (int32_t)rng_range(&f->r, 1, 3);
    for (int64_t i = 0; i < n; i++) tokens[i] = family;
    for (int64_t i = rng_range(&f->r, 0, n); i < n; i++)
        tokens[i] = (int32_t)rng_range(&f->r, 0, 1); /* where it leaves the family */
    assert_int_equal(ca_tree_join(f->tree, tokens, n, 0, 0, &f->seqs[f->n_seqs], NULL, NULL), CATTN_OK);
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

static void run(uint64_t seed, bool together) {
    fixture f = {.alloc = ca_alloc_default(), .r = {seed}};
    ca_layout_init(&f.layout, CATTN_F32, 1, 1, 64, 64, 16 << rng_range(&f.r, 0, 2));
    assert_int_equal(ca_chunk_pool_create(&f.pool, &f.alloc, f.layout.chunk_bytes, (uint64_t)1 << 30), CATTN_OK);
    const ca_tree_config tree = {CATTN_SHARED, rng_chance(&f.r, 2) ? CATTN_RETAIN_LRU : CATTN_RETAIN_NONE};
    assert_int_equal(ca_tree_create(&f.tree, &tree, &f.layout, f.pool, &f.alloc), CATTN_OK);
    const ca_plan_config config = {together, GROUP, (int32_t)rng_range(&f.r, 4, 64), (int32_t)rng_range(&f.r, 1, 12)};
    ca_plan_init(&f.plan, &config, f.tree, &f.layout, &f.alloc);
    for (int i = 0; i < 120; i++) {
        change(&f);
        if (f.n_seqs > 0) step(&f);
        if (f.n_seqs > 0 && rng_chance(&f.r, 2)) step(&f); /* often nothing changed in between */
    }
    assert_true(f.n_kept > 0 && f.n_rebuilt > 0);
    ca_plan_free(&f.plan);
    ca_tree_destroy(&f.tree);
    ca_chunk_pool_destroy(&f.pool);
    assert_int_equal(f.alloc.bytes, 0);
}

static void each_row_takes_each_position_once(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 25; seed++) run(seed, true);
}

static void nothing_is_read_together_when_told_so(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++) run(seed, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_row_takes_each_position_once),
        cmocka_unit_test(nothing_is_read_together_when_told_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
