/*
 * Runs a model over a cache of its own, step by step, without the engine: for commands that need every logit or exact
 * control over the batch.
 */
#ifndef CLI_DIRECT_H
#define CLI_DIRECT_H

#include "engine/runner.h"
#include "session.h"

typedef struct direct {
    session s;
    cl_runner runner;   /* with the tokens, positions and logits of the last step */
    int32_t *entry_seq; /* [max_rows] index of the sequence that an entry of the step stands for */
} direct;

/*
 * Load the model and make a cache and workspace for steps of max_rows rows, of which at most max_logits give logits.
 * Zero-initialise; free with direct_close, also after a failure.
 */
cl_status direct_open(direct *d, const options *opt, int32_t max_rows, int32_t max_logits, cl_error *error);
void direct_close(direct *d);

typedef struct direct_seq {
    cattn_seq seq;
    const int32_t *tokens; /* [n_tokens] */
    int64_t n_tokens;
    int64_t n_ready; /* leading tokens whose K/V exist */
} direct_seq;

/* Which rows of a step give logits: all, or those at the end of their sequence. */
typedef enum direct_want { WANT_ALL, WANT_LAST } direct_want;

/* Join tokens as a sequence of the cache; borrows them until the sequence leaves. */
cl_status direct_join(direct *d, const int32_t *tokens, int64_t n_tokens, direct_seq *seq, cl_error *error);

/*
 * One step over the sequences that have tokens to compute, at most `piece` rows of each (0: no limit) and max_rows together.
 * d->runner then holds the step's n_rows rows and n_logits rows of logits, in the order of the sequences. n_rows is 0 when
 * nothing is left to compute.
 */
cl_status direct_step(direct *d, direct_seq *seqs, int32_t n_seqs, int64_t piece, direct_want want, cl_error *error);

/* A cattn_error as this program's. */
cl_status direct_fail(const cattn_error *cause, cl_error *error);

#endif
