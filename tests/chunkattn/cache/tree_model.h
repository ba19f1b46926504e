/*
 * A model of the prefix tree, an array of token lists, which tests of random calls keep beside a tree: see test_tree_random.c.
 * Included after cmocka; a check that fails ends the running test.
 */
#ifndef TESTS_CHUNKATTN_CACHE_TREE_MODEL_H
#define TESTS_CHUNKATTN_CACHE_TREE_MODEL_H

#include "../tier/disk.h"
#include "check_tree.h"
#include "chunkattn/cache/tree_internal.h"
#include "small_layout.h"
#include "tests/support/rng.h"

#include <stdbool.h>

enum { MAX_SEQS = 40, MAX_TOKENS = 1200, N_TEMPLATES = 8 };

typedef struct model_seq {
    cattn_seq id;
    uint32_t domain;
    int64_t n, n_ready, reserve_to;
    int32_t tokens[MAX_TOKENS];
    uint64_t path[MAX_TOKENS]; /* path[i]: fingerprint of tokens[0..i] */
} model_seq;

enum { MAX_ROOTS = 1024, MAX_WALKED = 1 << 17 };

typedef struct known_root {
    uint64_t id, version, hash;
} known_root;

typedef struct world {
    rng rng;
    ca_tree_config config;
    ca_chunk_layout layout;
    ca_alloc alloc;
    ca_chunk_pool *pool;
    ca_tree *tree;
    model_seq *seqs; /* [MAX_SEQS], the first n_seqs */
    int n_seqs;
    int32_t templates[N_TEMPLATES][MAX_TOKENS];
    uint8_t *written;            /* [chunk][slot] how often it was written in the open step */
    known_root roots[MAX_ROOTS]; /* [n_roots] after the last call */
    size_t n_roots;
    ca_kv_commands before, after; /* of the open step */
    uint64_t n_refused, n_shortened, n_faults, n_copies, n_early_copies;
    disk disk;
    ca_alloc tier_alloc; /* of its own, since the budget's checks are exact */
    ca_tier *tier;       /* NULL: none */
    bool faulty;
    void *workspace; /* other memory of the budget */
    size_t workspace_bytes;
    int fault_in, n_before_fault; /* allocations until one fails (-1: none does), now and at the call's beginning */
    rng look_rng;                 /* of its own, so that looking changes no other choice */
    uint64_t walk;                /* the cursor of a walk; 0: none */
    uint64_t walk_ids;            /* the last node's id when it began */
    uint64_t walked[MAX_WALKED];  /* [n_walked] the nodes that it has reported */
    bool single[MAX_WALKED];      /* [id] the node has had a single token since then */
    int n_walked;
    size_t unchecked; /* bytes by which the last call may have raised the excess over the budget */
} world;

/* ---- tree_model.c: what the tree must hold ---- */

/* A world with an empty tree whose calls meet failing allocations if `faulty`; the caller destroys it. */
void world_create(world *w, uint64_t seed, int c, const ca_tree_config *config, uint64_t budget, bool faulty);

/* The tree must be empty of sequences. All memory must have been freed after it. */
void world_destroy(world *w);

/* Uniform in [0, n); at most n - 1 and mostly small; and a token that is often equal to others. */
int64_t world_below(world *w, int64_t n);
int64_t world_skewed_below(world *w, int64_t n);
int32_t world_token(world *w);

/* Let s hold these tokens from position `from` on, and end with them. */
void model_set_tokens(model_seq *s, int64_t from, const int32_t *tokens, int64_t n);

/* Length of the longest common prefix of a [n_a] and b [n_b], rounded down to even. */
int64_t model_common(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b);

/* What a join must match: the longest common prefix with any path, and so with any running sequence. */
int64_t world_expected_match(world *w, const int32_t *tokens, int64_t n, uint32_t domain);

/* Write the fingerprint of a path to a slot, or carry out K/V commands. */
void world_write_slot(world *w, ca_chunk_id chunk, int slot, uint64_t path);
void world_execute(world *w, const ca_kv_command *commands, size_t n);

/* The tree's sequence of a model's. */
ca_seq *world_find(world *w, const model_seq *s);

/* Check all invariants, and everything that the tree holds against the model. */
void world_check(world *w);

/* ---- tree_calls.c: random calls of the tree, and of the model ---- */

void world_join(world *w);
void world_append(world *w, model_seq *s);
void world_truncate(world *w, model_seq *s);
void world_fork(world *w, const model_seq *s);
void world_pin(world *w, const model_seq *s);
void world_reserve(world *w, model_seq *s);
void world_leave(world *w, int i);

/* A step of random entries, ended or aborted. No token is claimed twice, and no ready token is claimed. */
void world_step(world *w);

/* Other memory of the budget changes its size. It can have all memory that is neither live nor reserved. */
void world_workspace(world *w, uint64_t budget);

/* Fails unless the budget holds what is in use after a call, before which it was exceeded by `before` bytes. */
void world_check_budget(world *w, size_t before);

/* ---- tree_tier.c: a file tier on a disk in memory, which fails and lies ---- */

void world_open_tier(world *w);

/* Nothing is done for a world without one. */
void world_close_tier(world *w);

/* The disk works for a while; tokens that have been read become ready; tokens are evicted, so that later joins read them. */
void world_tier(world *w);

/* Read what the tier has of a sequence that has joined; write what one that is about to leave has computed. */
void world_restore(world *w, const model_seq *s);
void world_write_behind(world *w, const model_seq *s);

/* ---- tree_look.c: looking at the tree between its calls ---- */

/* Go on with a walk, or begin another, and explain a prompt. The tree must not change by it. */
void world_look(world *w);

#endif
