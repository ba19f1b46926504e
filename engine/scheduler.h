/*
 * Decides which requests run, and which sequences get rows in a step.
 *
 * Admission is first come, first served: the first request in the queue waits until max_seqs and the K/V budget allow it, and
 * all behind it wait too, so that small requests cannot starve a large one (admission.h). An admitted request has room for all
 * its tokens reserved. If the budget then lacks room for a step's workspace, steps become smaller.
 *
 * A step gives rows first to the choices that decode, then to prompts in order of admission. Some prompts wait for a prefix
 * that another request is computing: they get no rows until it is ready, or the remaining rows of it if that request ends
 * early.
 *
 * Used by the engine's thread only.
 */
#ifndef ENGINE_SCHEDULER_H
#define ENGINE_SCHEDULER_H

#include "check.h"
#include "request.h"

typedef struct cl_scheduler cl_scheduler;

/* *config is complete (check.h). m and pool are borrowed until cl_scheduler_free. *s is NULL after an error. */
cl_status cl_scheduler_create(const cl_model *m, ca_pool *pool, const cl_engine_config *config, cl_scheduler **s,
                              cl_error *error);
/* No request may be in the scheduler. */
void cl_scheduler_free(cl_scheduler **s);

cl_engine_limits cl_scheduler_limits(const cl_scheduler *s);

/* Queue a request. The scheduler owns it until the caller takes it from cl_scheduler_finished. */
void cl_scheduler_add(cl_scheduler *s, cl_request *r);

/* Whether no request waits or runs. */
bool cl_scheduler_idle(const cl_scheduler *s);

/* End the requests that were cancelled, or all requests. */
void cl_scheduler_drop_cancelled(cl_scheduler *s, bool all);

/* Admit the requests that there is room for, compute one step, draw and count its tokens. Reports nothing. */
void cl_scheduler_step(cl_scheduler *s);

/* Report the results of the step. */
void cl_scheduler_report(cl_scheduler *s);

/*
 * For an idle engine: make a piece of the memory resident that future requests will use, which takes about a millisecond.
 * False: enough is resident.
 */
bool cl_scheduler_prefault(cl_scheduler *s);

/* The requests whose last event was reported; the caller takes and frees them. */
cl_request_queue *cl_scheduler_finished(cl_scheduler *s);

/* Fill both; n_waiting is the number of requests that are queued here. */
void cl_scheduler_get_stats(const cl_scheduler *s, cl_engine_stats *stats, cattn_stats *kv_stats);

#endif
