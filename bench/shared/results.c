/* Rows of results as a table, as lines of JSON, and as a file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/bench.h"
#include "chunkattn/base/cpu.h"

enum { MIN_WIDTH = 8, MAX_CELL = 128, MAX_PATH = 4096 };

json_t *bench_number(double x) { return x > 0 ? json_real(x) : json_null(); }

/* ---- The head: all that is known before the first row ---- */

static const char *title_of(const bench *b) { return *b->title ? b->title : b->command->title; }

static json_t *columns_of(const bench_column *columns) {
    json_t *list = json_array();
    for (const bench_column *c = columns; c->key; c++)
        json_array_append_new(list, json_pack("[ssi]", c->key, c->heading, c->digits));
    return list;
}

static json_t *plot_of(const bench_plot *p) {
    return json_pack("{ss ss ss ss* ss* ss* ss* ss* ss* ss* ss* so* so* so* so*}", "kind", p->kind, "x", p->x, "y", p->y,
                     "series", p->series, "panel", p->panel, "panel_label", p->panel_label, "x_label", p->x_label, "y_label",
                     p->y_label, "accent", p->accent, "low", p->low, "high", p->high, "mark",
                     p->mark != 0 ? json_real(p->mark) : NULL, "log_x", p->log_x ? json_true() : NULL, "log_y",
                     p->log_y ? json_true() : NULL, "from_zero", p->from_zero ? json_true() : NULL);
}

static json_t *head_of(const bench *b) {
    const bench_command *c = b->command;
    char date[16];
    const time_t now = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    json_t *o = json_pack("{ss ss ss ss ss ss ss si sb}", "results", c->name, "title", title_of(b), "date", date, "command",
                          b->options.command, "cpu", ca_cpu_name(), "compiler", "gcc " __VERSION__, "flags", BENCH_FLAGS,
                          "threads", b->limits->n_threads, "quick", b->quick);
    for (limit i = 0; i < N_LIMITS; i++)
        if (limit_kinds[i].key) json_object_set_new(o, limit_kinds[i].key, bench_number(b->limits->of[i]));
    json_object_set_new(o, "columns", columns_of(c->columns));
    if (c->note) json_object_set_new(o, "note", json_string(c->note));
    if (c->plot) json_object_set_new(o, "plot", plot_of(c->plot));
    return o;
}

/* ---- The table ---- */

static void print_cell(const bench_column *column, const char *text) {
    if (column->digits < 0)
        printf("%-*s  ", -column->digits, text);
    else
        printf("%*s  ", (int)strlen(column->heading) > MIN_WIDTH ? (int)strlen(column->heading) : MIN_WIDTH, text);
}

static void print_top(const bench *b) {
    printf("%s, %d threads", ca_cpu_name(), b->limits->n_threads);
    for (limit i = 0; i < N_LIMITS; i++)
        if (limit_kinds[i].key && b->limits->of[i] > 0)
            printf("; %s %.1f %s", limit_kinds[i].name, b->limits->of[i], limit_kinds[i].unit);
    printf("; gcc %s, %s\n\n%s\n\n", __VERSION__, BENCH_FLAGS, title_of(b));
    for (const bench_column *c = b->command->columns; c->key; c++) print_cell(c, c->heading);
    putchar('\n');
}

static const json_t *find(const json_t *row, const char *key) {
    const char *dot = strchr(key, '.');
    return dot ? json_object_get(json_object_getn(row, key, (size_t)(dot - key)), dot + 1) : json_object_get(row, key);
}

static void print_row(const bench *b, const json_t *row) {
    for (const bench_column *c = b->command->columns; c->key; c++) {
        const json_t *value = find(row, c->key);
        char text[MAX_CELL] = "-";
        if (json_is_string(value)) snprintf(text, sizeof text, "%s", json_string_value(value));
        if (json_is_number(value)) snprintf(text, sizeof text, "%.*f", c->digits > 0 ? c->digits : 0, json_number_value(value));
        print_cell(c, text);
    }
    putchar('\n');
}

/* ---- Lines of JSON ---- */

static void write_line(const json_t *object, FILE *f) {
    json_dumpf(object, f, JSON_REAL_PRECISION(6));
    fputc('\n', f);
    fflush(f);
}

/* Write a head or row to where its line belongs; frees it. */
static void write_lines(const bench *b, json_t *object) {
    if (b->lines) write_line(object, b->lines);
    if (b->json) write_line(object, stdout);
    json_decref(object);
}

bool results_begin(bench *b) {
    char path[MAX_PATH];
    snprintf(path, sizeof path, "%s/%s.jsonl", b->dir ? b->dir : "", b->command->name);
    if (b->dir && !(b->lines = fopen(path, "we"))) return bench_fail(b, "%s: %s", path, strerror(errno));
    if (!b->json) print_top(b);
    write_lines(b, head_of(b));
    return true;
}

void bench_add(bench *b, json_t *row) {
    if (!b->json) print_row(b, row);
    fflush(stdout);
    write_lines(b, row);
}

bool results_end(bench *b) {
    if (!b->json && b->command->note) printf("\n%s", b->command->note);
    if (!b->lines) return true;
    const bool failed = ferror(b->lines);
    if (fclose(b->lines) == 0 && !failed) return true;
    return bench_fail(b, "the lines of JSON could not be written to %s", b->dir);
}
