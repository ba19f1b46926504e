/*
 * A cache with the sequences of a token tree in it, ready for a decode step: K and V are passed off as computed, since neither
 * tree nor plan ever look at them. For counting and timing what needs no arithmetic.
 */
#ifndef BENCH_METHODS_PLANNED_H
#define BENCH_METHODS_PLANNED_H

#include "method.h"

typedef struct planned {
    cattn_cache *cache;
    cattn_entry *entries; /* [n] a row of each sequence */
    int32_t n;
} planned;

/* One of the cached methods. False with a message on stderr; planned_free in either case. */
bool planned_create(planned *p, method_id id, const shape *s, ca_pool *pool);
void planned_free(planned *p);

/* Open the step of one row a sequence. */
bool planned_begin(planned *p);

/* Let the cache's plan take everything for changed: the next step builds it from nothing. */
void planned_forget(planned *p);

typedef struct planned_moved {
    int64_t kv;     /* elements of K and V, each time that a task reads them */
    int64_t rows;   /* of queries and outputs */
    int64_t states; /* of partial results, where a row has several: written once and read once */
} planned_moved;

/* What the plan of the open step makes its kernels move in one layer. */
planned_moved planned_count(const planned *p);

#endif
