/* Mean and percentiles. */
#ifndef LOADGEN_STATS_H
#define LOADGEN_STATS_H

#include <stddef.h>

typedef struct stats {
    size_t n;
    double mean, median, p90, p99, max; /* 0 where n is 0 */
} stats;

/* Sorts x [n]. */
stats stats_of(double *x, size_t n);

/* Of x [n], n >= 1, ascending; p from 0 to 1. Between two values it is interpolated, as NumPy's percentile does. */
double stats_percentile(const double *x, size_t n, double p);

#endif
