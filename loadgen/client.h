/* Sends requests when they are due, over as many connections as run at once, and notes what becomes of each. */
#ifndef LOADGEN_CLIENT_H
#define LOADGEN_CLIENT_H

#include "endpoint.h"
#include "gauges.h"
#include "reply.h"
#include "requests.h"

typedef struct load_progress {
    size_t n_done, n_failed, n_running;
    int64_t n_events; /* with output; about as many tokens */
    double seconds;
} load_progress;

typedef struct load_config {
    const endpoint *endpoint;
    int64_t max_concurrency; /* what is due beyond it waits, and its waiting counts; 0: no limit */
    double time_limit_s;     /* then everything is cut off; 0: none */
    bool watch_gauges;       /* poll /metrics */
    void (*on_progress)(void *ctx, const load_progress *progress); /* a few times a second; NULL: none */
    void *progress_ctx;
} load_config;

typedef struct load_result {
    outcome *outcomes; /* [n] */
    size_t n;
    double seconds;        /* from the first request's arrival to the last reply's end */
    size_t most_in_flight; /* as the client saw it */
    gauges gauges;
} load_result;

/* due [requests->n], ascending. An endpoint's failures are outcomes, not errors. Free *result, also after a failure. */
cl_status load_run(const load_config *config, const load_requests *requests, const double *due, load_result *result,
                   cl_error *error);
void load_result_free(load_result *result);

#endif
