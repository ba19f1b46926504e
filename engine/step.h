/*
 * One step of the engine: the sequences listed are dealt rows, the model runs over them, and the rows whose logits somebody
 * waits for keep them.
 */
#ifndef ENGINE_STEP_H
#define ENGINE_STEP_H

#include "request.h"
#include "runner.h"

/* Rows, over all sequences of a step, whose logits are wanted for prompt_logprobs; and for drafts. Bound the logits' memory. */
enum { CL_STEP_SCORED_ROWS = 64, CL_STEP_DRAFTED_ROWS = 64 };

typedef struct cl_step_entry {
    cl_choice *choice;
    int64_t first_pos, n_rows; /* dealt */
    int32_t first_row;
    int32_t last_row; /* computes the choice's last token, maybe as another entry's row; -1: not in this step */
    int32_t n_drawn;  /* rows from last_row on that tokens are drawn from: one, and those of its draft */
} cl_step_entry;

typedef struct cl_step {
    cl_runner *runner;
    cl_step_entry *entries; /* [n_entries] entry i is the runner's entry i */
    int32_t n_entries, n_rows;
    int32_t scored_rows_left;
    int32_t *logits_of; /* [max_rows] index of a row's logits; -1: its logits are not computed */
} cl_step;

/* Rows of logits that a step of max_seqs sequences computes at most: cl_runner_init's max_logits. */
static inline int32_t cl_step_max_logits(int32_t max_seqs) { return max_seqs + CL_STEP_SCORED_ROWS + CL_STEP_DRAFTED_ROWS; }

/* runner is borrowed. False without memory; cl_step_free tidies up. */
bool cl_step_init(cl_step *st, cl_runner *runner, int32_t max_seqs);
void cl_step_free(cl_step *st);

/* Start a new list, then add choices in order of priority, at most max_seqs, each with at most max_rows >= 1 rows. */
void cl_step_clear(cl_step *st);
void cl_step_add(cl_step *st, cl_choice *c, int64_t max_rows);

/* Compute at most row_limit rows, itself at most max_rows. On an error none was; CL_ERR_LIMIT: their workspace exceeds the K/V
 * budget. */
cl_status cl_step_run(cl_step *st, int32_t row_limit, cl_error *error);

/* Logits of a row that was wanted. */
const float *cl_step_logits(const cl_step *st, int32_t row);

/* How many tokens of a choice lack K/V; between steps. */
int64_t cl_step_n_missing(const cl_step *st, const cl_choice *c);

/* Whether a choice's rows are wanted for prompt_logprobs. */
static inline bool cl_step_scores(const cl_choice *c) { return c->owner->asked.prompt_logprobs && !c->owner->prompt_done; }

#endif
