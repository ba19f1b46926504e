/* The most that an endpoint's /metrics told of its batch and its K/V cache, in the names that several servers use. */
#ifndef LOADGEN_GAUGES_H
#define LOADGEN_GAUGES_H

#include <stdbool.h>

typedef enum gauge {
    GAUGE_BATCH,             /* sequences in a step */
    GAUGE_WAITING,           /* requests waiting for room */
    GAUGE_KV_USAGE,          /* part of the K/V budget, 0 to 1 */
    GAUGE_KV_BYTES,          /* of running sequences, shared ones once */
    GAUGE_KV_BYTES_UNSHARED, /* if nothing were shared */
    N_GAUGES
} gauge;

extern const char *const gauge_names[N_GAUGES]; /* "batch", "waiting", ... */

/* Zero-initialise. */
typedef struct gauges {
    bool begun;
    bool known[N_GAUGES];
    double peak[N_GAUGES];
    double high_water[N_GAUGES]; /* the endpoint's own peak when watching began */
} gauges;

/*
 * A page in Prometheus' text format. Samples of one name are added up. An endpoint's own peak, since its start, counts only
 * once it has risen above what it was on the first page.
 */
void gauges_update(gauges *g, const char *page);

#endif
