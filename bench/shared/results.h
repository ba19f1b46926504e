/*
 * The results of a subcommand, as rows that are JSON objects.
 *
 * They are printed as a table or as lines of JSON. With a folder they are also written there: NAME.jsonl (a head that describes
 * the measurement, its columns and its plot, then a line for each row) and NAME.md (a page with the table). The page is made
 * from NAME.jsonl alone, so `cattn-bench render` can make it again; bench/tools/plot draws NAME.svg, which the page shows.
 * Other programs add to a head: "peers", the versions of what is compared, and "commit", at or before which it was measured.
 */
#ifndef BENCH_SHARED_RESULTS_H
#define BENCH_SHARED_RESULTS_H

#include <jansson.h>
#include <stdbool.h>

#include "bench_options.h"

typedef struct results_column {
    const char *key; /* of the row's object; "a.b" for b of object a */
    const char *heading;
    int digits; /* of a number, after the point; negative: a text, printed in that many columns of the terminal */
} results_column;

/* How bench/tools/plot draws the rows: its comment has the fields. NULL, 0 and false are left out. */
typedef struct results_plot {
    const char *kind, *x, *y, *series, *panel, *panel_label, *x_label, *y_label, *accent, *low, *high;
    double mark;
    bool log_x, log_y, from_zero;
} results_plot;

typedef struct results_spec {
    const char *name;  /* of the files and of the subcommand */
    const char *title; /* what was measured: one sentence without its full stop */
    const results_column *columns;
    int n_columns;
    const char *note;         /* below the table; NULL: none */
    const results_plot *plot; /* NULL: none */
} results_spec;

typedef struct results results;

/* spec and common are borrowed until results_close. NULL with a message on stderr. */
results *results_open(const results_spec *spec, const bench_common *common);

/* Add a row; the results own it from then on. */
void results_add(results *r, json_t *row);

/* Finish the files. False with a message on stderr if one could not be written. */
bool results_close(results *r);

/* Write DIR/NAME.md. False with a message on stderr if it could not be written. */
bool results_write_page(const json_t *head, const json_t *rows, const char *dir);

/* A number as a JSON value; null if it is not positive, which means that it was not measured. */
json_t *results_number(double x);

#endif
