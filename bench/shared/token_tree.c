/* Which sequences share which tokens: runs of tokens that form a forest, and sequences from a root down to a run. */
#include "token_tree.h"

#include <stdio.h>
#include <stdlib.h>

/* Make room for one more element. */
static void *grow(void *array, int32_t n, int32_t *capacity, size_t size) {
    if (n < *capacity) return array;
    *capacity = *capacity ? 2 * *capacity : 16;
    void *grown = realloc(array, (size_t)*capacity * size);
    if (!grown) {
        fputs("cattn-bench: no memory\n", stderr);
        abort();
    }
    return grown;
}

int32_t token_tree_add_run(token_tree *t, int32_t parent, int64_t n_tokens) {
    t->runs = grow(t->runs, t->n_runs, &t->runs_capacity, sizeof *t->runs);
    const int64_t start = parent < 0 ? 0 : t->runs[parent].start + t->runs[parent].n_tokens;
    t->runs[t->n_runs] = (token_run){parent, n_tokens, start};
    return t->n_runs++;
}

void token_tree_add_seq(token_tree *t, int32_t leaf) {
    t->leaf = grow(t->leaf, t->n_seqs, &t->seqs_capacity, sizeof *t->leaf);
    t->leaf[t->n_seqs++] = leaf;
}

void token_tree_free(token_tree *t) {
    free(t->runs);
    free(t->leaf);
    *t = (token_tree){0};
}

token_tree token_tree_of_prefix(int32_t batch, int64_t prefix, int64_t shared) {
    token_tree t = {0};
    token_tree_add_run(&t, -1, shared);
    for (int32_t i = 0; i < batch; i++) token_tree_add_seq(&t, token_tree_add_run(&t, 0, prefix - shared));
    return t;
}

int64_t token_tree_prefix(const token_tree *t, int32_t seq) {
    const token_run *last = &t->runs[t->leaf[seq]];
    return last->start + last->n_tokens;
}

int64_t token_tree_longest(const token_tree *t) {
    int64_t longest = 0;
    for (int32_t i = 0; i < t->n_seqs; i++)
        if (token_tree_prefix(t, i) > longest) longest = token_tree_prefix(t, i);
    return longest;
}

int32_t token_tree_run_at(const token_tree *t, int32_t seq, int64_t position) {
    int32_t run = t->leaf[seq];
    while (position < t->runs[run].start) run = t->runs[run].parent;
    return run;
}

void token_tree_tokens(const token_tree *t, int32_t seq, int32_t *tokens) {
    const int64_t prefix = token_tree_prefix(t, seq);
    for (int64_t i = 0; i < prefix; i++) tokens[i] = token_tree_run_at(t, seq, i);
    tokens[prefix] = t->n_runs + seq;
}

int64_t token_tree_distinct(const token_tree *t) {
    int64_t n = t->n_seqs;
    for (int32_t i = 0; i < t->n_runs; i++) n += t->runs[i].n_tokens;
    return n;
}

int64_t token_tree_total(const token_tree *t) {
    int64_t n = t->n_seqs;
    for (int32_t i = 0; i < t->n_seqs; i++) n += token_tree_prefix(t, i);
    return n;
}
