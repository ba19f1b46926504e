/* `bench serve`: sends a load of requests to an OpenAI endpoint and reports latencies and throughput. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/loadgen/report.h"
#include "chunkllama/common/str.h"
#include "interrupt.h"
#include "progress.h"
#include "session.h"

typedef struct bench {
    const cli_options *opt;
    load_endpoint target;
    char *model;   /* the first that the endpoint lists, owned; NULL with --model-name */
    json_t *extra; /* --extra-body, owned */
    load_requests requests;
    double *due; /* [requests.n] seconds after the start */
    cli_progress progress;
    load_result result;
} bench;

static const size_t real_digits = JSON_REAL_PRECISION(9);

static const char *model_name(const bench *b) { return b->model ? b->model : b->opt->model_name; }

/* Refuse combinations of options that make no sense. */
static cl_status check(const cli_options *opt, cl_error *error) {
    if (!opt->input && opt->shared_tokens > opt->prompt_tokens)
        return cl_fail(error, CL_ERR_ARG, "--shared-tokens is %lld; it must be at most --prompt-tokens, %lld",
                       (long long)opt->shared_tokens, (long long)opt->prompt_tokens);
    if (!opt->input && opt->completion_tokens == 0)
        return cl_fail(error, CL_ERR_ARG,
                       "--completion-tokens is 0, which needs --input: only a file's requests have lengths of their own");
    if (opt->warm_prefixes && (opt->input || !opt->shared_tokens))
        return cl_fail(error, CL_ERR_ARG, "--warm-prefixes needs --shared-tokens, and does not work with --input");
    return CL_OK;
}

static cl_status parse_extra(bench *b, cl_error *error) {
    json_error_t problem;
    if (!b->opt->extra_body) return CL_OK;
    b->extra = json_loads(b->opt->extra_body, 0, &problem);
    if (json_is_object(b->extra)) return CL_OK;
    return cl_fail(error, CL_ERR_ARG, "--extra-body is not a JSON object%s%s", b->extra ? "" : ": ",
                   b->extra ? "" : problem.text);
}

static load_shape shape_of(const cli_options *opt, int64_t n, uint64_t seed) {
    return (load_shape){.n = n,
                        .prompt_tokens = opt->prompt_tokens,
                        .shared_tokens = opt->shared_tokens,
                        .n_prefixes = opt->prefixes,
                        .vocab = opt->vocab,
                        .text = opt->text,
                        .seed = seed};
}

static cl_status make_requests(bench *b, cl_error *error) {
    const cli_options *opt = b->opt;
    const load_fields fields = {model_name(b), opt->completion_tokens, b->extra};
    if (opt->input) return load_requests_read(opt->input, opt->requests, &fields, &b->requests, error);
    const load_shape shape = shape_of(opt, opt->requests ? opt->requests : 100, (uint64_t)opt->seed);
    return load_requests_synthetic(&shape, &fields, &b->requests) ? CL_OK
                                                                  : cl_fail(error, CL_ERR_NOMEM, "no memory for the prompts");
}

/* ---- Warm-up ---- */

/*
 * Send requests, at most `at_once` at a time (0: no limit), and check that all are answered. `what` names them in messages.
 * Frees them.
 */
static cl_status send_quietly(bench *b, load_requests *requests, int64_t at_once, const char *what, cl_error *error) {
    const load_config config = {
        .target = &b->target, .max_concurrency = at_once, .time_limit_s = b->opt->time_limit, .stop = &interrupted};
    load_result result = {0};
    double *due = calloc(requests->n + 1, sizeof *due);
    cl_status status = due ? load_run(&config, requests, due, &result, error) : cl_fail(error, CL_ERR_NOMEM, "no memory");
    for (size_t i = 0; status == CL_OK && i < result.n; i++)
        if (result.outcomes[i].status != LOAD_OUTCOME_OK)
            status = cl_fail(error, CL_ERR_FILE, "%s %zu failed, %s: %s", what, i,
                             load_outcome_names[result.outcomes[i].status], result.outcomes[i].message);
    load_result_free(&result);
    load_requests_free(requests);
    free(due);
    return status;
}

/* Send the requests that do not count: --warm-up with prompts of their own, then each shared prefix with --warm-prefixes. */
static cl_status warm_up(bench *b, cl_error *error) {
    const cli_options *opt = b->opt;
    load_requests requests = {0};
    const load_fields fields = {model_name(b), opt->completion_tokens ? opt->completion_tokens : 16, b->extra};
    load_shape shape = shape_of(opt, opt->warm_up, ~(uint64_t)opt->seed);
    if (opt->input) shape.prompt_tokens = 64, shape.shared_tokens = 0;
    if (!load_requests_synthetic(&shape, &fields, &requests)) return cl_fail(error, CL_ERR_NOMEM, "no memory for the prompts");
    cl_status status = send_quietly(b, &requests, opt->max_concurrency, "warm-up request", error);
    if (status != CL_OK || !opt->warm_prefixes) return status;
    const load_fields shortest = {model_name(b), 1, b->extra};
    shape.seed = (uint64_t)opt->seed;
    if (!load_requests_prefixes(&shape, &shortest, &requests))
        return cl_fail(error, CL_ERR_NOMEM, "no memory for the prefixes");
    return send_quietly(b, &requests, 1, "shared prefix", error);
}

/* ---- The measurement ---- */

static void draw_progress(void *ctx, const load_progress *p) {
    bench *b = ctx;
    b->progress.done = p->n_done;
    b->progress.work_done = (double)p->n_done;
    b->progress.tokens = (long long)p->n_outputs;
    progress_show(&b->progress);
}

static cl_status measure(bench *b, cl_error *error) {
    const load_config config = {.target = &b->target,
                                .max_concurrency = b->opt->max_concurrency,
                                .time_limit_s = b->opt->time_limit,
                                .watch_gauges = true,
                                .stop = &interrupted,
                                .on_progress = draw_progress,
                                .progress_ctx = b};
    b->due = calloc(b->requests.n, sizeof *b->due);
    if (!b->due) return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu arrivals", b->requests.n);
    b->progress = progress_begin("requests", b->requests.n, (double)b->requests.n);
    load_arrivals(b->due, b->requests.n, b->opt->rate, (uint64_t)b->opt->seed);
    const cl_status status = load_run(&config, &b->requests, b->due, &b->result, error);
    progress_clear(&b->progress);
    return status;
}

/* The requests that were answered or failed, and not cut off. */
static size_t n_ended(const bench *b) {
    size_t n = 0;
    for (size_t i = 0; b->result.outcomes && i < b->result.n; i++) n += b->result.outcomes[i].status != LOAD_OUTCOME_CUT;
    return n;
}

/* A path, which may have any bytes, as JSON; NULL if memory is lacking. */
static json_t *path_json(const char *path) {
    char *text = cl_utf8_mended(path, strlen(path), NULL);
    json_t *json = text ? json_string(text) : NULL;
    free(text);
    return json;
}

/* The settings of the load; prompt lengths only if the requests are synthetic. NULL if memory is lacking. */
static json_t *load_json(const bench *b) {
    const cli_options *opt = b->opt;
    json_t *load = json_pack("{s:s, s:s, s:o, s:I, s:I, s:I, s:b}", "url", opt->url, "model", model_name(b), "rate",
                             isinf(opt->rate) ? json_string("inf") : json_real(opt->rate), "seed", (json_int_t)opt->seed,
                             "max_concurrency", (json_int_t)opt->max_concurrency, "completion_tokens",
                             (json_int_t)opt->completion_tokens, "warm_prefixes", (int)opt->warm_prefixes);
    if (opt->input)
        json_object_set_new(load, "input", path_json(opt->input));
    else
        json_object_update_new(load, json_pack("{s:I, s:I, s:I, s:b}", "prompt_tokens", (json_int_t)opt->prompt_tokens,
                                               "shared_tokens", (json_int_t)opt->shared_tokens, "prefixes",
                                               (json_int_t)opt->prefixes, "text", (int)opt->text));
    return load;
}

/* The settings and the report in one object; NULL if memory is lacking. */
static json_t *results_json(const bench *b, const load_report *r) {
    json_t *results = json_object();
    if (json_object_set_new(results, "load", load_json(b)) == 0 &&
        json_object_update_new(results, load_report_json(r, &b->result)) == 0)
        return results;
    json_decref(results);
    return NULL;
}

/* Write the results to the file of --output, with the distributions of TTFT and TPOT. */
static cl_status write_results(const bench *b, json_t *results, cl_error *error) {
    const char *path = b->opt->output;
    if (!path) return CL_OK;
    if (json_object_update_new(results, load_report_distributions(&b->result)))
        return cl_fail(error, CL_ERR_NOMEM, "no memory for the distributions");
    return json_dump_file(results, path, real_digits)
               ? cl_fail(error, CL_ERR_FILE, "cannot write %s: %s", path, strerror(errno))
               : CL_OK;
}

/* Print the results, and write them to --output if it is set. *failures: whether a request failed. */
static cl_status print_results(const bench *b, bool *failures, cl_error *error) {
    load_report r;
    json_t *results = load_report_make(&b->result, b->opt->completion_tokens, &r) ? results_json(b, &r) : NULL;
    if (!results) return cl_fail(error, CL_ERR_NOMEM, "no memory for the results");
    *failures = r.n[LOAD_OUTCOME_OK] < b->result.n;
    if (b->opt->json) { /* main checks for write errors */
        json_dumpf(results, stdout, JSON_INDENT(2) | real_digits);
        putchar('\n');
    } else {
        load_report_print(&r, &b->result);
    }
    const cl_status status = write_results(b, results, error);
    json_decref(results);
    return status;
}

int cmd_bench_serve(const cli_options *opt) {
    bench b = {.opt = opt};
    cl_error error;
    bool failures = false;
    interrupt_watch();
    cl_status status = check(opt, &error);
    if (status == CL_OK) status = parse_extra(&b, &error);
    if (status == CL_OK) status = load_endpoint_open(&b.target, opt->url, opt->api_key, &error);
    if (status == CL_OK && !opt->model_name) status = load_endpoint_model(&b.target, &b.model, &error);
    if (status == CL_OK) status = make_requests(&b, &error);
    if (status == CL_OK) status = warm_up(&b, &error);
    if (status == CL_OK) status = measure(&b, &error);
    if (status == CL_OK) status = print_results(&b, &failures, &error);
    const size_t n_answered = n_ended(&b), n_requests = b.requests.n;
    load_result_free(&b.result);
    load_requests_free(&b.requests);
    load_endpoint_close(&b.target);
    json_decref(b.extra);
    free(b.model);
    free(b.due);
    if (interrupted && !n_answered)
        return interrupt_report(CMD_BENCH_SERVE, "before a request was answered; the same command begins anew");
    if (interrupted && status == CL_OK)
        return interrupt_report(CMD_BENCH_SERVE,
                                "after %zu of %zu requests, whose figures are above; the same command with --requests %zu "
                                "measures as many to their end",
                                n_answered, n_requests, n_answered);
    return status == CL_OK ? failures : session_fail(CMD_BENCH_SERVE, &error);
}
