/* Finds requests by their ids, and counts those of each domain: see live.h. */
#include "live.h"

#include <search.h>
#include <stdlib.h>

static int compare_ids(const void *a, const void *b) {
    const cl_request *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static int compare_domains(const void *a, const void *b) {
    const cl_live_domain *x = a, *y = b;
    return (x->domain > y->domain) - (x->domain < y->domain);
}

static cl_live_domain *find_domain(const cl_live *l, uint32_t domain) {
    const cl_live_domain key = {.domain = domain};
    cl_live_domain *const *found = tfind(&key, &l->domains, compare_domains);
    return found ? *found : NULL;
}

/* NULL if memory is lacking. */
static cl_live_domain *add_domain(cl_live *l, uint32_t domain) {
    cl_live_domain *d = calloc(1, sizeof *d);
    if (!d) return NULL;
    d->domain = domain;
    if (tsearch(d, &l->domains, compare_domains)) return d;
    free(d);
    return NULL;
}

static void drop_unused(cl_live *l, cl_live_domain *d) {
    if (d->n_requests > 0) return;
    tdelete(d, &l->domains, compare_domains);
    free(d);
}

bool cl_live_add(cl_live *l, cl_request *r) {
    cl_live_domain *d = find_domain(l, r->params.domain);
    if (!d) d = add_domain(l, r->params.domain);
    if (!d) return false;
    if (!tsearch(r, &l->requests, compare_ids)) {
        drop_unused(l, d);
        return false;
    }
    d->n_requests++;
    atomic_fetch_add_explicit(&d->n_open, 1, memory_order_relaxed);
    r->live = d;
    return true;
}

void cl_live_remove(cl_live *l, cl_request *r) {
    cl_live_end(r);
    tdelete(r, &l->requests, compare_ids);
    r->live->n_requests--;
    drop_unused(l, r->live);
}

cl_request *cl_live_find(const cl_live *l, uint64_t id) {
    const cl_request key = {.id = id};
    cl_request *const *found = tfind(&key, &l->requests, compare_ids);
    return found ? *found : NULL;
}

bool cl_live_has_open(const cl_live *l, uint32_t domain) {
    const cl_live_domain *d = find_domain(l, domain);
    return d && atomic_load_explicit(&d->n_open, memory_order_relaxed) > 0;
}

void cl_live_end(cl_request *r) {
    if (r->ended || !r->live) return;
    r->ended = true;
    atomic_fetch_sub_explicit(&r->live->n_open, 1, memory_order_relaxed);
}
