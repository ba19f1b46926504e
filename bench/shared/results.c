/* Rows of results as a table, as lines of JSON, and as files. */
#include "results.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"

enum { MIN_WIDTH = 8, MAX_CELL = 128, MAX_PATH = 4096 };
static const size_t dump_flags = JSON_REAL_PRECISION(6);

struct results {
    const results_spec *spec;
    const bench_common *common;
    json_t *rows;
    FILE *lines, *markdown; /* NULL without a folder */
};

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double results_median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, ascending);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

json_t *results_number(double x) { return x > 0 ? json_real(x) : json_null(); }

/* ---- The machine ---- */

static json_t *machine(const results *r) {
    const limits *l = r->common->limits;
    json_t *o =
        json_pack("{ss ss ss ss ss si sb}", "results", r->spec->name, "title", r->spec->title, "cpu", ca_cpu_name(), "compiler",
                  "gcc " __VERSION__, "flags", BENCH_FLAGS, "threads", l->n_threads, "quick", r->common->quick);
    json_object_set_new(o, "read_gbs", results_number(l->read_gbs));
    json_object_set_new(o, "fma_gflops", results_number(l->fma_gflops));
    json_object_set_new(o, "bf16_gflops", results_number(l->bf16_gflops));
    json_object_set_new(o, "tiles_gflops", results_number(l->tiles_gflops));
    json_object_set_new(o, "int8_gops", results_number(l->int8_gops));
    json_object_set_new(o, "int8_tiles_gops", results_number(l->int8_tiles_gops));
    return o;
}

static void print_limit(FILE *f, const char *name, double x, const char *unit) {
    if (x > 0) fprintf(f, ", %s %.1f %s", name, x, unit);
}

static void print_machine(const results *r, FILE *f) {
    const limits *l = r->common->limits;
    fprintf(f, "%s, gcc %s, %s\n%d threads", ca_cpu_name(), __VERSION__, BENCH_FLAGS, l->n_threads);
    print_limit(f, "memory read", l->read_gbs, "GB/s");
    print_limit(f, "f32 FMA", l->fma_gflops, "GFLOP/s");
    print_limit(f, "bf16 dot", l->bf16_gflops, "GFLOP/s");
    print_limit(f, "bf16 tiles", l->tiles_gflops, "GFLOP/s");
    print_limit(f, "int8 dot", l->int8_gops, "GOP/s");
    print_limit(f, "int8 tiles", l->int8_tiles_gops, "GOP/s");
    fprintf(f, "\n\n%s\n\n", r->spec->title);
}

/* ---- The table ---- */

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
    else if (json_is_integer(value))
        snprintf(text, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, size, "%.*f", column->digits, json_real_value(value));
    else
        snprintf(text, size, "-");
}

static void print_cell(const results_column *column, const char *text) {
    if (column->digits < 0)
        printf("%-*s  ", -column->digits, text);
    else
        printf("%*s  ", (int)strlen(column->heading) > MIN_WIDTH ? (int)strlen(column->heading) : MIN_WIDTH, text);
}

static void print_headings(const results *r) {
    for (int i = 0; i < r->spec->n_columns; i++) print_cell(&r->spec->columns[i], r->spec->columns[i].heading);
    putchar('\n');
}

static void write_markdown_headings(const results *r) {
    fprintf(r->markdown, "## %s\n\n", r->spec->name);
    print_machine(r, r->markdown);
    for (int i = 0; i < r->spec->n_columns; i++) fprintf(r->markdown, "| %s ", r->spec->columns[i].heading);
    fputs("|\n", r->markdown);
    for (int i = 0; i < r->spec->n_columns; i++) fputs(r->spec->columns[i].digits < 0 ? "|---" : "|--:", r->markdown);
    fputs("|\n", r->markdown);
}

/* ---- Rows ---- */

static FILE *open_file(const results *r, const char *ending) {
    char path[MAX_PATH];
    snprintf(path, sizeof path, "%s/%s.%s", r->common->dir, r->spec->name, ending);
    FILE *f = fopen(path, "we");
    if (!f) fprintf(stderr, "cattn-bench %s: %s: %s\n", r->spec->name, path, strerror(errno));
    return f;
}

static void write_line(const json_t *object, FILE *f) {
    json_dumpf(object, f, dump_flags);
    fputc('\n', f);
    fflush(f);
}

static void free_results(results *r) {
    if (r->lines) fclose(r->lines);
    if (r->markdown) fclose(r->markdown);
    json_decref(r->rows);
    free(r);
}

results *results_open(const results_spec *spec, const bench_common *common) {
    results *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    *r = (results){.spec = spec, .common = common, .rows = json_array()};
    if (common->dir) {
        r->lines = open_file(r, "jsonl");
        r->markdown = r->lines ? open_file(r, "md") : NULL;
        if (!r->markdown) {
            free_results(r);
            return NULL;
        }
    }
    json_t *first = machine(r);
    if (r->lines) {
        write_line(first, r->lines);
        write_markdown_headings(r);
    }
    if (common->json) {
        write_line(first, stdout);
    } else {
        print_machine(r, stdout);
        print_headings(r);
    }
    json_decref(first);
    return r;
}

void results_add(results *r, json_t *row) {
    if (r->lines) write_line(row, r->lines);
    if (r->common->json) write_line(row, stdout);
    for (int i = 0; i < r->spec->n_columns; i++) {
        char text[MAX_CELL];
        cell_text(&r->spec->columns[i], row, text, sizeof text);
        if (!r->common->json) print_cell(&r->spec->columns[i], text);
        if (r->markdown) fprintf(r->markdown, "| %s ", text);
    }
    if (!r->common->json) putchar('\n');
    if (r->markdown) fputs("|\n", r->markdown);
    fflush(stdout);
    json_array_append_new(r->rows, row);
}

const json_t *results_rows(const results *r) { return r->rows; }

bool results_close(results *r) {
    bool ok = true;
    if (!r->common->json) printf("%s%s%s", r->spec->note ? "\n" : "", r->spec->note ? r->spec->note : "", "\n");
    if (r->markdown) {
        if (r->spec->note) fprintf(r->markdown, "\n%s", r->spec->note);
        if (r->spec->plot) fprintf(r->markdown, "\n![%s](%s.svg)\n", r->spec->name, r->spec->name);
        if (r->spec->plot) ok = plot_write(r->spec->plot, r->rows, r->common->dir, r->spec->name);
        if (fflush(r->markdown) != 0 || fflush(r->lines) != 0 || ferror(r->markdown) || ferror(r->lines)) {
            fprintf(stderr, "cattn-bench %s: the results could not be written to %s\n", r->spec->name, r->common->dir);
            ok = false;
        }
    }
    free_results(r);
    return ok;
}
