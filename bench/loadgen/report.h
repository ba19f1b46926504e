/* The figures of a load: latencies as the paper and as servers define them, throughput, peaks and errors. */
#ifndef BENCH_LOADGEN_REPORT_H
#define BENCH_LOADGEN_REPORT_H

#include <jansson.h>

#include "client.h"

/* A distribution of values; all fields are 0 if n is 0. */
typedef struct load_stats {
    size_t n;
    double mean, median, p90, p99, max;
} load_stats;

/* The distribution of x [n]. Sorts x. */
load_stats load_stats_of(double *x, size_t n);

/* Tokens and latencies are those of the requests that were answered. Latencies are in seconds. */
typedef struct load_report {
    size_t n[N_LOAD_OUTCOMES];                               /* requests by outcome */
    size_t n_wrong_length;                                   /* answered, but with another number of tokens than requested */
    int64_t prompt_tokens, cached_tokens, completion_tokens; /* cached_tokens is -1 if the endpoint does not report them */
    double seconds;                                          /* load_result.seconds */
    load_stats normalized;                                   /* end_to_end divided by the completion tokens */
    load_stats end_to_end;                                   /* from a request's arrival to the end of its reply */
    load_stats first;                                        /* TTFT: from a request's arrival to the first output */
    load_stats per_token;  /* TPOT: from the first output to the end, divided by the tokens after the first; needs two tokens */
    load_stats gap;        /* ITL: from one output to the next, over all requests */
    size_t most_in_flight; /* load_result.most_in_flight */
    load_gauges peaks;     /* load_result.peaks */
} load_report;

/* completion_tokens: how many each request requested; 0: unknown. Returns false if memory is lacking. */
bool load_report_make(const load_result *result, int64_t completion_tokens, load_report *p);

extern const char *const load_outcome_names[N_LOAD_OUTCOMES]; /* "ok", "unreachable", ... */

/*
 * The report as a new JSON object; NULL if memory is lacking. Its errors are the first few different messages, each with the
 * number of requests that had it.
 */
json_t *load_report_json(const load_report *p, const load_result *result);

/*
 * The distributions of TTFT and TPOT as a new JSON object that bench/tools/plot draws; NULL if memory is lacking. Its "rows"
 * are points {"figure": "TTFT" or "TPOT", "ms", "percent"}, `percent` of the answered requests being at most `ms`.
 */
json_t *load_report_distributions(const load_result *result);

/* Print the report as a table on stdout. */
void load_report_print(const load_report *p, const load_result *result);

#endif
