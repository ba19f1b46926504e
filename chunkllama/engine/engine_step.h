/*
 * One step of the engine: it lists choices, runs the model over the rows that their sequences get, computes the logits of the
 * rows from which tokens are drawn or scored, and adds the states of others to embeddings.
 */
#ifndef CHUNKLLAMA_ENGINE_ENGINE_STEP_H
#define CHUNKLLAMA_ENGINE_ENGINE_STEP_H

#include "request.h"
#include "runner.h"

/*
 * Most rows of a step, over all sequences, whose logits are computed for prompt_logprobs, and for drafts. They bound the memory
 * of the logits.
 */
enum { CL_STEP_SCORED_ROWS = 64, CL_STEP_DRAFTED_ROWS = 64 };
/* Most rows of forced tokens (constraint.h). Their logits are only computed for logprobs; then they count as drafts. */
enum { CL_STEP_FORCED_ROWS = 256 };

typedef struct cl_step_entry {
    cl_choice *choice;
    int64_t first_pos, n_rows; /* position of the first row, and the number of rows, that the sequence got */
    int32_t first_row;         /* index of the first row in the step */
    int32_t last_row;          /* the row of the choice's last token, perhaps one of another entry; -1: not in this step */
    int32_t n_drawn; /* rows from last_row on after which tokens are drawn: one, one for each drafted token; 0: none */
} cl_step_entry;

typedef struct cl_step {
    cl_runner *runner;      /* borrowed */
    cl_step_entry *entries; /* [n_entries] owned; entry i is entry i of the runner */
    int32_t n_entries, n_rows;
    int32_t scored_rows_left; /* of CL_STEP_SCORED_ROWS, while choices are listed */
    int32_t *logits_of;       /* [max_rows] owned; index of each row's logits, or -1 if they are not computed */
    bool *yields_state;       /* [max_rows] owned; whether each row's state is part of an embedding */
} cl_step;

/* The rows of logits that a step of max_seqs sequences computes at most: cl_runner_init's max_logits. */
static inline int32_t cl_step_max_logits(int32_t max_seqs) { return max_seqs + CL_STEP_SCORED_ROWS + CL_STEP_DRAFTED_ROWS; }

/* The draws of a step at most: cl_draw_list_init's max_draws. */
static inline int32_t cl_step_max_draws(int32_t max_seqs) { return cl_step_max_logits(max_seqs) + CL_STEP_FORCED_ROWS; }

/* Borrows the runner. False if memory is lacking; cl_step_free is due then too. */
bool cl_step_init(cl_step *st, cl_runner *runner, int32_t max_seqs);
void cl_step_free(cl_step *st);

/* Start a new list, then add choices in order of priority, at most max_seqs, each with at most max_rows >= 1 rows. */
void cl_step_clear(cl_step *st);
void cl_step_add(cl_step *st, cl_choice *c, int64_t max_rows);

/*
 * Compute at most row_limit rows, itself at most the runner's max_rows. n_rows is 0 if the next tokens of all choices are on
 * the way from the file tier. After an error nothing was computed; CL_ERR_LIMIT: the workspace of the rows exceeds the K/V
 * budget.
 */
cl_status cl_step_run(cl_step *st, int32_t row_limit, cl_error *error);

/* The logits [n_vocab] of a row, valid until the next step; NULL: they were not computed. */
const float *cl_step_logits(const cl_step *st, int32_t row);

/* The number of a choice's tokens that lack K/V; between steps. */
int64_t cl_step_n_missing(const cl_step *st, const cl_choice *c);

/* Whether the rows of a choice are scored for prompt_logprobs. */
static inline bool cl_step_scores(const cl_choice *c) {
    const cl_request *r = c->owner;
    return r->params.prompt_logprobs && r->n_scored < r->params.n_prompt;
}

#endif
