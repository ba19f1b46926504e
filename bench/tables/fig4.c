/*
 * `cattn-bench fig4`: the paper's Figure 4, decode throughput by batch size; and, as in its submission, by shared length.
 *
 * Throughput is that of the first 64 completion tokens. Latency grows linearly over them, so the step in their middle has
 * the average latency.
 */
#include "bench/bench.h"
#include "bench/methods/compare.h"

enum { HEADS = 32, COMPLETION = 64 };

typedef struct point {
    const char *varied;
    int32_t batch;
    int64_t shared;
} point;

static const point points[] = {
    {"batch", 1, 2048},  {"batch", 2, 2048},   {"batch", 4, 2048},   {"batch", 8, 2048},   {"batch", 16, 2048},
    {"batch", 32, 2048}, {"batch", 48, 2048},  {"batch", 64, 2048},  {"batch", 96, 2048},  {"shared", 32, 256},
    {"shared", 32, 512}, {"shared", 32, 1024}, {"shared", 32, 2048}, {"shared", 32, 4096}, {"shared", 32, 8192},
};
enum { N_POINTS = sizeof points / sizeof *points };

static const results_column columns[] = {
    {"varied", "varied", -8},
    {"batch", "batch", 0},
    {"shared", "n_s", 0},
    {"tokens_per_s", "tokens/s", 0},
    COMPARE_COLUMNS,
    {"times_faster_than.paged", "/ paged", 2},
    {"times_faster_than.paged_shared", "/ paged_shared", 2},
};

static const results_plot lines = {.kind = "lines",
                                   .x = "value",
                                   .y = "tokens_per_s",
                                   .series = "method",
                                   .panel = "panel",
                                   .y_label = "tokens/s, one layer",
                                   .accent = "chunk",
                                   .log_x = true,
                                   .from_zero = true};

static const results_spec spec = {
    .name = "fig4",
    .title =
        "Decode throughput of one layer over 64 completion tokens behind a shared prompt, by batch and by shared length n_s: "
        "32 heads of 128, chunks of 64",
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .note = "/ method: how many times faster than it.\n",
    .plot = &lines,
};

static bool run_point(results *r, const compare_options *options, const bench_common *common, const point *p) {
    static comparison c;
    const int64_t shared = compare_length(common, p->shared);
    const int32_t batch = common->quick && p->batch > 8 ? 8 : p->batch;
    token_tree tree = token_tree_of_prefix(batch, shared + compare_length(common, COMPLETION / 2), shared);
    const shape s = compare_paper_shape(common, HEADS, HEADS, &tree);
    const bool ok = compare_run(options, common, &s, NULL, 1, &c);
    for (int i = 0; ok && i < c.n; i++) {
        json_t *row = compare_row(&c, i);
        json_object_set_new(row, "varied", json_string(p->varied));
        json_object_set_new(row, "batch", json_integer(p->batch));
        json_object_set_new(row, "shared", json_integer(p->shared));
        json_object_set_new(
            row, "panel",
            json_string(*p->varied == 'b' ? "sequences behind 2048 shared tokens" : "shared tokens of 32 sequences"));
        json_object_set_new(row, "value", json_integer(*p->varied == 'b' ? p->batch : p->shared));
        json_object_set_new(row, "tokens_per_s", json_real(batch / compare_us(&c, i) * 1e6));
        results_add(r, row);
    }
    token_tree_free(&tree);
    return ok;
}

static bool measure(results *r, const compare_options *options, const bench_common *common) {
    for (int i = 0; i < N_POINTS; i++)
        if (!run_point(r, options, common, &points[i])) return false;
    return true;
}

int bench_fig4(int argc, char **argv) {
    return compare_command(argc, argv, "naive,flash,paged,paged_shared,chunk",
                           "the paper's Figure 4: decode throughput by batch and by shared length", &spec, measure);
}
