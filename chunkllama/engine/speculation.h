/*
 * Speculative decoding: decides which drafted tokens a step verifies.
 *
 * Between two steps no sequence holds drafted tokens. Before a step, a draft is appended to the choice's sequence, within the
 * chunks that the choice has reserved. The step computes it after the choice's last token, in rows that decoding and prefill
 * leave free. Drafted tokens that differ from the draws are truncated before any request joins, leaves or gets an event
 * (scheduler.c). So the output is that of one token a step. A draft ends before the first token that the choice's grammar
 * forbids, if that is known without waiting for a process.
 *
 * A row is spent on a drafted token if the token is probable enough, given the cost of rows (cl_engine_config.row_cost).
 */
#ifndef CHUNKLLAMA_ENGINE_SPECULATION_H
#define CHUNKLLAMA_ENGINE_SPECULATION_H

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

/* Learn from a choice's draft, which its n draws have verified; 0: it was not. */
void cl_speculation_learn(cl_speculation *sp, cl_choice *c, const cl_draw *draws, int32_t n);

/* A choice leaves the cache. */
void cl_speculation_leave(cl_speculation *sp, cl_choice *c);

/* Forget the tokens of choices that have left. Not while a step is open. */
void cl_speculation_drop_left(cl_speculation *sp);

/* Let the drafter keep to this part, from 0 to 1, of its K/V memory. */
void cl_speculation_set_budget(cl_speculation *sp, double part);

cl_engine_drafts cl_speculation_get_counts(const cl_speculation *sp);

#endif
