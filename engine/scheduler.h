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

typedef struct scheduler scheduler;

/* *config with nothing left to default. m and pool are borrowed. */
cl_status scheduler_create(const model *m, ca_pool *pool, const engine_config *config, scheduler **s, cl_error *error);
/* No request may be in it. */
void scheduler_free(scheduler **s);

engine_limits scheduler_limits(const scheduler *s);

/* Queue a request. The scheduler owns it until it is taken from scheduler_finished. */
void scheduler_add(scheduler *s, request *r);

/* No request is waiting or running. */
bool scheduler_idle(const scheduler *s);

/* End those whose `cancelled` is set, or all of them. */
void scheduler_drop_cancelled(scheduler *s, bool all);

/* Admit whom there is room for, then compute one step, tokens drawn and counted. */
void scheduler_step(scheduler *s);

/* Tell what came of the step. */
void scheduler_tell(scheduler *s);

/*
 * Make a piece of the memory that coming requests will fill resident, a millisecond's work or some; false: there is enough. For
 * when nobody waits.
 */
bool scheduler_prefault(scheduler *s);

/* Requests that have been told their last event; the caller takes and frees them. */
request_queue *scheduler_finished(scheduler *s);

/* n_waiting counts those queued here. */
void scheduler_get_stats(const scheduler *s, engine_stats *stats);

#endif
