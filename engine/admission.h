/*
 * Admission: requests join the K/V cache when max_seqs and the K/V budget have room for all of their tokens, and leave it.
 *
 * A request with prompt_logprobs joins in a domain of its own that was never used before: nothing of it is found in the cache,
 * so its whole prompt is computed and every position has logits. Nobody can find its tokens later, so they leave the cache with
 * it.
 *
 * A request that is alone but finds no room, because sharing a retained prefix takes copies, joins in a domain of its own too.
 */
#ifndef ENGINE_ADMISSION_H
#define ENGINE_ADMISSION_H

#include "request.h"
#include "speculation.h"

typedef struct cl_admission {
    cattn_cache *cache;          /* borrowed */
    cl_speculation *speculation; /* borrowed; is informed of choices that leave; NULL: off */
    int32_t max_seqs;
    int64_t n_seqs;         /* sequences in the cache */
    int64_t n_chunks;       /* chunks that may be in use or reserved at once */
    bool full;              /* the first request in the queue found no room, and no sequence has left since */
    uint32_t n_own_domains; /* domains of single requests that were used so far */
} cl_admission;

/* Start with an empty cache, which is borrowed like sp (NULL: no speculation). */
void cl_admission_init(cl_admission *a, cattn_cache *cache, cl_speculation *sp, int32_t max_seqs);

typedef enum cl_admission_answer {
    CL_ADMISSION_JOINED,
    CL_ADMISSION_WAITS, /* there is no room until a sequence leaves; nothing of the request is in the cache */
    CL_ADMISSION_NEVER, /* it cannot run; the caller ends it, and with it the choices that have joined */
} cl_admission_answer;

/*
 * Let the first request in the queue join with all its choices; r->n_cached then is the number of prompt tokens that were
 * found. alone: no other request runs, so it must not wait for the budget. *error is filled with CL_ADMISSION_NEVER.
 */
cl_admission_answer cl_admission_join(cl_admission *a, cl_request *r, bool alone, cl_error *error);

/* Try again although no sequence has left, because another request may be the first in the queue. */
void cl_admission_retry(cl_admission *a);

/* Let a choice leave the cache. Does nothing if it is not there. */
void cl_admission_leave(cl_admission *a, cl_choice *c);
/* The same for all choices of a request. */
void cl_admission_leave_all(cl_admission *a, cl_request *r);

#endif
