/* Chooses requests whose prefix is in the cache: see overtake.h. */
#include "overtake.h"

enum { REACH = 64 }; /* requests that are looked at, the first by rank: each costs a search of the tree */

/* The first requests of a tenant by rank, in order; returns their number, at most REACH. */
static int list_first(const cl_tenant *t, cl_request **first) {
    int n = 0;
    for (size_t i = 0; i < t->n_waiting; i++) {
        cl_request *r = t->waiting[i];
        int k = n < REACH ? n++ : REACH;
        for (; k > 0 && cl_request_is_before(r, first[k - 1]); k--)
            if (k < REACH) first[k] = first[k - 1];
        if (k < REACH) first[k] = r;
    }
    return n;
}

/* Whether half of a request's prompt, at least, need not be computed for it. */
static bool is_cached(const cl_admission *a, const cl_request *r) {
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.domain = cl_request_kv_domain(r);
    cattn_join_result result = {0};
    cattn_cache_match(a->cache, r->params.prompt, r->params.n_prompt, &options, &result, NULL);
    return 2 * cl_request_n_found(r, &result) >= r->params.n_prompt;
}

cl_request *cl_overtake_choose(const cl_admission *a, cl_request *first) {
    cl_request *requests[REACH];
    if (a->n_seqs == a->max_seqs || (a->full && a->n_seqs > 0)) return first; /* nothing is admitted anyway */
    const int n = list_first(first->tenant, requests);
    int32_t most = 0; /* choices that overtook one of those before */
    for (int i = 0; i < n; i++) {
        cl_request *r = requests[i];
        if (r->params.priority != first->params.priority || most + cl_request_n_together(r) > CL_OVERTAKE_MAX) break;
        if (is_cached(a, r)) return r;
        if (r->admitted) break;
        if (r->n_overtaken > most) most = r->n_overtaken;
    }
    return first;
}

void cl_overtake_note(const cl_request *r) {
    const cl_tenant *t = r->tenant;
    for (size_t i = 0; i < t->n_waiting; i++)
        if (cl_request_is_before(t->waiting[i], r)) t->waiting[i]->n_overtaken += cl_request_n_together(r);
}
