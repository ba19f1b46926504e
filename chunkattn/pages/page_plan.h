/*
 * The plans of a batch over foreign pages, one for each window that a layer has. A section is the rows of the sequences whose
 * tables begin with the same page. It is kept as long as its tables, its numbers of rows, and the pages in which rows end
 * and windows begin are the same. The visits from which it is built follow from the sorted tables. One thread at a time may
 * call these functions.
 *
 * A chunk of the plan is 64 positions, which are part of a page or lie in several; sequences share it if they share all its
 * pages. Its number stands for a table and an index: the table is one of those that share the chunk, and the index counts the
 * table's chunks.
 */
#ifndef CHUNKATTN_PAGES_PAGE_PLAN_H
#define CHUNKATTN_PAGES_PAGE_PLAN_H

#include "chunkattn/attn/attn.h"
#include "chunkattn/cache/plan.h"
#include "chunkattn/cuda/work_item.h"
#include "chunkattn_pages.h"
#include "tables.h"

/* Of any backend. A quarter is the smallest page. */
enum {
    CA_PAGE_CHUNK = CA_CUDA_CHUNK,
    CA_PAGE_QUARTERS = CA_CUDA_QUARTERS,
    CA_PAGE_LOG2_QUARTER = CA_CUDA_LOG2_QUARTER,
};

/* A range of the order: consecutive places whose rows are one section. */
typedef struct ca_page_range {
    int32_t begin, end;
    int32_t section; /* index of the section that is still valid; -1: it must be built */
} ca_page_range;

typedef struct ca_page_plan {
    ca_alloc *alloc;
    ca_tables tables;
    CA_ARRAY(ca_plan) plans;
    CA_ARRAY(ca_page_range) ranges; /* of the update */
    int32_t log2_page;              /* of the tokens of a page */
    int32_t log2_quarters;          /* of the quarters of a page */
    int32_t log2_chunks, next_log2; /* a chunk's number is table << log2_chunks | index: bits of an index, enough for the
                                       longest table, as committed, and in the update */
    bool apart;                     /* no two sequences are in one section */
    bool exists;                    /* there is a plan */
    int64_t n_made, n_kept;         /* plans made so far, and those in which only positions within pages changed */
} ca_page_plan;

/* Layouts have chunks of CA_PAGE_CHUNK. alloc and layouts are borrowed as long as the plan is in use. */
void ca_page_plan_init(ca_page_plan *p, int32_t page_size, bool apart, ca_alloc *alloc);
void ca_page_plan_free(ca_page_plan *p);

/* The index of the plan with this configuration, added if there is none; -1 without memory. */
int32_t ca_page_plan_add(ca_page_plan *p, const ca_plan_config *config, const ca_chunk_layout *layout);

/*
 * Plan these sequences, and reserve the workspace of attn (unless NULL) for them. CATTN_ERR_NOMEM leaves the plan as it was, or
 * none (`exists`) if its workspace cannot be allocated again. CATTN_ERR_ARG: a batch has more tables than there are numbers,
 * 2^31, for chunks of its longest one; the plan stays as it was. The message says which.
 */
cattn_status ca_page_plan_update(ca_page_plan *p, ca_attn *attn, const ca_page_seq *seqs, int32_t n_seqs, cattn_error *error);

/* The page of a chunk's quarter, and its index in that page: page << log2_quarters | index; -1 if the table ends before it. */
int64_t ca_page_plan_find(const ca_page_plan *p, ca_chunk_id chunk, int32_t quarter);

/* What is shared, in the fields of that name. */
void ca_page_plan_count(const ca_page_plan *p, cattn_pages_info *info);

#endif
