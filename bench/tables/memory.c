/*
 * `cattn-bench memory`: how an engine does where K/V memory is short, and what the machinery for it costs where it is not.
 *
 * bench/memory/memory.h describes the figures, of which each has a file of its own. bench/e2e/memory.py adds those of a server.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/loadgen/load_requests.h"
#include "bench/memory/memory.h"
#include "chunkllama/model/model.h"

static const struct {
    const char *name;
    bool (*measure)(memory_bench *b);
} figures[] = {{"chats", memory_chats},
               {"itl", memory_itl},
               {"overhead", memory_overhead},
               {"flood", memory_flood},
               {"branches", memory_branches}};
#define NAMES "chats,itl,overhead,flood,branches"
enum { N_FIGURES = sizeof figures / sizeof *figures };

/* ---- What the figures have in common ---- */

/* Whether a ratio keeps its bar. */
static const char *verdict_of(const memory_row *row, const paired_ratio *r) {
    if (row->bar == 0) return "";
    if (row->at_least ? r->low >= row->bar : r->high <= row->bar) return "met";
    return (row->at_least ? r->high < row->bar : r->low > row->bar) ? "missed" : "undecided";
}

void memory_add(memory_bench *b, const memory_row *row, const paired *pairs) {
    const paired_ratio r = paired_evaluate(pairs);
    char bar[32] = "";
    if (row->bar > 0) snprintf(bar, sizeof bar, "%s %g", row->at_least ? "at least" : "at most", row->bar);
    json_t *o =
        json_pack("{ss ss sf sf ss sf sf sf ss ss si}", "figure", row->figure, "work", row->work, "measured",
                  r.seconds[MEASURED] * row->scale, "reference", r.seconds[REFERENCE] * row->scale, "unit", row->unit, "ratio",
                  r.ratio, "low", r.low, "high", r.high, "bar", bar, "verdict", verdict_of(row, &r), "rounds", r.n);
    if (row->stats)
        json_object_update_new(o, json_pack("{sI sI sI}", "steps", (json_int_t)row->stats->steps, "preemptions",
                                            (json_int_t)row->stats->preemptions, "recomputed_tokens",
                                            (json_int_t)row->stats->recomputed_tokens));
    bench_add(b->bench, o);
}

bool memory_measure(memory_bench *b, double precision, paired_work *work, void *ctx) {
    const paired_goal goal = {.precision = precision, .cap = (double)b->seconds, .min_rounds = PAIRED_LEAST_ROUNDS};
    const paired_goal quick = {.precision = precision, .cap = 0, .min_rounds = 1};
    b->pairs.n = 0;
    return paired_measure(&b->pairs, b->bench->quick ? &quick : &goal, work, ctx);
}

/* An eighth of the budget is left for workspace and metadata. */
cl_engine_config memory_config(const memory_bench *b, int32_t max_seqs, int64_t n_tokens) {
    const cl_model_params *p = &b->model->params;
    const uint64_t token = cl_params_kv_bytes(p, 2, 0); /* in bf16, the default */
    cl_engine_config config;
    cl_engine_config_init(&config);
    config.kv_budget_bytes = (uint64_t)n_tokens * token * 8 / 7;
    config.max_seqs = max_seqs;
    config.n_threads = (int32_t)b->bench->threads;
    return config;
}

void memory_fill(memory_bench *b, int32_t *tokens, int64_t n) {
    load_random_tokens(tokens, n, b->model->params.n_vocab, b->n_prompts++);
}

void *memory_alloc(size_t n, size_t size) {
    void *memory = calloc(n, size);
    if (!memory) fprintf(stderr, "cattn-bench memory: no memory for %zu items\n", n);
    return memory;
}

/* ---- The command ---- */

static const bench_column columns[] = {{"figure", "figure", -46},     {"work", "work", -64},   {"measured", "measured", 1},
                                       {"reference", "reference", 1}, {"unit", "unit", -8},    {"ratio", "ratio", 3},
                                       {"low", "95 % from", 3},       {"high", "to", 3},       {"bar", "bar", -13},
                                       {"verdict", "verdict", -9},    {"rounds", "rounds", 0}, {0}};

static const char *model_path, *only = NAMES;
static int64_t seconds = 120;
static bool chosen[N_FIGURES];
static const option_row options[] = {{"model", OPTION_TEXT, &model_path, 0, 0, "GGUF file; by default CHUNKLLAMA_MODEL", 0},
                                     {"only", OPTION_TEXT, &only, 0, 0, "the figures to measure", 0},
                                     {"seconds", OPTION_INT, &seconds, 1, 3600, "most seconds for the rounds of a row", 0},
                                     {0}};

/* The index of the figure whose name begins a list, up to a comma or the end; -1: there is none. */
static int first_of(const char *names) {
    const size_t n = strcspn(names, ",");
    for (int i = 0; i < N_FIGURES; i++)
        if (strlen(figures[i].name) == n && strncmp(names, figures[i].name, n) == 0) return i;
    return -1;
}

/* Choose the figures that a list names. */
static bool choose(bench *b, const char *names) {
    const char *comma;
    for (const char *at = names; at; at = comma ? comma + 1 : NULL) {
        const int i = first_of(at);
        if (i < 0) return bench_fail(b, "--only is \"%s\"; it must be some of " NAMES ", or none", names);
        chosen[i] = true;
        comma = strchr(at, ',');
    }
    return true;
}

static bool prepare(bench *b) {
    if (!model_path) model_path = getenv("CHUNKLLAMA_MODEL");
    if (strcmp(only, "none") != 0 && !choose(b, only)) return false;
    return model_path || bench_fail(b, "--model must name a GGUF file");
}

static bool measure(bench *bench) {
    static memory_bench b;
    cl_model *model;
    cl_error error;
    if (cl_model_load_on_pool(model_path, NULL, bench->pool, &model, &error) != CL_OK)
        return bench_fail(bench, "%s", error.message);
    b = (memory_bench){.bench = bench, .model = model, .seconds = seconds};
    bool ok = true;
    for (int i = 0; ok && i < N_FIGURES; i++)
        if (chosen[i]) ok = figures[i].measure(&b);
    cl_model_free(&model);
    return ok;
}

const bench_command command_memory = {
    .name = "memory",
    .about = "throughput and latency of an engine where K/V memory is short",
    .options = {options},
    .prepare = prepare,
    .title = "An engine where K/V memory is short, and what that costs where it is not",
    .columns = columns,
    .note =
        "Each round measures both sides of a figure in random order, one directly after the other. measured, reference: "
        "medians; ratio: the median of the rounds' ratios; 95 %: the interval of the sign test. A bar is met if the whole "
        "interval keeps it, missed if none of it does, and undecided otherwise. Without speculation; completions are greedy. "
        "p99 ITL: of the 16 chats of a window, in which each generates 128 tokens behind 512 that are in the cache.\n",
    .measure = measure,
};
