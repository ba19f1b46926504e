/* Rows of results as a table, as lines of JSON, and as files. */
#include "results.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chunkattn/base/cpu.h"

enum { MIN_WIDTH = 8, MAX_CELL = 128, MAX_PATH = 4096 };
static const size_t dump_flags = JSON_REAL_PRECISION(6);

struct results {
    const results_spec *spec;
    const bench_common *common;
    json_t *head, *rows;
    FILE *lines; /* NULL without a folder */
};

json_t *results_number(double x) { return x > 0 ? json_real(x) : json_null(); }

/* ---- The head: all that is known before the first row ---- */

static const struct {
    const char *key, *name, *unit;
} limit_names[] = {{"read_gbs", "memory read", "GB/s"},    {"fma_gflops", "f32 FMA", "GFLOP/s"},
                   {"bf16_gflops", "bf16 dot", "GFLOP/s"}, {"tiles_gflops", "bf16 tiles", "GFLOP/s"},
                   {"int8_gops", "int8 dot", "GOP/s"},     {"int8_tiles_gops", "int8 tiles", "GOP/s"}};
enum { N_LIMITS = sizeof limit_names / sizeof *limit_names };

static json_t *columns_of(const results_spec *spec) {
    json_t *columns = json_array();
    for (int i = 0; i < spec->n_columns; i++) {
        const results_column *c = &spec->columns[i];
        json_array_append_new(columns, json_pack("[ssi]", c->key, c->heading, c->digits));
    }
    return columns;
}

static json_t *plot_of(const results_plot *p) {
    return json_pack("{ss ss ss ss* ss* ss* ss* ss* ss* ss* ss* so* so* so* so*}", "kind", p->kind, "x", p->x, "y", p->y,
                     "series", p->series, "panel", p->panel, "panel_label", p->panel_label, "x_label", p->x_label, "y_label",
                     p->y_label, "accent", p->accent, "low", p->low, "high", p->high, "mark",
                     p->mark != 0 ? json_real(p->mark) : NULL, "log_x", p->log_x ? json_true() : NULL, "log_y",
                     p->log_y ? json_true() : NULL, "from_zero", p->from_zero ? json_true() : NULL);
}

static json_t *head_of(const results_spec *spec, const bench_common *common) {
    const limits *l = common->limits;
    const double limits[N_LIMITS] = {l->read_gbs,     l->fma_gflops, l->bf16_gflops,
                                     l->tiles_gflops, l->int8_gops,  l->int8_tiles_gops};
    char date[16];
    const time_t now = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    json_t *o = json_pack("{ss ss ss ss ss ss ss si sb}", "results", spec->name, "title", spec->title, "date", date, "command",
                          common->options->command, "cpu", ca_cpu_name(), "compiler", "gcc " __VERSION__, "flags", BENCH_FLAGS,
                          "threads", l->n_threads, "quick", common->quick);
    for (int i = 0; i < N_LIMITS; i++) json_object_set_new(o, limit_names[i].key, results_number(limits[i]));
    json_object_set_new(o, "columns", columns_of(spec));
    if (spec->note) json_object_set_new(o, "note", json_string(spec->note));
    if (spec->plot) json_object_set_new(o, "plot", plot_of(spec->plot));
    return o;
}

static const char *text_in(const json_t *head, const char *key) {
    const char *text = json_string_value(json_object_get(head, key));
    return text ? text : "";
}

/* The limits that the head has, each after a separator. */
static void print_limits(const json_t *head, FILE *f) {
    for (int i = 0; i < N_LIMITS; i++) {
        const double x = json_number_value(json_object_get(head, limit_names[i].key));
        if (x > 0) fprintf(f, "; %s %.1f %s", limit_names[i].name, x, limit_names[i].unit);
    }
}

/* ---- Cells ---- */

static const json_t *find(const json_t *row, const char *key) {
    const char *dot = strchr(key, '.');
    if (!dot) return json_object_get(row, key);
    char outer[MAX_CELL];
    snprintf(outer, sizeof outer, "%.*s", (int)(dot - key), key);
    return json_object_get(json_object_get(row, outer), dot + 1);
}

static void cell_text(const results_column *column, const json_t *row, char *text, size_t size) {
    const json_t *value = find(row, column->key);
    if (json_is_string(value))
        snprintf(text, size, "%s", json_string_value(value));
    else if (json_is_number(value))
        snprintf(text, size, "%.*f", column->digits > 0 ? column->digits : 0, json_number_value(value));
    else
        snprintf(text, size, "-");
}

static results_column column_at(const json_t *columns, size_t i) {
    const json_t *c = json_array_get(columns, i);
    return (results_column){json_string_value(json_array_get(c, 0)), json_string_value(json_array_get(c, 1)),
                            (int)json_integer_value(json_array_get(c, 2))};
}

/* ---- Files ---- */

static void path_in(const char *dir, const json_t *head, const char *ending, char *path) {
    snprintf(path, MAX_PATH, "%s/%s.%s", dir, text_in(head, "results"), ending);
}

static FILE *open_file(const char *path, const json_t *head) {
    FILE *f = fopen(path, "we");
    if (!f) fprintf(stderr, "cattn-bench %s: %s: %s\n", text_in(head, "results"), path, strerror(errno));
    return f;
}

static void write_line(const json_t *object, FILE *f) {
    json_dumpf(object, f, dump_flags);
    fputc('\n', f);
    fflush(f);
}

static void write_if_known(const json_t *head, const char *key, const char *before, FILE *f) {
    if (*text_in(head, key)) fprintf(f, "%s%s", before, text_in(head, key));
}

/* Heading, what was measured where, when and with which command, and the plot if there is one. */
static void write_top(const json_t *head, FILE *f) {
    fprintf(f, "# %s\n\n%s.\n\n", text_in(head, "results"), text_in(head, "title"));
    fprintf(f, "%s, %d threads", text_in(head, "cpu"), (int)json_integer_value(json_object_get(head, "threads")));
    print_limits(head, f);
    fprintf(f, "; %s, `%s`", text_in(head, "compiler"), text_in(head, "flags"));
    write_if_known(head, "peers", "; peers: ", f);
    fprintf(f, ". Measured on %s", text_in(head, "date"));
    write_if_known(head, "commit", " at or before commit ", f);
    fprintf(f, " with\n\n    %s\n\n", text_in(head, "command"));
    if (json_is_true(json_object_get(head, "quick"))) fputs("The shapes are tiny (--quick): the figures mean nothing.\n\n", f);
    if (json_object_get(head, "plot")) fprintf(f, "![%s](%s.svg)\n\n", text_in(head, "title"), text_in(head, "results"));
}

static void write_table(const json_t *head, const json_t *rows, FILE *f) {
    const json_t *columns = json_object_get(head, "columns"), *row;
    const size_t n = json_array_size(columns);
    size_t r;
    for (size_t i = 0; i < n; i++) fprintf(f, "| %s ", column_at(columns, i).heading);
    fputs("|\n", f);
    for (size_t i = 0; i < n; i++) fputs(column_at(columns, i).digits < 0 ? "|---" : "|--:", f);
    fputs("|\n", f);
    json_array_foreach(rows, r, row) {
        for (size_t i = 0; i < n; i++) {
            const results_column column = column_at(columns, i);
            char text[MAX_CELL];
            cell_text(&column, row, text, sizeof text);
            fprintf(f, "| %s ", text);
        }
        fputs("|\n", f);
    }
    if (*text_in(head, "note")) fprintf(f, "\n%s", text_in(head, "note"));
}

bool results_write_page(const json_t *head, const json_t *rows, const char *dir) {
    char path[MAX_PATH];
    path_in(dir, head, "md", path);
    FILE *f = open_file(path, head);
    if (!f) return false;
    write_top(head, f);
    write_table(head, rows, f);
    bool ok = !ferror(f);
    ok = fclose(f) == 0 && ok;
    if (!ok) fprintf(stderr, "cattn-bench %s: %s could not be written\n", text_in(head, "results"), path);
    return ok;
}

/* ---- Rows ---- */

static void print_cell(const results_column *column, const char *text) {
    if (column->digits < 0)
        printf("%-*s  ", -column->digits, text);
    else
        printf("%*s  ", (int)strlen(column->heading) > MIN_WIDTH ? (int)strlen(column->heading) : MIN_WIDTH, text);
}

static void print_top(const results *r) {
    printf("%s, %d threads", ca_cpu_name(), r->common->limits->n_threads);
    print_limits(r->head, stdout);
    printf("; gcc %s, %s\n\n%s\n\n", __VERSION__, BENCH_FLAGS, r->spec->title);
    for (int i = 0; i < r->spec->n_columns; i++) print_cell(&r->spec->columns[i], r->spec->columns[i].heading);
    putchar('\n');
}

static void free_results(results *r) {
    if (r->lines) fclose(r->lines);
    json_decref(r->rows);
    json_decref(r->head);
    free(r);
}

/* An object with its numbers rounded as in the lines of JSON, so that the page is the same when they are read again; frees it.
 */
static json_t *rounded(json_t *object) {
    char *text = json_dumps(object, dump_flags);
    json_t *same = text ? json_loads(text, 0, NULL) : NULL;
    free(text);
    json_decref(object);
    return same;
}

results *results_open(const results_spec *spec, const bench_common *common) {
    results *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    *r = (results){.spec = spec, .common = common, .rows = json_array(), .head = rounded(head_of(spec, common))};
    if (common->dir) {
        char path[MAX_PATH];
        path_in(common->dir, r->head, "jsonl", path);
        r->lines = open_file(path, r->head);
        if (!r->lines) {
            free_results(r);
            return NULL;
        }
        write_line(r->head, r->lines);
    }
    if (common->json)
        write_line(r->head, stdout);
    else
        print_top(r);
    return r;
}

void results_add(results *r, json_t *row) {
    row = rounded(row);
    if (r->lines) write_line(row, r->lines);
    if (r->common->json) write_line(row, stdout);
    for (int i = 0; !r->common->json && i < r->spec->n_columns; i++) {
        char text[MAX_CELL];
        cell_text(&r->spec->columns[i], row, text, sizeof text);
        print_cell(&r->spec->columns[i], text);
    }
    if (!r->common->json) putchar('\n');
    fflush(stdout);
    json_array_append_new(r->rows, row);
}

bool results_close(results *r) {
    bool ok = true;
    if (!r->common->json) printf("%s%s\n", r->spec->note ? "\n" : "", r->spec->note ? r->spec->note : "");
    if (r->lines) {
        ok = results_write_page(r->head, r->rows, r->common->dir);
        if (fflush(r->lines) != 0 || ferror(r->lines)) {
            fprintf(stderr, "cattn-bench %s: the lines of JSON could not be written to %s\n", r->spec->name, r->common->dir);
            ok = false;
        }
    }
    free_results(r);
    return ok;
}
