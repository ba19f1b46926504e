/*
 * `perplexity`: measures how well the model predicts a text, as the exponential of the mean negative log-likelihood.
 *
 * As in llama.cpp, the text is cut into passages of n_ctx tokens, each begins with BOS if the model has one, and the second
 * half of each passage counts.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "direct.h"
#include "interrupt.h"
#include "progress.h"
#include "text_buffer.h"

/* Sums over the tokens that count. */
typedef struct tally {
    double nll, nll2; /* negative log-likelihoods, and their squares */
    int64_t n;
} tally;

/* A text that is being scored. */
typedef struct scoring {
    cli_direct d;
    const cli_options *opt;
    cl_token_list tokens;
    tally sums;            /* of the passages that are done */
    cli_progress progress; /* in passages */
    char counts[64];       /* what it counts */
} scoring;

/* The negative logarithm of the probability that logits [n_vocab] give to token `id`. */
static double nll_of(const float *logits, int32_t n_vocab, int32_t id) {
    float max = logits[0];
    for (int32_t i = 1; i < n_vocab; i++)
        if (logits[i] > max) max = logits[i];
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - max);
    return log(sum) - ((double)logits[id] - max);
}

static double perplexity(const tally *t) { return exp(t->nll / (double)t->n); }

static void show_progress(scoring *s, int64_t n_ready) {
    if (s->sums.n) snprintf(s->counts, sizeof s->counts, "passages, PPL %.4f so far", perplexity(&s->sums));
    s->progress.counts = s->sums.n ? s->counts : "passages";
    s->progress.work_done = (double)s->progress.done + (double)n_ready / (double)s->opt->ctx;
    progress_show(&s->progress);
}

/*
 * Score a passage [n_ctx]: each position from n_ctx / 2 on counts for the token after it. *t: their sums. Ends early after an
 * interrupt.
 */
static cl_status score_passage(scoring *s, const int32_t *tokens, tally *t, cl_error *error) {
    const cli_options *opt = s->opt;
    cl_runner *r = &s->d.runner;
    const int32_t n_vocab = s->d.s.model->params.n_vocab;
    cli_direct_seq seq;
    cl_status status = direct_join(&s->d, tokens, opt->ctx, &seq, error);
    if (status != CL_OK) return status;
    while (status == CL_OK && seq.n_ready < seq.n_tokens && !interrupted) {
        show_progress(s, seq.n_ready);
        status = direct_step(&s->d, &seq, 1, opt->prefill_segment, WANT_ALL, error);
        for (int32_t i = 0; status == CL_OK && i < r->n_rows; i++) {
            const int64_t position = r->positions[i];
            if (position < opt->ctx / 2 || position + 1 == opt->ctx) continue;
            const double nll = nll_of(r->logits + (size_t)i * (size_t)n_vocab, n_vocab, tokens[position + 1]);
            t->nll += nll;
            t->nll2 += nll * nll;
            t->n++;
        }
    }
    cattn_seq_leave(r->cache, &seq.seq, NULL);
    return status;
}

/* The standard error of the perplexity. */
static double uncertainty(const tally *t) {
    const double mean = t->nll / (double)t->n, variance = t->nll2 / (double)t->n - mean * mean;
    return t->n > 1 && variance > 0 ? sqrt(variance / (double)(t->n - 1)) * perplexity(t) : 0;
}

static void print_result(const scoring *s) {
    const tally *t = &s->sums;
    if (!s->opt->json) {
        printf("\nFinal estimate: PPL = %.4f +/- %.5f\n", perplexity(t), uncertainty(t));
        return;
    }
    json_t *line =
        json_pack("{s:f, s:f, s:I, s:I, s:I}", "perplexity", perplexity(t), "uncertainty", uncertainty(t), "n_ctx",
                  (json_int_t)s->opt->ctx, "passages", (json_int_t)s->progress.done, "tokens_scored", (json_int_t)t->n);
    json_dumpf(line, stdout, 0);
    json_decref(line);
    printf("\n");
}

/*
 * Score the text passage by passage, up to an interrupt, and print the result. Overwrites the first token of each passage with
 * BOS.
 */
static cl_status score_text(scoring *s, cl_error *error) {
    const cli_options *opt = s->opt;
    const int64_t all = (int64_t)s->tokens.n / opt->ctx;
    const int64_t n_passages = opt->passages && opt->passages < all ? opt->passages : all;
    cli_progress *p = &s->progress;
    if (!n_passages)
        return cl_fail(error, CL_ERR_ARG,
                       "the text has %zu tokens, fewer than --ctx %lld; give a longer text or a smaller --ctx", s->tokens.n,
                       (long long)opt->ctx);
    const cl_tokenizer *tok = s->d.s.model->tok;
    *p = progress_begin("passages", (size_t)n_passages, (double)n_passages);
    /* On a terminal the bar shows the estimate so far, in the line in which the list would grow. */
    const bool lists = !opt->json && !(p->terminal && isatty(STDOUT_FILENO));
    while (p->done < p->total) {
        int32_t *passage = s->tokens.ids + p->done * (size_t)opt->ctx;
        tally t = s->sums;
        if (cl_tokenizer_adds_bos(tok)) passage[0] = cl_tokenizer_bos(tok);
        const cl_status status = score_passage(s, passage, &t, error);
        if (status != CL_OK) {
            progress_clear(p);
            return status;
        }
        if (interrupted) break;
        s->sums = t;
        p->done++;
        if (!lists) continue;
        printf("[%zu]%.4f,", p->done, perplexity(&t));
        fflush(stdout);
    }
    progress_clear(p);
    if (p->done) print_result(s);
    return CL_OK;
}

int cmd_perplexity(const cli_options *opt) {
    scoring s = {.opt = opt};
    cli_text t = {0};
    cl_error error;
    const int32_t rows = (int32_t)(opt->max_step_rows < opt->ctx ? opt->max_step_rows : opt->ctx);
    cl_status status = CL_OK;
    if (!opt->file) status = cl_fail(&error, CL_ERR_ARG, "--file is missing; name the file of text");
    if (status == CL_OK) status = text_buffer_read(&t, opt->file, &error);
    if (status == CL_OK) status = direct_open(&s.d, opt, rows, rows, &error);
    if (status == CL_OK && cl_tokenizer_adds_bos(s.d.s.model->tok))
        status = cl_token_list_add(&s.tokens, cl_tokenizer_bos(s.d.s.model->tok), &error);
    if (status == CL_OK) status = cl_tokenizer_encode(s.d.s.model->tok, t.data, t.size, true, &s.tokens, &error);
    interrupt_watch();
    if (status == CL_OK) status = score_text(&s, &error);
    text_buffer_free(&t);
    cl_token_list_free(&s.tokens);
    direct_close(&s.d);
    const cli_progress *p = &s.progress;
    if (status == CL_OK && p->done < p->total)
        return interrupt_report(CMD_PERPLEXITY,
                                "after %zu of %zu passages%s; the same command begins anew, and --passages N stops after N",
                                p->done, p->total, p->done ? ", whose estimate is above" : "");
    return status == CL_OK ? 0 : session_fail(CMD_PERPLEXITY, &error);
}
