/* Reads files of requests as prompts in tokens. */
#define _GNU_SOURCE
#include "workload.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The model ---- */

cl_status prompt_model_open(const char *path, prompt_model *m, cl_error *error) {
    *m = (prompt_model){0};
    cl_status status = cl_model_file_open(path, &m->file, error);
    if (status == CL_OK) status = cl_tokenizer_create(m->file, &m->tok, error);
    if (status != CL_OK) {
        prompt_model_close(m);
        return status;
    }
    /* An error counts only for lines with messages. */
    if (cl_chat_of_file(m->file, m->tok, &m->chat, &m->chat_error) == CL_OK && !m->chat)
        cl_error_set(&m->chat_error, CL_ERR_UNSUPPORTED, "the model file has no chat template");
    return CL_OK;
}

void prompt_model_close(prompt_model *m) {
    cl_chat_free(&m->chat);
    if (m->tok) cl_tokenizer_free(&m->tok);
    if (m->file) cl_model_file_close(&m->file);
}

/* ---- A line ---- */

static cl_status add_messages(const prompt_model *m, const json_t *array, cl_token_list *out, cl_error *error) {
    cl_chat_input in;
    if (json_array_size(array) == 0) return cl_fail(error, CL_ERR_FORMAT, "messages must be an array of at least one message");
    if (!m->chat) return cl_fail(error, CL_ERR_UNSUPPORTED, "messages: %s", m->chat_error.message);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *message = json_array_get(array, i);
        if (!json_is_string(json_object_get(message, "role")) || !json_is_string(json_object_get(message, "content")))
            return cl_fail(error, CL_ERR_FORMAT, "messages[%zu] must have a role and a content, both strings", i);
    }
    cl_chat_input_init(&in);
    in.messages = array;
    return cl_chat_tokenize(m->chat, &in, out, error);
}

static cl_status add_ids(const prompt_model *m, const json_t *array, cl_token_list *out, cl_error *error) {
    cl_status status = CL_OK;
    for (size_t i = 0; status == CL_OK && i < json_array_size(array); i++) {
        const json_t *id = json_array_get(array, i);
        const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || value >= cl_tokenizer_n_vocab(m->tok))
            return cl_fail(error, CL_ERR_FORMAT, "prompt[%zu] must be a token id from 0 to %d", i,
                           cl_tokenizer_n_vocab(m->tok) - 1);
        status = cl_token_list_add(out, (int32_t)value, error);
    }
    return status;
}

static cl_status add_prompt(const prompt_model *m, const json_t *prompt, cl_token_list *out, cl_error *error) {
    if (json_is_array(prompt)) return add_ids(m, prompt, out, error);
    if (!json_is_string(prompt))
        return cl_fail(error, CL_ERR_FORMAT, "the request must have messages, or a prompt that is a string or token ids");
    cl_status status = CL_OK;
    if (cl_tokenizer_adds_bos(m->tok)) status = cl_token_list_add(out, cl_tokenizer_bos(m->tok), error);
    if (status != CL_OK) return status;
    return cl_tokenizer_encode(m->tok, json_string_value(prompt), json_string_length(prompt), true, out, error);
}

static cl_status parse_line(const prompt_model *m, const char *text, size_t size, cl_token_list *out, cl_error *error) {
    json_error_t problem;
    json_t *line = json_loadb(text, size, JSON_ALLOW_NUL, &problem);
    const json_t *outer = json_object_get(line, "body"), *body = outer ? outer : line;
    const json_t *messages = json_object_get(body, "messages");
    cl_status status;
    if (!json_is_object(body))
        status = cl_fail(error, CL_ERR_FORMAT, "not a JSON object%s%s", line ? "" : ": ", line ? "" : problem.text);
    else if (messages)
        status = add_messages(m, messages, out, error);
    else
        status = add_prompt(m, json_object_get(body, "prompt"), out, error);
    json_decref(line);
    return status;
}

/* ---- The file ---- */

/* An empty place for one more request. */
static cl_token_list *add_request(workload *load, cl_error *error) {
    if (load->n == load->capacity) {
        const size_t capacity = load->capacity ? 2 * load->capacity : 256;
        cl_token_list *grown = realloc(load->requests, capacity * sizeof *grown);
        if (!grown) {
            cl_error_set(error, CL_ERR_NOMEM, "no memory for %zu requests", capacity);
            return NULL;
        }
        load->requests = grown;
        load->capacity = capacity;
    }
    load->requests[load->n] = (cl_token_list){0};
    return &load->requests[load->n++];
}

cl_status workload_read(const char *path, const prompt_model *model, workload *load, cl_error *error) {
    FILE *in = fopen(path, "rbe");
    if (!in) return cl_fail(error, CL_ERR_FILE, "cannot open %s: %s", path, strerror(errno));
    char *buffer = NULL;
    size_t capacity = 0, number = 0;
    cl_status status = CL_OK;
    for (ssize_t size; status == CL_OK && (size = getline(&buffer, &capacity, in)) >= 0;) {
        number++;
        if (strspn(buffer, " \t\r\n") == (size_t)size) continue;
        cl_token_list *out = add_request(load, error);
        cl_error cause;
        status = out ? parse_line(model, buffer, (size_t)size, out, &cause) : error->code;
        if (out && status != CL_OK) cl_error_set(error, status, "%s, line %zu: %s", path, number, cause.message);
    }
    if (status == CL_OK && ferror(in)) status = cl_fail(error, CL_ERR_FILE, "cannot read %s: %s", path, strerror(errno));
    if (status == CL_OK && load->n == 0) status = cl_fail(error, CL_ERR_FORMAT, "%s holds no requests", path);
    fclose(in);
    free(buffer);
    return status;
}

void workload_free(workload *load) {
    for (size_t i = 0; i < load->n; i++) cl_token_list_free(&load->requests[i]);
    free(load->requests);
    *load = (workload){0};
}
