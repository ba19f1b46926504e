/*
 * The answers of a job: in the order of the input in the output, and until their turn comes in the partial file beside it,
 * `OUTPUT.partial`. Each answer is in one of them as soon as its line is done, so a job that was ended can be resumed from
 * both.
 *
 * The partial file begins with a line that says for which input and options it is, and which time the answers have; each
 * further line is the number of a line of the input, a space and its answer. It is removed when the output is complete. An
 * output that is no regular file has a scratch file instead, and cannot be resumed.
 */
#ifndef CLI_BATCH_OUTPUT_H
#define CLI_BATCH_OUTPUT_H

#include <stdio.h>

#include "batch_plan.h"

/* Where the answer of a line is in the partial file. */
typedef struct batch_saved {
    int64_t offset;
    size_t size; /* 0: it is not there */
} batch_saved;

typedef struct batch_output {
    const batch_plan *plan; /* borrowed */
    const char *path;       /* borrowed */
    char *partial_path;     /* owned; NULL: the partial file has no name */
    FILE *out, *partial;    /* partial: NULL until batch_output_begin */
    batch_saved *saved;     /* [plan->n_lines] owned */
    int64_t made_at;        /* the time that the answers have: that of the input when the job began */
    size_t next;            /* the first line of this shard whose answer is not in the output */
    size_t n_answers;       /* answers in both files */
    size_t n_failed;        /* those of them that report an error */
    size_t n_kept;          /* answers that were there before */
} batch_output;

/*
 * Open the file of --output, whose contents stay until batch_output_begin. in: which must not be the same file. With `resume`
 * it must be a regular file. Zero-initialise *o; close it also after a failure.
 */
cl_status batch_output_open(batch_output *o, const char *path, const batch_input *in, bool resume, cl_error *error);

/*
 * Begin with the plan. identity: an object of what the answers depend on, whose members are names of options with their values;
 * with `resume` both files must be of a job with an equal one. Without `resume`, and where there is nothing, they become empty.
 */
cl_status batch_output_begin(batch_output *o, const batch_plan *plan, const json_t *identity, bool resume, cl_error *error);

/* Whether the answer of a line is there. */
bool batch_output_has(const batch_output *o, size_t line);

/* Write the answer of a line that is done, and those that follow it in the input and are there. False: errno says why not. */
bool batch_output_add(batch_output *o, size_t line, const batch_line *done);

/* All answers are there: remove the partial file. */
void batch_output_complete(batch_output *o);

/* False: what was written last could not be; errno says why. */
bool batch_output_close(batch_output *o);

/* Members of the partial file's first line that are no options: its time, a hash of the model, and what penalties count. */
#define BATCH_MADE_AT        "made_at"
#define BATCH_MODEL_FILE     "model file"
#define BATCH_PENALTY_WINDOW "penalty window"

/* The failure, by errno, to do something to a file: "read", "write". */
cl_status batch_output_fail(cl_error *error, const char *action, const char *path);

/* ---- Reading what is there (resume.c) ---- */

/* Read the answers of both files, cut what is torn, and leave them at their ends. */
cl_status batch_output_resume(batch_output *o, const json_t *identity, cl_error *error);

/* Write the output's next answers, as far as they are in the partial file. False: errno says why not. */
bool batch_output_follow(batch_output *o);

#endif
