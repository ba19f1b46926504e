/*
 * Which sequences share which tokens: runs of tokens that form a forest, and sequences from a root down to a run.
 *
 *   runs   0: 4000 tokens            sequence 0: runs 0, 1, then a token of its own
 *          |-- 1: 40                 sequence 1: runs 0, 2, then a token of its own
 *          '-- 2: 300
 *
 * After its last run each sequence has one token of its own, which the measured step computes.
 */
#ifndef BENCH_SHARED_TOKEN_TREE_H
#define BENCH_SHARED_TOKEN_TREE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct token_run {
    int32_t parent; /* the run before it; -1: none */
    int64_t n_tokens;
    int64_t start; /* position of its first token */
} token_run;

/* Begins as {0}. */
typedef struct token_tree {
    token_run *runs;
    int32_t n_runs, runs_capacity;
    int32_t *leaf; /* [n_seqs] the run that a sequence ends with */
    int32_t n_seqs, seqs_capacity;
} token_tree;

/* Add a run below a parent and return its index; add a sequence that ends with a run. Without memory they abort. */
int32_t token_tree_add_run(token_tree *tree, int32_t parent, int64_t n_tokens);
void token_tree_add_seq(token_tree *tree, int32_t leaf);
void token_tree_free(token_tree *tree);

/* `batch` sequences of `prefix` tokens and one of their own; they have the first `shared` tokens in common. */
token_tree token_tree_of_prefix(int32_t batch, int64_t prefix, int64_t shared);

/* Tokens of a sequence before its own. */
int64_t token_tree_prefix(const token_tree *tree, int32_t seq);
int64_t token_tree_longest(const token_tree *tree);

/* The run that a position of a sequence belongs to; for its own token, the last run. */
int32_t token_tree_run_at(const token_tree *tree, int32_t seq, int64_t position);

/* The tokens [prefix + 1] of a sequence: each is the index of its run, so sequences share the tokens of their common runs. */
void token_tree_tokens(const token_tree *tree, int32_t seq, int32_t *tokens);

/* Tokens of all sequences: shared ones counted once, and once for each sequence. */
int64_t token_tree_distinct(const token_tree *tree);
int64_t token_tree_total(const token_tree *tree);

#endif
