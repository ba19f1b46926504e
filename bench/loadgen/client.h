/* Sends requests when they arrive, on as many connections as run at once, and records the outcome of each. */
#ifndef BENCH_LOADGEN_CLIENT_H
#define BENCH_LOADGEN_CLIENT_H

#include <signal.h>

#include "endpoint.h"
#include "gauges.h"
#include "load_reply.h"
#include "load_requests.h"

typedef struct load_progress {
    size_t n_done, n_failed, n_running; /* requests; the failed ones are done, too */
    int64_t n_outputs;                  /* about one per token */
    double seconds;                     /* since the start */
} load_progress;

typedef struct load_config {
    const load_endpoint *target;
    int64_t max_concurrency;           /* requests that arrive beyond it wait, and their waiting counts; 0: no limit */
    double time_limit_s;               /* seconds after which all remaining requests are cut off; 0: no limit */
    bool watch_gauges;                 /* poll /metrics */
    const volatile sig_atomic_t *stop; /* when it becomes non-zero, all remaining requests are cut off; NULL: never */
    /* Called a few times per second on the caller's thread; NULL: never. */
    void (*on_progress)(void *ctx, const load_progress *progress);
    void *progress_ctx;
} load_config;

typedef struct load_result {
    load_outcome *outcomes; /* [n], in the order of the requests */
    size_t n;
    double seconds;        /* from the first request's arrival to the end of the last reply */
    size_t most_in_flight; /* the largest number of requests that the client had sent and that had not ended */
    load_gauges peaks;
} load_result;

/*
 * Send the requests and wait for their replies.
 *
 * due: [requests->n] arrival times in seconds after the start, ascending. Everything is borrowed for the call. *result is
 * freed with load_result_free, also after a failure. What goes wrong at the endpoint is an outcome, not an error; errors are
 * CL_ERR_NOMEM.
 */
cl_status load_run(const load_config *config, const load_requests *requests, const double *due, load_result *result,
                   cl_error *error);
void load_result_free(load_result *result);

#endif
