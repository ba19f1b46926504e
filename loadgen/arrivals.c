#include "arrivals.h"

#include <math.h>

#include "random.h"

void arrivals_draw(double *at, size_t n, double rate, uint64_t seed) {
    double now = 0;
    for (size_t i = 0; i < n; i++) {
        at[i] = now;
        now -= log(random_unit(seed, RANDOM_ARRIVALS, 0, i)) / rate;
    }
}
