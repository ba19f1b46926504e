/*
 * Methods side by side on the same work.
 *
 * A round times one step of each method, and the machine's limits, so that what happens on the machine happens to all; ratios
 * and fractions of a limit are medians of the rounds' ones. Each method has several layers and goes from one to the next, so
 * that what a step reads is not in a cache. Methods that do not fit into memory together are timed in groups, one after the
 * other; their ratios are those of medians.
 */
#ifndef BENCH_COMPARE_H
#define BENCH_COMPARE_H

#include <jansson.h>

#include "common.h"
#include "method.h"

enum { COMPARE_MAX_STEPS = 1000 };

/* Options of subcommands that compare methods. */
typedef struct compare_options {
    int64_t steps, cold_mib;
    const char *level, *kv_type_text, *methods_text;
    /* Of compare_check: */
    cattn_type kv_type;
    size_t cold_bytes;
    method_id methods[N_METHODS];
    int n_methods;
} compare_options;

/* Set defaults and add the options; methods: those that are compared by default, as in "paged,chunk". */
void compare_options_add(compare_options *options, const char *methods, option_list *list);

/* Once the options are read; false with a message on stderr. With quick, less is done. */
bool compare_check(compare_options *options, const char *command, bool quick);

/* The name of a K/V type, NULL past the last. */
const char *compare_type_name(int type);

typedef struct comparison {
    int n_methods, n_steps;
    method_id methods[N_METHODS];
    const char *levels[N_METHODS];
    int groups[N_METHODS]; /* timed together: equal numbers */
    double flops;          /* of a step */
    double kv_bytes[N_METHODS];
    double us[N_METHODS][COMPARE_MAX_STEPS];
    double read_gbs[N_METHODS][COMPARE_MAX_STEPS]; /* what the machine could read, */
    double peak_gflops[N_METHODS]
                      [COMPARE_MAX_STEPS]; /* and compute with the method's instruction, in that round; 0: not known */
} comparison;

/*
 * Time the methods on a shape, whose kv_type, level and cold_bytes are set here. Where prefixes is not NULL, all sequences are
 * cut to prefixes[i] tokens for results[i], descending; otherwise there is one result. Checks that the methods agree.
 * False with a message on stderr.
 */
bool compare_run(const compare_options *options, const bench_common *common, const shape *shape, const int64_t *prefixes,
                 int n_results, comparison *results);

double compare_us(const comparison *c, int i);

/* How many times faster method i is than method j; method_find gives a method's index, -1 if it was not compared. */
double compare_speedup(const comparison *c, int i, int j);
int compare_find(const comparison *c, method_id id);

/*
 * A row of results for method i: method, level, step_us, gflops, peak_fraction, kv_gbs, read_fraction, and times_faster_than,
 * an object by method.
 */
json_t *compare_row(const comparison *c, int i, const compare_options *options, const bench_common *common);

/* Columns of such a row, to begin or end a table with. */
#define COMPARE_COLUMNS                                                                                                        \
    {"method", "method", -13}, {"level", "level", -12}, {"step_us", "step us", 1}, {"gflops", "GFLOP/s", 1},                   \
        {"peak_fraction", "of peak", 2}, {"kv_gbs", "K/V GB/s", 1}, {                                                          \
        "read_fraction", "of read", 2                                                                                          \
    }

/* The shape's numbers, for rows and titles: heads, kv_heads, head_dim, chunk, batch, kv_type, threads, steps. */
void compare_add_parameters(json_t *row, const shape *shape, const compare_options *options, const bench_common *common);

#endif
