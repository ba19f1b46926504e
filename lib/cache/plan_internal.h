/* What the planner's files share: section.c builds sections, tasks.c divides their blocks, plan.c keeps both. */
#ifndef LIB_CACHE_PLAN_INTERNAL_H
#define LIB_CACHE_PLAN_INTERNAL_H

#include "plan.h"

/* ---- section.c ---- */

/* A node with rows. Visits are in depth-first order. */
typedef struct ca_visit {
    ca_node *node;
    int32_t row_begin;
    int32_t row_own_end; /* the rows of sequences that end at the node come first, up to here */
    int32_t row_end;
    size_t next_child, parent; /* during the walk */
} ca_visit;

/* Build *section for the rows below root. CATTN_ERR_NOMEM leaves a section that may only be built again or freed. */
cattn_status ca_section_build(ca_plan *plan, ca_section *section, ca_node *root, const ca_plan_entry *entries);

/*
 * Refresh the positions and sources of a section whose part of the tree has not changed. False if its sequences, their rows or
 * the chunks in which they end have changed; the section must then be built again.
 */
bool ca_section_refresh(ca_plan *plan, ca_section *section, const ca_plan_entry *entries);

/* Free a section and its arrays. */
void ca_section_free(ca_section *section, ca_alloc *alloc);

/* ---- tasks.c ---- */

/* Divide the blocks of all sections into plan->tasks, and number the rows' states. Returns 0, or -1 without memory. */
int ca_plan_divide(ca_plan *plan);

#endif
