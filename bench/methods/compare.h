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

#include "bench/bench.h"
#include "method.h"

enum { COMPARE_MAX_STEPS = 1000 };

/* Options of subcommands that time steps, and of those that compare methods by them; what they say is in compare_given. */
extern const option_row compare_step_options[], compare_method_options[];

typedef struct compare_options {
    int64_t steps, cold_mib; /* 0: the default */
    const char *level, *kv_type_text, *methods_text;
    /* Set by compare_prepare: */
    int n_steps;
    cattn_type kv_type;
    size_t cold_bytes;
    method_id methods[N_METHODS];
    int n_methods;
} compare_options;
extern compare_options compare_given;

/* Once the options are read; false with a message on stderr. With --quick, less is done. */
bool compare_prepare(bench *b);

/* The paper's shape, which is Llama-2-7B's (heads of 128, chunks of 64), and a length; both tiny with --quick. */
shape compare_paper_shape(const bench *b, int32_t heads, int32_t kv_heads);
int64_t compare_length(const bench *b, int64_t n);

typedef struct comparison {
    const shape *shape;
    int n, n_steps;
    method_id of[N_METHODS];
    const char *levels[N_METHODS];
    int set_of[N_METHODS]; /* methods timed together have the same number */
    double flops;          /* of a step */
    double kv_bytes[N_METHODS];
    double us[N_METHODS][COMPARE_MAX_STEPS];
    /* The machine's limits in that round: reading, and the level's instruction; 0: unknown. */
    double read_gbs[N_METHODS][COMPARE_MAX_STEPS], peak_gflops[N_METHODS][COMPARE_MAX_STEPS];
} comparison;

/*
 * Time the methods of the options on one shape, whose K/V type and level are set here; it must outlive the comparison. Checks
 * that the methods' outputs agree: bit for bit where they compute the same, else within the rounding of the K/V type. False
 * with a message on stderr.
 */
bool compare_run(const bench *b, shape *shape, comparison *c);

/* The same for the method chunk alone, over K/V that may be in the CPU's caches if the step is a prefill. */
bool compare_run_chunk(const bench *b, shape *shape, comparison *c);

/*
 * Of method i, medians: a step's time in microseconds; its arithmetic and the K/V bytes that it reads as parts of the limits, 0
 * where these are unknown; and how many times faster it is than method j.
 */
double compare_us(const comparison *c, int i);
double compare_peak_fraction(const comparison *c, int i);
double compare_read_fraction(const comparison *c, int i);
double compare_speedup(const comparison *c, int i, int j);

/*
 * A row of results for method i: method, level, step_us, gflops, peak_fraction, kv_gbs, read_fraction; times_faster_than, an
 * object by name; and the shape: heads, kv_heads, head_dim, chunk, batch, kv_type, threads, steps.
 */
json_t *compare_row(const bench *b, const comparison *c, int i);

/* Columns of such a row, to begin or end a table with. */
#define COMPARE_COLUMNS                                                                                                        \
    {"method", "method", -13}, {"level", "level", -12}, {"step_us", "step us", 1}, {"gflops", "GFLOP/s", 1},                   \
        {"peak_fraction", "of peak", 2}, {"kv_gbs", "K/V GB/s", 1}, {                                                          \
        "read_fraction", "of read", 2                                                                                          \
    }

#endif
