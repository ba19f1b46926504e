/* Shrinks a plan that fails: see plan_shrink in plan.h. */
#include <string.h>

#include "plan.h"

typedef bool fails_fn(const plan *p);

static plan candidate; /* a plan is too large for the stack */

/* Keep the candidate if it fails too. */
static bool accept(plan *p, fails_fn *fails) {
    if (!fails(&candidate)) return false;
    *p = candidate;
    return true;
}

/* Remove requests [from, from + n) from the candidate. Later turns of theirs begin anew. */
static void remove_requests(int64_t from, int64_t n) {
    plan *c = &candidate;
    memmove(&c->requests[from], &c->requests[from + n], (size_t)(c->n_requests - from - n) * sizeof *c->requests);
    c->n_requests -= n;
    for (int64_t i = 0; i < c->n_requests; i++) {
        int64_t *of = &c->requests[i].turn_of;
        if (*of >= from) *of = *of < from + n ? -1 : *of - n;
    }
}

static void remove_faults(int64_t from, int64_t n) {
    plan *c = &candidate;
    memmove(&c->faults[from], &c->faults[from + n], (size_t)(c->n_faults - from - n) * sizeof *c->faults);
    c->n_faults -= n;
}

/* Remove runs of requests or faults, the longest runs first. *count is p's number of them. */
static bool remove_runs(plan *p, const int64_t *count, void (*remove)(int64_t from, int64_t n), fails_fn *fails) {
    bool smaller = false;
    for (int64_t n = *count; n > 0; n /= 2) {
        for (int64_t from = *count - n; from >= 0;) {
            candidate = *p;
            remove(from, n);
            const bool removed = accept(p, fails);
            smaller |= removed;
            from -= n;
            if (from < 0 && from > -n) from = 0;
            if (from + n > *count) from = *count - n;
        }
    }
    return smaller;
}

/* Move the fields of one struct towards the simplest values. `of` is in *p, at the same place as in the candidate. */
static bool simplify(plan *p, const plan_fields *fields, void *of, fails_fn *fails) {
    bool smaller = false;
    const size_t offset = (size_t)((char *)of - (char *)p);
    for (size_t i = 0; i < fields->n; i++) {
        const plan_field *f = &fields->fields[i];
        int64_t step = *plan_value(f, of) - f->simplest;
        while (step != 0) { /* to the simplest value, then half of the way, ... */
            candidate = *p;
            *plan_value(f, (char *)&candidate + offset) -= step;
            if (accept(p, fails))
                smaller = true;
            else
                step /= 2;
            const int64_t left = *plan_value(f, of) - f->simplest;
            if ((step > 0 && step > left) || (step < 0 && step < left)) step = left;
        }
    }
    return smaller;
}

void plan_shrink(plan *p, bool (*fails)(const plan *p)) {
    bool smaller = true;
    while (smaller) {
        smaller = remove_runs(p, &p->n_requests, remove_requests, fails);
        smaller |= remove_runs(p, &p->n_faults, remove_faults, fails);
        for (int64_t i = 0; i < p->n_faults; i++) smaller |= simplify(p, &plan_fault_fields, &p->faults[i], fails);
        for (int64_t i = 0; i < p->n_requests; i++) smaller |= simplify(p, &plan_request_fields, &p->requests[i], fails);
        smaller |= simplify(p, &plan_engine_fields, &p->engine, fails);
    }
}
