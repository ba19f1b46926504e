/*
 * Compares methods on the same work.
 *
 * A round times one step of each method and measures the machine's limits, so that a disturbance affects all of them; ratios
 * and fractions of a limit are medians over the rounds. Each method has several layers and goes from one to the next, so that
 * what a step reads is not in the CPU's caches. Methods that do not fit into memory together are timed as several sets, one
 * after the other; ratios between sets are ratios of medians.
 */
#ifndef BENCH_METHODS_COMPARE_H
#define BENCH_METHODS_COMPARE_H

#include <jansson.h>

#include "bench/shared/bench_options.h"
#include "bench/shared/results.h"
#include "method.h"

enum { COMPARE_MAX_STEPS = 1000 };

/* Options of subcommands that compare methods. */
typedef struct compare_options {
    int64_t steps, cold_mib;
    const char *level, *kv_type_text, *methods_text;
    /* Set by compare_check: */
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

/*
 * The whole of a subcommand without options of its own: reads the common ones, calls `measure` to add the rows, and closes the
 * results. Returns the exit status; measure reports on stderr why it returns false.
 */
typedef bool compare_measure(results *r, const compare_options *options, const bench_common *common);
int compare_command(int argc, char **argv, const char *methods, const char *about, const results_spec *spec,
                    compare_measure *measure);

/* The paper's shape, which is Llama-2-7B's (heads of 128, chunks of 64), and a length; both tiny with --quick. */
shape compare_paper_shape(const bench_common *common, int32_t heads, int32_t kv_heads, const token_tree *tree);
int64_t compare_length(const bench_common *common, int64_t n);

/* What is compared: a method on a shape, with the threads of a pool. */
typedef struct contestant {
    const char *name;
    method_id id;
    shape shape;
    ca_pool *pool;
} contestant;

enum { COMPARE_MAX = 8 };

typedef struct comparison {
    int n, n_steps;
    contestant of[COMPARE_MAX];
    const char *levels[COMPARE_MAX];
    int set_of[COMPARE_MAX];   /* methods timed together have the same number */
    double flops[COMPARE_MAX]; /* of a step */
    double kv_bytes[COMPARE_MAX];
    double us[COMPARE_MAX][COMPARE_MAX_STEPS];
    /* The machine's limits in that round: reading, and the level's instruction; 0: unknown. */
    double read_gbs[COMPARE_MAX][COMPARE_MAX_STEPS], peak_gflops[COMPARE_MAX][COMPARE_MAX_STEPS];
} comparison;

/*
 * Time n contestants with queries of the same size. If prefixes is not NULL, all sequences are cut to prefixes[i] tokens for
 * results[i], in descending order; otherwise there is one result. Checks that the contestants' outputs agree: bit for bit where
 * they compute the same, else within the rounding of their K/V types. False with a message on stderr.
 */
bool compare_contest(const contestant *contestants, int n, int n_steps, bool quick, const int64_t *prefixes, int n_results,
                     comparison *results);

/* The options' methods on one shape, whose kv_type, level and cold_bytes are set here. */
bool compare_run(const compare_options *options, const bench_common *common, const shape *shape, const int64_t *prefixes,
                 int n_results, comparison *results);

double compare_us(const comparison *c, int i);

/* How many times faster contestant i is than j; compare_find gives a method's index, -1 if it was not compared. */
double compare_speedup(const comparison *c, int i, int j);
int compare_find(const comparison *c, method_id id);

/*
 * A row of results for contestant i: its name as method, level, step_us, gflops, peak_fraction, kv_gbs, read_fraction;
 * times_faster_than, an object by name; and its shape: heads, kv_heads, head_dim, chunk, batch, kv_type, threads, steps.
 */
json_t *compare_row(const comparison *c, int i);

/* Columns of such a row, to begin or end a table with. */
#define COMPARE_COLUMNS                                                                                                        \
    {"method", "method", -13}, {"level", "level", -12}, {"step_us", "step us", 1}, {"gflops", "GFLOP/s", 1},                   \
        {"peak_fraction", "of peak", 2}, {"kv_gbs", "K/V GB/s", 1}, {                                                          \
        "read_fraction", "of read", 2                                                                                          \
    }

#endif
