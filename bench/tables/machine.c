/*
 * `cattn-bench machine`: how fast memory is read and what the arithmetic peaks are, by one thread and by all of them.
 *
 * Each figure is the best of several runs, since the others were disturbed.
 */
#include "bench/bench.h"

static const bench_column columns[] = {
    {"figure", "", -16}, {"one_thread", "1 thread", 1}, {"all_threads", "all", 1}, {"unit", "unit", -8}, {0}};

static const bench_plot bars = {
    .kind = "bars", .x = "figure", .y = "all_threads", .panel = "unit", .y_label = "all threads together"};

static bool measure(bench *b) {
    const limits *one = limits_of(1, b->quick);
    for (limit i = 0; one && i < N_LIMITS; i++)
        bench_add(b, json_pack("{ss so so ss}", "figure", limit_kinds[i].name, "one_thread", bench_number(one->of[i]),
                               "all_threads", bench_number(b->limits->of[i]), "unit", limit_kinds[i].unit));
    return one;
}

const bench_command command_machine = {
    .name = "machine",
    .about = "read bandwidth and arithmetic peaks of this machine",
    .title = "Read bandwidth and arithmetic peaks, of one thread and of all",
    .columns = columns,
    .plot = &bars,
    .measure = measure,
    .in_paper = true,
};
