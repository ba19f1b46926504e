/*
 * `tokenize`: prints the token ids of a text as a JSON array. It reads only the vocabulary of the model's file, not the
 * weights.
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/json_text.h"
#include "chunkllama/text/tokenizer.h"
#include "session.h"
#include "text_buffer.h"

/* Print the token ids of a text [size] on a line. */
static cl_status print_ids(const cl_tokenizer *tok, const cli_options *opt, const char *data, size_t size, cl_error *error) {
    cl_token_list list = {0};
    cl_status status = opt->bos ? cl_tokenizer_add_leading(tok, &list, error) : CL_OK;
    if (status == CL_OK)
        status = (opt->special ? cl_tokenizer_encode_template : cl_tokenizer_encode)(tok, data, size, true, &list, error);
    if (status == CL_OK) {
        putchar('[');
        for (size_t i = 0; i < list.n; i++) printf("%s%d", i ? ", " : "", list.ids[i]);
        printf("]\n");
    }
    cl_token_list_free(&list);
    return status;
}

/* Print the token ids of each line, which must be a JSON string, on a line. */
static cl_status print_lines(const cl_tokenizer *tok, const cli_options *opt, const cli_text *t, cl_error *error) {
    cl_status status = CL_OK;
    size_t number = 0;
    for (const char *line = t->data, *end = t->data + t->size; status == CL_OK && line < end;) {
        const char *newline = memchr(line, '\n', (size_t)(end - line));
        const size_t size = (size_t)((newline ? newline : end) - line);
        json_error_t problem;
        json_t *string = cl_json_load(line, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, &problem);
        number++;
        if (!json_is_string(string))
            status = cl_fail(error, CL_ERR_FORMAT, "line %zu is not a JSON string%s%s", number, string ? "" : ": ",
                             string ? "" : problem.text);
        else
            status = print_ids(tok, opt, json_string_value(string), json_string_length(string), error);
        json_decref(string);
        line += size + 1;
    }
    return status;
}

int cmd_tokenize(const cli_options *opt) {
    cl_model_file *file = NULL;
    cl_tokenizer *tok = NULL;
    cli_text t = {0};
    cl_error error;
    cl_status status = CL_OK;
    if (!opt->model) status = session_no_model(&error);
    if (status == CL_OK) status = cl_model_file_open(opt->model, &file, &error);
    if (status == CL_OK) status = cl_tokenizer_create(file, &tok, &error);
    if (status == CL_OK && opt->n_args) status = text_buffer_append(&t, opt->args[0], strlen(opt->args[0]), &error);
    if (status == CL_OK && !opt->n_args) status = text_buffer_read(&t, opt->file ? opt->file : "-", &error);
    if (status == CL_OK) status = opt->jsonl ? print_lines(tok, opt, &t, &error) : print_ids(tok, opt, t.data, t.size, &error);
    text_buffer_free(&t);
    if (tok) cl_tokenizer_free(&tok);
    if (file) cl_model_file_close(&file);
    return status == CL_OK ? 0 : session_fail(CMD_TOKENIZE, &error);
}
