/* Lets the requests of a tenant take turns: see turns.h. */
#include "turns.h"

static uint64_t family_of(const cl_request *r) { return r->params.part_of ? r->params.part_of : r->id; }

static bool is_related(const cl_request *a, const cl_request *b) {
    return a->tenant == b->tenant && family_of(a) == family_of(b);
}

/* The choices of r's family in the cache. */
static int32_t count_family(const cl_admission *a, const cl_request *r) {
    int32_t n = 0;
    for (int32_t i = 0; i < a->n_seqs; i++) n += is_related(a->choices[i]->owner, r);
    return n;
}

bool cl_turns_has_half(const cl_admission *a, const cl_request *r) {
    const int32_t n = count_family(a, r);
    return n > 0 && 2 * n >= r->tenant->n_in_cache;
}

cl_request *cl_turns_choose(const cl_admission *a, cl_request *first) {
    const cl_tenant *t = first->tenant;
    cl_request *best = NULL;
    if (!cl_turns_has_half(a, first)) return first;
    for (size_t i = 0; i < t->n_waiting; i++) {
        cl_request *r = t->waiting[i];
        if (is_related(r, first) || (best && cl_request_is_before(best, r)) || cl_turns_has_half(a, r)) continue;
        best = r;
    }
    return best ? best : first;
}
