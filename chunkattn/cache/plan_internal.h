/* What the planner's files share: section.c builds sections, tasks.c divides their blocks, plan.c keeps both. */
#ifndef CHUNKATTN_CACHE_PLAN_INTERNAL_H
#define CHUNKATTN_CACHE_PLAN_INTERNAL_H

#include "plan.h"

/* ---- section.c ---- */

/*
 * A run of positions, its chunks, and the rows that pass over them: what a walk yields, in depth-first order. A section is
 * built from plan->visits and knows nothing else of what was walked over.
 */
typedef struct ca_visit {
    int64_t start, end; /* positions */
    /* Ids of the absolute chunks from the one that holds `start` on; NULL: the ids are consecutive, from first_chunk on. */
    const ca_chunk_id *chunks;
    ca_chunk_id first_chunk;
    int32_t row_begin;
    int32_t row_own_end; /* the rows of sequences that end in this visit come first, up to here */
    int32_t row_end;
} ca_visit;

/* Remove all rows. */
void ca_section_clear(ca_section *section);

/* Add the rows of an entry, whose index is `entry`. Returns 0, or -1 without memory. */
int ca_section_add_rows(ca_plan *plan, ca_section *section, const ca_plan_entry *e, int32_t entry);

/*
 * Build a section, to which rows were added, from plan->visits. CATTN_ERR_NOMEM leaves a section that may only be built again
 * or freed.
 */
cattn_status ca_section_build(ca_plan *plan, ca_section *section);

/* Free a section and its arrays. */
void ca_section_free(ca_section *section, ca_alloc *alloc);

/* ---- walk.c ---- */

/* A node on the path from the root of a walk to its current node. */
typedef struct ca_plan_step {
    ca_node *node;
    size_t visit; /* index of the node's visit */
    size_t next_child;
} ca_plan_step;

/* Build *section for the rows below root. CATTN_ERR_NOMEM leaves a section that may only be built again or freed. */
cattn_status ca_section_build_subtree(ca_plan *plan, ca_section *section, ca_node *root, const ca_plan_entry *entries);

/*
 * Refresh the positions and sources of a section whose part of the tree has not changed. False if its sequences, their rows or
 * the chunks in which they end have changed; the section must then be built again.
 */
bool ca_section_refresh(ca_plan *plan, ca_section *section, const ca_plan_entry *entries);

/* ---- tasks.c ---- */

/* Divide the blocks of all sections into plan->tasks, and number the rows' states. Returns 0, or -1 without memory. */
int ca_plan_divide(ca_plan *plan);

#endif
