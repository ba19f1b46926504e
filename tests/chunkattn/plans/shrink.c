/* Shrinks a plan that fails: see plan_shrink in plans.h. */
#include <stdlib.h>
#include <string.h>

#include "fields.h"

typedef struct shrinking {
    const plan_kind *kind;
    char *plan, *candidate; /* [kind->size] each; the candidate is owned */
    bool (*fails)(const void *plan);
    bool smaller; /* than before this round */
} shrinking;

/* Keep the candidate if it fails too. */
static bool accept(shrinking *s) {
    if (!s->fails(s->candidate)) return false;
    memcpy(s->plan, s->candidate, s->kind->size);
    return s->smaller = true;
}

/* Let records of kind r in the candidate refer to what they did before the records [from, from + n) of `gone` were removed. */
static void refer(const shrinking *s, const plan_records *r, const plan_records *gone, int64_t from, int64_t n) {
    const int64_t *count = plan_count(r, s->candidate);
    for (int64_t i = 0; i < (count ? *count : 1); i++) {
        const char *list = r->fields;
        int64_t *value = plan_record(r, s->candidate, i);
        for (plan_field f; plan_next_field(&list, &f); value++)
            if (strcmp(f.refers_to, gone->name) == 0 && *value >= from) *value = *value < from + n ? f.simplest : *value - n;
    }
}

static void remove_run(const shrinking *s, const plan_records *r, int64_t from, int64_t n) {
    int64_t *count = plan_count(r, s->candidate);
    memmove(plan_record(r, s->candidate, from), plan_record(r, s->candidate, from + n), (size_t)(*count - from - n) * r->size);
    *count -= n;
    for (size_t k = 0; k < s->kind->n_records; k++) refer(s, &s->kind->records[k], r, from, n);
}

/* Remove runs of records, the longest runs first. */
static void remove_runs(shrinking *s, const plan_records *r) {
    const int64_t *count = plan_count(r, s->plan);
    for (int64_t n = count ? *count : 0; n > 0; n /= 2)
        for (int64_t from = *count - n; from >= 0;) {
            memcpy(s->candidate, s->plan, s->kind->size);
            remove_run(s, r, from, n);
            accept(s);
            from -= n;
            if (from < 0 && from > -n) from = 0;
            if (from + n > *count) from = *count - n;
        }
}

/* Move a value of the plan towards the simplest: all of the way, then half of it, ... */
static void simplify(shrinking *s, const int64_t *value, int64_t simplest) {
    int64_t step = *value - simplest;
    while (step != 0) {
        memcpy(s->candidate, s->plan, s->kind->size);
        *(int64_t *)(void *)(s->candidate + ((const char *)value - s->plan)) -= step;
        if (!accept(s)) step /= 2;
        const int64_t left = *value - simplest;
        if ((step > 0 && step > left) || (step < 0 && step < left)) step = left;
    }
}

static void simplify_records(shrinking *s, const plan_records *r) {
    const int64_t *count = plan_count(r, s->plan);
    for (int64_t i = 0; i < (count ? *count : 1); i++) {
        const char *list = r->fields;
        const int64_t *value = plan_record(r, s->plan, i);
        for (plan_field f; plan_next_field(&list, &f);) simplify(s, value++, f.simplest);
    }
}

void plan_shrink(const plan_kind *kind, void *plan, bool (*fails)(const void *plan)) {
    shrinking s = {.kind = kind, .plan = plan, .candidate = malloc(kind->size), .fails = fails, .smaller = true};
    while (s.candidate && s.smaller) {
        s.smaller = false;
        for (size_t k = 0; k < kind->n_records; k++) remove_runs(&s, &kind->records[k]);
        for (size_t k = kind->n_records; k > 0; k--) simplify_records(&s, &kind->records[k - 1]);
    }
    free(s.candidate);
}
