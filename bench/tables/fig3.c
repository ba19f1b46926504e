/*
 * `cattn-bench fig3`: the paper's Figure 3, decode throughput while completions diverge behind a shared prompt.
 *
 * Throughput is n_c * batch / t, cumulative from the start of decoding, of kernel time. Step latency is measured at several
 * n_c and interpolated linearly, since each further token is one more token to read.
 */
#include "bench/bench.h"
#include "bench/methods/compare.h"

enum { BATCH = 32, HEADS = 32 };

static const int64_t prompts[] = {1024, 2048, 4096};
static const int64_t ladder[] = {2048, 1024, 512, 256, 128, 64, 0}; /* n_c, descending as compare_run requires */
enum { N_PROMPTS = sizeof prompts / sizeof *prompts, N_LADDER = sizeof ladder / sizeof *ladder };

static const results_column columns[] = {
    {"prompt", "n_s", 0},
    {"completion", "n_c", 0},
    {"tokens_per_s", "tokens/s", 0},
    COMPARE_COLUMNS,
    {"times_faster_than.paged", "step / paged", 2},
    {"times_faster_than.paged_shared", "/ paged_shared", 2},
};

static const results_plot lines = {.kind = "lines",
                                   .x = "completion",
                                   .y = "tokens_per_s",
                                   .series = "method",
                                   .panel = "prompt",
                                   .panel_label = "shared tokens: ",
                                   .x_label = "completion tokens",
                                   .y_label = "tokens/s since decoding began, one layer",
                                   .accent = "chunk",
                                   .log_x = true,
                                   .log_y = true};

static const results_spec spec = {
    .name = "fig3",
    .title =
        "Decode throughput of one layer after n_c completion tokens behind a shared prompt of n_s: 32 sequences, 32 heads of "
        "128, chunks of 64",
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .note = "tokens/s: n_c * batch / time, from the start of decoding. The other columns are of the step after n_c tokens.\n",
    .plot = &lines,
};

static bool run_prompt(results *r, const compare_options *options, const bench_common *common, int64_t prompt) {
    static comparison c[N_LADDER];
    const int64_t shared = compare_length(common, prompt);
    int64_t prefixes[N_LADDER];
    for (int k = 0; k < N_LADDER; k++) prefixes[k] = shared + compare_length(common, ladder[k]);
    token_tree tree = token_tree_of_prefix(BATCH, prefixes[0], shared);
    const shape s = compare_paper_shape(common, HEADS, HEADS, &tree);
    const bool ok = compare_run(options, common, &s, prefixes, N_LADDER, c);
    for (int i = 0; ok && i < options->n_methods; i++) {
        double time_us = 0;
        for (int k = N_LADDER - 2; k >= 0; k--) {
            const double tokens = (double)(ladder[k] - ladder[k + 1]);
            time_us += tokens * (compare_us(&c[k], i) + compare_us(&c[k + 1], i)) / 2;
            json_t *row = compare_row(&c[k], i);
            json_object_set_new(row, "prompt", json_integer(prompt));
            json_object_set_new(row, "completion", json_integer(ladder[k]));
            json_object_set_new(row, "tokens_per_s", json_real((double)ladder[k] * BATCH / time_us * 1e6));
            results_add(r, row);
        }
    }
    token_tree_free(&tree);
    return ok;
}

static bool measure(results *r, const compare_options *options, const bench_common *common) {
    for (int i = 0; i < N_PROMPTS; i++)
        if (!run_prompt(r, options, common, prompts[i])) return false;
    return true;
}

int bench_fig3(int argc, char **argv) {
    return compare_command(argc, argv, "naive,flash,paged,paged_shared,chunk",
                           "the paper's Figure 3: decode throughput while completions diverge", &spec, measure);
}
