/*
 * Runs a model over a cache of its own, step by step, without the engine: for commands that need every logit or full control
 * over the batch. One thread at a time.
 */
#ifndef CLI_DIRECT_H
#define CLI_DIRECT_H

#include "chunkllama/engine/runner.h"
#include "session.h"

typedef struct cli_direct {
    cli_session s;
    cl_runner runner;   /* its fields hold the rows and logits of the last step */
    int32_t *entry_seq; /* [max_rows] the index of the sequence of each entry of the step */
} cli_direct;

/*
 * Load the model, and create a cache and a workspace for steps of max_rows rows, of which at most max_logits give logits.
 * *d must be zeroed; direct_close frees it, also after a failure.
 */
cl_status direct_open(cli_direct *d, const cli_options *opt, int32_t max_rows, int32_t max_logits, cl_error *error);
void direct_close(cli_direct *d);

typedef struct cli_direct_seq {
    cattn_seq seq;
    const int32_t *tokens; /* [n_tokens], borrowed */
    int64_t n_tokens;
    int64_t n_ready; /* the K/V of the first n_ready tokens exist */
} cli_direct_seq;

/* Which rows of a step give logits: all, or the last row of each sequence. */
typedef enum cli_direct_want { WANT_ALL, WANT_LAST } cli_direct_want;

/* Join tokens [n_tokens] to the cache as a sequence. They are borrowed until the sequence leaves. */
cl_status direct_join(cli_direct *d, const int32_t *tokens, int64_t n_tokens, cli_direct_seq *seq, cl_error *error);

/*
 * Run one step over seqs [n_seqs]: at most `segment` rows of each sequence that has tokens to compute (0: no limit), and at
 * most max_rows in all.
 *
 * Afterwards d->runner holds n_rows rows, and n_logits rows of logits in the order of the sequences. n_rows is 0 if no
 * sequence has tokens to compute.
 */
cl_status direct_step(cli_direct *d, cli_direct_seq *seqs, int32_t n_seqs, int64_t segment, cli_direct_want want,
                      cl_error *error);

/* Turn an error of the cache into one of the program. Returns its code. */
cl_status direct_fail(const cattn_error *cause, cl_error *error);

#endif
