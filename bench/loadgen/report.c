/* Computes the figures of a load, and writes them as JSON or as a table. */
#include "report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "quantiles.h"

enum { MAX_ERRORS = 8 }; /* different messages */

const char *const load_outcome_names[N_LOAD_OUTCOMES] = {"ok", "unreachable", "refused", "bad_stream", "cut"};

/* ---- Distributions ---- */

load_stats load_stats_of(double *x, size_t n) {
    if (n == 0) return (load_stats){0};
    load_sort(x, n);
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    return (load_stats){.n = n,
                        .mean = sum / (double)n,
                        .median = load_quantile(x, n, 0.5),
                        .p90 = load_quantile(x, n, 0.9),
                        .p99 = load_quantile(x, n, 0.99),
                        .max = x[n - 1]};
}

/* ---- Counting ---- */

/* Count outcomes and tokens. */
static void count(const load_result *result, int64_t completion_tokens, load_report *p) {
    bool cached_known = true;
    for (size_t i = 0; i < result->n; i++) {
        const load_outcome *o = &result->outcomes[i];
        p->n[o->status]++;
        if (o->status != LOAD_OUTCOME_OK) continue;
        p->n_wrong_length += completion_tokens && o->tokens != completion_tokens;
        if (o->prompt_tokens > 0) p->prompt_tokens += o->prompt_tokens;
        if (o->cached_tokens > 0) p->cached_tokens += o->cached_tokens;
        cached_known &= o->cached_tokens >= 0;
        p->completion_tokens += o->tokens;
    }
    if (!cached_known || !p->n[LOAD_OUTCOME_OK]) p->cached_tokens = -1;
}

/* A latency of an answered request, in seconds. */
typedef double (*figure)(const load_outcome *o);
static double normalized(const load_outcome *o) { return (o->end - o->due) / (double)(o->tokens > 0 ? o->tokens : 1); }
static double end_to_end(const load_outcome *o) { return o->end - o->due; }
static double first(const load_outcome *o) { return o->first - o->due; }
static double per_token(const load_outcome *o) { return (o->end - o->first) / (double)(o->tokens - 1); }

/*
 * The distribution of f over the answered requests with at least least_tokens tokens. values: room for a value of each request.
 */
static load_stats of_requests(const load_result *result, int64_t least_tokens, figure f, double *values) {
    size_t n = 0;
    for (size_t i = 0; i < result->n; i++) {
        const load_outcome *o = &result->outcomes[i];
        if (o->status == LOAD_OUTCOME_OK && o->tokens >= least_tokens) values[n++] = f(o);
    }
    return load_stats_of(values, n);
}

/* The distribution of the gaps of all answered requests. False: memory is lacking. */
static bool of_gaps(const load_result *result, load_stats *s) {
    size_t n = 0, at = 0;
    for (size_t i = 0; i < result->n; i++)
        if (result->outcomes[i].status == LOAD_OUTCOME_OK) n += result->outcomes[i].n_gaps;
    double *values = calloc(n + 1, sizeof *values);
    if (!values) return false;
    for (size_t i = 0; i < result->n; i++) {
        const load_outcome *o = &result->outcomes[i];
        if (o->status != LOAD_OUTCOME_OK) continue;
        for (size_t k = 0; k < o->n_gaps; k++) values[at++] = o->gaps[k];
    }
    *s = load_stats_of(values, n);
    free(values);
    return true;
}

bool load_report_make(const load_result *result, int64_t completion_tokens, load_report *p) {
    *p = (load_report){.seconds = result->seconds, .most_in_flight = result->most_in_flight, .peaks = result->peaks};
    double *values = calloc(result->n + 1, sizeof *values);
    if (!values) return false;
    count(result, completion_tokens, p);
    p->normalized = of_requests(result, 0, normalized, values);
    p->end_to_end = of_requests(result, 0, end_to_end, values);
    p->first = of_requests(result, 0, first, values);
    p->per_token = of_requests(result, 2, per_token, values);
    free(values);
    return of_gaps(result, &p->gap);
}

/* Append the distribution of f over the answered requests with at least least_tokens tokens as points. False: lack of memory.
 */
static bool add_points(const load_result *result, const char *name, int64_t least_tokens, figure f, double *values,
                       json_t *points) {
    enum { STEPS = 50 }; /* from the smallest value to the largest, in equal parts of the requests */
    const size_t n = of_requests(result, least_tokens, f, values).n;
    for (int i = 0; n && i <= STEPS; i++) {
        const double part = (double)i / STEPS;
        json_t *point =
            json_pack("{s:s, s:f, s:f}", "figure", name, "ms", 1e3 * load_quantile(values, n, part), "percent", 100 * part);
        if (json_array_append_new(points, point)) return false;
    }
    return true;
}

json_t *load_report_distributions(const load_result *result) {
    json_t *points = json_array();
    double *values = calloc(result->n + 1, sizeof *values);
    const bool ok = points && values && add_points(result, "TTFT", 0, first, values, points) &&
                    add_points(result, "TPOT", 2, per_token, values, points);
    free(values);
    if (ok)
        return json_pack("{ss s{ss ss ss ss ss ss sb} so}", "title",
                         "Distributions of the time to the first token (TTFT) and per token after it (TPOT)", "plot", "kind",
                         "lines", "x", "ms", "y", "percent", "panel", "figure", "x_label", "ms", "y_label",
                         "% of the requests are at most as slow", "from_zero", 1, "rows", points);
    json_decref(points);
    return NULL;
}

static double per_second(const load_report *p, int64_t n) { return p->seconds > 0 ? (double)n / p->seconds : 0; }

/* ---- Errors ---- */

typedef struct error_count {
    const char *message;
    load_outcome_status status;
    size_t n;
} error_count;

/* Fill errors with the first MAX_ERRORS different messages; returns how many there are. */
static size_t count_errors(const load_result *result, error_count errors[MAX_ERRORS]) {
    size_t n = 0;
    for (size_t i = 0; i < result->n; i++) {
        const load_outcome *o = &result->outcomes[i];
        if (o->status == LOAD_OUTCOME_OK) continue;
        size_t k = 0;
        while (k < n && strcmp(errors[k].message, o->message) != 0) k++;
        if (k == MAX_ERRORS) continue;
        if (k == n) errors[n++] = (error_count){o->message, o->status, 0};
        errors[k].n++;
    }
    return n;
}

/* ---- JSON ---- */

static json_t *stats_json(load_stats s) {
    if (s.n == 0) return json_null();
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "n", (json_int_t)s.n, "mean", s.mean, "median", s.median, "p90", s.p90,
                     "p99", s.p99, "max", s.max);
}

json_t *load_report_json(const load_report *p, const load_result *result) {
    json_t *requests = json_object(), *errors = json_array(), *peak = json_object();
    json_object_set_new(requests, "total", json_integer((json_int_t)result->n));
    for (load_outcome_status s = 0; s < N_LOAD_OUTCOMES; s++)
        json_object_set_new(requests, load_outcome_names[s], json_integer((json_int_t)p->n[s]));
    json_object_set_new(requests, "wrong_length", json_integer((json_int_t)p->n_wrong_length));
    error_count found[MAX_ERRORS];
    const size_t n_errors = count_errors(result, found);
    for (size_t i = 0; i < n_errors; i++)
        json_array_append_new(errors, json_pack("{s:s, s:s, s:I}", "kind", load_outcome_names[found[i].status], "message",
                                                found[i].message, "count", (json_int_t)found[i].n));
    for (load_gauge g = 0; g < N_LOAD_GAUGES; g++)
        json_object_set_new(peak, load_gauge_names[g], p->peaks.known[g] ? json_real(p->peaks.peak[g]) : json_null());
    json_object_set_new(peak, "in_flight", json_integer((json_int_t)p->most_in_flight));
    return json_pack("{s:o, s:o, s:f, s:I, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:f, s:f, s:f, s:o}", "requests", requests,
                     "errors", errors, "seconds", p->seconds, "prompt_tokens", (json_int_t)p->prompt_tokens, "cached_tokens",
                     p->cached_tokens < 0 ? json_null() : json_integer(p->cached_tokens), "completion_tokens",
                     (json_int_t)p->completion_tokens, "normalized_latency_s", stats_json(p->normalized), "end_to_end_s",
                     stats_json(p->end_to_end), "ttft_s", stats_json(p->first), "tpot_s", stats_json(p->per_token), "itl_s",
                     stats_json(p->gap), "requests_per_s", per_second(p, (int64_t)p->n[LOAD_OUTCOME_OK]), "output_tokens_per_s",
                     per_second(p, p->completion_tokens), "total_tokens_per_s",
                     per_second(p, p->completion_tokens + p->prompt_tokens), "peak", peak);
}

/* ---- The table ---- */

static void print_stats(const char *name, load_stats s, double scale) {
    if (s.n == 0)
        printf("%-28s%10s%10s%10s%10s\n", name, "-", "-", "-", "-");
    else
        printf("%-28s%10.2f%10.2f%10.2f%10.2f\n", name, s.mean * scale, s.median * scale, s.p90 * scale, s.p99 * scale);
}

void load_report_print(const load_report *p, const load_result *result) {
    printf("requests        %zu: %zu answered", result->n, p->n[LOAD_OUTCOME_OK]);
    for (load_outcome_status s = LOAD_OUTCOME_OK + 1; s < N_LOAD_OUTCOMES; s++)
        if (p->n[s]) printf(", %zu %s", p->n[s], load_outcome_names[s]);
    if (p->n_wrong_length) printf("; %zu not of the requested length", p->n_wrong_length);
    printf("\ntokens          %" PRId64 " of prompts", p->prompt_tokens);
    if (p->cached_tokens >= 0) printf(" (%" PRId64 " found in a cache)", p->cached_tokens);
    printf(", %" PRId64 " of completions, in %.2f s\n", p->completion_tokens, p->seconds);
    printf("throughput      %.3f requests/s, %.1f output tokens/s, %.1f tokens/s in all\n",
           per_second(p, (int64_t)p->n[LOAD_OUTCOME_OK]), per_second(p, p->completion_tokens),
           per_second(p, p->completion_tokens + p->prompt_tokens));
    printf("peak            %zu in flight", p->most_in_flight);
    if (p->peaks.known[LOAD_GAUGE_BATCH]) printf(", batch %.0f", p->peaks.peak[LOAD_GAUGE_BATCH]);
    if (p->peaks.known[LOAD_GAUGE_KV_BYTES]) printf(", K/V %.1f MB", p->peaks.peak[LOAD_GAUGE_KV_BYTES] / 1e6);
    if (p->peaks.known[LOAD_GAUGE_KV_BYTES_UNSHARED])
        printf(" (%.1f MB if nothing were shared)", p->peaks.peak[LOAD_GAUGE_KV_BYTES_UNSHARED] / 1e6);
    if (p->peaks.known[LOAD_GAUGE_KV_USAGE]) printf(", %.0f %% of the K/V budget", 100 * p->peaks.peak[LOAD_GAUGE_KV_USAGE]);
    printf("\n\n%-28s%10s%10s%10s%10s\n", "", "mean", "median", "p90", "p99");
    print_stats("normalized latency, ms/token", p->normalized, 1e3);
    print_stats("end to end, ms", p->end_to_end, 1e3);
    print_stats("first token (TTFT), ms", p->first, 1e3);
    print_stats("per token after it (TPOT), ms", p->per_token, 1e3);
    print_stats("between outputs (ITL), ms", p->gap, 1e3);
    error_count found[MAX_ERRORS];
    const size_t n_errors = count_errors(result, found);
    for (size_t i = 0; i < n_errors; i++)
        printf("%s%zu %s: %s\n", i ? "" : "\n", found[i].n, load_outcome_names[found[i].status], found[i].message);
}
