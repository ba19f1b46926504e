/*
 * Computes the lines of a plan.
 *
 * Three threads work on a job. The main thread reads lines in the order of the plan, submits their prompts, and shows progress.
 * The engine's thread adds the events to each line's result. A writing thread writes the record of each line that is done.
 * Only lines between submission and writing are in memory; their number is limited.
 */
#ifndef CLI_BATCH_WORK_H
#define CLI_BATCH_WORK_H

#include <pthread.h>

#include "cli/progress.h"
#include "output.h"

typedef struct pending_line pending_line;

/* Fill the first five members, and zero the others. All are borrowed. */
typedef struct batch_work {
    cl_engine *engine;
    const openai_context *context;
    openai_tenants *tenants;
    const batch_input *input;
    batch_output *output; /* begun with its plan */

    const batch_plan *plan; /* that of the output */
    size_t capacity;        /* lines in memory at once */
    size_t *todo;           /* [n_todo] the lines whose records are missing, in the order of the plan; owned */
    size_t n_todo;
    double start;      /* clock_seconds() */
    double whole_cost; /* of the lines that this run computes */
    progress progress;

    pthread_mutex_t lock; /* guards what follows; the output is the writing thread's */
    pthread_cond_t written, done;
    pending_line *pending;     /* all lines in memory, a list; owned */
    pending_line *first_done;  /* those that wait to be written, the oldest first */
    pending_line **after_done; /* where the next one is linked */
    size_t n_pending;
    size_t n_written;    /* records of this run */
    double written_cost; /* of these lines */
    bool ends;           /* the writing thread ends when no line is done */
    cl_error error;      /* if its code is not CL_OK, a record could not be written */
} batch_work;

/*
 * Compute the lines of the plan whose records are missing, `capacity` at once, until all are written, a signal stops the job
 * (stop_signal) or something fails. What is still in the engine is cancelled by its end, which must come before
 * batch_work_free.
 */
cl_status batch_work_run(batch_work *w, size_t capacity, cl_error *error);
void batch_work_free(batch_work *w);

#endif
