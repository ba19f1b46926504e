/*
 * `perplexity`: measures how well the model predicts a text, as the exponential of the mean negative log-likelihood.
 *
 * As in llama.cpp, the text is cut into chunks of n_ctx tokens, each begins with BOS if the model has one, and the second half
 * of each chunk counts.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "direct.h"
#include "text_buffer.h"

/* Sums over the tokens that count. */
typedef struct tally {
    double nll, nll2; /* negative log-likelihoods, and their squares */
    int64_t n;
} tally;

/* The negative logarithm of the probability that logits [n_vocab] give to token `id`. */
static double nll_of(const float *logits, int32_t n_vocab, int32_t id) {
    float max = logits[0];
    for (int32_t i = 1; i < n_vocab; i++)
        if (logits[i] > max) max = logits[i];
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i++) sum += exp((double)logits[i] - max);
    return log(sum) - ((double)logits[id] - max);
}

/* Add the tokens of a chunk [n_ctx]: each position from n_ctx / 2 on counts for the token after it. */
static cl_status score_chunk(direct *d, const options *opt, const int32_t *tokens, tally *t, cl_error *error) {
    const int32_t n_vocab = d->s.model->params.n_vocab;
    direct_seq seq;
    cl_status status = direct_join(d, tokens, opt->ctx, &seq, error);
    if (status != CL_OK) return status;
    while (status == CL_OK && seq.n_ready < seq.n_tokens) {
        status = direct_step(d, &seq, 1, opt->prefill_piece, WANT_ALL, error);
        for (int32_t i = 0; status == CL_OK && i < d->runner.n_rows; i++) {
            const int64_t position = d->runner.positions[i];
            if (position < opt->ctx / 2 || position + 1 == opt->ctx) continue;
            const double nll = nll_of(d->runner.logits + (size_t)i * (size_t)n_vocab, n_vocab, tokens[position + 1]);
            t->nll += nll;
            t->nll2 += nll * nll;
            t->n++;
        }
    }
    cattn_seq_leave(d->runner.cache, &seq.seq, NULL);
    return status;
}

static double perplexity(const tally *t) { return exp(t->nll / (double)t->n); }

/* The standard error of the perplexity. */
static double uncertainty(const tally *t) {
    const double mean = t->nll / (double)t->n, variance = t->nll2 / (double)t->n - mean * mean;
    return t->n > 1 && variance > 0 ? sqrt(variance / (double)(t->n - 1)) * perplexity(t) : 0;
}

/* Score the text chunk by chunk and print the result. Overwrites the first token of each chunk with BOS. */
static cl_status score_text(direct *d, const options *opt, cl_token_list *tokens, cl_error *error) {
    const int64_t all = (int64_t)tokens->n / opt->ctx, n_chunks = opt->chunks && opt->chunks < all ? opt->chunks : all;
    if (!n_chunks)
        return cl_fail(error, CL_ERR_ARG,
                       "the text has %zu tokens, fewer than --ctx %lld; give a longer text or a smaller --ctx", tokens->n,
                       (long long)opt->ctx);
    const cl_tokenizer *tok = d->s.model->tok;
    tally t = {0};
    for (int64_t i = 0; i < n_chunks; i++) {
        int32_t *chunk = tokens->ids + i * opt->ctx;
        if (cl_tokenizer_adds_bos(tok)) chunk[0] = cl_tokenizer_bos(tok);
        const cl_status status = score_chunk(d, opt, chunk, &t, error);
        if (status != CL_OK) return status;
        if (opt->json) continue;
        printf("[%lld]%.4f,", (long long)i + 1, perplexity(&t));
        fflush(stdout);
    }
    if (opt->json) {
        json_t *line =
            json_pack("{s:f, s:f, s:I, s:I, s:I}", "perplexity", perplexity(&t), "uncertainty", uncertainty(&t), "n_ctx",
                      (json_int_t)opt->ctx, "chunks", (json_int_t)n_chunks, "tokens_scored", (json_int_t)t.n);
        json_dumpf(line, stdout, 0);
        json_decref(line);
        printf("\n");
    } else {
        printf("\nFinal estimate: PPL = %.4f +/- %.5f\n", perplexity(&t), uncertainty(&t));
    }
    return CL_OK;
}

int cmd_perplexity(const options *opt) {
    direct d = {0};
    cl_token_list tokens = {0};
    text_buffer t = {0};
    cl_error error;
    const int32_t rows = (int32_t)(opt->max_step_rows < opt->ctx ? opt->max_step_rows : opt->ctx);
    cl_status status = CL_OK;
    if (!opt->file) status = cl_fail(&error, CL_ERR_ARG, "--file is missing; name the file of text");
    if (status == CL_OK) status = text_buffer_read(&t, opt->file, &error);
    if (status == CL_OK) status = direct_open(&d, opt, rows, rows, &error);
    if (status == CL_OK && cl_tokenizer_adds_bos(d.s.model->tok))
        status = cl_token_list_add(&tokens, cl_tokenizer_bos(d.s.model->tok), &error);
    if (status == CL_OK) status = cl_tokenizer_encode(d.s.model->tok, t.data, t.size, true, &tokens, &error);
    if (status == CL_OK) status = score_text(&d, opt, &tokens, &error);
    text_buffer_free(&t);
    cl_token_list_free(&tokens);
    direct_close(&d);
    return status == CL_OK ? 0 : session_fail(CMD_PERPLEXITY, &error);
}
