/*
 * `cattn-bench table2`: how many leading tokens the prompts of a workload have in common: the paper's Table 2 for any file
 * of requests.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/shared/results.h"
#include "bench/shared/shared_tokens.h"
#include "bench/shared/workload.h"

#define BUNDLED                                                                                                                \
    "bench/workloads/chatbot.jsonl,bench/workloads/tool_planning.jsonl,bench/workloads/few_shot.jsonl,bench/workloads/"        \
    "document_qa.jsonl"

enum { MAX_PATH_SIZE = 4096 };

static const results_column columns[] = {
    {"workload", "workload", -20},
    {"requests", "requests", 0},
    {"distinct", "distinct", 0},
    {"prompts", "prompts", 0},
    {"shared_average", "shared, average", 0},
    {"shared_maximum", "maximum", 0},
    {"tokens_average", "tokens, average", 0},
};

static const results_plot bars = {
    .kind = "bars", .x = "workload", .y = "shared_average", .y_label = "shared tokens of a request, average"};

static int fail(const cl_error *error) {
    fprintf(stderr, "cattn-bench table2: %s\n", error->message);
    return 1;
}

/* "bench/workloads/chatbot.jsonl" -> "chatbot" */
static void name_of(const char *path, char *name, size_t size) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strrchr(base, '.');
    snprintf(name, size, "%.*s", (int)(dot && dot > base ? (size_t)(dot - base) : strlen(base)), base);
}

static cl_status add_file(const char *path, const prompt_model *model, results *r, cl_error *error) {
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
        results_add(r, json_pack("{ss sI sI sI sf sI sf}", "workload", name, "requests", (json_int_t)shared.n_requests,
                                 "distinct", (json_int_t)shared.n_distinct, "prompts", (json_int_t)shared.n_prompts,
                                 "shared_average", shared.average, "shared_maximum", (json_int_t)shared.maximum,
                                 "tokens_average", shared.average_length));
    }
    free(spans);
    workload_free(&load);
    return status;
}

/* Each of the names between commas. */
static cl_status add_files(const char *paths, const prompt_model *model, results *r, cl_error *error) {
    cl_status status = CL_OK;
    for (const char *at = paths; status == CL_OK && *at;) {
        const size_t length = strcspn(at, ",");
        char path[MAX_PATH_SIZE];
        if (length >= sizeof path)
            return cl_fail(error, CL_ERR_ARG, "--files has a name of more than %zu bytes", sizeof path - 1);
        snprintf(path, sizeof path, "%.*s", (int)length, at);
        status = add_file(path, model, r, error);
        at += length + (at[length] == ',');
    }
    return status;
}

static int run(const bench_common *common, const char *model_path, const char *paths) {
    prompt_model model;
    cl_error error;
    if (prompt_model_open(model_path, &model, &error) != CL_OK) return fail(&error);
    char title[512], name[256];
    name_of(model_path, name, sizeof name);
    snprintf(title, sizeof title, "Leading tokens that a request has in common with some other request, tokenizer of %s", name);
    const results_spec spec = {
        .name = "table2",
        .title = title,
        .columns = columns,
        .n_columns = sizeof columns / sizeof *columns,
        .note =
            "distinct: requests that differ; prompts: beginnings that two or more of them share; tokens: of a whole request.\n",
        .plot = &bars,
    };
    results *r = results_open(&spec, common);
    cl_status status = r ? add_files(paths, &model, r, &error) : CL_ERR_FILE;
    const bool written = r && results_close(r);
    prompt_model_close(&model);
    if (r && status != CL_OK) return fail(&error);
    return written ? 0 : 1;
}

int bench_table2(int argc, char **argv) {
    const char *model = getenv("CHUNKLLAMA_MODEL"), *paths = BUNDLED;
    const option_row rows[] = {
        {"model", OPTION_TEXT, &model, 0, 0, "GGUF file whose tokenizer is used; without it CHUNKLLAMA_MODEL", 0},
        {"files", OPTION_TEXT, &paths, 0, 0, "files of requests, separated by commas", 0},
    };
    bench_common common;
    option_list list = {0};
    options_add(&list, rows, sizeof rows / sizeof *rows);
    bench_common_options(&common, &list);
    const options_result read = options_read(argc, argv, &list, "tokens that the requests of a workload share");
    if (read != OPTIONS_RUN) return read == OPTIONS_HELP ? 0 : 2;
    if (!model) {
        fputs("cattn-bench table2: no model; give a GGUF file with --model or in the environment variable CHUNKLLAMA_MODEL\n",
              stderr);
        return 2;
    }
    const int status = bench_common_start(&common, argv[0]) ? run(&common, model, paths) : 1;
    bench_common_stop(&common);
    return status;
}
