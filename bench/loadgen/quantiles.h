/* Quantiles of measured values. */
#ifndef BENCH_LOADGEN_QUANTILES_H
#define BENCH_LOADGEN_QUANTILES_H

#include <stddef.h>

/* Sort x [n] in ascending order. */
void load_sort(double *x, size_t n);

/* The p-quantile, p from 0 to 1, of x [n], ascending, n >= 1. Interpolates linearly, as NumPy's percentile does by default. */
double load_quantile(const double *x, size_t n, double p);

/* The median of x [n], n >= 1. Sorts x. */
double load_median(double *x, size_t n);

#endif
