/* Plots of result rows as SVG files that are readable on a light and on a dark page. */
#ifndef BENCH_PLOT_PLOT_H
#define BENCH_PLOT_PLOT_H

#include <jansson.h>
#include <stdbool.h>

/* Lines over x, points over x, horizontal bars with their values, or dots of several series in one line for each label. */
typedef enum plot_kind { PLOT_LINES, PLOT_POINTS, PLOT_BARS, PLOT_DOTS } plot_kind;

/* What to draw. The keys are those of the rows, and a row without a number at y is left out. */
typedef struct plot {
    plot_kind kind;
    const char *x, *y;       /* keys; of bars and dots, x is the label and y runs from left to right */
    const char *series;      /* key; each value is a line or a colour. NULL: there is one series */
    const char *panel;       /* key; each value is a plot of its own. NULL: there is one plot */
    const char *panel_label; /* text before the panel's value in its title */
    const char *x_label;     /* NULL: the panel's value stands there */
    const char *y_label;
    const char *accent;           /* the series to stand out; NULL: the first */
    const char *limit;            /* key of a y value that is drawn as a dashed line; NULL: none */
    const char *low, *high;       /* keys of the ends of an interval around a dot; NULL: none */
    double mark;                  /* y of a dashed line across the plot; 0: none */
    bool log_x, log_y, from_zero; /* from_zero: a linear y axis begins at 0 */
} plot;

/* A plot as a JSON object, and back; the texts of a plot that was read belong to the object. */
json_t *plot_to_json(const plot *plot);
bool plot_from_json(const json_t *object, plot *plot);

/* Write the plot of rows to the file; title is for readers that cannot see it. False if the file could not be written. */
bool plot_write(const plot *plot, const json_t *rows, const char *title, const char *path);

#endif
