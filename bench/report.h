/* Numbers of a benchmark: medians, and results as objects that are printed as JSON lines. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include <jansson.h>

/* Median of x [n], n >= 1; sorts x. */
double report_median(double *x, int n);

/* A number as a JSON value; null where it is not positive: not measured here. */
json_t *report_number(double x);

/* CPU and compiler, which every figure needs beside it. */
void report_add_machine(json_t *object);

/* One line on stdout; takes the object. */
void report_print(json_t *object);

#endif
