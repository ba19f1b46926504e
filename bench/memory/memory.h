/*
 * The figures of `cattn-bench memory`: how fast an engine is where K/V memory is short, and what is lost where it is not.
 *
 * Each figure compares two ways to run an engine, in pairs (bench/shared/statistics.h): MEASURED over REFERENCE. A pair holds
 * times or rates, as the figure says, in the place of seconds.
 */
#ifndef BENCH_MEMORY_MEMORY_H
#define BENCH_MEMORY_MEMORY_H

#include "bench/bench.h"
#include "bench/shared/statistics.h"
#include "driver.h"

#define MEASURED  PAIRED_A
#define REFERENCE PAIRED_B

typedef struct memory_bench {
    bench *bench;
    const cl_model *model;
    int64_t seconds;    /* limit on the time of a row's rounds */
    uint64_t n_prompts; /* made so far, from which memory_fill makes each one different */
    paired pairs;       /* of the current row */
} memory_bench;

/* What a row says besides its figures. */
typedef struct memory_row {
    const char *figure, *work;
    const char *unit; /* of the two values, whose numbers in the pairs are multiplied by scale */
    double scale;
    double bar;    /* of the ratio; 0: none */
    bool at_least; /* the ratio must be at least the bar; otherwise at most */
    /* Of an engine of the measured side; steps, preemptions and recomputed tokens go into the lines of JSON. NULL: none. */
    const cl_engine_stats *stats;
} memory_row;

/* Add a row of pairs, of which there must be one. */
void memory_add(memory_bench *b, const memory_row *row, const paired *pairs);

/* Measure in rounds until the interval is within `precision` of the ratio, or the time is over. False: the work failed. */
bool memory_measure(memory_bench *b, double precision, paired_work *work, void *ctx);

/* An engine's configuration with this number of sequences, and memory for n_tokens tokens beside the workspace of steps. */
cl_engine_config memory_config(const memory_bench *b, int32_t max_seqs, int64_t n_tokens);

/* Fill a prompt with random tokens. Two prompts have no beginning in common. */
void memory_fill(memory_bench *b, int32_t *tokens, int64_t n);

/* n * size bytes, or NULL with a message on stderr. */
void *memory_alloc(size_t n, size_t size);

/* The figures. False with a message on stderr. */
bool memory_chats(memory_bench *b);    /* throughput where memory is short, and without max_tokens */
bool memory_itl(memory_bench *b);      /* ITL while long prompts come in */
bool memory_overhead(memory_bench *b); /* what retention costs without hits */
bool memory_flood(memory_bench *b);    /* TTFT of a tenant while another floods */
bool memory_branches(memory_bench *b); /* requests at once behind a long prefix that is not in the cache */

#endif
