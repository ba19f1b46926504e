/* Plots of result rows, drawn by gnuplot. */
#ifndef BENCH_SHARED_PLOT_H
#define BENCH_SHARED_PLOT_H

#include <jansson.h>
#include <stdbool.h>

typedef enum plot_kind { PLOT_LINES, PLOT_BARS } plot_kind;

/* Keys are of the rows; rows without a number at y are left out. */
typedef struct plot {
    plot_kind kind;
    const char *x, *y;  /* with PLOT_BARS x is a label, and all series have the same ones */
    const char *series; /* a line or a colour for each value; NULL: one */
    const char *panel;  /* a plot beside the others for each value; NULL: one plot */
    const char *x_label, *y_label;
    bool log_x, log_y;
} plot;

/*
 * Write DIR/NAME.gp, data included, and have gnuplot make DIR/NAME.svg of it; where gnuplot is not installed say so on stderr.
 * False with a message on stderr if a file could not be written.
 */
bool plot_write(const plot *plot, const json_t *rows, const char *dir, const char *name);

#endif
