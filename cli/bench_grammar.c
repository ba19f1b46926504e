/*
 * `bench grammar`: measures what grammars cost in a step in which many sequences decode, in pairs of runs with and without one,
 * and how long they take to compile.
 */
#include <jansson.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/loadgen/quantiles.h"
#include "chunkattn/base/clock.h"
#include "interrupt.h"
#include "progress.h"
#include "session.h"

typedef struct workload {
    const char *name;
    cl_grammar_kind kind;
    const char *text;
} workload;

/* What clients send: from nearly any text, which shows the cost of asking alone, to a call of one of two tools. */
static const workload workloads[] = {
    {"text", CL_GRAMMAR_REGEX, "(?s:.*)"},
    {"json", CL_GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"minItems\":10000,\"items\":{}}"},
    {"records", CL_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"minItems\":10000,\"items\":{\"type\":\"object\",\"properties\":{"
     "\"name\":{\"type\":\"string\",\"maxLength\":40},\"email\":{\"type\":\"string\",\"format\":\"email\"},"
     "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":150},\"role\":{\"enum\":[\"admin\",\"editor\",\"viewer\"]},"
     "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":5},\"active\":{\"type\":\"boolean\"}},"
     "\"required\":[\"name\",\"email\",\"age\",\"role\",\"tags\",\"active\"],\"additionalProperties\":false}}"},
    {"tools", CL_GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"minItems\":10000,\"items\":{\"anyOf\":[{\"type\":\"object\",\"properties\":{"
     "\"name\":{\"const\":\"get_weather\"},\"arguments\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},"
     "\"unit\":{\"enum\":[\"celsius\",\"fahrenheit\"]},\"days\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":14}},"
     "\"required\":[\"city\"],\"additionalProperties\":false}},\"required\":[\"name\",\"arguments\"],"
     "\"additionalProperties\":false},{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"run_command\"},\"arguments\":{"
     "\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
     "\"workdir\":{\"type\":\"string\"},\"timeout_ms\":{\"type\":\"integer\"}},\"required\":[\"command\"],"
     "\"additionalProperties\":false}},\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}]}}"},
};
enum { N_WORKLOADS = sizeof workloads / sizeof *workloads };

/* One run: the steps in which all sequences decode. */
typedef struct run {
    double compile_s;      /* to submit a request, for the mean one; its grammar is compiled then */
    double step_s;         /* from one step to the next, for the mean step */
    int64_t steps, tokens; /* tokens of all completions in these steps */
} run;

typedef struct moment {
    double at;
    cl_engine_stats stats;
} moment;

/* What the events of a run tell. */
typedef struct watcher {
    cl_engine *engine;
    int64_t n_streams;
    sem_t submitted, ended;   /* all requests were submitted; a request has ended, or the wait for all */
    int64_t n_begun, n_ended; /* requests with a token, and those that have ended */
    moment begin, end;        /* when all had one, and when the first one ended */
    bool failed;              /* one of the requests has */
} watcher;

/* Let no step begin before all requests were submitted, so that all sequences decode in the same steps. */
static void wait_for_requests(void *ctx, const cattn_cache *cache) {
    watcher *w = ctx;
    (void)cache;
    sem_wait(&w->submitted);
    sem_post(&w->ended);
}

static void note(watcher *w, moment *m) {
    m->at = clock_seconds();
    m->stats.struct_size = sizeof m->stats;
    cl_engine_get_stats(w->engine, &m->stats);
}

static void on_event(void *ctx, const cl_engine_event *event) {
    watcher *w = ctx;
    if (event->kind == CL_EVENT_END && event->end.finish == CL_ENGINE_ERROR) w->failed = true;
    if (event->kind == CL_EVENT_TOKEN && event->n_completion == 1 && ++w->n_begun == w->n_streams) note(w, &w->begin);
    if (!event->last) return;
    if (w->n_ended++ == 0) note(w, &w->end);
    sem_post(&w->ended);
}

static cl_status submit(const cli_session *s, const cli_options *opt, const cl_token_list *prompt, const workload *grammar,
                        int64_t seed, watcher *w, cl_error *error) {
    cl_engine_request request;
    cl_engine_request_init(&request);
    request.prompt = prompt->ids;
    request.n_prompt = (int64_t)prompt->n;
    request.max_tokens = opt->tg;
    request.ignore_eos = true;
    request.sampling.seed = (uint64_t)seed;
    request.on_event = on_event;
    request.ctx = w;
    if (grammar) {
        request.grammar_kind = grammar->kind;
        request.grammar = grammar->text;
        request.grammar_size = strlen(grammar->text);
    }
    return cl_engine_submit(s->engine, &request, NULL, error);
}

/* Run --streams requests together. grammar: NULL for none. */
static cl_status measure(const cli_session *s, const cli_options *opt, const cl_token_list *prompt, const workload *grammar,
                         run *r, cl_error *error) {
    watcher w = {.engine = s->engine, .n_streams = opt->streams};
    int64_t n = 0;
    sem_init(&w.submitted, 0, 0);
    sem_init(&w.ended, 0, 0);
    cl_status status = cl_engine_inspect(s->engine, wait_for_requests, &w, error);
    const int64_t n_waits = status == CL_OK ? 1 : 0;
    const double start = clock_seconds();
    while (status == CL_OK && n < opt->streams)
        if ((status = submit(s, opt, prompt, grammar, n, &w, error)) == CL_OK) n++;
    r->compile_s = (clock_seconds() - start) / (double)opt->streams;
    sem_post(&w.submitted);
    for (int64_t i = 0; i < n + n_waits; i++) sem_wait(&w.ended);
    if (status == CL_OK && w.failed)
        status =
            cl_fail(error, CL_ERR_LIMIT, "a request of the workload %s failed", grammar ? grammar->name : "without a grammar");
    sem_destroy(&w.submitted);
    sem_destroy(&w.ended);
    r->steps = w.end.stats.steps - w.begin.stats.steps;
    if (status == CL_OK && r->steps <= 0)
        status = cl_fail(error, CL_ERR_ARG, "--tg is %lld; it must be larger, so that all sequences decode together",
                         (long long)opt->tg);
    r->tokens = w.end.stats.completion_tokens - w.begin.stats.completion_tokens;
    r->step_s = status == CL_OK ? (w.end.at - w.begin.at) / (double)r->steps : 0;
    return status;
}

enum { MAX_ROUNDS = 1000 };

/* pairs: [rounds] the times of a step, with and without the grammar. */
static void print_line(const cli_options *opt, const workload *wl, const run *with, const double (*pairs)[2], double step,
                       double without, double added) {
    const double per_step = (double)with->tokens / (double)with->steps;
    if (opt->json) {
        json_t *line = json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "grammar", wl->name, "streams",
                                 (json_int_t)opt->streams, "submit_ms", 1e3 * with->compile_s, "step_ms", 1e3 * step,
                                 "step_ms_without", 1e3 * without, "added", added, "tokens_per_step", per_step);
        json_t *list = json_array();
        for (int64_t i = 0; i < opt->rounds; i++)
            json_array_append_new(list, json_pack("[f, f]", 1e3 * pairs[i][0], 1e3 * pairs[i][1]));
        json_object_set_new(line, "pairs_ms", list);
        json_dumpf(line, stdout, JSON_REAL_PRECISION(6));
        json_decref(line);
        printf("\n");
    } else {
        printf("| %-8s |%8lld |%10.3f |%9.3f |%9.3f |%7.2f |%14.2f |\n", wl->name, (long long)opt->streams,
               1e3 * with->compile_s, 1e3 * without, 1e3 * step, 100 * added, per_step);
    }
    fflush(stdout);
}

/* --rounds pairs of runs, in turn in either order; the figures are medians, the added time that of the pairs' ratios. */
static cl_status compare_workload(const cli_session *s, const cli_options *opt, const cl_token_list *prompt, const workload *wl,
                                  cli_progress *p, cl_error *error) {
    static double ratios[MAX_ROUNDS], with_s[MAX_ROUNDS], without_s[MAX_ROUNDS], pairs[MAX_ROUNDS][2];
    run with = {0}, without = {0};
    cl_status status = CL_OK;
    int64_t i = 0;
    for (; i < opt->rounds && status == CL_OK; i++, p->work_done = (double)++p->done) {
        progress_show(p);
        if (interrupted) break;
        for (int k = 0; k < 2 && status == CL_OK; k++)
            status = i % 2 == k ? measure(s, opt, prompt, wl, &with, error) : measure(s, opt, prompt, NULL, &without, error);
        ratios[i] = with.step_s / without.step_s;
        with_s[i] = pairs[i][0] = with.step_s;
        without_s[i] = pairs[i][1] = without.step_s;
    }
    progress_clear(p);
    if (status == CL_OK && i == opt->rounds)
        print_line(opt, wl, &with, pairs, load_median(with_s, (size_t)i), load_median(without_s, (size_t)i),
                   load_median(ratios, (size_t)i) - 1);
    return status;
}

static cl_status run_all(const cli_session *s, const cli_options *opt, cli_progress *p, cl_error *error) {
    static const char text[] = "Here is the list:\n";
    cl_token_list prompt = {0};
    run warm_up;
    cl_status status = cl_model_tokenize(s->model, text, strlen(text), CL_TOKENIZE_BEGIN, &prompt, error);
    if (status == CL_OK) status = measure(s, opt, &prompt, &workloads[0], &warm_up, error);
    if (!opt->json && status == CL_OK)
        printf("| grammar  | streams | submit ms |  without |     with | added %% | tokens a step |\n"
               "|----------|---------|-----------|----------|----------|---------|---------------|\n");
    *p = progress_begin("pairs of runs", (size_t)opt->rounds * N_WORKLOADS, (double)opt->rounds * N_WORKLOADS);
    fflush(stdout);
    for (int i = 0; i < N_WORKLOADS && status == CL_OK && !interrupted; i++)
        status = compare_workload(s, opt, &prompt, &workloads[i], p, error);
    cl_token_list_free(&prompt);
    return status;
}

int cmd_bench_grammar(const cli_options *opt) {
    cli_session s = {0};
    cli_progress p = {0};
    cl_error error;
    cl_status status = session_load(&s, opt, &error);
    interrupt_watch();
    session_use_grammars(&s, opt);
    if (status == CL_OK) status = session_start(&s, opt, opt->streams, &error);
    if (status == CL_OK) status = run_all(&s, opt, &p, &error);
    session_close(&s);
    if (status == CL_OK && p.done < p.total)
        return interrupt_report(CMD_BENCH_GRAMMAR,
                                "after %zu of %zu pairs of runs; the workloads that are done are printed, and the same command "
                                "begins anew",
                                p.done, p.total);
    return status == CL_OK ? 0 : session_fail(CMD_BENCH_GRAMMAR, &error);
}
