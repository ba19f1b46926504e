/*
 * A random world for exactness tests: sequences with common prefixes, and several ways to run them, with what happens
 * meanwhile. The q, k and v of a position are functions of the tokens up to it, so sequences with a common prefix have the same
 * K and V there, as in a model. Everything follows from a plan (tests/chunkattn/plans/plans.h).
 */
#ifndef TESTS_CHUNKATTN_EXACT_WORLD_H
#define TESTS_CHUNKATTN_EXACT_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#define CATTN_EXPERIMENTAL /* for foreign pages and devices */
#include "../plans/plans.h"
#include "chunkattn.h"
#include "chunkattn/cache/chunk_layout.h"
#include "tests/support/rng.h"

enum {
    WORLD_MAX_SEQS = 8,
    WORLD_MAX_LAYERS = 3,
    WORLD_MAX_HEADS = 256,
    WORLD_MAX_ROUNDS = 8,
    WORLD_MAX_EVENTS = 8192,
    WHOLE = 1 << 20, /* a piece that is the whole prompt */
};

/* What is stored and attended to, and how. */
typedef struct plan_shape {
    int64_t pages; /* 0: in a cache; otherwise in foreign pages of so many tokens */
    int64_t level; /* index of the kernel level; -1: the highest */
    int64_t kv_type, chunk_size, n_layers, n_kv_heads, group, head_dim, head_dim_v;
    int64_t n_kv_heads1, group1, head_dim1, head_dim_v1, source1; /* of layer 1; 0: as layer 0, and K and V of its own */
    int64_t n_kv_heads2, group2, head_dim2, head_dim_v2, source2; /* of layer 2; the source is 1 + the layer */
    int64_t window0, window1, window2, n_sink_tokens;
    int64_t scale, softcap;         /* in thousandths */
    int64_t sinks, slopes;          /* the power of two of sink logits and of slopes, plus 100; 0: there are none */
    int64_t values;                 /* what q, k and v follow from, beside the tokens */
    int64_t score_scale;            /* 1; more gives scores that span hundreds and thousands of powers of two */
    int64_t value_kind;             /* 0 ordinary, 1 tiny and zero, 2 with infinities at some tokens */
    int64_t q_type, k_type, v_type; /* of tensors, except where a sequence is alone; all of their numbers are of this type */
    int64_t gap;                    /* elements between the heads of a tensor's row, and twice as many between rows */
    int64_t heads_outer;            /* tensors have all rows of a head one behind the other */
    int64_t poison;                 /* chunks hold infinities and NaN before they are written */
    int64_t tier_mb;                /* size of the file tier; 0: there is none */
    int64_t tier_thread;            /* it has threads; otherwise the run does its work */
    int64_t check_tree;             /* the tree's invariants are checked before each so many steps; 0: never */
} plan_shape;

/* A sequence's tokens are the first n_common of the sequence `of`, if there is one, and then some that follow from `own`. */
typedef struct plan_seq {
    int64_t n_tokens, n_prompt; /* it joins with n_prompt tokens; the rest is appended one by one */
    int64_t of, n_common, own;
    int64_t domain;
    int64_t at;    /* the step before which it joins; in a round that runs each alone, its place in their order */
    int64_t whole; /* its extra hash; 0: none */
    int64_t marked, n_marked, mark; /* tokens from `marked` on have the extra hash `mark`; n_marked 0: none do */
} plan_seq;

/* A way to run all sequences, in a cache of its own. */
typedef struct plan_round {
    int64_t sharing, retention, threads;
    int64_t piece;       /* most rows of a sequence in a step; 0: random */
    int64_t one_by_one;  /* each sequence alone: the next joins when the previous one has left */
    int64_t again;       /* then all join once more */
    int64_t out_type;    /* of the tensor of outputs */
    int64_t own;         /* what the random choices of steps follow from */
    int64_t evicts;      /* before each so many steps, some tokens are evicted; 0: never */
    int64_t layout;      /* of foreign pages: a cattn_page_layout, or behind the last one K and V apart, with gaps */
    int64_t deferred;    /* the device's work is done later */
    int64_t wgmma;       /* prefill on a device uses it */
    int64_t fail, times; /* so many allocations fail, from this one on; 0: none */
    int64_t fail_device; /* so does this one of the device's memory */
} plan_round;

typedef enum event_kind {
    EVENT_APPEND,     /* n tokens */
    EVENT_FORK,       /* with n tokens reserved */
    EVENT_TRUNCATE,   /* by n tokens */
    EVENT_LEAVE,      /* early */
    EVENT_JOIN,       /* a sequence of the world joins once more, with at most n tokens less than it may have */
    EVENT_RESERVE,    /* n tokens */
    EVENT_PIN,        /* what is ready, less n tokens; the pin before it ends */
    EVENT_EXPORT,     /* what is ready, less n tokens */
    EVENT_IMPORT,     /* what was exported last */
    EVENT_LIMIT,      /* the next step has at most n rows */
    EVENT_ABORT,      /* after n layers, or fewer */
    EVENT_DROP,       /* what no sequence covers */
    EVENT_READ_ERROR, /* the tier's disk fails for a step */
    EVENT_STREAM,     /* the device's other stream */
    EVENT_KINDS,
} event_kind;

typedef struct plan_event {
    int64_t round, at; /* before this step */
    int64_t kind;
    int64_t who; /* which of the sequences that run, or of the world's */
    int64_t n;
} plan_event;

typedef struct plan {
    plan_shape shape;
    int64_t n_seqs, n_rounds, n_events;
    plan_seq seqs[WORLD_MAX_SEQS];
    plan_round rounds[WORLD_MAX_ROUNDS];
    plan_event events[WORLD_MAX_EVENTS]; /* of a round in the order of their steps */
} plan;

extern const plan_kind world_plan_kind;

/* Sequences of at most `longest` tokens, which begin like each other. */
void plan_make_seqs(plan *p, rng *r, int64_t longest);

/* A sequence, and what is expected of it. */
typedef struct world_seq {
    int64_t n_tokens, n_prompt;
    uint32_t domain;
    uint64_t whole; /* extra hash */
    int32_t *tokens;
    uint64_t *marks;  /* [n_tokens] extra hashes of the tokens */
    uint64_t *path;   /* hash of the tokens up to each position, with their extra hashes */
    float *rows;      /* [n_tokens][n_layers] rows of q, k and v, one behind the other */
    float *out, *lse; /* world_out, world_lse */
} world_seq;

typedef struct world {
    const plan *plan;
    cattn_config config; /* shape, type and options, whose arrays are the next ones */
    int32_t n_heads[WORLD_MAX_LAYERS], n_kv_heads[WORLD_MAX_LAYERS], head_dim[WORLD_MAX_LAYERS], head_dim_v[WORLD_MAX_LAYERS],
        source[WORLD_MAX_LAYERS], windows[WORLD_MAX_LAYERS];
    float sink_logits[WORLD_MAX_LAYERS * WORLD_MAX_HEADS], alibi_slopes[WORLD_MAX_HEADS];
    int n_seqs;
    world_seq seqs[WORLD_MAX_SEQS];
} world;

/* Make what a plan says, which is borrowed. */
void world_make(world *w, const plan *p);
void world_free(world *w);

/* Heads of a layer. */
ca_heads world_heads(const world *w, int layer);

/* One row's input in a layer: q [n_heads][d_k], k [n_kv_heads][d_k] and v [n_kv_heads][d_v], one behind the other. */
typedef struct world_input {
    const float *q, *k, *v;
} world_input;
world_input world_row(const world *w, const world_seq *s, int64_t position, int layer);

/* What is expected of a row in a layer: out [n_heads][d_v] and lse [n_heads]. */
float *world_out(const world *w, const world_seq *s, int64_t position, int layer);
float *world_lse(const world *w, const world_seq *s, int64_t position, int layer);

/* x, or the number of a type that is nearest to it. */
float world_rounded(int64_t type, float x);

/* Whether two results [n] have the same bits, except that a NaN may be another: a row's own context may contain infinities. */
bool world_same(const float *a, const float *b, int n);

#endif
