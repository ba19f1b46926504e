/*
 * Whose sequences are in the cache: requests join when max_seqs and the K/V budget have room for all their tokens, and leave.
 *
 * For prompt_logprobs a request joins in a domain of its own, never used before: nothing of it is found in the cache, so all
 * of its prompt is computed and every position has logits. Afterwards it is of no use to anybody and leaves the cache.
 *
 * So does one that is alone and finds no room for what it shares, whose copies may take more than its tokens do.
 */
#ifndef ENGINE_ADMISSION_H
#define ENGINE_ADMISSION_H

#include "request.h"
#include "speculation.h"

typedef struct cl_admission {
    cattn_cache *cache;
    cl_speculation *speculation; /* told who leaves; NULL: off */
    int32_t max_seqs;
    int64_t n_seqs;         /* in the cache */
    int64_t n_chunks;       /* that may be used and promised at once */
    bool full;              /* the budget had no room for the first that waits, and nothing has left since */
    uint32_t n_own_domains; /* used so far */
} cl_admission;

/* An empty cache; it and sp are borrowed. */
void cl_admission_init(cl_admission *a, cattn_cache *cache, cl_speculation *sp, int32_t max_seqs);

typedef enum cl_admission_answer {
    CL_ADMISSION_JOINED,
    CL_ADMISSION_WAITS, /* until somebody leaves; nothing of it is in the cache */
    CL_ADMISSION_NEVER, /* what has joined of it must leave */
} cl_admission_answer;

/*
 * Let the first that waits join with all its choices; r->n_cached then says how much of its prompt was found. One that is alone
 * never waits for the budget. *error: with CL_ADMISSION_NEVER.
 */
cl_admission_answer cl_admission_join(cl_admission *a, cl_request *r, bool alone, cl_error *error);

/* Another request may be the first that waits. */
void cl_admission_look_again(cl_admission *a);

/* Nothing where the choice is not in the cache. */
void cl_admission_leave(cl_admission *a, cl_choice *c);
/* With all choices. */
void cl_admission_leave_all(cl_admission *a, cl_request *r);

#endif
