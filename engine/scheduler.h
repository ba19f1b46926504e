/*
 * Who runs, and who gets rows in a step.
 *
 * Admission is first come, first served: the first in the queue waits until max_seqs and the K/V budget allow it, and all
 * behind it wait too, so small requests cannot starve a large one (admission.h). An admitted request has all its tokens
 * promised; should the budget then lack room for a step's workspace, steps become smaller.
 *
 * A step deals rows first to the choices that decode, then to the others in order of admission. Those include prompts that
 * wait for a prefix which another request is computing: they are dealt no rows until it is done, or the rest of it if that
 * request goes away.
 */
#ifndef ENGINE_SCHEDULER_H
#define ENGINE_SCHEDULER_H

#include "check.h"
#include "request.h"

typedef struct cl_scheduler cl_scheduler;

/* *config with nothing left to default. m and pool are borrowed. */
cl_status cl_scheduler_create(const cl_model *m, ca_pool *pool, const cl_engine_config *config, cl_scheduler **s,
                              cl_error *error);
/* No request may be in it. */
void cl_scheduler_free(cl_scheduler **s);

cl_engine_limits cl_scheduler_limits(const cl_scheduler *s);

/* Queue a request. The scheduler owns it until it is taken from cl_scheduler_finished. */
void cl_scheduler_add(cl_scheduler *s, cl_request *r);

/* No request is waiting or running. */
bool cl_scheduler_idle(const cl_scheduler *s);

/* End those whose `cancelled` is set, or all of them. */
void cl_scheduler_drop_cancelled(cl_scheduler *s, bool all);

/* Admit whom there is room for, then compute one step, tokens drawn and counted. */
void cl_scheduler_step(cl_scheduler *s);

/* Tell what came of the step. */
void cl_scheduler_tell(cl_scheduler *s);

/*
 * Make a piece of the memory that coming requests will fill resident, a millisecond's work or some; false: there is enough. For
 * when nobody waits.
 */
bool cl_scheduler_prefault(cl_scheduler *s);

/* Requests that have been told their last event; the caller takes and frees them. */
cl_request_queue *cl_scheduler_finished(cl_scheduler *s);

/* Fill both; n_waiting is the number of requests that are queued here. */
void cl_scheduler_get_stats(const cl_scheduler *s, cl_engine_stats *stats, cattn_stats *kv_stats);

#endif
