/* A step's begin and end: which rows the entries get, where their K/V go, and the plan. The cache's backend does the rest. */
#include "step.h"

#include <assert.h>
#include <string.h>

#include "checks.h"
#include "chunkattn/base/fail.h"
#include "file_tier.h"

uint64_t ca_cache_bytes(const cattn_cache *c) { return c->compute.backend->other_bytes(c) + ca_chunk_pool_bytes(c->pool); }

void ca_cache_note_bytes(cattn_cache *c) {
    const uint64_t bytes = ca_cache_bytes(c);
    if (bytes > c->bytes_peak) c->bytes_peak = bytes;
}

/* ---- Begin ---- */

/* Whether the entries are those of the last step and the tree is unchanged. Prefetches their leaves. */
static bool same_entries(const cattn_cache *c, const cattn_entry *entries, int32_t n) {
    const ca_step *step = &c->step;
    if (step->tree_version != ca_tree_version(c->tree) || step->seqs.n != (size_t)n) return false;
    for (int32_t i = 0; i < n; i++) {
        const ca_step_seq *s = &step->seqs.at[i];
        if (entries[i].seq != s->id || entries[i].max_rows < 1) return false;
        __builtin_prefetch(s->leaf, 1);
    }
    return true;
}

static cattn_status find_entry(cattn_cache *c, const cattn_entry *entries, int32_t i, cattn_error *error) {
    ca_step *step = &c->step;
    ca_seq *seq = ca_tree_find(c->tree, entries[i].seq);
    if (!seq)
        return ca_fail(error, CATTN_ERR_ARG, i, "entries[%d].seq is %llu, which is %s", i, (unsigned long long)entries[i].seq,
                       ca_seq_fault(c, entries[i].seq));
    if (seq->step_entry >= 0)
        return ca_fail(error, CATTN_ERR_ARG, i, "entries[%d].seq is the sequence of entry %d too; list it once", i,
                       seq->step_entry);
    if (entries[i].max_rows < 1)
        return ca_fail(error, CATTN_ERR_ARG, i, "entries[%d].max_rows is %lld; it must be at least 1", i,
                       (long long)entries[i].max_rows);
    seq->step_entry = i;
    __builtin_prefetch(seq->leaf, 1);
    step->seqs.at[step->seqs.n++] = (ca_step_seq){seq->id, seq->leaf};
    step->entries.at[step->entries.n++] = (ca_plan_entry){.seq = seq};
    return CATTN_OK;
}

/* Resolve the entries' sequences; each may occur once. */
static cattn_status find_entries(cattn_cache *c, const cattn_entry *entries, int32_t n, cattn_error *error) {
    ca_step *step = &c->step;
    step->seqs.n = step->entries.n = 0;
    if (CA_ROOM(&c->alloc, &step->seqs, (size_t)n) || CA_ROOM(&c->alloc, &step->entries, (size_t)n))
        return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for %d entries", n);
    cattn_status status = CATTN_OK;
    for (int32_t i = 0; i < n && status == CATTN_OK; i++) status = find_entry(c, entries, i, error);
    for (size_t i = 0; i < step->entries.n; i++) step->entries.at[i].seq->step_entry = -1;
    if (status) step->seqs.n = step->entries.n = 0;
    step->tree_version = ca_tree_version(c->tree);
    return status;
}

/* Whether an entry gets no rows because its next token is on the way. */
static bool waits(const ca_node *leaf) { return ca_path_n_coming(leaf) > ca_path_n_ready(leaf); }

/* Claim rows in the entries' order. Returns how many. */
static int64_t assign_rows(cattn_cache *c, cattn_entry *entries, int64_t row_limit) {
    ca_step *step = &c->step;
    const bool restores = c->tier && ca_tree_restores(c->tree);
    int64_t n_rows = 0;
    for (size_t i = 0; i < step->entries.n; i++) {
        ca_plan_entry *e = &step->entries.at[i];
        ca_node *leaf = step->seqs.at[i].leaf;
        int64_t most = entries[i].max_rows;
        if (row_limit > 0 && most > row_limit - n_rows) most = row_limit - n_rows;
        if (restores && waits(leaf)) most = 0;
        e->first_pos = ca_path_n_claimed(leaf);
        e->row = (int32_t)n_rows;
        e->n_rows = (int32_t)ca_path_claim(leaf, most);
        entries[i].first_pos = e->first_pos;
        entries[i].n_rows = e->n_rows;
        n_rows += e->n_rows;
    }
    return n_rows;
}

/* Whether an entry's rows may need branch copies. All of a leaf's copies exist once its second token is ready. */
static bool may_need_copies(const ca_step *step, size_t i) {
    const ca_plan_entry *e = &step->entries.at[i];
    return e->n_rows > 0 && e->first_pos <= step->seqs.at[i].leaf->start + 1;
}

/* An upper bound on the branch copies that the claimed rows need: a copy that several entries need counts once for each. */
static size_t count_branch_copies(const cattn_cache *c) {
    const ca_step *step = &c->step;
    size_t n = 0;
    for (size_t i = 0; i < step->entries.n; i++) {
        const ca_plan_entry *e = &step->entries.at[i];
        if (!may_need_copies(step, i)) continue;
        n += (size_t)ca_path_branch_copies(c->tree, step->seqs.at[i].leaf, e->first_pos, e->first_pos + e->n_rows - 1, NULL);
    }
    return n;
}

/* Record the branch copies. To be called when it is known which slot groups the rows leave open. */
static void record_branch_copies(cattn_cache *c) {
    ca_step *step = &c->step;
    for (size_t i = 0; step->after.capacity > 0 && i < step->entries.n; i++) {
        const ca_plan_entry *e = &step->entries.at[i];
        const ca_node *leaf = step->seqs.at[i].leaf;
        const int64_t last = e->first_pos + e->n_rows - 1;
        if (!may_need_copies(step, i)) continue;
        const size_t n = (size_t)ca_path_branch_copies(c->tree, leaf, e->first_pos, last, NULL);
        assert(step->after.n + n <= step->after.capacity);
        step->after.n += n;
        ca_path_branch_copies(c->tree, leaf, e->first_pos, last, step->after.at + step->after.n);
    }
}

static void take_slots(cattn_cache *c, ca_chunk_id id, int32_t begin, int32_t end) {
    ca_kv_open_and_close(&c->layout, c->pool, id, begin, end, &c->step.before);
}

/*
 * Update the places of the last step's rows, which have only moved within their absolute chunks. Inside a leaf an absolute
 * chunk is one physical chunk; above the leaf it may be several.
 */
static void move_rows(cattn_cache *c) {
    ca_step *step = &c->step;
    for (size_t i = 0; i < step->entries.n; i++) {
        const ca_plan_entry *e = &step->entries.at[i];
        if (e->n_rows != 1) continue;
        ca_row *row = &step->rows.at[e->row];
        const ca_node *leaf = step->seqs.at[i].leaf;
        const int32_t slot = (int32_t)(e->first_pos & (c->layout.c - 1));
        if (e->first_pos < leaf->start || e->first_pos - slot + row->slot < leaf->start)
            row->chunk = ca_path_chunk(c->tree, leaf, e->first_pos);
        row->slot = slot;
        take_slots(c, row->chunk, slot, slot + 1);
    }
}

static void place_rows(cattn_cache *c) {
    ca_step *step = &c->step;
    step->rows.n = 0;
    for (size_t i = 0; i < step->entries.n; i++) {
        const ca_plan_entry *e = &step->entries.at[i];
        for (int64_t p = e->first_pos; p < e->first_pos + e->n_rows; p++)
            step->rows.at[step->rows.n++] =
                (ca_row){ca_path_chunk(c->tree, step->seqs.at[i].leaf, p), (int32_t)(p & (c->layout.c - 1))};
    }
    for (int32_t row = 0, n; row < (int32_t)step->rows.n; row += n) {
        const ca_row *first = &step->rows.at[row];
        n = ca_step_run_length(step, row);
        take_slots(c, first->chunk, first->slot, first->slot + n);
    }
}

/* Allocate what the places of n_rows rows, and the commands before them and the n_after behind them, need. */
static cattn_status reserve_places(cattn_cache *c, size_t n_rows, size_t n_after) {
    ca_step *step = &c->step;
    const size_t n_layers = (size_t)c->layout.n_layers, n_pending = ca_tree_pending(c->tree)->n;
    if (CA_RESERVE(&c->alloc, &step->rows, n_rows) || CA_RESERVE(&c->alloc, &step->before, n_pending + n_rows) ||
        CA_RESERVE(&c->alloc, &step->after, n_after) || CA_RESERVE(&c->alloc, &step->prepared, n_layers))
        return CATTN_ERR_NOMEM;
    memset(step->prepared.at, 0, n_layers * sizeof *step->prepared.at);
    return CATTN_OK;
}

/* Eviction may have removed a leaf's only sibling, in which case the leaf was joined with its parent. */
static void find_leaves(ca_step *step) {
    for (size_t i = 0; i < step->seqs.n; i++) step->seqs.at[i].leaf = step->entries.at[i].seq->leaf;
}

void ca_step_release(cattn_cache *c) {
    for (size_t i = 0; i < c->plans.n; i++) ca_plan_free(&c->plans.at[i]);
    c->compute.backend->release(&c->compute);
    ca_step_free(c);
}

/* last: no other attempt follows, so a step of one row begins even where the budget has no room for it. */
static cattn_status try_begin(cattn_cache *c, cattn_entry *entries, int32_t n_entries, int64_t row_limit, bool last,
                              cattn_error *error) {
    ca_step *step = &c->step;
    const ca_backend *b = c->compute.backend;
    const size_t bytes_before = c->alloc.bytes;
    cattn_status status = CATTN_OK;
    if (!same_entries(c, entries, n_entries)) {
        status = find_entries(c, entries, n_entries, error);
        if (status) return status;
    }
    const int64_t n_rows = assign_rows(c, entries, row_limit);
    const size_t n_after = count_branch_copies(c);
    const bool had_rows = step->has_rows;
    step->has_rows = false;
    if (reserve_places(c, (size_t)n_rows, n_after) || ca_plan_update(c->plans.at, c->plans.n, step->entries.at, n_entries))
        status = ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the plan of %lld rows", (long long)n_rows);
    else
        status = b->reserve(c, bytes_before, n_after, last && n_rows <= 1, error);
    find_leaves(step);
    if (status) {
        ca_step_close(c, false);
        return status;
    }
    ca_kv_take(ca_tree_pending(c->tree), &step->before);
    if (had_rows && c->plans.at[0].only_moved)
        move_rows(c);
    else
        place_rows(c);
    record_branch_copies(c);
    if (b->begin && (status = b->begin(c, error))) {
        ca_step_close(c, false);
        return status;
    }
    step->has_rows = true;
    step->open = true;
    return CATTN_OK;
}

cattn_status ca_step_begin(cattn_cache *c, cattn_entry *entries, int32_t n_entries, int64_t row_limit, cattn_error *error) {
    cattn_error cause;
    ca_file_tier_poll(c);
    ca_file_tier_step_begins(c);
    cattn_status status = try_begin(c, entries, n_entries, row_limit, false, &cause);
    if (status == CATTN_ERR_BUDGET || status == CATTN_ERR_NOMEM) {
        ca_step_release(c); /* earlier, larger steps may have left more than this one needs */
        status = try_begin(c, entries, n_entries, row_limit, true, &cause);
        if (status) ca_step_release(c);
    }
    if (status && error) *error = cause;
    if (status == CATTN_OK) ca_tree_note_peaks(c->tree);
    ca_cache_note_bytes(c);
    return status;
}

/* ---- Headroom ---- */

size_t ca_step_headroom(const cattn_cache *c, int64_t n_tokens, int64_t n_rows) {
    enum { ENTRY_BYTES = 256, ROW_BYTES = 64 }; /* what an entry and a row of the step itself take, at most */
    const size_t n_seqs = (size_t)ca_tree_get_counts(c->tree)->n_seqs;
    if (n_rows < 1 || n_seqs == 0 || !c->compute.backend->most_bytes) return 0;
    size_t bytes =
        ENTRY_BYTES * (n_seqs + 1) + ROW_BYTES * (size_t)n_rows + c->compute.backend->most_bytes(c, n_tokens, n_rows);
    for (size_t i = 0; i < c->plans.n; i++) bytes += ca_plan_most_bytes(&c->plans.at[i], n_tokens, n_rows);
    return bytes;
}

/* ---- End ---- */

void ca_step_close(cattn_cache *c, bool ready) {
    ca_step *step = &c->step;
    if (ready) ca_file_tier_step_ends(c, (int64_t)step->rows.n);
    if (step->open && c->compute.backend->end) c->compute.backend->end(c, ready);
    for (size_t i = 0; i < step->seqs.n; i++) (ready ? ca_path_commit : ca_path_unclaim)(step->seqs.at[i].leaf);
    if (!ready) ca_path_undo_branch_copies(c->tree, &step->after);
    step->before.n = step->after.n = 0;
    step->open = false;
}

void ca_step_free(cattn_cache *c) {
    c->step.has_rows = false;
    CA_ARRAY_FREE(&c->alloc, &c->step.seqs);
    CA_ARRAY_FREE(&c->alloc, &c->step.entries);
    CA_ARRAY_FREE(&c->alloc, &c->step.rows);
    CA_ARRAY_FREE(&c->alloc, &c->step.before);
    CA_ARRAY_FREE(&c->alloc, &c->step.after);
    CA_ARRAY_FREE(&c->alloc, &c->step.prepared);
}
