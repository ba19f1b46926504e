/* Peak values of an endpoint's batch and K/V cache, from its /metrics pages, under the names that several servers use. */
#ifndef BENCH_LOADGEN_GAUGES_H
#define BENCH_LOADGEN_GAUGES_H

#include <stdbool.h>

typedef enum load_gauge {
    LOAD_GAUGE_BATCH,             /* sequences in a step */
    LOAD_GAUGE_WAITING,           /* requests that wait to be admitted */
    LOAD_GAUGE_KV_USAGE,          /* fraction of the K/V budget in use, 0 to 1 */
    LOAD_GAUGE_KV_BYTES,          /* K/V bytes of running sequences; shared ones count once */
    LOAD_GAUGE_KV_BYTES_UNSHARED, /* K/V bytes that these sequences would have without sharing */
    N_LOAD_GAUGES
} load_gauge;

extern const char *const load_gauge_names[N_LOAD_GAUGES]; /* "batch", "waiting", ... */

/* Zero-initialise. */
typedef struct load_gauges {
    bool begun;                       /* a page was read */
    bool known[N_LOAD_GAUGES];        /* a page had the gauge, so peak is valid */
    double peak[N_LOAD_GAUGES];       /* the largest value seen */
    double high_water[N_LOAD_GAUGES]; /* the endpoint's own peak on the first page */
} load_gauges;

/*
 * Raise the peaks by a page in Prometheus' text format, a string. The samples of a name are added up. A peak that the endpoint
 * reports itself dates from its start, so it counts only if it exceeds its value on the first page.
 */
void load_gauges_update(load_gauges *g, const char *page);

#endif
