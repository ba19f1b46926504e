/*
 * A random case of kcheck: a few chunks of one KV head and some rows, each of which sees a number of leading slots of every
 * chunk.
 */
#ifndef TESTS_CHUNKATTN_KCHECK_CASE_H
#define TESTS_CHUNKATTN_KCHECK_CASE_H

#include "kcheck.h"

enum { MAX_CHUNKS = 6, MAX_C = 256, MAX_ROWS = 128, MAX_DIM = CA_MAX_HEAD_SIZE, N_CHUNK_SIZES = 5 };

/* The kinds of numbers. */
enum scores { SCORES_SMALL, SCORES_1E4, SCORES_2_300, SCORES_RISING, SCORES_ZERO, SCORES_NONFINITE, N_SCORES };
enum values { VALUES_PLAIN, VALUES_TINY, VALUES_SPARSE, VALUES_MIXED, VALUES_EVEN, N_VALUES };

/* The K and the V tile of a physical chunk. */
typedef struct tiles {
    char *k, *v;
} tiles;

typedef struct test_case {
    const ca_kernel *kernel;
    ca_layout layout;
    int32_t n_chunks, n_rows, chunks_per_segment;
    enum scores scores;
    enum values values;
    bool exact_q; /* levels that round q times the scale do not change it */
    float scale;
    float *q;                              /* [n_rows][d_k] */
    double *k[MAX_CHUNKS], *v[MAX_CHUNKS]; /* [c][d_k], [c][d_v], as stored */
    int32_t n_seen[MAX_CHUNKS][MAX_ROWS];
    bool window, alibi, sink; /* options that are on */
    float softcap;            /* 0: off */
    int32_t n_hidden[MAX_CHUNKS][MAX_ROWS], n_sink_slots[MAX_CHUNKS];
    float slopes[MAX_ROWS], distances[MAX_CHUNKS][MAX_ROWS], sinks[MAX_ROWS];
    tiles packed[MAX_CHUNKS], poison; /* each chunk as stored, and a chunk of NaN and infinities */
} test_case;

/* Guarded tiles of a layout; the caller frees them. */
tiles tiles_new(const ca_layout *l);
void tiles_free(tiles *x);

/* Copy slots [begin, end), begin even, from one physical chunk to another, all groups closed. */
void copy_slots(const ca_layout *l, const tiles *to, const tiles *from, int32_t begin, int32_t end);

/* Make the numbers of a case whose kernel, layout, counts and kinds are set. free_case frees them. */
void make_case(test_case *t, rng *r);
void free_case(test_case *t);

#endif
