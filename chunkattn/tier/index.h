/*
 * The index of a tier: which cell of the file has the record of which key, and in what order records are replaced.
 *
 * It is in memory alone, 46 to 52 bytes a cell, and is rebuilt from the headers when a file is opened. A cell is used (it has a
 * record that can be found), free, taken (by a write in progress, which makes it used or free), or set aside (a write to it has
 * failed).
 *
 * The least recently used record is replaced first. A record cannot be reached without its parent, so that using one uses all
 * its ancestors, which become more recent than it. Hence a record is always replaced before its parent:
 *
 *   most recent                                      least recent
 *   [root] [a] [b of a]   [other root] [x] [y of x]
 *
 * One thread at a time may use an index; none of its functions but create allocates.
 */
#ifndef CHUNKATTN_TIER_INDEX_H
#define CHUNKATTN_TIER_INDEX_H

#include "chunkattn/base/alloc.h"
#include "list.h"
#include "record.h"

typedef struct ca_tier_entry {
    ca_tier_key key, parent;
} ca_tier_entry;

typedef struct ca_tier_index {
    ca_alloc *alloc;
    int32_t n_cells;
    ca_tier_entry *entries; /* [n_cells] */
    ca_link *links;         /* [n_cells] */
    int32_t *table;         /* [table_size], hashed by key with linear probing: a cell + 1, or 0 */
    size_t table_size;      /* a power of two, at least 1.5 times n_cells */
    ca_list used;           /* most recent first; the last is to be replaced first */
    ca_list free;           /* in the order in which they are taken */
    ca_list aside;          /* set aside */
} ca_tier_index;

/* A record that was found in a file. */
typedef struct ca_tier_found {
    uint64_t sequence;
    int32_t cell;
    ca_tier_entry entry;
} ca_tier_found;

/* An index of n_cells > 0 cells, all of them free, the first one first. Returns 0, or -1 without memory. */
int ca_tier_index_create(ca_tier_index *index, int32_t n_cells, ca_alloc *alloc);

/* Free the memory. Also after create failed, and for an index that is zero. */
void ca_tier_index_destroy(ca_tier_index *index);

/*
 * Use the cells of these records, as if each had been written in the order of the sequence numbers. All cells are free before.
 * Of two records with one key, the older cell stays free. `found` is reordered; `path` is room for n cells.
 */
void ca_tier_index_load(ca_tier_index *index, ca_tier_found *found, int32_t *path, size_t n);

/* The cell of the record with this key, -1: none. */
int32_t ca_tier_index_find(const ca_tier_index *index, ca_tier_key key);

/* Make a used cell the most recent one but for its ancestors, which become more recent than it. */
void ca_tier_index_touch(ca_tier_index *index, int32_t cell);

/* Take a free cell. */
void ca_tier_index_take(ca_tier_index *index, int32_t cell);

/* Take a used cell, whose record is then no longer found. */
void ca_tier_index_remove(ca_tier_index *index, int32_t cell);

/* Use a taken cell for the record with this key, which is not in the index. It is touched. */
void ca_tier_index_use(ca_tier_index *index, int32_t cell, ca_tier_entry entry);

/* Free a taken cell, which is then the first to be taken. */
void ca_tier_index_free(ca_tier_index *index, int32_t cell);

/* Set a taken cell aside, which cannot be written; bring all of these back as free cells. */
void ca_tier_index_set_aside(ca_tier_index *index, int32_t cell);
void ca_tier_index_bring_back(ca_tier_index *index);

#endif
