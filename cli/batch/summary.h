/* What an offline job did. */
#ifndef CLI_BATCH_SUMMARY_H
#define CLI_BATCH_SUMMARY_H

#include "chunkllama/engine/engine.h"

typedef struct batch_summary {
    size_t n_requests; /* records written by this run */
    size_t n_failed;   /* records of the output that report an error */
    size_t n_kept;     /* records that were there before */
    double total_s;
    cl_engine_stats stats;
    cattn_stats kv_stats;
} batch_summary;

/* Print it on stderr. */
void summary_print(const batch_summary *summary);

/* Write it as one JSON object to a file of its own. */
cl_status summary_write(const batch_summary *summary, const char *path, cl_error *error);

#endif
