/*
 * `cattn-bench table2`: how many leading tokens the prompts of a workload have in common: the paper's Table 2 for any file
 * of requests.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/shared/shared_tokens.h"
#include "chunkllama/model/model.h"
#include "serve/protocol/batch_line.h"

#define BUNDLED                                                                                                                \
    "bench/workloads/chatbot.jsonl,bench/workloads/tool_planning.jsonl,bench/workloads/few_shot.jsonl,bench/workloads/"        \
    "document_qa.jsonl"

enum { MAX_PATH_SIZE = 4096 };

static const bench_column columns[] = {
    {"workload", "workload", -20},
    {"requests", "requests", 0},
    {"distinct", "distinct", 0},
    {"prompts", "prompts", 0},
    {"shared_average", "shared, average", 0},
    {"shared_maximum", "maximum", 0},
    {"tokens_average", "tokens, average", 0},
    {0},
};

static const bench_plot bars = {
    .kind = "bars", .x = "workload", .y = "shared_average", .y_label = "shared tokens of a request, average"};

static const char *model_path, *paths = BUNDLED;
static const option_row options[] = {
    {"model", OPTION_TEXT, &model_path, 0, 0, "GGUF file whose tokenizer is used; without it CHUNKLLAMA_MODEL", 0},
    {"files", OPTION_TEXT, &paths, 0, 0, "files of requests, separated by commas", 0},
    {0}};

/* "bench/workloads/chatbot.jsonl" -> "chatbot" */
static void name_of(const char *path, char *name, size_t size) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    snprintf(name, size, "%.*s", (int)(dot && dot > base ? (size_t)(dot - base) : strlen(base)), base);
}

/* Prompts of a file. Begins as {0}. */
typedef struct workload {
    cl_token_list *requests; /* [n] */
    size_t n, capacity;
} workload;

static bool add_request(workload *load, cl_token_list *tokens) {
    if (load->n == load->capacity) {
        const size_t capacity = 2 * load->capacity + 256;
        cl_token_list *grown = realloc(load->requests, capacity * sizeof *grown);
        if (!grown) return false;
        load->requests = grown;
        load->capacity = capacity;
    }
    load->requests[load->n++] = *tokens;
    *tokens = (cl_token_list){0};
    return true;
}

/* Add the prompts of a line in the forms that `chunkllama batch` reads. */
static cl_status add_line(workload *load, const char *text, size_t size, size_t number, const cl_model *model,
                          cl_error *error) {
    openai_context context = {.model = model, .chat = model->chat};
    batch_line line = {0};
    char why[OPENAI_ERROR_TEXT];
    cl_status status = CL_OK;
    openai_defaults_init(&context.defaults);
    if (!batch_line_parse(&line, number, text, size, &context, NULL))
        status = cl_fail(error, CL_ERR_FORMAT, "line %zu: %s", number, openai_error_text(&line.error, why));
    for (size_t i = 0; status == CL_OK && i < line.request.n_prompts; i++)
        if (!add_request(load, &line.request.prompts[i].tokens))
            status = cl_fail(error, CL_ERR_NOMEM, "no memory for %zu requests", load->n);
    batch_line_free(&line);
    return status;
}

static cl_status read_file(const char *path, const cl_model *model, workload *load, cl_error *error) {
    FILE *in = fopen(path, "rbe");
    if (!in) return cl_fail(error, CL_ERR_FILE, "cannot open it: %s", strerror(errno));
    char *text = NULL;
    size_t capacity = 0, number = 0;
    cl_status status = CL_OK;
    for (ssize_t size; status == CL_OK && (size = getline(&text, &capacity, in)) >= 0;) {
        number++;
        if (strspn(text, " \t\r\n") < (size_t)size) status = add_line(load, text, (size_t)size, number, model, error);
    }
    if (status == CL_OK && ferror(in)) status = cl_fail(error, CL_ERR_FILE, "cannot read it: %s", strerror(errno));
    if (status == CL_OK && load->n == 0) status = cl_fail(error, CL_ERR_FORMAT, "it holds no requests");
    fclose(in);
    free(text);
    return status;
}

static void add_row(bench *b, const char *path, const shared_tokens *shared) {
    char name[256];
    name_of(path, name, sizeof name);
    bench_add(b, json_pack("{ss sI sI sI sf sI sf}", "workload", name, "requests", (json_int_t)shared->n_requests, "distinct",
                           (json_int_t)shared->n_distinct, "prompts", (json_int_t)shared->n_prompts, "shared_average",
                           shared->average, "shared_maximum", (json_int_t)shared->maximum, "tokens_average",
                           shared->average_length));
}

static bool add_file(const char *path, const cl_model *model, bench *b) {
    workload load = {0};
    cl_error error;
    shared_tokens shared;
    cl_status status = read_file(path, model, &load, &error);
    if (status == CL_OK && !shared_tokens_count(load.requests, load.n, &shared))
        status = cl_fail(&error, CL_ERR_NOMEM, "no memory for %zu requests", load.n);
    if (status == CL_OK) add_row(b, path, &shared);
    for (size_t i = 0; i < load.n; i++) cl_token_list_free(&load.requests[i]);
    free(load.requests);
    return status == CL_OK || bench_fail(b, "%s: %s", path, error.message);
}

/* Each of the names between commas. */
static bool add_files(const cl_model *model, bench *b) {
    bool ok = true;
    for (const char *at = paths; ok && *at;) {
        const size_t length = strcspn(at, ",");
        char path[MAX_PATH_SIZE];
        if (length >= sizeof path) return bench_fail(b, "--files has a name of more than %zu bytes", sizeof path - 1);
        snprintf(path, sizeof path, "%.*s", (int)length, at);
        ok = add_file(path, model, b);
        at += length + (at[length] == ',');
    }
    return ok;
}

static bool prepare(bench *b) {
    char name[256];
    if (!model_path) model_path = getenv("CHUNKLLAMA_MODEL");
    if (!model_path)
        return bench_fail(b, "no model; give a GGUF file with --model or in the environment variable CHUNKLLAMA_MODEL");
    name_of(model_path, name, sizeof name);
    snprintf(b->title, sizeof b->title, "Leading tokens that a request has in common with some other request, tokenizer of %s",
             name);
    return true;
}

static bool measure(bench *b) {
    cl_model *model;
    cl_error error;
    if (cl_model_load_on_pool(model_path, NULL, b->pool, &model, &error) != CL_OK) return bench_fail(b, "%s", error.message);
    const bool ok = add_files(model, b);
    cl_model_free(&model);
    return ok;
}

const bench_command command_table2 = {
    .name = "table2",
    .about = "tokens that the requests of a workload share",
    .options = {options},
    .prepare = prepare,
    .columns = columns,
    .note = "distinct: requests that differ; prompts: beginnings that two or more of them share; tokens: of a whole request.\n",
    .plot = &bars,
    .measure = measure,
    .in_paper = true,
    .needs_model = true,
};
