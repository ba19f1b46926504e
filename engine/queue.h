/*
 * The requests of which some choices wait, by rank: a binary heap, whose first request is the one to serve next.
 *
 * Memory is allocated when a request is added, so that a preempted one can always return.
 */
#ifndef ENGINE_QUEUE_H
#define ENGINE_QUEUE_H

#include "request.h"

/* Zero-initialise. */
typedef struct cl_queue {
    cl_request **requests; /* [n] borrowed; the array is owned */
    size_t n, capacity;
    size_t n_live; /* requests that were added and have not ended: capacity for all of them */
} cl_queue;

/* No request may be in the queue. */
void cl_queue_free(cl_queue *q);

/* Add a new request. False if memory is lacking. */
bool cl_queue_add(cl_queue *q, cl_request *r);
/* A request that was added has ended; it is not in the queue. */
void cl_queue_forget(cl_queue *q);

/* Remove a request, because none of its choices waits, and put it back, because one does. */
void cl_queue_remove(cl_queue *q, cl_request *r);
void cl_queue_put(cl_queue *q, cl_request *r);

/* The request to serve next; NULL: none waits. */
static inline cl_request *cl_queue_first(const cl_queue *q) { return q->n > 0 ? q->requests[0] : NULL; }

#endif
