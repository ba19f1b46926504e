/*
 * `cattn-bench plan`: what a step costs beside its arithmetic: join and leave, opening and closing a step, and the plan.
 *
 * Nothing is computed, since neither tree nor plan look at K and V. The cache has few heads and many tokens. Every figure is
 * measured warm, one call after the other, and cold, with the CPU's caches emptied before each call, as the layers of a model
 * do between two steps.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/methods/library_internals.h"
#include "bench/shared/results.h"
#include "bench/shared/statistics.h"
#include "chunkattn/base/clock.h"
#include "chunkattn/base/cpu.h"

enum { CHUNK = 64, MAX_SEQS = 4096, MAX_SAMPLES = 512 };

typedef struct samples {
    double us[MAX_SAMPLES];
    int n;
} samples;

typedef struct world {
    cattn_cache *cache;
    int64_t length, shared; /* tokens of a sequence, and the leading ones that all of a root share */
    int32_t n_seqs, n_roots;
    cattn_seq seqs[MAX_SEQS];
    cattn_entry entries[MAX_SEQS];
    ca_plan_entry plan_entries[MAX_SEQS];
    int32_t *tokens; /* of one sequence */
    int32_t n_tails; /* so far; no two sequences have tokens in common after the shared ones */
} world;

typedef struct bench {
    bench_common common;
    results *results;
    world w;
    char *trash;
    size_t trash_bytes;
    bool cold;
    int64_t steps;
    samples a, b;
} bench;

static bench the;

static void check(cattn_status status, const cattn_error *error) {
    if (status == CATTN_OK) return;
    fprintf(stderr, "cattn-bench plan: %s\n", error->message);
    exit(1);
}

/* ---- Measuring ---- */

static void drive_out(bench *b) {
    if (!b->cold) return;
    for (size_t i = 0; i < b->trash_bytes; i += 64) ((volatile char *)b->trash)[i]++;
}

static void add(samples *s, double start) {
    const double us = (clock_seconds() - start) * 1e6;
    if (s->n < MAX_SAMPLES) s->us[s->n++] = us;
}

/* A point of the plot. */
typedef struct point {
    const char *curve;
    int32_t x;
} point;

static void add_row(bench *b, const char *call, const char *tree, samples *s, const point *p) {
    const double median = statistics_median(s->us, s->n);
    json_t *row = json_pack("{ss ss ss sf sf si}", "call", call, "tree", tree, "caches", b->cold ? "cold" : "warm", "least_us",
                            s->us[0], "median_us", median, "samples", s->n);
    if (p) {
        json_object_set_new(row, "curve", json_string(p->curve));
        json_object_set_new(row, "x", json_integer(p->x));
        json_object_set_new(row, "curve_us", json_real(median));
    }
    results_add(b->results, row);
}

/* ---- Trees ---- */

static const int32_t *make_tokens(world *w, int32_t root, int64_t shared) {
    const int32_t tail = ++w->n_tails;
    for (int64_t i = 0; i < w->length; i++)
        w->tokens[i] = i < shared ? (root << 16) + (int32_t)(i & 0xffff) : (1 << 30) + (tail << 12) + (int32_t)(i & 0xfff);
    return w->tokens;
}

/* All tokens but the last n become ready, as if they had been computed. */
static void compute_all_but(world *w, cattn_seq id, int64_t n) {
    ca_seq *seq = ca_tree_find(w->cache->tree, id);
    ca_path_claim(seq->leaf, seq->n_tokens - n - ca_path_n_claimed(seq->leaf));
    ca_path_commit(seq->leaf);
}

static void join(world *w, cattn_seq *seq, int32_t root, int64_t shared) {
    cattn_error error;
    check(cattn_seq_join(w->cache, make_tokens(w, root, shared), w->length, NULL, seq, NULL, &error), &error);
}

static void open_world(world *w, int32_t n_seqs, int32_t n_roots, int64_t length, int64_t shared, double room,
                       cattn_retention retention) {
    cattn_config c;
    cattn_error error;
    cattn_config_init(&c);
    c.n_layers = c.n_heads = c.n_kv_heads = 1;
    c.head_dim = 64;
    c.chunk_size = CHUNK;
    c.retention = retention;
    c.n_threads = 2;
    const double tokens = n_roots * (double)shared + n_seqs * (double)(length - shared + 2 * CHUNK);
    c.budget_bytes = (uint64_t)(tokens * room * 64 * 2 * 2) + ((uint64_t)64 << 20);
    check(cattn_cache_create(&c, &w->cache, &error), &error);
    w->n_seqs = n_seqs;
    w->n_roots = n_roots;
    w->length = length;
    w->shared = shared;
    w->n_tails = 0;
    for (int32_t i = 0; i < n_seqs; i++) {
        join(w, &w->seqs[i], i % n_roots, shared);
        compute_all_but(w, w->seqs[i], 1);
    }
}

static void close_world(world *w) { cattn_cache_destroy(&w->cache); }

/* ---- Join and leave ---- */

static void measure_join(bench *b, const char *tree, int64_t shared, int64_t matched, bool evicting) {
    world *w = &b->w;
    cattn_error error;
    char text[64];
    open_world(w, 256, shared > 0 ? 1 : 256, 4096, shared, evicting ? 1.05 : 2,
               evicting ? CATTN_RETAIN_LRU : CATTN_RETAIN_NONE);
    b->a.n = b->b.n = 0;
    for (int64_t i = -b->steps / 4 - (evicting ? 64 : 0); i < b->steps; i++) {
        cattn_seq seq;
        const int32_t *tokens = make_tokens(w, 0, matched);
        drive_out(b);
        double start = clock_seconds();
        check(cattn_seq_join(w->cache, tokens, w->length, NULL, &seq, NULL, &error), &error);
        if (i >= 0) add(&b->a, start);
        compute_all_but(w, seq, 0);
        drive_out(b);
        start = clock_seconds();
        check(cattn_seq_leave(w->cache, &seq, &error), &error);
        if (i >= 0) add(&b->b, start);
    }
    snprintf(text, sizeof text, "256 x 4096, %s%s", tree, evicting ? ", evicting" : "");
    add_row(b, "join", text, &b->a, NULL);
    add_row(b, "leave", text, &b->b, NULL);
    close_world(w);
}

/* ---- Steps ---- */

static void append_all(world *w) {
    const int32_t token = 7;
    cattn_error error;
    for (int32_t i = 0; i < w->n_seqs; i++) check(cattn_seq_append(w->cache, w->seqs[i], &token, 1, &error), &error);
}

/* Begin and end a step through the public calls; untimed if s is NULL. */
static void step(bench *b, samples *s) {
    world *w = &b->w;
    cattn_error error;
    for (int32_t i = 0; i < w->n_seqs; i++) w->entries[i] = (cattn_entry){.seq = w->seqs[i], .max_rows = 1};
    drive_out(b);
    const double start = clock_seconds();
    check(cattn_step_begin(w->cache, w->entries, w->n_seqs, 0, &error), &error);
    check(cattn_step_end(w->cache, &error), &error);
    if (s) add(s, start);
}

/* The plan alone: the rest of cattn_step_begin is done here, untimed. */
static void plan_step(bench *b, samples *s) {
    world *w = &b->w;
    for (int32_t i = 0; i < w->n_seqs; i++) {
        ca_seq *seq = ca_tree_find(w->cache->tree, w->seqs[i]);
        const int64_t first = ca_path_n_claimed(seq->leaf);
        w->plan_entries[i] = (ca_plan_entry){seq, first, (int32_t)ca_path_claim(seq->leaf, 1), i};
    }
    drive_out(b);
    const double start = clock_seconds();
    const cattn_status status = ca_plan_update(w->cache->plans.at, w->cache->plans.n, w->plan_entries, w->n_seqs);
    if (s) add(s, start);
    check(status, &(cattn_error){.message = "no memory for the plan"});
    for (int32_t i = 0; i < w->n_seqs; i++) ca_path_commit(w->plan_entries[i].seq->leaf);
}

/* In `changed` roots one sequence leaves and another joins. */
static void change_roots(world *w, int32_t changed) {
    cattn_error error;
    for (int32_t i = 0; i < changed; i++) {
        check(cattn_seq_leave(w->cache, &w->seqs[i], &error), &error);
        join(w, &w->seqs[i], i, w->shared);
        compute_all_but(w, w->seqs[i], 1);
    }
}

/* Decode steps with `changed` roots changing before each; with none, steps in which no chunk fills. */
static void measure_steps(bench *b, const char *call, void (*one)(bench *, samples *), int32_t n_seqs, int32_t n_roots,
                          int64_t shared, int32_t changed, const point *p) {
    enum { UNALIGNED = 3 };
    world *w = &b->w;
    char text[64];
    cattn_error error;
    open_world(w, n_seqs, n_roots, 4096 + UNALIGNED, shared, 1.2, CATTN_RETAIN_NONE);
    b->a.n = 0;
    for (int64_t i = 0, in_chunk = UNALIGNED; i < b->steps;) {
        if (in_chunk == CHUNK) { /* back to the beginning of the chunk */
            for (int32_t k = 0; k < n_seqs; k++) check(cattn_seq_truncate(w->cache, w->seqs[k], w->length, &error), &error);
            append_all(w);
            in_chunk = UNALIGNED + 1;
        }
        one(b, in_chunk == UNALIGNED + 1 || i == 0 ? NULL : &b->a);
        if (in_chunk != UNALIGNED + 1) i++;
        change_roots(w, changed);
        append_all(w);
        in_chunk++;
    }
    snprintf(text, sizeof text, "%d x 4096, %d root%s of %" PRId64 ", %d changed", n_seqs, n_roots, n_roots > 1 ? "s" : "",
             shared, changed);
    add_row(b, call, text, &b->a, p);
    close_world(w);
}

static void measure_all(bench *b) {
    for (int evicting = 0; evicting < 2; evicting++) {
        measure_join(b, "2048 shared", 2048, 2048, evicting);
        measure_join(b, "nothing shared", 0, 0, evicting);
        measure_join(b, "2048 shared, 1000 matched", 2048, 1000, evicting);
    }
    measure_steps(b, "begin + end", step, 256, 1, 2048, 0, NULL);
    measure_steps(b, "begin + end", step, 256, 256, 0, 0, NULL);
    measure_steps(b, "plan", plan_step, 256, 1, 2048, 0, NULL);
    measure_steps(b, "plan", plan_step, 256, 256, 0, 0, NULL);
    measure_steps(b, "plan", plan_step, 256, 1, 2048, 1, NULL);
    const int32_t most = b->common.quick ? 256 : MAX_SEQS;
    char curve[64];
    snprintf(curve, sizeof curve, "roots changed of 64, %d sequences", most);
    for (int32_t changed = 0; changed <= 64; changed = changed ? 2 * changed : 1)
        measure_steps(b, "plan", plan_step, most, 64, 2048, changed, &(point){curve, changed});
    for (int32_t n = 256; n <= most; n *= 2)
        measure_steps(b, "plan", plan_step, n, 64, 2048, 1, &(point){"sequences, 1 root changed of 64", n});
}

static const results_column columns[] = {{"call", "call", -12},
                                         {"tree", "tree", -48},
                                         {"caches", "caches", -6},
                                         {"least_us", "least us", 2},
                                         {"median_us", "median us", 2}};

static const results_plot curves_plot = {.kind = "lines",
                                         .x = "x",
                                         .y = "curve_us",
                                         .series = "caches",
                                         .panel = "curve",
                                         .y_label = "µs to plan one step",
                                         .accent = "cold",
                                         .from_zero = true};

static const results_spec spec = {
    .name = "plan",
    .title = "What a step costs beside its arithmetic, on one thread: sequences of 4096 tokens, chunks of 64, one row each",
    .columns = columns,
    .n_columns = sizeof columns / sizeof *columns,
    .note =
        "begin + end: cattn_step_begin and cattn_step_end; plan: the part of it that brings the plan up to date. 0 changed: a "
        "decode step in which no chunk fills; otherwise one sequence left and another joined in that many roots since the last "
        "step. cold: the CPU's caches were emptied before each call.\n",
    .plot = &curves_plot,
};

int bench_plan(int argc, char **argv) {
    bench *b = &the;
    option_list list = {0};
    b->steps = 0;
    const option_row rows[] = {{"steps", OPTION_INT, &b->steps, 0, MAX_SAMPLES, "samples of each figure; 0: 120", 0}};
    bench_common_options(&b->common, &list);
    options_add(&list, rows, sizeof rows / sizeof *rows);
    const options_result read = options_read(argc, argv, &list, "join, leave, begin, end and planning, without arithmetic");
    if (read != OPTIONS_RUN) return read == OPTIONS_HELP ? 0 : 2;
    if (b->steps == 0) b->steps = b->common.quick ? 2 : 120;
    if (!bench_common_start(&b->common, argv[0])) return 1;
    b->trash_bytes = 2 * ca_cpu_cache_bytes();
    b->trash = calloc(b->trash_bytes, 1);
    b->w.tokens = malloc(8192 * sizeof *b->w.tokens);
    b->results = results_open(&spec, &b->common);
    bool ok = b->trash && b->w.tokens && b->results;
    for (int cold = 0; ok && cold < 2; cold++) {
        b->cold = cold;
        measure_all(b);
    }
    if (b->results) ok &= results_close(b->results);
    free(b->trash);
    free(b->w.tokens);
    bench_common_stop(&b->common);
    return ok ? 0 : 1;
}
