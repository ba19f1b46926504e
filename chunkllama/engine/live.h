/*
 * The requests that an engine holds, those of which only a pin is left included: by id, and how many of each domain have not
 * ended. A call takes a number of steps that is logarithmic in the number of requests, since all threads wait for the engine's
 * mutex meanwhile, which guards every call but cl_live_end.
 */
#ifndef CHUNKLLAMA_ENGINE_LIVE_H
#define CHUNKLLAMA_ENGINE_LIVE_H

#include "request.h"

/* A domain that has requests. */
struct cl_live_domain {
    uint32_t domain;
    size_t n_requests;
    atomic_size_t n_open; /* those of them that have not ended */
};

/* Zero-initialise. Holds no memory once all requests are removed. */
typedef struct cl_live {
    void *requests, *domains; /* trees of tsearch; borrows the requests, and owns the domains */
} cl_live;

/* Add a request that has an id. False if memory is lacking. */
bool cl_live_add(cl_live *l, cl_request *r);
void cl_live_remove(cl_live *l, cl_request *r);

/* NULL: there is none. */
cl_request *cl_live_find(const cl_live *l, uint64_t id);

/* Whether a domain has a request that has not ended. */
bool cl_live_has_open(const cl_live *l, uint32_t domain);

/* On the engine's thread, without the mutex: a request has ended, although it may keep its pin. */
void cl_live_end(cl_request *r);

#endif
