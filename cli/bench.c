/* `bench`: measures the throughput of prefill and decode by number of sequences, in the columns of llama-batched-bench. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/loadgen/load_requests.h"
#include "chunkattn/base/clock.h"
#include "direct.h"
#include "interrupt.h"
#include "progress.h"

typedef struct int_list {
    int64_t values[64]; /* [n] */
    int32_t n;
    int64_t max; /* the largest of them */
} int_list;

/* Parse "1,8,32": whole numbers from 1 to max. `flag` names the option in messages. */
static cl_status parse_list(const char *flag, const char *text, int64_t max, int_list *list, cl_error *error) {
    *list = (int_list){0};
    for (const char *c = text;;) {
        char *end;
        errno = 0;
        const long long value = strtoll(c, &end, 10);
        if (end == c || (*end && *end != ',') || errno || value < 1 || value > max)
            return cl_fail(error, CL_ERR_ARG, "%s is '%s'; it must be numbers from 1 to %lld, separated by commas", flag, text,
                           (long long)max);
        if (list->n == (int32_t)(sizeof list->values / sizeof list->values[0]))
            return cl_fail(error, CL_ERR_ARG, "%s has more than %d numbers", flag, list->n);
        list->values[list->n++] = value;
        if (value > list->max) list->max = value;
        if (!*end) return CL_OK;
        c = end + 1;
    }
}

/* How many of the prompts of n sequences are computed and stored. In private mode equal prompts are stored separately, too. */
static int64_t n_prompts(const cli_options *opt, int64_t n) {
    return opt->shared && (cattn_sharing)opt->sharing != CATTN_PRIVATE ? 1 : n;
}

/* Run steps until all tokens of all sequences are computed, or an interrupt comes, and add the time of the steps to *seconds.
 */
static cl_status compute(cli_direct *d, const cli_options *opt, cli_direct_seq *seqs, int32_t n, cli_progress *p,
                         double *seconds, cl_error *error) {
    cl_status status;
    do {
        progress_show(p);
        const double start = clock_seconds();
        status = direct_step(d, seqs, n, opt->prefill_segment, WANT_LAST, error);
        *seconds += clock_seconds() - start;
        p->work_done += d->runner.n_rows;
    } while (status == CL_OK && d->runner.n_rows > 0 && !interrupted);
    return status;
}

/*
 * Prefill pp tokens of each of n sequences, then decode --tg tokens of each, one per step, up to an interrupt. Adds the seconds
 * to *t_pp and *t_tg.
 */
static cl_status measure(cli_direct *d, const cli_options *opt, int64_t pp, int32_t n, cli_progress *p, double *t_pp,
                         double *t_tg, cl_error *error) {
    const int32_t n_vocab = d->s.model->params.n_vocab;
    const int64_t length = pp + opt->tg;
    int32_t *tokens = calloc((size_t)length * (size_t)n, sizeof *tokens);
    cli_direct_seq *seqs = calloc((size_t)n, sizeof *seqs);
    cl_status status = tokens && seqs ? CL_OK : cl_fail(error, CL_ERR_NOMEM, "no memory for %d sequences", n);
    /* What sequences decode differs, as their completions would: the same tokens would go to the same experts. */
    if (status == CL_OK) load_random_sequences(tokens, n, length, opt->shared ? pp : 0, n_vocab);
    for (int32_t i = 0; status == CL_OK && i < n; i++) status = direct_join(d, tokens + i * length, pp, &seqs[i], error);
    if (status == CL_OK) status = compute(d, opt, seqs, n, p, t_pp, error);
    for (int64_t step = 0; status == CL_OK && step < opt->tg && !interrupted; step++) {
        for (int32_t i = 0; status == CL_OK && i < n; i++) {
            cattn_error cause;
            if (cattn_seq_append(d->runner.cache, seqs[i].seq, seqs[i].tokens + seqs[i].n_tokens, 1, &cause) != CATTN_OK)
                status = direct_fail(&cause, error);
            seqs[i].n_tokens++;
        }
        if (status == CL_OK) status = compute(d, opt, seqs, n, p, t_tg, error);
    }
    for (int32_t i = 0; seqs && i < n; i++)
        if (seqs[i].seq) cattn_seq_leave(d->runner.cache, &seqs[i].seq, NULL);
    free(seqs);
    free(tokens);
    return status;
}

static void print_line(const cli_options *opt, int64_t pp, int64_t n, double t_pp, double t_tg) {
    const int64_t prompt = n_prompts(opt, n) * pp, decoded = n * opt->tg, n_kv = prompt + decoded;
    const double t = t_pp + t_tg, s_pp = (double)prompt / t_pp, s_tg = opt->tg ? (double)decoded / t_tg : 0,
                 s = (double)n_kv / t;
    if (opt->json) {
        json_t *line = json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "PP", (json_int_t)pp, "TG",
                                 (json_int_t)opt->tg, "B", (json_int_t)n, "N_KV", (json_int_t)n_kv, "T_PP", t_pp, "S_PP", s_pp,
                                 "T_TG", t_tg, "S_TG", s_tg, "T", t, "S", s);
        json_dumpf(line, stdout, JSON_REAL_PRECISION(6));
        json_decref(line);
        printf("\n");
    } else {
        printf("|%6lld |%6lld |%4lld |%6lld |%9.3f |%10.2f |%9.3f |%10.2f |%9.3f |%10.2f |\n", (long long)pp,
               (long long)opt->tg, (long long)n, (long long)n_kv, t_pp, s_pp, t_tg, s_tg, t, s);
    }
    fflush(stdout);
}

/* The chunks of the largest measurement; each run of tokens may begin or end inside a chunk. */
static int64_t most_chunks(const cli_options *opt, int64_t pp, int64_t n) {
    return n_prompts(opt, n) * (pp / opt->chunk_size + 1) + n * (opt->tg / opt->chunk_size + 1);
}

/* The measurements of all combinations, and the tokens that they compute. */
static cli_progress progress_of(const cli_options *opt, const int_list *pps, const int_list *batches) {
    int64_t n_tokens = 0;
    for (int32_t p = 0; p < pps->n; p++)
        for (int32_t b = 0; b < batches->n; b++)
            n_tokens += n_prompts(opt, batches->values[b]) * pps->values[p] + batches->values[b] * opt->tg;
    return progress_begin("measurements", (size_t)pps->n * (size_t)batches->n, (double)n_tokens);
}

static cl_status run_all(cli_direct *d, const cli_options *opt, const int_list *pps, const int_list *batches, cli_progress *p,
                         cl_error *error) {
    if (!opt->json)
        printf("|    PP |    TG |   B |  N_KV |   T_PP s |  S_PP t/s |   T_TG s |  S_TG t/s |      T s |     S t/s |\n"
               "|-------|-------|-----|-------|----------|-----------|----------|-----------|----------|-----------|\n");
    fflush(stdout);
    double t_pp = 0, t_tg = 0;
    cl_status status = measure(d, opt, 16, 1, p, &t_pp, &t_tg, error); /* warm up: load the weights' pages, start the threads */
    const int64_t n_chunks = most_chunks(opt, pps->max, batches->max);
    for (bool more = true; more && cattn_cache_prefault(d->runner.cache, n_chunks, &more, NULL) == CATTN_OK;) continue;
    p->work_done = 0;
    for (; p->done < p->total && status == CL_OK; p->done++) {
        const size_t n_batches = (size_t)batches->n;
        const int64_t pp = pps->values[p->done / n_batches], n = batches->values[p->done % n_batches];
        t_pp = t_tg = 0;
        if (!interrupted) status = measure(d, opt, pp, (int32_t)n, p, &t_pp, &t_tg, error);
        progress_clear(p);
        if (interrupted) break;
        if (status == CL_OK) print_line(opt, pp, n, t_pp, t_tg);
    }
    return status;
}

/* Say what is measured, and which measurement is the next. */
static int report_interrupt(const cli_progress *p, const int_list *pps, const int_list *batches) {
    const size_t n_batches = (size_t)batches->n;
    return interrupt_report(CMD_BENCH, "after %zu of %zu measurements; the next is --pp %lld --batch %lld", p->done, p->total,
                            (long long)pps->values[p->done / n_batches], (long long)batches->values[p->done % n_batches]);
}

int cmd_bench(const cli_options *opt) {
    cli_direct d = {0};
    cli_progress p = {0};
    int_list pps, batches;
    cl_error error;
    cl_status status = parse_list("--pp", opt->pp, 1 << 20, &pps, &error);
    if (status == CL_OK) status = parse_list("--batch", opt->batch, 4096, &batches, &error);
    if (status == CL_OK) {
        const int32_t n = (int32_t)batches.max, rows = opt->max_step_rows > n ? (int32_t)opt->max_step_rows : n;
        status = direct_open(&d, opt, rows, n, &error);
    }
    interrupt_watch();
    if (status == CL_OK) {
        p = progress_of(opt, &pps, &batches);
        status = run_all(&d, opt, &pps, &batches, &p, &error);
    }
    direct_close(&d);
    if (status == CL_OK && p.done < p.total) return report_interrupt(&p, &pps, &batches);
    return status == CL_OK ? 0 : session_fail(CMD_BENCH, &error);
}
