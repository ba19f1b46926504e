/*
 * `cattn-bench table2`: how many leading tokens the prompts of a workload have in common: the paper's Table 2 for any file
 * of requests.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/shared/shared_tokens.h"
#include "bench/shared/workload.h"

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

static cl_status add_file(const char *path, const prompt_model *model, bench *b, cl_error *error) {
    workload load = {0};
    cl_status status = workload_read(path, model, &load, error);
    token_span *spans = status == CL_OK ? calloc(load.n, sizeof *spans) : NULL;
    for (size_t i = 0; spans && i < load.n; i++) spans[i] = (token_span){load.requests[i].ids, load.requests[i].n};
    shared_tokens shared;
    if (status == CL_OK && !(spans && shared_tokens_count(spans, load.n, &shared)))
        status = cl_fail(error, CL_ERR_NOMEM, "no memory for %zu requests", load.n);
    if (status == CL_OK) {
        char name[256];
        name_of(path, name, sizeof name);
        bench_add(b, json_pack("{ss sI sI sI sf sI sf}", "workload", name, "requests", (json_int_t)shared.n_requests,
                               "distinct", (json_int_t)shared.n_distinct, "prompts", (json_int_t)shared.n_prompts,
                               "shared_average", shared.average, "shared_maximum", (json_int_t)shared.maximum, "tokens_average",
                               shared.average_length));
    }
    free(spans);
    workload_free(&load);
    return status;
}

/* Each of the names between commas. */
static cl_status add_files(const prompt_model *model, bench *b, cl_error *error) {
    cl_status status = CL_OK;
    for (const char *at = paths; status == CL_OK && *at;) {
        const size_t length = strcspn(at, ",");
        char path[MAX_PATH_SIZE];
        if (length >= sizeof path)
            return cl_fail(error, CL_ERR_ARG, "--files has a name of more than %zu bytes", sizeof path - 1);
        snprintf(path, sizeof path, "%.*s", (int)length, at);
        status = add_file(path, model, b, error);
        at += length + (at[length] == ',');
    }
    return status;
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
    prompt_model model;
    cl_error error;
    cl_status status = prompt_model_open(model_path, &model, &error);
    if (status == CL_OK) {
        status = add_files(&model, b, &error);
        prompt_model_close(&model);
    }
    return status == CL_OK || bench_fail(b, "%s", error.message);
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
