#include "stats.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double stats_percentile(const double *x, size_t n, double p) {
    const double at = p * (double)(n - 1);
    const size_t below = (size_t)at;
    if (below + 1 >= n) return x[n - 1];
    return x[below] + (at - (double)below) * (x[below + 1] - x[below]);
}

stats stats_of(double *x, size_t n) {
    if (n == 0) return (stats){0};
    qsort(x, n, sizeof *x, ascending);
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    return (stats){.n = n,
                   .mean = sum / (double)n,
                   .median = stats_percentile(x, n, 0.5),
                   .p90 = stats_percentile(x, n, 0.9),
                   .p99 = stats_percentile(x, n, 0.99),
                   .max = x[n - 1]};
}
