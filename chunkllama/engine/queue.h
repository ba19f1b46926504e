/*
 * Which request is served next: the tenants, what each was served, and its requests of which some choices wait, by rank.
 *
 * A tenant is all requests of one domain. Its counter is the number of tokens that were computed for it, of prompts and
 * completions, divided by its weight. The tenant with the smallest counter is next, of equal ones that with the smallest share,
 * and of its requests the first by rank. A tenant of which nothing waited starts again at the smallest counter of those that
 * wait, so that an idle tenant earns no credit. (Deficit round robin would need the cost of a request before it starts, and the
 * length of a completion is not known.)
 *
 * Memory is allocated when a request is added, so that a preempted one can always return.
 */
#ifndef CHUNKLLAMA_ENGINE_QUEUE_H
#define CHUNKLLAMA_ENGINE_QUEUE_H

#include "request.h"

struct cl_tenant {
    uint32_t domain;
    double weight;        /* > 0 */
    double served;        /* its counter: tokens divided by the weight */
    int32_t n_in_cache;   /* its choices in the cache */
    int32_t n_prompts;    /* those whose prompts lacked rows when the last step began */
    size_t n_live;        /* its requests that have not ended */
    bool stays;           /* also while it has no requests, because its weight is configured */
    cl_request **waiting; /* [n_waiting] a binary heap, the first by rank at its root; borrowed, the array is owned */
    size_t n_waiting, capacity;
};

/* Tenants with accounts of their own (cattn_join_options.account), two each; the others have the last two together. */
enum { CL_ACCOUNT_TENANTS = CATTN_MAX_ACCOUNTS / 2 - 1 };

/* Zero-initialise. */
typedef struct cl_queue {
    cl_tenant **tenants; /* [n_tenants] owned */
    size_t n_tenants, capacity;
    size_t n_live;         /* requests that were added and have not ended */
    const cl_tenant *last; /* whose last waiting request left the queue most recently; NULL: none has */
    uint32_t accounts[CL_ACCOUNT_TENANTS], n_accounts; /* domains with accounts, in the order in which they came */
} cl_queue;

/* No request may be in the queue. */
void cl_queue_free(cl_queue *q);

/* Set the weight of a domain, > 0. False if memory is lacking. */
bool cl_queue_set_weight(cl_queue *q, uint32_t domain, double weight);

/* Add a new request, whose tenant is set. False if memory is lacking. */
bool cl_queue_add(cl_queue *q, cl_request *r);
/* A request that was added has ended; it is not in the queue. */
void cl_queue_forget(cl_queue *q, cl_request *r);

/* Remove a request, because none of its choices waits, and put it back, because one does. */
void cl_queue_remove(cl_queue *q, cl_request *r);
void cl_queue_put(cl_queue *q, cl_request *r);

/* The request to serve next; NULL: none waits. */
cl_request *cl_queue_first(const cl_queue *q);

/*
 * The account for which the K/V count that requests of a domain and priority leave. Requests of a lower priority than the
 * default have one of their own: with an eighth of the weight, what they leave goes before what the tenant's others leave, and
 * who sends requests of both kinds has an eighth more at most.
 */
uint32_t cl_queue_account(cl_queue *q, uint32_t domain, int32_t priority);

/* Let what a request leaves in a cache count for its account. */
void cl_request_set_account(const cl_request *r, cattn_join_options *options);

/* Count tokens that were computed for a tenant. */
static inline void cl_tenant_charge(cl_tenant *t, int64_t n_tokens) { t->served += (double)n_tokens / t->weight; }

/* The share of the cache that a tenant has with n choices there, in relation to its weight. */
static inline double cl_tenant_share(const cl_tenant *t, int32_t n) { return (double)n / t->weight; }

#endif
