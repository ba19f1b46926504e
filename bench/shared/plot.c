/* Plots of result rows, drawn by gnuplot. */
#include "plot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_VALUES = 64, MAX_TEXT = 96, MAX_PATH = 4096 };

/* Distinct values of a key among the rows that are drawn, in their order. */
typedef struct values {
    char text[MAX_VALUES][MAX_TEXT];
    int n;
} values;

static void text_of(const json_t *row, const char *key, char *text) {
    const json_t *value = key ? json_object_get(row, key) : NULL;
    if (json_is_string(value))
        snprintf(text, MAX_TEXT, "%s", json_string_value(value));
    else if (json_is_number(value))
        snprintf(text, MAX_TEXT, "%g", json_number_value(value));
    else
        *text = 0;
}

static void collect(const plot *p, const json_t *rows, const char *key, values *v) {
    size_t i;
    const json_t *row;
    v->n = 0;
    json_array_foreach(rows, i, row) {
        char text[MAX_TEXT];
        int k = 0;
        if (!json_is_number(json_object_get(row, p->y))) continue;
        text_of(row, key, text);
        while (k < v->n && strcmp(v->text[k], text) != 0) k++;
        if (k == v->n && v->n < MAX_VALUES) memcpy(v->text[v->n++], text, sizeof text);
    }
}

/* Whether a row is a point of a series in a panel. */
static bool is_point(const plot *p, const json_t *row, const char *panel, const char *series) {
    char in_panel[MAX_TEXT], in_series[MAX_TEXT];
    text_of(row, p->panel, in_panel);
    text_of(row, p->series, in_series);
    return strcmp(in_panel, panel) == 0 && strcmp(in_series, series) == 0 && json_is_number(json_object_get(row, p->y));
}

static bool has_points(const plot *p, const json_t *rows, const char *panel, const char *series) {
    size_t i;
    const json_t *row;
    json_array_foreach(rows, i, row) if (is_point(p, row, panel, series)) return true;
    return false;
}

/* The points of one series in one panel, as the data block $d<panel>_<series>. */
static void write_data(FILE *f, const plot *p, const json_t *rows, const values *panels, int panel, const values *series,
                       int s) {
    size_t i;
    const json_t *row;
    fprintf(f, "$d%d_%d << EOD\n", panel, s);
    json_array_foreach(rows, i, row) {
        char x[MAX_TEXT];
        if (!is_point(p, row, panels->text[panel], series->text[s])) continue;
        text_of(row, p->x, x);
        fprintf(f, p->kind == PLOT_BARS ? "\"%s\" %g\n" : "%s %g\n", x, json_number_value(json_object_get(row, p->y)));
    }
    fputs("EOD\n", f);
}

static void write_panel(FILE *f, const plot *p, const json_t *rows, const values *panels, int panel, const values *series) {
    if (p->panel) fprintf(f, "set title \"%s %s\"\n", p->panel, panels->text[panel]);
    const char *separator = "plot ";
    for (int s = 0; s < series->n; s++) {
        if (!has_points(p, rows, panels->text[panel], series->text[s])) continue;
        fprintf(f, "%s$d%d_%d using %s title \"%s\" noenhanced", separator, panel, s,
                p->kind == PLOT_BARS ? "2:xtic(1)" : "1:2", series->text[s]);
        separator = ", ";
    }
    fputc('\n', f);
}

/* Of series in their order: of methods the last, chunk, is to stand out. */
static const char *const colours[] = {"#8c8c8c", "#4c9f70", "#3b7dd8", "#e08214", "#b2182b"};

static void write_script(FILE *f, const plot *p, const json_t *rows, const char *name) {
    values panels, series;
    collect(p, rows, p->panel, &panels);
    collect(p, rows, p->series, &series);
    const int width = p->kind == PLOT_BARS ? 1200 : 640;
    fprintf(f, "# gnuplot %s.gp makes %s.svg\n", name, name);
    for (int i = 0; i < panels.n; i++)
        for (int s = 0; s < series.n; s++) write_data(f, p, rows, &panels, i, &series, s);
    fprintf(f, "set terminal svg size %d,%d background \"white\" font \"sans,12\"\nset output \"%s.svg\"\n",
            p->kind == PLOT_BARS ? width : width * panels.n, p->kind == PLOT_BARS ? 420 * panels.n : 420, name);
    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
        fprintf(f, "set linetype %zu lc rgb \"%s\" lw 2\n", i + 1, colours[i]);
    fprintf(f, "set xlabel \"%s\"\nset ylabel \"%s\"\nset grid\nset key above horizontal\nset yrange [%s:]\n", p->x_label,
            p->y_label, p->log_y ? "*" : "0");
    if (p->log_x) fputs("set logscale x 2\n", f);
    if (p->log_y) fputs("set logscale y 10\n", f);
    if (p->kind == PLOT_BARS)
        fputs("set style data histogram\nset style fill solid\nset xtics rotate by -40 noenhanced\n", f);
    else
        fputs("set style data linespoints\n", f);
    fprintf(f, "set multiplot layout %d,%d\n", p->kind == PLOT_BARS ? panels.n : 1, p->kind == PLOT_BARS ? 1 : panels.n);
    for (int i = 0; i < panels.n; i++) write_panel(f, p, rows, &panels, i, &series);
    fputs("unset multiplot\n", f);
}

static void draw(const char *dir, const char *name) {
    char script[MAX_TEXT];
    snprintf(script, sizeof script, "%s.gp", name);
    const pid_t child = fork();
    if (child == 0) {
        if (chdir(dir) == 0) execlp("gnuplot", "gnuplot", script, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    if (child > 0) waitpid(child, &status, 0);
    if (status != 0)
        fprintf(stderr, "cattn-bench: %s/%s.svg was not drawn: gnuplot %s; %s draws it\n", dir, name,
                WIFEXITED(status) && WEXITSTATUS(status) == 127 ? "is not installed (package gnuplot-nox)" : "failed", script);
}

bool plot_write(const plot *p, const json_t *rows, const char *dir, const char *name) {
    char path[MAX_PATH];
    snprintf(path, sizeof path, "%s/%s.gp", dir, name);
    FILE *f = fopen(path, "we");
    if (f) write_script(f, p, rows, name);
    if (!f || fclose(f) != 0) {
        fprintf(stderr, "cattn-bench %s: %s: %s\n", name, path, strerror(errno));
        return false;
    }
    draw(dir, name);
    return true;
}
