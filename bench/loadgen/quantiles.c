/* Quantiles of measured values. */
#include "quantiles.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void load_sort(double *x, size_t n) { qsort(x, n, sizeof *x, ascending); }

double load_quantile(const double *x, size_t n, double p) {
    const double at = p * (double)(n - 1);
    const size_t below = (size_t)at;
    if (below + 1 >= n) return x[n - 1];
    return x[below] + (at - (double)below) * (x[below + 1] - x[below]);
}

double load_median(double *x, size_t n) {
    load_sort(x, n);
    return load_quantile(x, n, 0.5);
}
