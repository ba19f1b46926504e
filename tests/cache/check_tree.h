/* For tests of the tree: an invariant checker that recomputes everything from the nodes, and a drawing of the tree. */
#ifndef TESTS_CACHE_CHECK_TREE_H
#define TESTS_CACHE_CHECK_TREE_H

#include <stdint.h>

#include "lib/cache/tree.h"

/* Fails the running test, naming what is broken, unless every invariant of tree.h and of the counters holds. */
void check_tree(ca_tree *tree, ca_chunk_pool *pool, const ca_layout *layout);

/* The same for its shape: what could be one node is one. Holds unless memory was refused. */
void check_canonical(ca_tree *tree);

/*
 * Draw the tree into text, a line a node in depth-first order, two blanks of indentation a level:
 *
 *   0..5 abcdef | A0 B0:1 | 1 2
 *
 * positions, tokens (as letters, from 'a' for 0), chunks named in order of appearance with the first and last slot the node
 * owns in them, and the sequences it covers by their number in seqs. "= 2" at the end lists those that end there.
 */
void draw_tree(ca_tree *tree, const ca_layout *layout, const cattn_seq *seqs, int n_seqs, char *text, size_t size);

/* 64-bit hash of everything that a failed call must leave as it was: nodes, sequences, chunks, counters. */
uint64_t hash_tree(ca_tree *tree, ca_chunk_pool *pool);

/* 64-bit hash of what plans depend on below a child of the root: a change must show in its version. */
uint64_t hash_for_plan(const ca_node *root);

#endif
