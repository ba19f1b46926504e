/* `cattn-bench prefill`: a causal prefill of one sequence in one step, compared with the arithmetic peak. */
#include <stdio.h>

#include "bench/bench.h"
#include "bench/methods/compare.h"
#include "bench/shared/formulas.h"
#include "bench/shared/prefill_time.h"

static const int64_t lengths[] = {1024, 2048, 4096, 8192};
static const struct { int32_t heads, kv_heads; } head_counts[] = {{32, 32}, {32, 8}};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths, N_HEAD_COUNTS = sizeof head_counts / sizeof *head_counts };

static const results_column columns[] = {
    {"head_counts", "heads", -6},  {"tokens", "tokens", 0},  {"level", "level", -12},
    {"attend_ms", "attend ms", 2}, {"gflops", "GFLOP/s", 1}, {"peak_fraction", "of peak", 3},
};

static const results_plot lines = {.kind = "lines",
                                   .x = "tokens",
                                   .y = "gflops",
                                   .series = "head_counts",
                                   .x_label = "tokens",
                                   .y_label = "GFLOP/s, the causal half counted",
                                   .log_x = true,
                                   .from_zero = true};

static const results_spec spec = {
    .name = "prefill",
    .title = "Causal prefill of one sequence in one step of one layer: heads of 128, chunks of 64; the causal half is counted",
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .plot = &lines,
};

/* The number of pairs of a row and a token that it sees: the i-th of n rows sees i tokens. */
static double causal_pairs(double n) { return n * (n + 1) / 2; }

static bool run_length(results *r, const compare_options *options, const bench_common *common, limits_probe *probe,
                       int32_t heads, int32_t kv_heads, int64_t tokens) {
    shape s = compare_paper_shape(common, heads, kv_heads, NULL);
    s.kv_type = options->kv_type;
    s.level = options->level;
    const int64_t n = compare_length(common, tokens);
    const layer_shape layer = {.heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim};
    const prefill_options how = {options->kv_type, options->level, s.chunk, (int)options->steps, common->pool};
    const char *level = method_level(&s);
    if (!level) return false;
    /* Measured beside each step, since the peak of a shared machine changes. */
    const double peak =
        probe ? limits_probe_peak(probe, level, options->kv_type) : limits_peak(common->limits, level, options->kv_type);
    const double us = prefill_time_us(&layer, 1, n, &how);
    if (us < 0) return false;
    const double gflops = formula_flops(s.heads, s.head_dim, causal_pairs((double)n)) / us * 1e-3;
    char text[32];
    snprintf(text, sizeof text, "%d/%d", heads, kv_heads);
    results_add(r, json_pack("{ss si si si sI ss ss sf sf so si}", "head_counts", text, "heads", s.heads, "kv_heads",
                             s.kv_heads, "head_dim", s.head_dim, "tokens", (json_int_t)n, "kv_type", options->kv_type_text,
                             "level", level, "attend_ms", us * 1e-3, "gflops", gflops, "peak_fraction",
                             results_number(peak > 0 ? gflops / peak : 0), "steps", (int)options->steps));
    return true;
}

static bool measure(results *r, const compare_options *options, const bench_common *common) {
    limits_probe *probe = common->quick ? NULL : limits_probe_create(common->pool);
    bool ok = true;
    for (int h = 0; h < N_HEAD_COUNTS; h++)
        for (int i = 0; ok && i < N_LENGTHS; i++)
            ok = run_length(r, options, common, probe, head_counts[h].heads, head_counts[h].kv_heads, lengths[i]);
    limits_probe_destroy(&probe);
    return ok;
}

int bench_prefill(int argc, char **argv) {
    return compare_command(argc, argv, "chunk", "a causal prefill of one sequence, against the arithmetic peak", &spec,
                           measure);
}
