/*
 * `cattn-bench machine`: how fast memory is read and what the arithmetic peaks are, by one thread and by all of them.
 *
 * Each figure is the best of several runs, since the others were disturbed.
 */
#include <stdio.h>

#include "bench/bench.h"
#include "bench/shared/results.h"

static const results_column columns[] = {
    {"figure", "", -16}, {"one_thread", "1 thread", 1}, {"all_threads", "all", 1}, {"unit", "unit", -8}};

static const results_plot bars = {
    .kind = "bars", .x = "figure", .y = "all_threads", .panel = "unit", .y_label = "all threads together"};

static const results_spec spec = {
    .name = "machine",
    .title = "Read bandwidth and arithmetic peaks, of one thread and of all",
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .plot = &bars,
};

static void add(results *r, const char *figure, double one, double all, const char *unit) {
    results_add(r, json_pack("{ss so so ss}", "figure", figure, "one_thread", results_number(one), "all_threads",
                             results_number(all), "unit", unit));
}

int bench_machine(int argc, char **argv) {
    bench_common common;
    option_list list = {0};
    bench_common_options(&common, &list);
    const options_result read =
        options_read(argc, argv, &list, "read bandwidth and arithmetic peaks, of one and of all threads");
    if (read != OPTIONS_RUN) return read == OPTIONS_HELP ? 0 : 2;
    if (!bench_common_start(&common, argv[0])) return 1;
    bool ok = false;
    const limits *one = limits_of(1, common.quick), *all = common.limits;
    results *r = one ? results_open(&spec, &common) : NULL;
    if (r) {
        add(r, "memory read", one->read_gbs, all->read_gbs, "GB/s");
        add(r, "f32 FMA", one->fma_gflops, all->fma_gflops, "GFLOP/s");
        add(r, "f32 FMA, AVX2", one->fma_avx2_gflops, all->fma_avx2_gflops, "GFLOP/s");
        add(r, "bf16 dot", one->bf16_gflops, all->bf16_gflops, "GFLOP/s");
        add(r, "bf16 tiles", one->tiles_gflops, all->tiles_gflops, "GFLOP/s");
        add(r, "int8 dot", one->int8_gops, all->int8_gops, "GOP/s");
        add(r, "int8 tiles", one->int8_tiles_gops, all->int8_tiles_gops, "GOP/s");
        ok = results_close(r);
    }
    bench_common_stop(&common);
    return ok ? 0 : 1;
}
