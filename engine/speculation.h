/*
 * Speculative decoding: decides which drafted tokens a step verifies, and keeps those that are accepted.
 *
 * Between two steps no sequence holds drafted tokens. Before a step, a draft is appended to the choice's sequence, within the
 * room that the choice has reserved. The step computes it after the choice's last token, in rows that decoding and prefill
 * leave free. What the draws disagree with is truncated before any request joins, leaves or gets an event. So the output is
 * that of one token a step.
 *
 * A row is spent on a drafted token if the token is probable enough, given the cost of rows (cl_engine_config.row_cost).
 */
#ifndef ENGINE_SPECULATION_H
#define ENGINE_SPECULATION_H

#include "draft.h"
#include "draw.h"

typedef struct cl_speculation cl_speculation;

/* Borrows the cache and owns the drafter, which is freed after a failure too. NULL if memory is lacking. */
cl_speculation *cl_speculation_create(cattn_cache *cache, cl_drafter *d, int32_t max_seqs, float row_cost);
void cl_speculation_free(cl_speculation **sp);

/* Start a new list, then add choices that decode, at most max_seqs. */
void cl_speculation_clear(cl_speculation *sp);
void cl_speculation_add(cl_speculation *sp, cl_choice *c);

/*
 * Draft for the listed choices, in a step in which n_decoding choices decode: at most max_rows tokens, and only those that are
 * worth their rows. n_drafted of each choice then is the number of its drafted tokens.
 */
void cl_speculation_draft(cl_speculation *sp, int32_t n_decoding, int32_t max_rows);

/*
 * Keep the tokens of a choice's draft that its draws, n >= 1 in a row, agree with; n = 0: nothing was verified. After an error
 * the sequence cannot be used any more.
 */
cattn_status cl_speculation_settle(cl_speculation *sp, cl_choice *c, const cl_draw *draws, int32_t n, cattn_error *error);

/* A choice leaves the cache. */
void cl_speculation_leave(cl_speculation *sp, cl_choice *c);

/* Forget the tokens of choices that have left. Not while a step is open. */
void cl_speculation_drop_left(cl_speculation *sp);

/* Let the drafter keep to this part, from 0 to 1, of its K/V memory. */
void cl_speculation_set_budget(cl_speculation *sp, double part);

cl_engine_drafts cl_speculation_get_counts(const cl_speculation *sp);

#endif
