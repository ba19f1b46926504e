/* Methods side by side on the same work. */
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "bench.h"
#include "results.h"

enum { N_WARMUP = 2, MIN_STEPS = 5 };

/*
 * How far naive may be from the others: K and V are rounded there, not here. Scores are about one and |V| <= 1, so an error of
 * 2^-9 (bf16) or 2^-8 (int8) in each comes out as less than 1e-2 or 2e-2.
 */
static const struct {
    const char *name;
    double tolerance;
} types[] = {
    [CATTN_F32] = {"f32", 1e-4}, [CATTN_F16] = {"f16", 2e-3}, [CATTN_BF16] = {"bf16", 1e-2}, [CATTN_I8] = {"int8", 2e-2}};
enum { N_TYPES = sizeof types / sizeof *types };

const char *compare_type_name(int type) { return type < N_TYPES ? types[type].name : NULL; }

/* ---- Options ---- */

void compare_options_add(compare_options *o, const char *methods, option_list *list) {
    *o = (compare_options){.steps = 15, .kv_type_text = "bf16", .methods_text = methods};
    const option_row rows[] = {
        {"steps", OPTION_INT, &o->steps, 1, COMPARE_MAX_STEPS, "steps of each method; medians are reported", 0},
        {"kv-type", OPTION_TEXT, &o->kv_type_text, 0, 0, "f32, f16, bf16 or int8; naive has f32", 0},
        {"isa", OPTION_TEXT, &o->level, 0, 0, "highest kernel level; the CPU's best without", 0},
        {"methods", OPTION_TEXT, &o->methods_text, 0, 0, "some of naive, flash, paged, paged_shared, chunk", 0},
        {"cold-mib", OPTION_INT, &o->cold_mib, 0, 1 << 20, "MiB read before a layer comes again; 0: twice the last cache", 0},
    };
    options_add(list, rows, sizeof rows / sizeof *rows);
}

/* "naive,chunk" -> ids, each at most once. */
static bool parse_methods(compare_options *o) {
    o->n_methods = 0;
    for (const char *text = o->methods_text;;) {
        const size_t length = strcspn(text, ",");
        int id = N_METHODS;
        while (--id >= 0 && (strlen(method_name(id)) != length || strncmp(method_name(id), text, length) != 0)) {
        }
        for (int i = 0; i < o->n_methods; i++)
            if (o->methods[i] == (method_id)id) id = -1;
        if (id < 0) return false;
        o->methods[o->n_methods++] = (method_id)id;
        if (!text[length]) return true;
        text += length + 1;
    }
}

bool compare_check(compare_options *o, const char *command, bool quick) {
    int type = 0;
    while (type < N_TYPES && strcmp(o->kv_type_text, types[type].name) != 0) type++;
    if (type == N_TYPES) {
        fprintf(stderr, "cattn-bench %s: --kv-type is \"%s\"; it must be f32, f16, bf16 or int8\n", command, o->kv_type_text);
        return false;
    }
    if (!parse_methods(o)) {
        fprintf(
            stderr,
            "cattn-bench %s: --methods is \"%s\"; it must list naive, flash, paged, paged_shared, chunk, each at most once\n",
            command, o->methods_text);
        return false;
    }
    o->kv_type = (cattn_type)type;
    o->cold_bytes = o->cold_mib ? (size_t)o->cold_mib << 20 : 2 * ca_cpu_cache_bytes();
    if (quick) {
        o->steps = o->steps < MIN_STEPS ? o->steps : MIN_STEPS;
        o->cold_bytes = 1;
    }
    return true;
}

/* ---- Rounds ---- */

/* Methods that are in memory together. */
typedef struct group {
    int begin, end; /* of the options' methods */
    method *methods[N_METHODS];
} group;

typedef struct bench {
    const compare_options *options;
    shape shape;
    ca_pool *pool;
    limits_probe *probe;
    size_t n_out;
    float *q, *out[N_METHODS];
} bench;

static double available_bytes(void) {
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    double bytes = INFINITY; /* not told: try */
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "MemAvailable:", 13) == 0) bytes = strtod(line + 13, NULL) * 1024;
    if (f) fclose(f);
    return bytes;
}

/* As many of the methods from g->begin on as fit into memory; false if the first does not. */
static bool choose_group(const bench *b, group *g) {
    const double available = 0.9 * available_bytes();
    double needed = 0;
    for (g->end = g->begin; g->end < b->options->n_methods; g->end++) {
        needed += method_bytes(b->options->methods[g->end], &b->shape);
        if (needed > available) break;
    }
    if (g->end > g->begin) return true;
    fprintf(stderr, "cattn-bench: %s needs %.1f GiB and %.1f are available; choose other --methods or a smaller shape\n",
            method_name(b->options->methods[g->begin]), needed / 0x1p30, available / 0x1p30);
    return false;
}

static bool create(const bench *b, group *g) {
    for (int i = g->begin; i < g->end; i++) {
        g->methods[i] = method_create(b->options->methods[i], &b->shape, b->pool);
        if (!g->methods[i]) return false;
    }
    return true;
}

static void destroy(group *g) {
    for (int i = g->begin; i < g->end; i++)
        if (g->methods[i]) g->methods[i]->destroy(g->methods[i]);
}

static void time_rounds(const bench *b, const group *g, comparison *c) {
    for (int step = -N_WARMUP; step < c->n_steps; step++) {
        const double read = limits_probe_read(b->probe);
        double peak = 0;
        for (int i = g->begin; i < g->end; i++) {
            method *m = g->methods[i];
            if (i == g->begin || strcmp(m->level, g->methods[i - 1]->level) != 0)
                peak = limits_probe_peak(b->probe, m->level, b->shape.kv_type);
            const double start = bench_seconds();
            m->attend(m, (step + N_WARMUP) % m->n_layers, b->q, b->out[i]);
            if (step < 0) continue;
            c->us[i][step] = (bench_seconds() - start) * 1e6;
            c->read_gbs[i][step] = read;
            c->peak_gflops[i][step] = peak;
        }
    }
    for (int i = g->begin; i < g->end; i++) g->methods[i]->attend(g->methods[i], 0, b->q, b->out[i]);
}

/* A benchmark of wrong results measures nothing. All but naive give the same bits. */
static bool results_agree(const bench *b, const comparison *c) {
    for (int i = 1; i < c->n_methods; i++) {
        const bool exact = c->methods[i] != METHOD_NAIVE && c->methods[i - 1] != METHOD_NAIVE;
        double worst = 0;
        for (size_t k = 0; k < b->n_out; k++) {
            const double error = fabs((double)b->out[i][k] - (double)b->out[i - 1][k]);
            if (!(error <= worst)) worst = error;
        }
        if (exact ? memcmp(b->out[i], b->out[i - 1], b->n_out * sizeof(float)) == 0
                  : worst < types[b->options->kv_type].tolerance)
            continue;
        fprintf(stderr, "cattn-bench: %s and %s disagree by %g\n", method_name(c->methods[i]), method_name(c->methods[i - 1]),
                worst);
        return false;
    }
    return true;
}

/* Tokens that a step's rows see: all, or those of sequences cut to a prefix; each run once, or once a sequence. */
static double tokens_seen(const bench *b, const int64_t *prefix, bool shared) {
    const token_tree *t = b->shape.tree;
    if (!prefix) return (double)(shared ? token_tree_distinct(t) : token_tree_total(t));
    double n = t->n_seqs;
    for (int32_t i = 0; i < (shared ? t->n_runs : t->n_seqs); i++) {
        const token_run *run = &t->runs[i];
        const int64_t left = shared ? *prefix - run->start : *prefix;
        n += (double)(shared && left > run->n_tokens ? run->n_tokens : left);
    }
    return n;
}

static void describe(const bench *b, const group *g, int number, const int64_t *prefix, comparison *c) {
    c->flops = 4.0 * b->shape.heads * b->shape.head_dim * tokens_seen(b, prefix, false); /* q.k and p v, both 2 d */
    for (int i = g->begin; i < g->end; i++) {
        const method_id id = c->methods[i] = b->options->methods[i];
        const bool shared = id == METHOD_PAGED_SHARED || id == METHOD_CHUNK;
        c->kv_bytes[i] = tokens_seen(b, prefix, shared) * (double)method_token_bytes(id, &b->shape);
        c->levels[i] = g->methods[i]->level;
        c->groups[i] = number;
    }
}

static bool run_group(bench *b, group *g, int number, const int64_t *prefixes, int n_results, comparison *results) {
    bool ok = create(b, g);
    for (int k = 0; ok && k < n_results; k++) {
        for (int i = g->begin; prefixes && ok && i < g->end; i++) ok = g->methods[i]->shorten(g->methods[i], prefixes[k]);
        if (!ok) break;
        describe(b, g, number, prefixes ? &prefixes[k] : NULL, &results[k]);
        time_rounds(b, g, &results[k]);
        if (g->begin == 0 && g->end == b->options->n_methods) ok = results_agree(b, &results[k]);
    }
    destroy(g);
    return ok;
}

static bool make_inputs(bench *b) {
    b->n_out = (size_t)b->shape.tree->n_seqs * (size_t)b->shape.heads * (size_t)b->shape.head_dim;
    const size_t row = method_row_size(&b->shape);
    b->q = malloc(b->n_out * sizeof(float));
    bool ok = b->q && b->probe;
    for (int i = 0; i < b->options->n_methods; i++) {
        b->out[i] = malloc(b->n_out * sizeof(float));
        ok = ok && b->out[i];
    }
    if (!ok) return false;
    method_rows_init();
    for (size_t i = 0; i < b->n_out; i++) b->q[i] = method_kv_row(-1, (int32_t)(i / row), 0, 0)[i % row];
    return true;
}

bool compare_run(const compare_options *options, const bench_common *common, const shape *shape, const int64_t *prefixes,
                 int n_results, comparison *results) {
    bench b = {.options = options, .shape = *shape, .pool = common->pool};
    b.probe = limits_probe_create(common->pool, common->quick);
    b.shape.kv_type = options->kv_type;
    b.shape.level = options->level;
    b.shape.cold_bytes = options->cold_bytes;
    for (int k = 0; k < n_results; k++) {
        results[k].n_methods = options->n_methods;
        results[k].n_steps = (int)options->steps;
    }
    bool ok = make_inputs(&b);
    if (!ok) fputs("cattn-bench: no memory\n", stderr);
    for (int begin = 0, number = 0; ok && begin < options->n_methods; number++) {
        group g = {.begin = begin};
        ok = choose_group(&b, &g) && run_group(&b, &g, number, prefixes, n_results, results);
        begin = g.end;
    }
    /* Of several groups the last result's outputs are left of all. */
    if (ok) ok = results_agree(&b, &results[n_results - 1]);
    limits_probe_destroy(&b.probe);
    free(b.q);
    for (int i = 0; i < options->n_methods; i++) free(b.out[i]);
    return ok;
}

/* ---- Results ---- */

double compare_us(const comparison *c, int i) {
    double us[COMPARE_MAX_STEPS];
    memcpy(us, c->us[i], (size_t)c->n_steps * sizeof *us);
    return results_median(us, c->n_steps);
}

double compare_speedup(const comparison *c, int i, int j) {
    if (c->groups[i] != c->groups[j]) return compare_us(c, j) / compare_us(c, i);
    double ratios[COMPARE_MAX_STEPS];
    for (int k = 0; k < c->n_steps; k++) ratios[k] = c->us[j][k] / c->us[i][k];
    return results_median(ratios, c->n_steps);
}

int compare_find(const comparison *c, method_id id) {
    int i = c->n_methods;
    while (--i >= 0 && c->methods[i] != id) {
    }
    return i;
}

/* Median over the rounds of what a step did in units of a limit: `amount` in 1e9 over the time, over limit [n_steps]. */
static double fraction(const comparison *c, int i, double amount, const double *limit) {
    double fractions[COMPARE_MAX_STEPS];
    for (int k = 0; k < c->n_steps; k++) fractions[k] = limit[k] > 0 ? amount / (c->us[i][k] * 1e-6) / limit[k] : 0;
    return results_median(fractions, c->n_steps);
}

json_t *compare_row(const comparison *c, int i, const compare_options *options, const bench_common *common) {
    (void)options, (void)common;
    const double us = compare_us(c, i), gflops = c->flops / us * 1e-3, gbs = c->kv_bytes[i] / us * 1e-3;
    json_t *ratios = json_object();
    for (int j = 0; j < c->n_methods; j++)
        if (j != i) json_object_set_new(ratios, method_name(c->methods[j]), json_real(compare_speedup(c, i, j)));
    return json_pack("{ss ss sf sf so sf so so}", "method", method_name(c->methods[i]), "level", c->levels[i], "step_us", us,
                     "gflops", gflops, "peak_fraction", results_number(fraction(c, i, c->flops * 1e-9, c->peak_gflops[i])),
                     "kv_gbs", gbs, "read_fraction", results_number(fraction(c, i, c->kv_bytes[i] * 1e-9, c->read_gbs[i])),
                     "times_faster_than", ratios);
}

void compare_add_parameters(json_t *row, const shape *s, const compare_options *options, const bench_common *common) {
    json_t *parameters = json_pack("{si si si si si ss si si}", "heads", s->heads, "kv_heads", s->kv_heads, "head_dim",
                                   s->head_dim, "chunk", s->chunk, "batch", s->tree->n_seqs, "kv_type",
                                   types[options->kv_type].name, "threads", (int)common->threads, "steps", (int)options->steps);
    json_object_update(row, parameters);
    json_decref(parameters);
}
