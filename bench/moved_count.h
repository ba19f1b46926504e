/* Elements that attention reads and writes in one decode step of one layer, counted in a cache's plan. */
#ifndef BENCH_MOVED_COUNT_H
#define BENCH_MOVED_COUNT_H

#include <stdint.h>

#include "chunkattn.h"

typedef struct moved_count {
    int64_t kv;     /* of K and V, each time that a task reads them */
    int64_t rows;   /* of queries and outputs */
    int64_t states; /* of partial results, where a row has several: written once and read once */
} moved_count;

/* What the plan of the cache's open step makes its kernels move. */
moved_count moved_count_plan(const cattn_cache *cache);

#endif
