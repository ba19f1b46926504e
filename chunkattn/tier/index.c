/* A hash table with linear probing and a list in order of use: see index.h. */
#include "index.h"

#include <assert.h>
#include <stdlib.h>

int ca_tier_index_create(ca_tier_index *index, int32_t n_cells, ca_alloc *alloc) {
    assert(n_cells > 0);
    *index = (ca_tier_index){.alloc = alloc,
                             .n_cells = n_cells,
                             .table_size = 4,
                             .used = ca_list_empty,
                             .free = ca_list_empty,
                             .aside = ca_list_empty};
    const size_t n = (size_t)n_cells;
    while (index->table_size < n + n / 2) index->table_size *= 2;
    index->entries = ca_new(alloc, n, sizeof *index->entries);
    index->links = ca_new(alloc, n, sizeof *index->links);
    index->table = ca_new_zero(alloc, index->table_size, sizeof *index->table);
    if (!index->entries || !index->links || !index->table) return -1;
    for (int32_t cell = 0; cell < n_cells; cell++) ca_list_push_last(&index->free, index->links, cell);
    return 0;
}

void ca_tier_index_destroy(ca_tier_index *index) {
    const size_t n = (size_t)index->n_cells;
    ca_delete(index->alloc, index->table, index->table_size, sizeof *index->table);
    ca_delete(index->alloc, index->links, n, sizeof *index->links);
    ca_delete(index->alloc, index->entries, n, sizeof *index->entries);
    *index = (ca_tier_index){0};
}

/* ---- The hash table ---- */

/* Where probing for a key begins. A key is a hash already. */
static size_t home(const ca_tier_index *index, ca_tier_key key) { return key.low & (index->table_size - 1); }

static size_t after(const ca_tier_index *index, size_t place) { return (place + 1) & (index->table_size - 1); }

/* The place of a key in the table, or the empty place where it belongs. */
static size_t place_of(const ca_tier_index *index, ca_tier_key key) {
    size_t place = home(index, key);
    while (index->table[place] != 0 && !ca_tier_key_equal(index->entries[index->table[place] - 1].key, key))
        place = after(index, place);
    return place;
}

int32_t ca_tier_index_find(const ca_tier_index *index, ca_tier_key key) { return index->table[place_of(index, key)] - 1; }

static void add(ca_tier_index *index, int32_t cell, ca_tier_entry entry) {
    const size_t place = place_of(index, entry.key);
    assert(index->table[place] == 0);
    index->table[place] = cell + 1;
    index->entries[cell] = entry;
}

/* Empty a place. What probing would no longer reach behind the gap moves into it, which leaves the next gap. */
static void vacate(ca_tier_index *index, size_t gap) {
    const size_t mask = index->table_size - 1;
    for (size_t place = after(index, gap); index->table[place] != 0; place = after(index, place)) {
        const size_t begin = home(index, index->entries[index->table[place] - 1].key);
        if (((place - begin) & mask) < ((place - gap) & mask)) continue; /* it begins behind the gap */
        index->table[gap] = index->table[place];
        gap = place;
    }
    index->table[gap] = 0;
}

/* ---- The order of use ---- */

void ca_tier_index_touch(ca_tier_index *index, int32_t cell) {
    /* At most as many steps as there are records: in a forged file, ancestors may form a circle. */
    for (size_t n = index->used.n; cell >= 0 && n > 0; n--) {
        ca_list_remove(&index->used, index->links, cell);
        ca_list_push_first(&index->used, index->links, cell);
        cell = ca_tier_index_find(index, index->entries[cell].parent);
    }
}

void ca_tier_index_take(ca_tier_index *index, int32_t cell) { ca_list_remove(&index->free, index->links, cell); }

void ca_tier_index_remove(ca_tier_index *index, int32_t cell) {
    ca_list_remove(&index->used, index->links, cell);
    vacate(index, place_of(index, index->entries[cell].key));
}

void ca_tier_index_use(ca_tier_index *index, int32_t cell, ca_tier_entry entry) {
    add(index, cell, entry);
    ca_list_push_first(&index->used, index->links, cell);
    ca_tier_index_touch(index, cell);
}

void ca_tier_index_free(ca_tier_index *index, int32_t cell) { ca_list_push_first(&index->free, index->links, cell); }

void ca_tier_index_set_aside(ca_tier_index *index, int32_t cell) { ca_list_push_first(&index->aside, index->links, cell); }

void ca_tier_index_bring_back(ca_tier_index *index) {
    while (index->aside.n > 0) {
        const int32_t cell = index->aside.first;
        ca_list_remove(&index->aside, index->links, cell);
        ca_tier_index_free(index, cell);
    }
}

static int latest_first(const void *a, const void *b) {
    const ca_tier_found *x = a, *y = b;
    if (x->sequence != y->sequence) return x->sequence < y->sequence ? 1 : -1;
    return (x->cell > y->cell) - (x->cell < y->cell);
}

/*
 * From the latest record to the earliest, the record and those of its ancestors that are not in the list yet are put behind the
 * list, the topmost first. That is the order which touching them from the earliest to the latest would leave, but each record
 * is moved once.
 */
void ca_tier_index_load(ca_tier_index *index, ca_tier_found *found, int32_t *path, size_t n) {
    qsort(found, n, sizeof *found, latest_first);
    size_t n_used = 0;
    for (size_t i = 0; i < n; i++) {
        if (ca_tier_index_find(index, found[i].entry.key) >= 0) continue;
        ca_list_remove(&index->free, index->links, found[i].cell);
        index->links[found[i].cell].previous = found[i].cell; /* until it is in the list of used cells */
        add(index, found[i].cell, found[i].entry);
        found[n_used++] = found[i];
    }
    for (size_t i = 0; i < n_used; i++) {
        int32_t depth = 0, cell = found[i].cell;
        for (; cell >= 0 && index->links[cell].previous == cell;
             cell = ca_tier_index_find(index, index->entries[cell].parent)) {
            index->links[cell].previous = CA_LIST_END;
            path[depth++] = cell;
        }
        while (depth > 0) ca_list_push_last(&index->used, index->links, path[--depth]);
    }
}
