/*
 * The requests of an engine: those that wait, those of which choices are in the cache, and those that have ended.
 *
 * Choices are admitted as long as max_seqs and the K/V budget hold the tokens that they have and for the next ones
 * (admission.h). The one that is next (queue.h, turns.h, overtake.h) holds up all others, so that small ones cannot starve a
 * large one. When choices in the cache find no chunks for their next tokens, one is preempted: the worst by rank of the tenant
 * with the largest share. It leaves, waits for another to end, and continues. A choice is also preempted for a tenant with a
 * smaller share whose choice waits.
 *
 * Nothing here may be called while a step is open.
 */
#ifndef CHUNKLLAMA_ENGINE_ROSTER_H
#define CHUNKLLAMA_ENGINE_ROSTER_H

#include "admission.h"

typedef struct cl_roster {
    cl_queue queue;
    cl_admission admission;
    cl_request_list finished;    /* those whose last event was reported */
    cl_request_list pinned;      /* the same of those that keep their prompts in the cache */
    cl_request_list dropped;     /* those that have left before their end, which is to be reported */
    cl_engine_stats *stats;      /* borrowed; counts requests, their prompts and preemptions */
    double first_deadline;       /* no request has an earlier one */
    double first_queue_deadline; /* no request that has not been admitted has an earlier one */
    int64_t waiting_tokens;      /* of prompts that have not been admitted */
    double recent_tokens;        /* of prompts that were admitted; the scheduler lets it decay */
} cl_roster;

/* Start with an empty cache. Borrows cache, sp (NULL: no speculation) and stats. False if memory is lacking. */
bool cl_roster_init(cl_roster *ro, cattn_cache *cache, cl_speculation *sp, const cl_engine_config *config,
                    cl_engine_stats *stats);
/* No request may wait or run, and no prompt be pinned. Ignores a roster that is all zeros. */
void cl_roster_free(cl_roster *ro);

/* Queue a request, or end it if memory is lacking: for the queue, or for the request, which is not complete then. */
void cl_roster_add(cl_roster *ro, cl_request *r, bool complete);

/* As cl_scheduler_drop and cl_scheduler_report_dropped. */
void cl_roster_drop(cl_roster *ro, bool cancels, bool all);
void cl_roster_report_dropped(cl_roster *ro);

/* Reserve chunks for the next tokens of all choices in the cache, the best first; some may leave for it. */
void cl_roster_extend(cl_roster *ro);

/* Admit the choices that fit, and drop the requests that have waited too long for that. */
void cl_roster_admit(cl_roster *ro);

/*
 * Chunks are lacking, and one choice at least is in the cache: the worst one leaves. One that is alone gets the whole budget.
 * False: it has that and shares none, so nothing can be freed for it.
 */
bool cl_roster_free_chunks(cl_roster *ro);

/* End the request of the choice for which nothing can be freed with the error. */
void cl_roster_end_last(cl_roster *ro, const cl_error *error);

/*
 * The beams of a request in the cache have advanced: their sequences follow. If chunks are lacking, others may leave for it, or
 * all beams of the request.
 */
void cl_roster_advance(cl_roster *ro, cl_request *r);

/* A choice has ended (cl_choice_end): it leaves the cache, and its request is finished with its last choice. */
void cl_roster_let_go(cl_roster *ro, cl_choice *c);

/* A request without completion ends with its prompt, which c has computed, and pins it if the request says so. */
void cl_roster_end_prompt(cl_roster *ro, cl_choice *c);

/*
 * Count the prompt of a request that was admitted, of which n_cached tokens need not be computed, once the others are, or the
 * request has ended: earlier it is not certain, and counters never fall. Does nothing if it was counted.
 */
void cl_roster_count_prompt(cl_roster *ro, cl_request *r, int64_t n_cached);

/* Pin what params.pin_tokens says of a prompt that c has computed, if pin_bytes holds it, unless that was tried before. */
void cl_roster_pin_prefix(cl_roster *ro, cl_choice *c);

/* End a choice, or the choices of a request that have not ended. error: with CL_ENGINE_ERROR; otherwise NULL. */
void cl_roster_end_choice(cl_roster *ro, cl_choice *c, cl_engine_finish why, const cl_error *error);
void cl_roster_end_request(cl_roster *ro, cl_request *r, cl_engine_finish why, const cl_error *error);

#endif
