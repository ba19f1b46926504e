/*
 * Decides which sequences get rows in a step, and runs the step; which requests run is decided by roster.h.
 *
 * If the budget does not hold a step's workspace, the step becomes smaller; if it still fails, the worst choice is preempted.
 *
 * The answers of grammars are awaited for a part of the time that the step has taken. A choice whose answer is late sits out:
 * it gets no rows until the answer is there, and the others go on (constraint.h).
 *
 * A step gives rows first to the choices that decode, then to prompts in the order of their tenants' counters, then of turns
 * (turns.h), then of rank. Some prompts wait for a prefix that another request is computing: they get no rows until it is
 * ready, or the remaining rows of it if that request ends early.
 *
 * Used by the engine's thread only.
 */
#ifndef CHUNKLLAMA_ENGINE_SCHEDULER_H
#define CHUNKLLAMA_ENGINE_SCHEDULER_H

#include "check.h"
#include "request.h"

typedef struct cl_scheduler cl_scheduler;

/* *config is complete (check.h). m and pool are borrowed until cl_scheduler_free. *s is NULL after an error. */
cl_status cl_scheduler_create(const cl_model *m, ca_pool *pool, const cl_engine_config *config, cl_scheduler **s,
                              cl_error *error);
/* No request may be in the scheduler. */
void cl_scheduler_free(cl_scheduler **s);
/* In a child of fork(2), where the engine's thread is not: free the cache's memory. */
void cl_scheduler_abandon(cl_scheduler *s);

cl_engine_limits cl_scheduler_limits(const cl_scheduler *s);

/* Queue a request, or end it if memory is lacking. The scheduler owns it until the caller takes it from cl_scheduler_finished.
 */
void cl_scheduler_add(cl_scheduler *s, cl_request *r);

/* Choices that find a place in the next step, as far as max_seqs goes; 0: some wait already, so more than that is lacking. */
int32_t cl_scheduler_n_free(const cl_scheduler *s);

/* Whether no request waits or runs. */
bool cl_scheduler_idle(const cl_scheduler *s);

/*
 * Let the requests leave whose time is over. cancels: and those that were cancelled, and the pins that were ended, since the
 * last call; all: and all others. Costs nothing if no deadline has passed and nothing was cancelled. Returns whether the end of
 * a request is to be reported.
 */
bool cl_scheduler_drop(cl_scheduler *s, bool cancels, bool all);

/* Report the ends of requests that were dropped; cl_scheduler_report does so, too. */
void cl_scheduler_report_dropped(cl_scheduler *s);

/* Admit the requests that fit, as a step does, too. Reports nothing. */
void cl_scheduler_admit(cl_scheduler *s);

/* Admit the requests that fit, compute one step, draw and count its tokens. Reports nothing. */
void cl_scheduler_step(cl_scheduler *s);

/* Report the results of the step. */
void cl_scheduler_report(cl_scheduler *s);

/*
 * For an idle engine: make a part of the memory resident that future requests will use, which takes about a millisecond.
 * False: enough is resident.
 */
bool cl_scheduler_prefault(cl_scheduler *s);

/* Lower the K/V budget, or raise it again up to the configured one. */
void cl_scheduler_set_budget(cl_scheduler *s, uint64_t budget_bytes);

/* Whether exports and imports of the cache know of what model and program it is. */
bool cl_scheduler_has_fingerprint(const cl_scheduler *s);

/* The K/V cache, for inspections between steps. */
const cattn_cache *cl_scheduler_cache(const cl_scheduler *s);

/* As cl_admission_join_options. */
cattn_join_options cl_scheduler_join_options(cl_scheduler *s, const cl_engine_request *r);

/* Drop the retained chunks of the cache, and the tokens that the drafter keeps of choices that have left. */
void cl_scheduler_reset_cache(cl_scheduler *s);

/* The requests whose last event was reported; the caller takes and frees them. */
cl_request_list *cl_scheduler_finished(cl_scheduler *s);

/* Fill both, for the requests that were added. */
void cl_scheduler_get_stats(const cl_scheduler *s, cl_engine_stats *stats, cattn_stats *kv_stats);

#endif
