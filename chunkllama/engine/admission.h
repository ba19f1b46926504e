/*
 * Admission: choices join the K/V cache, get chunks there as they grow, and leave it.
 *
 * A choice joins with all tokens that it has. The tree finds those that are still there; the K/V of the others are computed
 * like a prompt. So a choice that was preempted continues with the same bits. A choice that has no tokens of its own yet is
 * forked from its request's leader, if there is one.
 *
 * The cache reserves chunks for the tokens that a choice may get in the next step, one chunk at a time, and not for all that it
 * may get some day. If there are none, the scheduler preempts another choice. A choice that is alone always
 * gets its chunks, since a request of which one choice exceeds the budget is refused when it is submitted.
 *
 * Still, a choice joins only if the budget also has one more chunk for each choice in the cache that may grow, or if it is
 * alone: one that is preempted soon costs more than one that waits. Without that chunk, work where memory is short costs 10 %
 * more on the workloads; what is expected from the lengths of earlier completions is no better (docs/experiments.md).
 *
 * The beams of a search join together or not at all, and leave together (beam.h says why).
 *
 * Some choices join in a domain of their own that was never used before, in which nothing is found, and later nobody finds
 * anything:
 *   - With prompt_logprobs of all tokens, and for an embedding that is a mean, the whole prompt must be computed, so that every
 *     position has logits or a state. The domain is the request's.
 *   - If a choice is alone and finds no chunks, sharing a retained prefix takes copies that exceed the budget.
 *
 * With prompt_logprobs from some position on, a choice joins in the domain of all others. It shares the tokens before the first
 * row whose logits are needed; that row's token has an extra hash, the request's id, behind which nothing is found.
 *
 * Requests with a salt join in a domain of the salt (salts.h). Domains that requests do not name keep out of the file tier.
 */
#ifndef CHUNKLLAMA_ENGINE_ADMISSION_H
#define CHUNKLLAMA_ENGINE_ADMISSION_H

#include "queue.h"
#include "salts.h"
#include "speculation.h"

typedef struct cl_admission {
    cattn_cache *cache;          /* borrowed */
    cl_speculation *speculation; /* borrowed; is informed of choices that leave; NULL: off */
    cl_choice **choices;         /* [n_seqs] those in the cache, by rank; borrowed, the array is owned */
    int32_t n_seqs, max_seqs;
    int64_t n_requests;                         /* of which a choice is in the cache */
    uint64_t whole_budget, budget, used_budget; /* bytes: as configured, as lowered, and as the cache has it now */
    int64_t n_chunks;                           /* chunks that may be in use or reserved at once, of the lowered budget */
    int32_t chunk_size;                         /* tokens */
    bool shares;                                /* sequences with a common beginning store it once */
    int32_t step_tokens;                        /* tokens that a choice may get in a step */
    bool full;                                  /* chunks were lacking, and no choice has ended since */
    uint32_t n_own_domains;                     /* domains of single requests and choices that were used so far */
    cl_salts salts;                             /* of requests in the roster */
} cl_admission;

/*
 * Start with an empty cache, which is borrowed like sp (NULL: no speculation). *a must stay where it is. False if memory is
 * lacking.
 */
bool cl_admission_init(cl_admission *a, cattn_cache *cache, cl_speculation *sp, const cl_engine_config *config);
void cl_admission_free(cl_admission *a);

/*
 * Lower the budget, or raise it again up to the configured one. A choice that is alone and finds no chunks still gets the whole
 * one, until the cache is empty.
 */
void cl_admission_set_budget(cl_admission *a, uint64_t budget_bytes);

static inline bool cl_admission_is_lowered(const cl_admission *a) { return a->budget < a->whole_budget; }

/* Use the whole budget for a choice that is alone. False: it is in use already. */
bool cl_admission_use_whole_budget(cl_admission *a);

typedef enum cl_admission_answer {
    CL_ADMISSION_JOINED,
    CL_ADMISSION_WAITS, /* chunks are lacking until a choice leaves */
    CL_ADMISSION_NEVER, /* it cannot run; the caller ends its request */
} cl_admission_answer;

/*
 * Let a choice join that waits, or all beams of its request. r->n_cached of its request then is the number of prompt tokens
 * that its first choice found. *error is filled with CL_ADMISSION_NEVER.
 */
cl_admission_answer cl_admission_join(cl_admission *a, cl_choice *c, cl_error *error);

/*
 * The options with which a request would join that is like r, of which only domain and salt count. A salt that the cache has
 * nothing of is in a domain without tokens.
 */
cattn_join_options cl_admission_join_options(const cl_admission *a, const cl_engine_request *r);

/*
 * Reserve chunks for the tokens that a choice may get in the next step. False: there are none, or less than steps need for
 * their workspace would be left; *error is filled if the choice is alone.
 */
bool cl_admission_extend(cl_admission *a, cl_choice *c, cl_error *error);

/*
 * The choice that should leave if one must: the worst by rank of the tenant with the largest share of the cache. There must be
 * one.
 */
cl_choice *cl_admission_worst(const cl_admission *a);

/*
 * Pin the first n_tokens tokens of a choice in the cache, whose prompt is computed, as the pin of r, but for the last one of an
 * odd number. False: the pins would exceed their budget; *error is filled.
 */
bool cl_admission_pin(cl_admission *a, const cl_choice *c, cl_request *r, int64_t n_tokens, cl_error *error);

/* Whether a choice in the cache, with the other beams of its request, is alone there. */
static inline bool cl_admission_is_alone(const cl_admission *a, const cl_choice *c) {
    return a->n_seqs == (c->owner->beams ? c->owner->n_in_cache : 1);
}

/*
 * Let a beam whose last token was added to c->tokens join as a fork of the sequence of `from`, which has those before it.
 * False: chunks are lacking.
 */
bool cl_admission_fork(cl_admission *a, cl_choice *c, const cl_choice *from, cattn_error *error);

/* Let a choice leave the cache that has ended. Does nothing if it is not there. */
void cl_admission_leave(cl_admission *a, cl_choice *c);

/*
 * Let a choice leave that has not ended, with the other beams of its request, because chunks are lacking. It can only join
 * again when another has ended, or when the cache is empty; if it was alone, it shares none then.
 */
void cl_admission_preempt(cl_admission *a, cl_choice *c);

#endif
