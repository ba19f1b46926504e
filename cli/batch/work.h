/*
 * Computes the lines of a plan.
 *
 * The main thread reads lines in the order of the plan, submits their prompts, writes the answers of lines that are done, and
 * shows progress. The engine's thread adds the events to each line's result. Only lines between submission and writing are in
 * memory; their number is limited.
 */
#ifndef CLI_BATCH_WORK_H
#define CLI_BATCH_WORK_H

#include "cli/progress.h"
#include "output.h"
#include "serve/batches/errand.h"

/* Fill the first three members and gate's engine and context, and zero the others. All are borrowed. */
typedef struct batch_work {
    openai_tenants *tenants;
    const batch_input *input;
    batch_output *output; /* begun with its plan */
    batch_gate gate;

    const batch_plan *plan; /* that of the output */
    size_t n_taken;         /* lines of its order that are behind those that were submitted */
    batch_errand *pending;  /* a list: the lines in memory; owned. Their index is that in the plan */
    size_t n_pending;
    size_t n_written;      /* answers of this run */
    cli_progress progress; /* in lines of the order; work is what this run has to compute */
    bool failed;           /* an answer could not be written */
} batch_work;

/*
 * Compute the lines of the plan whose answers are missing, `capacity` at once, until all are written, a signal stops the job
 * (interrupted) or something fails. What is still in the engine is cancelled by its end, which must come before
 * batch_work_free.
 */
cl_status batch_work_run(batch_work *w, size_t capacity, cl_error *error);
void batch_work_free(batch_work *w);

#endif
