/* What a batch job took, for people and as JSON. */
#ifndef CLI_BATCH_SUMMARY_H
#define CLI_BATCH_SUMMARY_H

#include <stddef.h>

#include "engine/engine.h"

typedef struct batch_summary {
    size_t n_requests, n_failed;
    double total_s;
    cl_engine_stats stats;
} batch_summary;

/* On stderr. */
void batch_summary_print(const batch_summary *summary);

/* One JSON object in a file of its own. */
cl_status batch_summary_write(const batch_summary *summary, const char *path, cl_error *error);

#endif
