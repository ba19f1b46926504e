/* The figures of a load: latencies as the paper and as servers define them, throughput, peaks and errors. */
#ifndef BENCH_LOADGEN_REPORT_H
#define BENCH_LOADGEN_REPORT_H

#include <jansson.h>

#include "client.h"

/* A distribution of values; all fields are 0 if n is 0. */
typedef struct stats {
    size_t n;
    double mean, median, p90, p99, max;
} stats;

/* The distribution of x [n]. Sorts x. */
stats stats_of(double *x, size_t n);

/* The p-quantile, p from 0 to 1, of x [n], ascending, n >= 1. Interpolates linearly, as NumPy's percentile does by default. */
double stats_percentile(const double *x, size_t n, double p);

/* Tokens and latencies are those of the requests that were answered. Latencies are in seconds. */
typedef struct report {
    size_t n[N_OUTCOMES];                                    /* requests by outcome */
    size_t n_wrong_length;                                   /* answered, but with another number of tokens than requested */
    int64_t prompt_tokens, cached_tokens, completion_tokens; /* cached_tokens is -1 if the endpoint does not report them */
    double seconds;                                          /* load_result.seconds */
    stats normalized;                                        /* end_to_end divided by the completion tokens */
    stats end_to_end;                                        /* from a request's arrival to the end of its reply */
    stats first;                                             /* TTFT: from a request's arrival to the first output */
    stats per_token;       /* TPOT: from the first output to the end, divided by the tokens after the first; needs two tokens */
    stats gap;             /* ITL: from one output to the next, over all requests */
    size_t most_in_flight; /* load_result.most_in_flight */
    gauges peaks;          /* load_result.peaks */
} report;

/* completion_tokens: how many each request requested; 0: unknown. Returns false if memory is lacking. */
bool report_make(const load_result *result, int64_t completion_tokens, report *p);

extern const char *const outcome_names[N_OUTCOMES]; /* "ok", "unreachable", ... */

/*
 * The report as a new JSON object; NULL if memory is lacking. Its errors are the first few different messages, each with the
 * number of requests that had it.
 */
json_t *report_json(const report *p, const load_result *result);

/*
 * The distributions of TTFT and TPOT as a new JSON object that bench/tools/plot draws; NULL if memory is lacking. Its "rows"
 * are points {"figure": "TTFT" or "TPOT", "ms", "percent"}, `percent` of the answered requests being at most `ms`.
 */
json_t *report_distributions(const load_result *result);

/* Print the report as a table on stdout. */
void report_print(const report *p, const load_result *result);

#endif
