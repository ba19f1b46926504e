/* What a load came to: latencies as the paper and as servers define them, throughput, peaks, and what failed. */
#ifndef LOADGEN_REPORT_H
#define LOADGEN_REPORT_H

#include <jansson.h>

#include "client.h"
#include "stats.h"

typedef struct report {
    size_t n[N_OUTCOMES];                                    /* by what became of them */
    size_t n_wrong_length;                                   /* answered, but not with as many tokens as were asked for */
    int64_t prompt_tokens, cached_tokens, completion_tokens; /* of those answered; cached -1: the endpoint does not say */
    double seconds;
    /* Of the requests answered, in seconds: */
    stats normalized; /* a request's time from its arrival to its reply's end, over its completion tokens */
    stats end_to_end; /* from its arrival to its reply's end */
    stats first;      /* from its arrival to the first output: TTFT */
    stats per_token; /* from the first output to the end, over the tokens after the first: TPOT; of requests with two or more */
    stats gap;       /* from one output to the next, over all requests: ITL */
    size_t most_in_flight;
    gauges gauges;
} report;

/* completion_tokens: what each request asked for; 0: unknown. False without memory. */
bool report_make(const load_result *result, int64_t completion_tokens, report *report);

extern const char *const outcome_names[N_OUTCOMES]; /* "ok", "unreachable", ... */

/* A new object, NULL without memory; errors are the first few messages that differ, with how often they came. */
json_t *report_json(const report *report, const load_result *result);

/* The same for people, on stdout. */
void report_print(const report *report, const load_result *result);

#endif
