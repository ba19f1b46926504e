/*
 * The subcommands of cattn-bench: each is a description in a file of its own, and cattn_bench.c runs it.
 *
 * Results are rows that are JSON objects. They are printed as a table or as lines of JSON. With a folder they are also written
 * there as NAME.jsonl: a head that describes the measurement, its columns and its plot, then a line for each row.
 * bench/tools/store_results makes pages of such files, and bench/tools/plot draws them. Other programs add to a head: "peers",
 * the versions of what is compared, and "commit", at or before which it was measured.
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <jansson.h>
#include <stdio.h>

#include "chunkattn/base/threads.h"
#include "shared/bench_options.h"
#include "shared/limits.h"

typedef struct bench bench;

typedef struct bench_column {
    const char *key; /* of the row's object; "a.b" for b of object a */
    const char *heading;
    int digits; /* of a number, after the point; negative: a text, printed in that many columns of the terminal */
} bench_column;

/* How bench/tools/plot draws the rows: its comment has the fields. NULL, 0 and false are left out. */
typedef struct bench_plot {
    const char *kind, *x, *y, *series, *panel, *panel_label, *x_label, *y_label, *accent, *low, *high;
    double mark;
    bool log_x, log_y, from_zero;
} bench_plot;

typedef struct bench_command {
    const char *name, *about;
    const option_row *options[3]; /* lists of options besides those of every subcommand; the value of an option is static */
    bool (*prepare)(bench *b);    /* checks the options, and may write b->title; false with a message on stderr. NULL: none */
    const char *title;            /* what is measured, unless b->title says so: one sentence without its full stop */
    const bench_column *columns;  /* up to one without a key */
    const char *note;             /* below the table; NULL: none */
    const bench_plot *plot;       /* NULL: none */
    bool (*measure)(bench *b);    /* adds the rows; false with a message on stderr */
    bool in_paper;                /* `cattn-bench paper` runs it */
    bool needs_model;             /* `paper` runs it with --model only */
} bench_command;

/* A subcommand that runs. */
struct bench {
    const bench_command *command;
    option_list options;
    int64_t threads;
    const char *dir; /* folder for results as files; NULL: none */
    bool json, quick;
    char title[512];
    ca_pool *pool; /* of `threads` threads */
    const limits *limits;
    FILE *lines; /* NAME.jsonl in the folder */
};

/* Begin and end the results. False with a message on stderr if the file cannot be written. */
bool results_begin(bench *b);
bool results_end(bench *b);

/* Add a row, which is freed. */
void bench_add(bench *b, json_t *row);

/* Write "cattn-bench NAME: " and a message on stderr; returns false. */
__attribute__((format(printf, 2, 3))) bool bench_fail(const bench *b, const char *format, ...);

/* A number as a JSON value; null if it is not positive, which means that it was not measured. */
json_t *bench_number(double x);

extern const bench_command command_fig3, command_fig4, command_kernel, command_level, command_machine, command_memory,
    command_never_worse, command_prefill, command_retention, command_table1, command_table2, command_table3;

#endif
