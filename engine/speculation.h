/*
 * Which drafts a step verifies, and what becomes of them.
 *
 * Between two steps nothing is drafted. A draft is appended to the choice's sequence, within the room that the choice has been
 * promised; the step computes it behind the choice's last token, in rows that nobody else wants; and what the draws do not
 * agree with is taken back before anybody joins, leaves or is told. So the output is what it is without.
 *
 * A row is spent on a drafted token if it is likely enough to be accepted, given what rows cost (engine_config.row_cost).
 */
#ifndef ENGINE_SPECULATION_H
#define ENGINE_SPECULATION_H

#include "draft.h"
#include "draw.h"

typedef struct cl_speculation cl_speculation;

/* cache and the drafter's surroundings are borrowed, the drafter is owned, also after a failure. NULL without memory. */
cl_speculation *cl_speculation_create(cattn_cache *cache, cl_drafter *d, int32_t max_seqs, float row_cost);
void cl_speculation_free(cl_speculation **sp);

/* Start a new list, then add choices that decode, at most max_seqs. */
void cl_speculation_clear(cl_speculation *sp);
void cl_speculation_add(cl_speculation *sp, cl_choice *c);

/*
 * Draft for those listed, in a step that n_decoding choices decode in, at most max_rows tokens, as far as they are worth their
 * rows: n_drafted of each choice says how many.
 */
void cl_speculation_draft(cl_speculation *sp, int32_t n_decoding, int32_t max_rows);

/*
 * Keep of a choice's draft what its draws, n >= 1 of them in a row, agree with; n = 0: nothing was verified. On an error the
 * sequence is of no use any more.
 */
cattn_status cl_speculation_settle(cl_speculation *sp, cl_choice *c, const cl_draw *draws, int32_t n, cattn_error *error);

/* A choice leaves the cache. */
void cl_speculation_leave(cl_speculation *sp, cl_choice *c);

cl_engine_drafts cl_speculation_get_counts(const cl_speculation *sp);

#endif
