/* The table of worlds that the tests of exactness run: what each varies, and which cases it must have met. */
#ifndef TESTS_CHUNKATTN_EXACT_ROWS_H
#define TESTS_CHUNKATTN_EXACT_ROWS_H

#include "driver.h"

typedef struct row {
    const char *name;
    void (*make)(plan *p, rng *r, uint64_t seed, bool is_long); /* fills a plan of zeros */
    bool each;                                                  /* a world is run once for every allocation that can fail */
    int64_t many;                                               /* so many worlds must meet the cases below */
    struct {
        count what;
        int64_t least; /* in each ten worlds, on average */
    } cases[6];
} row;

/* NULL: there is none of this name. */
const row *row_find(const char *name);

void row_make(const row *is, plan *p, uint64_t seed, bool is_long);

/* Whether enough cases have been met, of those that the backend counts; otherwise says which were not. */
bool row_is_met(const row *is, int64_t n_worlds, const backend *b, const int64_t counts[N_COUNTS]);

#endif
