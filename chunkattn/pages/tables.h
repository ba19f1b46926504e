/*
 * The block tables of a batch, sorted by their ids, with the number of pages that neighbours have in common. This array
 * represents a trie over the tables, as a suffix array represents a suffix tree. Depth-first order is the order of the array,
 * and the tables that share a run of pages are a range of it:
 *
 *   ids           common
 *   7 3           0                 7 3 ---+--------- (ends)
 *   7 3 9 4       2                        '- 9 -+- 4
 *   7 3 9 5 6     3                              '- 5 6
 *   8             0                 8
 *
 * The array is kept from batch to batch, and only differences are updated. A table is recognised if it equals its previous
 * contents or one of the two begins with the other: at the same index in the batch, otherwise by its place in the order. A
 * table that grew keeps its place unless the next one begins with all of it. Only tables that moved or are new are compared
 * with others.
 *
 * An update is tentative until it is committed. Until then the old order remains, and undoing the update restores everything.
 * One thread at a time may call these functions.
 */
#ifndef CHUNKATTN_PAGES_TABLES_H
#define CHUNKATTN_PAGES_TABLES_H

#include <stdbool.h>

#include "chunkattn.h"
#include "chunkattn/base/array.h"

/* One sequence of a batch. */
typedef struct ca_page_seq {
    const int32_t *ids; /* [n_pages], the caller's */
    int32_t n_pages;    /* that hold positions up to its last row's */
    int32_t first_pos;  /* of its first row */
    int32_t n_rows;     /* 0: it is ignored */
    int32_t row;        /* the caller's index of its first row */
} ca_page_seq;

typedef struct ca_table {
    CA_ARRAY(int32_t) ids; /* at least the larger of n and n_next */
    int32_t n, n_next;     /* pages: as committed, and in the update */
    int32_t first_pos;     /* as the next two, when its section was built or refreshed */
    int32_t n_rows;
    int32_t section; /* index of the section that holds it in every plan; -1: none */
    int32_t seq;     /* in the update: the index of its sequence; -1: none, so a commit removes it */
} ca_table;

/* A place in the order. */
typedef struct ca_table_place {
    int32_t table;  /* index in tables */
    int32_t common; /* leading pages in common with the place before; 0 at the first */
} ca_table_place;

typedef CA_ARRAY(ca_table_place) ca_table_order;
typedef CA_ARRAY(int32_t) ca_table_indices; /* in tables */

typedef struct ca_tables {
    ca_alloc *alloc;
    CA_ARRAY(ca_table) tables;
    ca_table_indices unused;           /* tables that hold no sequence */
    ca_table_order order, next;        /* as committed, and in the update */
    ca_table_indices by_seq, next_seq; /* the table of each sequence of the batch, likewise; -1: it has no rows */
    ca_table_indices inserted;         /* during an update: tables that are new in the order */
    size_t n_unused;                   /* as committed */
} ca_tables;

/* alloc is borrowed as long as the tables are in use. */
void ca_tables_init(ca_tables *t, ca_alloc *alloc);
void ca_tables_free(ca_tables *t);

/* Put these sequences into `next`. CATTN_ERR_NOMEM: nothing was changed. Either commit or undo follows. */
cattn_status ca_tables_update(ca_tables *t, const ca_page_seq *seqs, int32_t n_seqs);
void ca_tables_commit(ca_tables *t);
void ca_tables_undo(ca_tables *t);

/* The table at a place. */
static inline ca_table *ca_table_at(const ca_tables *t, ca_table_place place) { return &t->tables.at[place.table]; }

#endif
