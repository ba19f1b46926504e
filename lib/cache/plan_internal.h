/* What the planner's files share. */
#ifndef LIB_CACHE_PLAN_INTERNAL_H
#define LIB_CACHE_PLAN_INTERNAL_H

#include "plan.h"

/* ---- section.c ---- */

/* A node with rows, in depth-first order. */
typedef struct ca_visit {
    ca_node *node;
    int32_t row_begin;
    int32_t row_own_end; /* rows of sequences that end at the node come first */
    int32_t row_end;
    size_t next_child, parent; /* while walking */
} ca_visit;

/* Build *section for the rows under root. CATTN_ERR_NOMEM leaves it in no usable state. */
cattn_status ca_section_build(ca_plan *plan, ca_section *section, ca_node *root, const ca_plan_entry *entries);

/*
 * Refresh rows and positions of a section built for the same part of the tree. False if its sequences, their rows or the chunks
 * they end in are not as they were: it must be built anew.
 */
bool ca_section_refresh(ca_plan *plan, ca_section *section, const ca_plan_entry *entries);

void ca_section_free(ca_section *section, ca_alloc *alloc);

/* ---- tasks.c ---- */

/* Divide the blocks of all sections into plan->tasks, and number the states. 0, or -1 without memory. */
int ca_plan_deal(ca_plan *plan);

#endif
