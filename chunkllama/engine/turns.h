/*
 * Turns among the requests of a tenant: while others of it wait, a family that has half of what the tenant has in the cache
 * gets no further place.
 *
 * A family is a request with those that are parts of it (cl_engine_request.part_of): what one client submitted at once. It may
 * have a hundred thousand choices, and by rank alone all of them would come before the requests of other clients. Requests of
 * one choice are not affected, and neither is a family that is alone: places that nobody else wants are its own. What it has it
 * keeps: to preempt it would make ordinary requests with n > 1 compute their prompts again in every full cache.
 */
#ifndef CHUNKLLAMA_ENGINE_TURNS_H
#define CHUNKLLAMA_ENGINE_TURNS_H

#include "admission.h"

/* Whether the family of r has half of what its tenant has in the cache, or more. */
bool cl_turns_has_half(const cl_admission *a, const cl_request *r);

/* The request to admit next, given the first of a tenant by rank: the first whose family has not half, if there is one. */
cl_request *cl_turns_choose(const cl_admission *a, cl_request *first);

#endif
