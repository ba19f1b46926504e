/*
 * What a subcommand found, as rows that are JSON objects. They are printed as a table, or as they are; with a folder they are
 * also written there: NAME.jsonl (a line with the machine, then a line a row), NAME.md (the table) and NAME.gp and NAME.svg
 * (a plot, where gnuplot is installed).
 */
#ifndef BENCH_SHARED_RESULTS_H
#define BENCH_SHARED_RESULTS_H

#include <jansson.h>

#include "options.h"
#include "plot.h"

typedef struct results_column {
    const char *key; /* of the row's object; "a.b" for b of object a */
    const char *heading;
    int digits; /* of a number, behind the point; < 0: text, so many characters wide */
} results_column;

typedef struct results_spec {
    const char *name;  /* of the files, and of the subcommand */
    const char *title; /* what was measured, in a line or two */
    const results_column *columns;
    int n_columns;
    const char *note; /* below the table; NULL: none */
    const plot *plot; /* NULL: none */
} results_spec;

typedef struct results results;

/* spec and common are borrowed until results_close. NULL with a message on stderr. */
results *results_open(const results_spec *spec, const bench_common *common);

/* Takes the row. */
void results_add(results *r, json_t *row);

/* Number of rows so far that the caller may look at: results_rows(r)[i]. Borrowed. */
const json_t *results_rows(const results *r);

/* Finish the files. False with a message on stderr if something could not be written. */
bool results_close(results *r);

/* Median of x [n], n >= 1; sorts x. */
double results_median(double *x, int n);

/* A number as a JSON value; null where it is not positive: not measured here. */
json_t *results_number(double x);

#endif
