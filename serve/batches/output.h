/*
 * The two files of a batch's records, answers and errors, while they grow.
 *
 * Records are numbered from 1 as the requests of the input, and written in this order, each to one of the files. So together
 * they always have the records 1 to n, but for a last one that is torn, and both files say how far a batch has come.
 */
#ifndef SERVE_BATCHES_OUTPUT_H
#define SERVE_BATCHES_OUTPUT_H

#include "batch.h"

typedef enum output_kind { OUTPUT_ANSWERS, OUTPUT_ERRORS, OUTPUT_KINDS } output_kind;

typedef struct output {
    int fd[OUTPUT_KINDS];       /* -1: not open */
    int64_t size[OUTPUT_KINDS]; /* bytes */
    int64_t n[OUTPUT_KINDS];    /* records */
    bool torn[OUTPUT_KINDS];    /* there may be a part of a record behind `size` */
} output;

/*
 * Open both files, which are created if they do not exist, and cut what is not whole: a torn record, and, unless `gaps` are
 * allowed because the batch was cancelled, records behind one that is missing since the system lost it. CL_ERR_FILE,
 * CL_ERR_NOMEM: the files are closed.
 */
cl_status output_open(output *o, store *s, const json_t *record, bool gaps, cl_error *error);
void output_close(output *o);

/* Append a record, which ends with a line break. CL_ERR_FILE: the file is as before. */
cl_status output_add(output *o, output_kind kind, const char *record, size_t size, cl_error *error);

/* Make both files durable. CL_ERR_FILE. */
cl_status output_sync(const output *o, cl_error *error);

#endif
