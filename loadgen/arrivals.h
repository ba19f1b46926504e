/* When requests come: a Poisson process. */
#ifndef LOADGEN_ARRIVALS_H
#define LOADGEN_ARRIVALS_H

#include <stddef.h>
#include <stdint.h>

/* at [n]: seconds, ascending from 0, the gaps exponential with mean 1 / rate. rate > 0; INFINITY: all at once. */
void arrivals_draw(double *at, size_t n, double rate, uint64_t seed);

#endif
