/* `logits`: writes the logits of a sequence of tokens to a NumPy file. */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "direct.h"
#include "interrupt.h"
#include "progress.h"
#include "text_buffer.h"

/* Read a JSON array of token ids, each from 0 to n_vocab - 1. */
static cl_status read_tokens(const char *path, int32_t n_vocab, cl_token_list *tokens, cl_error *error) {
    cli_text t = {0};
    cl_status status = text_buffer_read(&t, path, error);
    json_error_t problem;
    json_t *array = status == CL_OK ? json_loadb(t.data, t.size, 0, &problem) : NULL;
    if (status == CL_OK && !array)
        status = cl_fail(error, CL_ERR_FORMAT, "%s: line %d: %s", path, problem.line, problem.text);
    else if (status == CL_OK && (!json_is_array(array) || !json_array_size(array)))
        status = cl_fail(error, CL_ERR_FORMAT, "%s must hold a JSON array of at least one token id", path);
    for (size_t i = 0; status == CL_OK && i < json_array_size(array); i++) {
        const json_t *id = json_array_get(array, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= n_vocab)
            status = cl_fail(error, CL_ERR_FORMAT, "%s: element %zu is not a token id; ids are whole numbers from 0 to %d",
                             path, i, n_vocab - 1);
        else
            status = cl_token_list_add(tokens, (int32_t)json_integer_value(id), error);
    }
    json_decref(array);
    text_buffer_free(&t);
    return status;
}

/*
 * Write the header of a .npy file, format 1.0, for a float32 matrix in C order, whose rows follow: magic, version, header size,
 * then a Python dictionary that is padded so that the data is aligned to 64 bytes. False: the file cannot be written.
 */
static bool write_npy_header(FILE *out, int64_t n_rows, int64_t n_columns) {
    enum { PREFIX = 10, SIZE = 128 };
    unsigned char header[SIZE];
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00", 8);
    header[8] = SIZE - PREFIX;
    header[9] = 0;
    char dict[SIZE - PREFIX];
    const int size =
        snprintf(dict, sizeof dict, "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRId64 ", %" PRId64 "), }", n_rows,
                 n_columns);
    memcpy(header + PREFIX, dict, (size_t)size);
    header[SIZE - 1] = '\n';
    return fwrite(header, 1, sizeof header, out) == sizeof header;
}

/*
 * Compute the sequence step by step, up to an interrupt, and write the logits of each step. *n_done: the positions that are
 * computed. After an interrupt the header counts these, unless the file is a pipe.
 */
static cl_status write_logits(cli_direct *d, const cli_options *opt, const cl_token_list *tokens, FILE *out, int64_t *n_done,
                              cl_error *error) {
    const size_t n_vocab = (size_t)d->s.model->params.n_vocab;
    cli_direct_seq seq;
    cl_status status = direct_join(d, tokens->ids, (int64_t)tokens->n, &seq, error);
    cli_progress p = progress_begin("positions", tokens->n, (double)tokens->n);
    bool written = write_npy_header(out, opt->last ? 1 : (int64_t)tokens->n, (int64_t)n_vocab);
    while (status == CL_OK && written && seq.n_ready < seq.n_tokens && !interrupted) {
        p.done = (size_t)seq.n_ready;
        p.work_done = (double)seq.n_ready;
        progress_show(&p);
        status = direct_step(d, &seq, 1, opt->prefill_segment, opt->last ? WANT_LAST : WANT_ALL, error);
        const size_t n = status == CL_OK ? (size_t)d->runner.n_logits * n_vocab : 0;
        written = fwrite(d->runner.logits, sizeof(float), n, out) == n;
    }
    progress_clear(&p);
    *n_done = status == CL_OK ? seq.n_ready : 0;
    if (status == CL_OK && seq.n_ready < seq.n_tokens && written && fseek(out, 0, SEEK_SET) == 0)
        written = write_npy_header(out, opt->last ? 0 : *n_done, (int64_t)n_vocab);
    if (status == CL_OK && !written) return cl_fail(error, CL_ERR_FILE, "cannot write %s: %s", opt->output, strerror(errno));
    return status;
}

int cmd_logits(const cli_options *opt) {
    enum { MAX_LOGITS = 128 }; /* rows of a step; with a large vocabulary their logits are most of the memory */
    cli_direct d = {0};
    cl_token_list tokens = {0};
    FILE *out = NULL;
    int64_t n_done = 0;
    cl_error error;
    cl_status status = CL_OK;
    if (!opt->tokens || !opt->output)
        status = cl_fail(&error, CL_ERR_ARG, "%s",
                         opt->tokens ? "--output is missing; name the .npy file to write"
                                     : "--tokens is missing; name the file of token ids");
    const int32_t rows = (int32_t)(opt->last || opt->max_step_rows < MAX_LOGITS ? opt->max_step_rows : MAX_LOGITS);
    if (status == CL_OK) status = direct_open(&d, opt, rows, opt->last ? 1 : rows, &error);
    if (status == CL_OK) status = read_tokens(opt->tokens, d.s.model->params.n_vocab, &tokens, &error);
    if (status == CL_OK && !(out = fopen(opt->output, "wb")))
        status = cl_fail(&error, CL_ERR_FILE, "cannot write %s: %s", opt->output, strerror(errno));
    interrupt_watch();
    if (status == CL_OK) status = write_logits(&d, opt, &tokens, out, &n_done, &error);
    if (out && fclose(out) && status == CL_OK)
        status = cl_fail(&error, CL_ERR_FILE, "cannot write %s: %s", opt->output, strerror(errno));
    const int64_t n_tokens = (int64_t)tokens.n;
    cl_token_list_free(&tokens);
    direct_close(&d);
    if (status == CL_OK && n_done < n_tokens)
        return interrupt_report(CMD_LOGITS, "after %lld of %lld positions, %s; the same command begins anew", (long long)n_done,
                                (long long)n_tokens,
                                opt->last ? "without the last one's logits" : "whose logits are in the file");
    return status == CL_OK ? 0 : session_fail(CMD_LOGITS, &error);
}
