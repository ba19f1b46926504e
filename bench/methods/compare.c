/* Compares methods on the same work: options, rounds, and the rows of results. */
#include "compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/shared/formulas.h"
#include "bench/shared/statistics.h"
#include "chunkattn/base/clock.h"
#include "chunkattn/base/cpu.h"

enum { N_WARMUP = 2, MIN_STEPS = 5 };

/*
 * How far naive may be from the others, which round K and V. Scores are about 1 and |V| <= 1, so an error of 2^-9 (bf16) or
 * 2^-8 (int8) in each changes the result by less than 1e-2 or 2e-2.
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
        {"level", OPTION_TEXT, &o->level, 0, 0, "highest kernel level; without it, the best of this CPU", 0},
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

int compare_command(int argc, char **argv, const char *methods, const char *about, const results_spec *spec,
                    compare_measure *measure) {
    bench_common common;
    compare_options options;
    option_list list = {0};
    compare_options_add(&options, methods, &list);
    bench_common_options(&common, &list);
    const options_result read = options_read(argc, argv, &list, about);
    if (read != OPTIONS_RUN) return read == OPTIONS_HELP ? 0 : 2;
    if (!compare_check(&options, argv[0], common.quick)) return 2;
    results *r = bench_common_start(&common, argv[0]) ? results_open(spec, &common) : NULL;
    bool ok = r && measure(r, &options, &common);
    if (r) ok = results_close(r) && ok;
    bench_common_stop(&common);
    return ok ? 0 : 1;
}

shape compare_paper_shape(const bench_common *common, int32_t heads, int32_t kv_heads, const token_tree *tree) {
    if (common->quick) return (shape){.heads = heads / kv_heads, .kv_heads = 1, .head_dim = 64, .chunk = 16, .tree = tree};
    return (shape){.heads = heads, .kv_heads = kv_heads, .head_dim = 128, .chunk = 64, .tree = tree};
}

int64_t compare_length(const bench_common *common, int64_t n) { return common->quick ? n / 32 : n; }

/* ---- Rounds ---- */

/* Contestants whose K/V are in memory together. */
typedef struct method_set {
    int begin, end;
    method *methods[COMPARE_MAX];
} method_set;

typedef struct bench {
    const contestant *of;
    int n, n_steps;
    bool quick;
    limits_probe *probes[COMPARE_MAX]; /* one for each pool */
    size_t n_out;
    float *q, *out[COMPARE_MAX];
} bench;

static double available_bytes(void) {
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    double bytes = INFINITY; /* unknown: try */
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "MemAvailable:", 13) == 0) bytes = strtod(line + 13, NULL) * 1024;
    if (f) fclose(f);
    return bytes;
}

/* As many of the contestants from set->begin on as fit into memory; false if the first does not. */
static bool choose_set(const bench *b, method_set *set) {
    const double available = 0.9 * available_bytes();
    double needed = 0;
    for (set->end = set->begin; set->end < b->n; set->end++) {
        needed += method_bytes(b->of[set->end].id, &b->of[set->end].shape);
        if (needed > available) break;
    }
    if (set->end > set->begin) return true;
    fprintf(stderr, "cattn-bench: %s needs %.1f GiB and %.1f are available; choose other --methods or a smaller shape\n",
            b->of[set->begin].name, needed / 0x1p30, available / 0x1p30);
    return false;
}

static bool create(const bench *b, method_set *set) {
    for (int i = set->begin; i < set->end; i++) {
        set->methods[i] = method_create(b->of[i].id, &b->of[i].shape, b->of[i].pool);
        if (!set->methods[i]) return false;
    }
    return true;
}

static void destroy(method_set *set) {
    for (int i = set->begin; i < set->end; i++)
        if (set->methods[i]) set->methods[i]->destroy(set->methods[i]);
}

/* The last contestant before i in the set with the same pool and, if `instruction`, the same instruction; -1: none. */
static int find_alike(const bench *b, const method_set *set, int i, bool instruction) {
    const contestant *c = &b->of[i];
    int k = i;
    while (--k >= set->begin) {
        const contestant *other = &b->of[k];
        if (other->pool != c->pool) continue;
        if (!instruction ||
            (other->shape.kv_type == c->shape.kv_type && strcmp(set->methods[k]->level, set->methods[i]->level) == 0))
            break;
    }
    return k < set->begin ? -1 : k;
}

/* Measure the limits of each contestant. Limits that several have in common are measured once, in a quick run once in all. */
static void probe_limits(const bench *b, const method_set *set, double *read, double *peak) {
    for (int i = set->begin; i < set->end; i++) {
        if (b->quick) {
            const limits *all = limits_of(ca_pool_size(b->of[i].pool), true);
            read[i] = all ? all->read_gbs : 0;
            peak[i] = all ? limits_peak(all, set->methods[i]->level, b->of[i].shape.kv_type) : 0;
            continue;
        }
        const int reads_alike = find_alike(b, set, i, false), computes_alike = find_alike(b, set, i, true);
        read[i] = reads_alike >= 0 ? read[reads_alike] : limits_probe_read(b->probes[i]);
        peak[i] = computes_alike >= 0 ? peak[computes_alike]
                                      : limits_probe_peak(b->probes[i], set->methods[i]->level, b->of[i].shape.kv_type);
    }
}

static void time_rounds(const bench *b, const method_set *set, comparison *c) {
    for (int step = -N_WARMUP; step < c->n_steps; step++) {
        double read[COMPARE_MAX], peak[COMPARE_MAX];
        probe_limits(b, set, read, peak);
        for (int i = set->begin; i < set->end; i++) {
            method *m = set->methods[i];
            const double start = clock_seconds();
            m->attend(m, (step + N_WARMUP) % m->n_layers, b->q, b->out[i]);
            if (step < 0) continue;
            c->us[i][step] = (clock_seconds() - start) * 1e6;
            c->read_gbs[i][step] = read[i];
            c->peak_gflops[i][step] = peak[i];
        }
    }
    for (int i = set->begin; i < set->end; i++) set->methods[i]->attend(set->methods[i], 0, b->q, b->out[i]);
}

/* The largest allowed difference of two contestants' outputs. 0: the bits must be equal; negative: not comparable. */
static double tolerance(const contestant *a, const contestant *b, const char *level_a, const char *level_b) {
    const shape *s = &a->shape, *t = &b->shape;
    if (s->kv_heads != t->kv_heads) return -1;
    if (method_is_exact(a->id) && method_is_exact(b->id) && s->chunk == t->chunk && s->kv_type == t->kv_type &&
        strcmp(level_a, level_b) == 0)
        return 0;
    return fmax(types[s->kv_type].tolerance, types[t->kv_type].tolerance);
}

/* Whether all contestants computed the same. */
static bool results_agree(const bench *b, const comparison *c) {
    for (int i = 1; i < b->n; i++) {
        const double most = tolerance(&c->of[i], &c->of[i - 1], c->levels[i], c->levels[i - 1]);
        double worst = 0;
        for (size_t k = 0; k < b->n_out; k++) {
            const double error = fabs((double)b->out[i][k] - (double)b->out[i - 1][k]);
            if (!(error <= worst)) worst = error;
        }
        if (most < 0 || (most == 0 ? memcmp(b->out[i], b->out[i - 1], b->n_out * sizeof(float)) == 0 : worst < most)) continue;
        fprintf(stderr, "cattn-bench: %s and %s disagree by %g\n", c->of[i].name, c->of[i - 1].name, worst);
        return false;
    }
    return true;
}

/* Tokens that the rows of a step see, all or up to a prefix; if `shared`, each run counts once, else once for each sequence. */
static double tokens_seen(const token_tree *t, const int64_t *prefix, bool shared) {
    if (!prefix) return (double)(shared ? token_tree_distinct(t) : token_tree_total(t));
    double n = t->n_seqs;
    for (int32_t i = 0; i < (shared ? t->n_runs : t->n_seqs); i++) {
        const token_run *run = &t->runs[i];
        const int64_t left = shared ? *prefix - run->start : *prefix;
        n += (double)(shared && left > run->n_tokens ? run->n_tokens : left);
    }
    return n;
}

static void describe(const method_set *set, int number, const int64_t *prefix, comparison *c) {
    for (int i = set->begin; i < set->end; i++) {
        const method_id id = c->of[i].id;
        const shape *s = &c->of[i].shape;
        c->flops[i] = formula_flops(s->heads, s->head_dim, tokens_seen(s->tree, prefix, false));
        c->kv_bytes[i] = tokens_seen(s->tree, prefix, method_shares(id)) * (double)method_token_bytes(id, s);
        c->levels[i] = set->methods[i]->level;
        c->set_of[i] = number;
    }
}

/* Cut the sequences of all methods in the set. */
static bool shorten(const bench *b, const method_set *set, int64_t prefix) {
    for (int i = set->begin; i < set->end; i++) {
        method *m = set->methods[i];
        if (!m->shorten) {
            fprintf(stderr, "cattn-bench: %s cannot cut its sequences; choose other --methods\n", b->of[i].name);
            return false;
        }
        if (!m->shorten(m, prefix)) return false;
    }
    return true;
}

static bool run_set(bench *b, method_set *set, int number, const int64_t *prefixes, int n_results, comparison *results) {
    bool ok = create(b, set);
    for (int k = 0; ok && k < n_results; k++) {
        if (prefixes && !shorten(b, set, prefixes[k])) {
            ok = false;
            break;
        }
        describe(set, number, prefixes ? &prefixes[k] : NULL, &results[k]);
        time_rounds(b, set, &results[k]);
        if (set->begin == 0 && set->end == b->n) ok = results_agree(b, &results[k]);
    }
    destroy(set);
    return ok;
}

static bool make_inputs(bench *b) {
    const shape *s = &b->of[0].shape;
    const size_t row = (size_t)s->heads * (size_t)s->head_dim;
    b->n_out = (size_t)s->tree->n_seqs * row;
    b->q = malloc(b->n_out * sizeof(float));
    bool ok = b->q;
    for (int i = 0; i < b->n; i++) {
        for (int k = 0; k < i && !b->probes[i]; k++)
            if (b->of[k].pool == b->of[i].pool) b->probes[i] = b->probes[k];
        if (!b->probes[i] && !b->quick) b->probes[i] = limits_probe_create(b->of[i].pool);
        ok = ok && (b->quick || b->probes[i]);
        b->out[i] = malloc(b->n_out * sizeof(float));
        ok = ok && b->out[i];
    }
    if (!ok) return false;
    method_rows_init();
    for (int32_t i = 0; i < s->tree->n_seqs; i++)
        memcpy(b->q + (size_t)i * row, method_kv_row(-1, i, 0, 0), row * sizeof(float));
    return true;
}

static void free_inputs(bench *b) {
    free(b->q);
    for (int i = 0; i < b->n; i++) {
        limits_probe *probe = b->probes[i];
        for (int k = i; k < b->n; k++)
            if (b->probes[k] == probe) b->probes[k] = NULL;
        limits_probe_destroy(&probe);
        free(b->out[i]);
    }
}

bool compare_contest(const contestant *contestants, int n, int n_steps, bool quick, const int64_t *prefixes, int n_results,
                     comparison *results) {
    bench b = {.of = contestants, .n = n, .n_steps = n_steps, .quick = quick};
    for (int k = 0; k < n_results; k++) {
        results[k].n = n;
        results[k].n_steps = n_steps;
        memcpy(results[k].of, contestants, (size_t)n * sizeof *contestants);
    }
    bool ok = make_inputs(&b);
    if (!ok) fputs("cattn-bench: no memory\n", stderr);
    for (int begin = 0, number = 0; ok && begin < n; number++) {
        method_set set = {.begin = begin};
        ok = choose_set(&b, &set) && run_set(&b, &set, number, prefixes, n_results, results);
        begin = set.end;
    }
    /* With several sets of methods, the outputs of the last result still exist for all of them. */
    if (ok) ok = results_agree(&b, &results[n_results - 1]);
    free_inputs(&b);
    return ok;
}

bool compare_run(const compare_options *options, const bench_common *common, const shape *shape, const int64_t *prefixes,
                 int n_results, comparison *results) {
    if (options->n_methods < 1) return false; /* compare_check has refused that */
    contestant all[N_METHODS];
    for (int i = 0; i < options->n_methods; i++) {
        const method_id id = options->methods[i];
        all[i] = (contestant){method_name(id), id, *shape, common->pool};
        all[i].shape.kv_type = options->kv_type;
        all[i].shape.level = options->level;
        all[i].shape.cold_bytes = options->cold_bytes;
    }
    return compare_contest(all, options->n_methods, (int)options->steps, common->quick, prefixes, n_results, results);
}

/* ---- Results ---- */

double compare_us(const comparison *c, int i) {
    double us[COMPARE_MAX_STEPS];
    memcpy(us, c->us[i], (size_t)c->n_steps * sizeof *us);
    return statistics_median(us, c->n_steps);
}

double compare_speedup(const comparison *c, int i, int j) {
    if (c->set_of[i] != c->set_of[j]) return compare_us(c, j) / compare_us(c, i);
    double ratios[COMPARE_MAX_STEPS];
    for (int k = 0; k < c->n_steps; k++) ratios[k] = c->us[j][k] / c->us[i][k];
    return statistics_median(ratios, c->n_steps);
}

int compare_find(const comparison *c, method_id id) {
    int i = c->n;
    while (--i >= 0 && c->of[i].id != id) {
    }
    return i;
}

/* The median over the rounds of amount (in 1e9) / time / limit[round]. */
static double fraction(const comparison *c, int i, double amount, const double *limit) {
    double fractions[COMPARE_MAX_STEPS];
    for (int k = 0; k < c->n_steps; k++) fractions[k] = limit[k] > 0 ? amount / (c->us[i][k] * 1e-6) / limit[k] : 0;
    return statistics_median(fractions, c->n_steps);
}

json_t *compare_row(const comparison *c, int i) {
    const shape *s = &c->of[i].shape;
    const double us = compare_us(c, i), gflops = c->flops[i] / us * 1e-3, gbs = c->kv_bytes[i] / us * 1e-3;
    json_t *ratios = json_object();
    for (int j = 0; j < c->n; j++)
        if (j != i) json_object_set_new(ratios, c->of[j].name, json_real(compare_speedup(c, i, j)));
    return json_pack(
        "{ss ss sf sf so sf so so si si si si si ss si si}", "method", c->of[i].name, "level", c->levels[i], "step_us", us,
        "gflops", gflops, "peak_fraction", results_number(fraction(c, i, c->flops[i] * 1e-9, c->peak_gflops[i])), "kv_gbs", gbs,
        "read_fraction", results_number(fraction(c, i, c->kv_bytes[i] * 1e-9, c->read_gbs[i])), "times_faster_than", ratios,
        "heads", s->heads, "kv_heads", s->kv_heads, "head_dim", s->head_dim, "chunk", s->chunk, "batch", s->tree->n_seqs,
        "kv_type", types[s->kv_type].name, "threads", ca_pool_size(c->of[i].pool), "steps", c->n_steps);
}
