/*
 * Overtaking: among the waiting requests of a tenant, one with at least half of its prompt in the cache, or being computed
 * there, may be admitted before others of which less is. Otherwise groups of requests with different prefixes that arrive in
 * turns would evict each other's prefixes where memory is short, and compute them again.
 *
 * It is bounded: while a request waits, at most CL_OVERTAKE_MAX choices of later requests are admitted before it for this
 * reason. Only requests of the same priority are overtaken, and none of which a choice was in the cache before.
 */
#ifndef CHUNKLLAMA_ENGINE_OVERTAKE_H
#define CHUNKLLAMA_ENGINE_OVERTAKE_H

#include "admission.h"

/* With 0, work costs 1.3 to 2 times as much where not all prefixes fit: docs/experiments.md, "Scheduling". */
enum { CL_OVERTAKE_MAX = 16 };

/* The request to admit next, given the one that is next in the queue: itself, or one that may overtake it. */
cl_request *cl_overtake_choose(const cl_admission *a, cl_request *first);

/* A choice, or all beams, of r were admitted; r is still in the queue. Counts for those that it has overtaken. */
void cl_overtake_note(const cl_request *r);

#endif
