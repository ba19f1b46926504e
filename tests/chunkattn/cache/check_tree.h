/* For tests of the tree: checks that recompute all invariants from the nodes, a drawing of the tree, and hashes. */
#ifndef TESTS_CHUNKATTN_CACHE_CHECK_TREE_H
#define TESTS_CHUNKATTN_CACHE_CHECK_TREE_H

#include <stdint.h>

#include "chunkattn/cache/tree.h"

/* Fail the running test, with the invariant that is broken, unless all invariants of tree.h and of the counters hold. */
void check_tree(ca_tree *tree, ca_chunk_pool *pool, const ca_chunk_layout *layout);

/* The same for the tree's shape: no two nodes could be merged. This holds unless an allocation has failed. */
void check_canonical(ca_tree *tree);

/*
 * Draw the tree as text [size], one line for each node in depth-first order, indented by two blanks for each level:
 *
 *   0..5 abcdef | A0-3 B0-1 | 1 2 =2
 *
 * The fields are its positions; its tokens, as characters from '0' for 0; its chunks, named in the order in which they appear,
 * each with the first and last slot that the node uses; and the sequences that it covers, by their number in seqs [n_seqs]
 * from 1.
 * "=2" at the end means that sequence 2 ends there.
 */
void draw_tree(ca_tree *tree, const ca_chunk_layout *layout, const cattn_seq *seqs, int n_seqs, char *text, size_t size);

/* Hash of everything that a failed call must leave unchanged: nodes, sequences, chunks and counters. */
uint64_t hash_tree(ca_tree *tree, ca_chunk_pool *pool);

/* Hash of everything below a child of the root on which plans depend; if it changes, the child's version must change. */
uint64_t hash_for_plan(const ca_node *root);

#endif
