/* `cattn-bench table3`: the paper's Table 3, latency of one decode step by prompt length and shared length. */
#include <stdio.h>

#include "bench/bench.h"
#include "bench/methods/compare.h"

enum { BATCH = 32, HEADS = 32 };

/* Prompt tokens of a sequence, and the number of them that all sequences share. */
static const struct {
    int64_t prompt, shared;
} pairs[] = {
    {1024, 0},    {1024, 512},  {1024, 768}, {1024, 1024}, {2048, 0},    {2048, 1024},
    {2048, 1536}, {2048, 2048}, {4096, 0},   {4096, 2048}, {4096, 3072}, {4096, 4096},
};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

static const results_column columns[] = {
    {"prompt", "n_p", 0},
    {"shared", "n_s", 0},
    COMPARE_COLUMNS,
    {"times_faster_than.paged", "/ paged", 2},
    {"times_faster_than.paged_shared", "/ paged_shared", 2},
};

static const results_plot bars = {.kind = "dots",
                                  .x = "pair",
                                  .y = "step_us",
                                  .series = "method",
                                  .y_label = "µs for a decode step, by prompt tokens / shared ones",
                                  .accent = "chunk",
                                  .log_y = true};

static const results_spec spec = {
    .name = "table3",
    .title = "One decode step of one layer: 32 sequences, 32 heads of 128, chunks of 64; n_p prompt tokens, n_s of them shared",
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .note = "/ method: how many times faster than it.\n",
    .plot = &bars,
};

static bool run_pair(results *r, const compare_options *options, const bench_common *common, int64_t prompt, int64_t shared) {
    static comparison c;
    token_tree tree = token_tree_of_prefix(BATCH, compare_length(common, prompt), compare_length(common, shared));
    const shape s = compare_paper_shape(common, HEADS, HEADS, &tree);
    const bool ok = compare_run(options, common, &s, NULL, 1, &c);
    for (int i = 0; ok && i < c.n; i++) {
        char pair[32];
        snprintf(pair, sizeof pair, "%d/%d", (int)prompt, (int)shared);
        json_t *row = compare_row(&c, i);
        json_object_set_new(row, "prompt", json_integer(prompt));
        json_object_set_new(row, "shared", json_integer(shared));
        json_object_set_new(row, "pair", json_string(pair));
        results_add(r, row);
    }
    token_tree_free(&tree);
    return ok;
}

static bool measure(results *r, const compare_options *options, const bench_common *common) {
    for (int i = 0; i < N_PAIRS; i++)
        if (!run_pair(r, options, common, pairs[i].prompt, pairs[i].shared)) return false;
    return true;
}

int bench_table3(int argc, char **argv) {
    return compare_command(argc, argv, "naive,flash,paged,paged_shared,chunk",
                           "the paper's Table 3: a decode step by prompt length and shared part", &spec, measure);
}
