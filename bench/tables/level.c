/*
 * `cattn-bench level`: what each kernel level makes of this CPU, beside what this project aims at.
 *
 * A row is one figure of a decode step over one layer: a part of a limit of the machine, or how many times faster one method is
 * than another. What a figure compares is timed in the same rounds.
 */
#include <string.h>

#include "bench/methods/compare.h"

static const option_row options[] = {
    {"level", OPTION_TEXT, &compare_given.level, 0, 0, "this level alone; without it, each of the CPU's but ref", 0},
    {"steps", OPTION_INT, &compare_given.steps, 0, COMPARE_MAX_STEPS, "steps of each; medians are reported; 0: 15", 0},
    {0}};

typedef enum figure { NONE, OF_PEAK, OF_READ, FASTER } figure;

/* Of a method, the figure that this project aims at. */
typedef struct bar {
    figure figure;
    double least;
    method_id method, other; /* other: of FASTER */
} bar;

#define INT8_GAINS                                                                                                             \
    { FASTER, 1 / 0.9, METHOD_CHUNK_INT8, METHOD_CHUNK }

static const bar shared_32[] = {{OF_PEAK, 0.82, METHOD_CHUNK, 0},
                                {FASTER, 3.9, METHOD_CHUNK, METHOD_PAGED},
                                {FASTER, 3.3, METHOD_CHUNK, METHOD_PAGED_SHARED},
                                INT8_GAINS,
                                {0}};
static const bar shared_96[] = {{OF_PEAK, 0.82, METHOD_CHUNK, 0}, INT8_GAINS, {0}};
static const bar private_16[] = {{OF_READ, 0.90, METHOD_CHUNK, 0},
                                 INT8_GAINS,
                                 {FASTER, 1 / 2.0, METHOD_PAGES16, METHOD_CHUNK},
                                 {FASTER, 1 / 1.3, METHOD_PAGES64, METHOD_CHUNK},
                                 {0}};
static const bar groups_of_256[] = {{OF_PEAK, 0.78, METHOD_CHUNK, 0}, INT8_GAINS, {0}};
static const bar groups_of_64[] = {{OF_PEAK, 0.72, METHOD_CHUNK, 0}, INT8_GAINS, {0}};

/* Sequences with the first `shared` tokens in common, and `own` more each. */
typedef struct work {
    int32_t batch;
    int64_t shared, own;
    int32_t heads, kv_heads, head_dim;
    const bar *bars; /* up to one without a figure */
} work;

static const work works[] = {
    {32, 4096, 0, 32, 32, 128, shared_32},    {96, 4096, 0, 32, 32, 128, shared_96},
    {16, 0, 4096, 32, 32, 128, private_16},   {28, 1500, 700, 16, 2, 256, groups_of_256},
    {48, 1024, 776, 14, 2, 64, groups_of_64},
};
enum { N_WORKS = sizeof works / sizeof *works };

/* ---- Figures ---- */

/* The place of a method in a comparison that has it. */
static int place_of(const comparison *c, method_id id) {
    int i = 0;
    while (c->of[i] != id) i++;
    return i;
}

static double value_of(const comparison *c, const bar *bar) {
    const int i = place_of(c, bar->method);
    if (bar->figure == OF_PEAK) return compare_peak_fraction(c, i);
    if (bar->figure == OF_READ) return compare_read_fraction(c, i);
    return compare_speedup(c, i, place_of(c, bar->other));
}

static void write_figure(const bar *bar, char *text, size_t size) {
    if (bar->figure == FASTER)
        snprintf(text, size, "times faster than %s", method_name(bar->other));
    else
        snprintf(text, size, "part of the %s", bar->figure == OF_PEAK ? "peak" : "read bandwidth");
}

static void add_rows(bench *b, const work *w, const comparison *c, const char *level) {
    char what[80], figure[64];
    snprintf(what, sizeof what, "%d x (%d shared + %d), heads %d/%d of %d", w->batch, (int)w->shared, (int)w->own, w->heads,
             w->kv_heads, w->head_dim);
    for (const bar *bar = w->bars; bar->figure; bar++) {
        write_figure(bar, figure, sizeof figure);
        json_t *row = compare_row(b, c, place_of(c, bar->method));
        json_object_update_new(row, json_pack("{ss ss ss sf sf}", "level", level, "work", what, "figure", figure, "value",
                                              value_of(c, bar), "least", bar->least));
        bench_add(b, row);
    }
}

/* ---- Runs ---- */

static void add_method(method_id id) {
    for (int i = 0; i < compare_given.n_methods; i++)
        if (compare_given.methods[i] == id) return;
    compare_given.methods[compare_given.n_methods++] = id;
}

static void choose_methods(const bar *bars) {
    compare_given.n_methods = 0;
    for (const bar *bar = bars; bar->figure; bar++) {
        add_method(bar->method);
        if (bar->figure == FASTER) add_method(bar->other);
    }
}

static bool run_level(bench *b, const char *level) {
    static comparison c;
    compare_given.level = level;
    for (const work *w = works; w < works + N_WORKS; w++) {
        shape s = {.heads = w->heads, .kv_heads = w->kv_heads, .head_dim = w->head_dim, .chunk = 64, .batch = w->batch};
        if (b->quick) s.heads = w->heads / w->kv_heads, s.kv_heads = 1;
        s.shared = compare_length(b, w->shared);
        s.prefix = s.shared + compare_length(b, w->own);
        choose_methods(w->bars);
        if (!compare_run(b, &s, &c)) return false;
        add_rows(b, w, &c, level);
    }
    return true;
}

static bool measure(bench *b) {
    if (compare_given.level) return run_level(b, compare_given.level);
    bool ok = true;
    const char *level;
    for (int32_t i = 1; ok && (level = cattn_level_name(i)); i++) ok = run_level(b, level); /* 0 is ref */
    return ok;
}

const bench_command command_level = {
    .name = "level",
    .about = "what each kernel level makes of this CPU, beside what this project aims at",
    .options = {options},
    .prepare = compare_prepare,
    .title = "Decode steps of one layer by kernel level, bf16 K/V but in chunk_int8, chunks of 64: figures and least aims",
    .columns = (const bench_column[]){{"level", "level", -12},
                                      {"work", "work", -46},
                                      {"method", "method", -11},
                                      {"figure", "figure", -42},
                                      {"value", "value", 2},
                                      {"least", "aim, least", 2},
                                      {"step_us", "step us", 1},
                                      {0}},
    .note = "int8 K/V aim at 0.9 of the time of bf16. Pages: in an engine's own layout, 16 tokens in vLLM's or 64 by head.\n",
    .plot = &(
        const bench_plot){.kind = "dots", .x = "work", .y = "value", .series = "level", .panel = "figure", .y_label = "value"},
    .measure = measure,
};
