/* Keeping the sorted block tables from batch to batch. */
#include "tables.h"

#include <string.h>

void ca_tables_init(ca_tables *t, ca_alloc *alloc) { *t = (ca_tables){.alloc = alloc}; }

void ca_tables_free(ca_tables *t) {
    for (size_t i = 0; i < t->tables.n; i++) CA_ARRAY_FREE(t->alloc, &t->tables.at[i].ids);
    CA_ARRAY_FREE(t->alloc, &t->tables);
    CA_ARRAY_FREE(t->alloc, &t->unused);
    CA_ARRAY_FREE(t->alloc, &t->order);
    CA_ARRAY_FREE(t->alloc, &t->next);
    CA_ARRAY_FREE(t->alloc, &t->by_seq);
    CA_ARRAY_FREE(t->alloc, &t->next_seq);
    CA_ARRAY_FREE(t->alloc, &t->inserted);
}

/* ---- Comparing ---- */

static int32_t min32(int32_t a, int32_t b) { return a < b ? a : b; }

/* Leading ids in common. */
static int32_t count_common(const int32_t *a, int32_t n_a, const int32_t *b, int32_t n_b) {
    enum { AT_ONCE = 32 };
    const int32_t n = min32(n_a, n_b);
    int32_t i = 0;
    while (i + AT_ONCE <= n && memcmp(a + i, b + i, AT_ONCE * sizeof *a) == 0) i += AT_ONCE;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* Whether a committed table and a sequence's are the same as far as both go. */
static bool is_related(const ca_table *t, const ca_page_seq *s) {
    return memcmp(t->ids.at, s->ids, (size_t)min32(t->n, s->n_pages) * sizeof *s->ids) == 0;
}

/* Whether the ids a come before b; equal ones do not. */
static bool is_before(const int32_t *a, int32_t n_a, const int32_t *b, int32_t n_b) {
    const int32_t common = count_common(a, n_a, b, n_b);
    if (common == n_a || common == n_b) return n_a < n_b;
    return a[common] < b[common];
}

/*
 * The index in an order at which a table with these ids belongs, behind tables with equal ids. In t->next the tables have the
 * lengths of the update, in t->order those that are committed.
 */
static size_t place_of(const ca_tables *t, const ca_table_order *order, const int32_t *ids, int32_t n) {
    const bool updated = order == &t->next;
    size_t low = 0, high = order->n; /* tables below `low` belong before it, those from `high` on behind it */
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const ca_table *at = ca_table_at(t, order->at[middle]);
        if (is_before(ids, n, at->ids.at, updated ? at->n_next : at->n))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* ---- The table of each sequence ---- */

static void claim(ca_tables *t, int32_t table, int32_t seq, const ca_page_seq *s) {
    t->tables.at[table].seq = seq;
    t->tables.at[table].n_next = s->n_pages;
    t->next_seq.at[seq] = table;
}

/* Claim the table of the sequence that was at this index, if it is related. */
static bool claim_same_index(ca_tables *t, int32_t seq, const ca_page_seq *s) {
    const int32_t table = (size_t)seq < t->by_seq.n ? t->by_seq.at[seq] : -1;
    if (table < 0 || !is_related(&t->tables.at[table], s)) return false;
    claim(t, table, seq, s);
    return true;
}

/* Claim the nearest related table before the place where the sequence's table belongs. */
static bool claim_by_order(ca_tables *t, int32_t seq, const ca_page_seq *s) {
    size_t place = place_of(t, &t->order, s->ids, s->n_pages);
    for (; place > 0 && is_related(ca_table_at(t, t->order.at[place - 1]), s); place--) {
        if (ca_table_at(t, t->order.at[place - 1])->seq >= 0) continue;
        claim(t, t->order.at[place - 1].table, seq, s);
        return true;
    }
    return false;
}

/* Claim an unused table, of which there must be one. */
static void claim_unused(ca_tables *t, int32_t seq, const ca_page_seq *s) {
    const int32_t table = t->unused.at[--t->unused.n];
    ca_table *new = &t->tables.at[table];
    new->n = 0;
    new->section = -1;
    claim(t, table, seq, s);
}

/* Make sure that n tables are unused. */
static int add_unused(ca_tables *t, size_t n) {
    if (t->unused.n >= n) return 0;
    const size_t more = n - t->unused.n;
    if (CA_ROOM(t->alloc, &t->tables, more) || CA_RESERVE(t->alloc, &t->unused, t->tables.n + more)) return -1;
    for (size_t i = 0; i < more; i++) {
        t->unused.at[t->unused.n++] = (int32_t)t->tables.n;
        t->tables.at[t->tables.n++] = (ca_table){.section = -1, .seq = -1};
    }
    t->n_unused = t->unused.n;
    return 0;
}

/* Claim a table for each sequence with rows: first those of the same index, so that no other sequence claims them. */
static int claim_tables(ca_tables *t, const ca_page_seq *seqs, int32_t n_seqs) {
    size_t n_new = 0;
    for (int32_t i = 0; i < n_seqs; i++) {
        t->next_seq.at[i] = -1;
        if (seqs[i].n_rows > 0 && !claim_same_index(t, i, &seqs[i])) n_new++;
    }
    for (int32_t i = 0; n_new > 0 && i < n_seqs; i++)
        if (seqs[i].n_rows > 0 && t->next_seq.at[i] < 0 && claim_by_order(t, i, &seqs[i])) n_new--;
    if (add_unused(t, n_new)) return -1;
    for (int32_t i = 0; n_new > 0 && i < n_seqs; i++)
        if (seqs[i].n_rows > 0 && t->next_seq.at[i] < 0) claim_unused(t, i, &seqs[i]);
    return 0;
}

/* Copy the ids that a table lacks. Committed ids do not change. */
static int copy_ids(ca_tables *t, const ca_page_seq *seqs) {
    for (size_t i = 0; i < t->next_seq.n; i++) {
        if (t->next_seq.at[i] < 0) continue;
        ca_table *table = &t->tables.at[t->next_seq.at[i]];
        if (table->n_next <= table->n) continue;
        if (CA_RESERVE(t->alloc, &table->ids, (size_t)table->n_next)) return -1;
        memcpy(table->ids.at + table->n, seqs[i].ids + table->n, (size_t)(table->n_next - table->n) * sizeof *seqs[i].ids);
    }
    return 0;
}

/* ---- The order ---- */

/*
 * Whether the table at a place keeps its place. A table that grew does, and has as much in common with its neighbours as
 * before, unless the next one began with all of it.
 */
static bool stays(const ca_tables *t, size_t place) {
    const ca_table *table = ca_table_at(t, t->order.at[place]);
    if (table->seq < 0 || table->n_next < table->n) return false;
    const bool is_prefix = place + 1 < t->order.n && t->order.at[place + 1].common == table->n;
    return table->n_next == table->n || !is_prefix;
}

/* Put the tables that keep their places into `next`, and list those that must be inserted in `inserted`. */
static void keep_places(ca_tables *t) {
    int32_t common = INT32_MAX; /* with the last one that stays */
    t->next.n = t->inserted.n = 0;
    for (size_t i = 0; i < t->order.n; i++) {
        common = min32(common, t->order.at[i].common);
        if (stays(t, i)) {
            t->next.at[t->next.n++] = (ca_table_place){t->order.at[i].table, common};
            common = INT32_MAX;
        } else if (ca_table_at(t, t->order.at[i])->seq >= 0) {
            t->inserted.at[t->inserted.n++] = t->order.at[i].table;
        }
    }
    for (size_t i = 0; i < t->next_seq.n; i++) {
        const int32_t table = t->next_seq.at[i];
        if (table >= 0 && t->tables.at[table].n == 0) t->inserted.at[t->inserted.n++] = table;
    }
}

static int32_t common_of(const ca_table *a, const ca_table *b) {
    return count_common(a->ids.at, a->n_next, b->ids.at, b->n_next);
}

static void insert(ca_tables *t, int32_t index) {
    const ca_table *table = &t->tables.at[index];
    ca_table_place *places = t->next.at;
    const size_t at = place_of(t, &t->next, table->ids.at, table->n_next);
    memmove(places + at + 1, places + at, (t->next.n - at) * sizeof *places);
    t->next.n++;
    places[at] = (ca_table_place){index, at > 0 ? common_of(ca_table_at(t, places[at - 1]), table) : 0};
    if (at + 1 < t->next.n) places[at + 1].common = common_of(table, ca_table_at(t, places[at + 1]));
}

cattn_status ca_tables_update(ca_tables *t, const ca_page_seq *seqs, int32_t n_seqs) {
    const size_t n = (size_t)n_seqs;
    t->n_unused = t->unused.n;
    if (CA_RESERVE(t->alloc, &t->next, n) || CA_RESERVE(t->alloc, &t->next_seq, n) || CA_RESERVE(t->alloc, &t->inserted, n))
        return CATTN_ERR_NOMEM;
    t->next_seq.n = n;
    if (claim_tables(t, seqs, n_seqs) || copy_ids(t, seqs)) {
        ca_tables_undo(t);
        return CATTN_ERR_NOMEM;
    }
    keep_places(t);
    for (size_t i = 0; i < t->inserted.n; i++) insert(t, t->inserted.at[i]);
    return CATTN_OK;
}

/* ---- Commit and undo ---- */

void ca_tables_commit(ca_tables *t) {
    for (size_t i = 0; i < t->order.n; i++)
        if (ca_table_at(t, t->order.at[i])->seq < 0) t->unused.at[t->unused.n++] = t->order.at[i].table;
    for (size_t i = 0; i < t->next.n; i++) {
        ca_table *table = ca_table_at(t, t->next.at[i]);
        table->n = table->n_next;
        table->seq = -1;
    }
    t->n_unused = t->unused.n;
    const ca_table_order order = t->order;
    const ca_table_indices by_seq = t->by_seq;
    t->order = t->next, t->next = order;
    t->by_seq = t->next_seq, t->next_seq = by_seq;
}

void ca_tables_undo(ca_tables *t) {
    for (size_t i = 0; i < t->next_seq.n; i++)
        if (t->next_seq.at[i] >= 0) t->tables.at[t->next_seq.at[i]].seq = -1;
    t->unused.n = t->n_unused; /* the claimed ones are still in the array behind the others */
}
