/* Compares methods on the same work: options, rounds, and the rows of results. */
#include "compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/loadgen/quantiles.h"
#include "bench/shared/formulas.h"
#include "chunkattn/base/clock.h"
#include "chunkattn/base/cpu.h"
#include "chunkattn/base/memory.h"

enum { N_WARMUP = 2, STEPS = 15, QUICK_STEPS = 5 };

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

/* ---- Options ---- */

compare_options compare_given = {.kv_type_text = "bf16", .methods_text = "naive,flash,paged,paged_shared,chunk"};

const option_row compare_step_options[] = {
    {"steps", OPTION_INT, &compare_given.steps, 0, COMPARE_MAX_STEPS,
     "steps of each; medians are reported; 0: 15, or 5 in table1", 0},
    {"kv-type", OPTION_TEXT, &compare_given.kv_type_text, 0, 0, "f32, f16, bf16 or int8; naive has f32", 0},
    {"level", OPTION_TEXT, &compare_given.level, 0, 0, "highest kernel level; without it, the best of this CPU", 0},
    {0}};

const option_row compare_method_options[] = {
    {"methods", OPTION_TEXT, &compare_given.methods_text, 0, 0, "some of " METHOD_NAMES, 0},
    {"cold-mib", OPTION_INT, &compare_given.cold_mib, 0, 1 << 20,
     "MiB read before a layer comes again; 0: twice the last cache", 0},
    {0}};

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

bool compare_prepare(bench *b) {
    compare_options *o = &compare_given;
    int type = 0;
    while (type < N_TYPES && strcmp(o->kv_type_text, types[type].name) != 0) type++;
    if (type == N_TYPES) return bench_fail(b, "--kv-type is \"%s\"; it must be f32, f16, bf16 or int8", o->kv_type_text);
    if (!parse_methods(o))
        return bench_fail(b, "--methods is \"%s\"; it must list some of " METHOD_NAMES ", each at most once", o->methods_text);
    o->kv_type = (cattn_type)type;
    o->n_steps = o->steps ? (int)o->steps : STEPS;
    o->cold_bytes = o->cold_mib ? (size_t)o->cold_mib << 20 : 2 * ca_cpu_cache_bytes();
    if (b->quick) {
        o->n_steps = o->n_steps < QUICK_STEPS ? o->n_steps : QUICK_STEPS;
        o->cold_bytes = 1;
    }
    return true;
}

shape compare_paper_shape(const bench *b, int32_t heads, int32_t kv_heads) {
    if (b->quick) return (shape){.heads = heads / kv_heads, .kv_heads = 1, .head_dim = 64, .chunk = 16};
    return (shape){.heads = heads, .kv_heads = kv_heads, .head_dim = 128, .chunk = 64};
}

int64_t compare_length(const bench *b, int64_t n) { return b->quick ? n / 32 : n; }

/* ---- Rounds ---- */

typedef struct contest {
    const bench *b;
    comparison *c;
    limits_probe *probe; /* NULL: the limits of the bench */
    int begin, end;      /* the methods whose K/V are in memory together */
    method *methods[N_METHODS];
    size_t n_out;   /* elements of a step's outputs */
    float *q, *out; /* out: [n][n_out] */
} contest;

static float *out_of(const contest *t, int i) { return t->out + (size_t)i * t->n_out; }

/* As many of the methods from t->begin on as fit into memory; false if the first does not. */
static bool choose_set(contest *t) {
    const double available = 0.9 * (double)ca_memory_read("/proc", "/sys/fs/cgroup").free;
    double needed = 0;
    for (t->end = t->begin; t->end < t->c->n; t->end++) {
        needed += method_bytes(t->c->of[t->end], t->c->shape);
        if (needed > available) break;
    }
    return t->end > t->begin ||
           bench_fail(t->b, "%s needs %.1f GiB and %.1f are available; choose other --methods or a smaller shape",
                      method_name(t->c->of[t->begin]), needed / 0x1p30, available / 0x1p30);
}

static double limit_now(const contest *t, limit kind) {
    if (t->probe) return limits_probe_run(t->probe, kind);
    return kind == N_LIMITS ? 0 : t->b->limits->of[kind];
}

/* The instruction whose peak is the limit of a method of the set. */
static limit peak_of(const contest *t, int i) {
    return limit_of_level(t->methods[i]->level, method_kv_type(t->c->of[i], t->c->shape));
}

/* The limits of each method of the set; each peak is measured once. */
static void probe_limits(const contest *t, double *read, double *peak) {
    const double reading = limit_now(t, LIMIT_READ);
    for (int i = t->begin; i < t->end; i++) {
        int alike = t->begin;
        while (alike < i && peak_of(t, alike) != peak_of(t, i)) alike++;
        read[i] = reading;
        peak[i] = alike < i ? peak[alike] : limit_now(t, peak_of(t, i));
    }
}

/* One step: of each of its layers, whose outputs lie behind one another. */
static void attend_step(const contest *t, int i, int32_t step) {
    method *m = t->methods[i];
    const shape *s = t->c->shape;
    float *out = out_of(t, i);
    for (int32_t k = 0, n = method_step_layers(s); k < n; k++) {
        const int32_t layer = (step * n + k) % m->n_layers;
        const shape one = method_layer_shape(s, layer);
        m->attend(m, layer, t->q, out);
        out += method_rows(s) * one.heads * one.head_dim;
    }
}

/* Each round begins with another method, since the first one finds the caches as the limits' measurement has left them. */
static void time_rounds(const contest *t) {
    comparison *c = t->c;
    const int n = t->end - t->begin;
    for (int step = -N_WARMUP; step < c->n_steps; step++) {
        double read[N_METHODS], peak[N_METHODS];
        probe_limits(t, read, peak);
        for (int k = 0; k < n; k++) {
            const int i = t->begin + (k + step + N_WARMUP) % n;
            const double start = clock_seconds();
            attend_step(t, i, step + N_WARMUP);
            if (step < 0) continue;
            c->us[i][step] = (clock_seconds() - start) * 1e6;
            c->read_gbs[i][step] = read[i];
            c->peak_gflops[i][step] = peak[i];
        }
    }
    for (int i = t->begin; i < t->end; i++) attend_step(t, i, 0);
}

static void describe(const contest *t, int number) {
    comparison *c = t->c;
    c->flops = 0;
    for (int32_t k = 0; k < method_step_layers(c->shape); k++) {
        const shape one = method_layer_shape(c->shape, k), *s = &one;
        const int64_t all = method_seen(s, s->prefix + 1), shared = method_seen(s, s->shared);
        /* The i-th of the rows of a prefill sees i tokens. */
        c->flops += formula_flops(s->heads, s->head_dim, s->batch * (double)all * (s->prefill ? (double)(all + 1) / 2 : 1));
        for (int i = t->begin; i < t->end; i++) {
            const int64_t once = method_shares(c->of[i]) ? shared : 0;
            c->kv_bytes[i] += (double)(once + s->batch * (all - once)) * (double)method_token_bytes(c->of[i], s);
        }
    }
    for (int i = t->begin; i < t->end; i++) {
        c->levels[i] = t->methods[i]->level;
        c->set_of[i] = number;
    }
}

static bool run_set(contest *t, int number) {
    bool ok = true;
    for (int i = t->begin; ok && i < t->end; i++) ok = (t->methods[i] = method_create(t->c->of[i], t->c->shape, t->b->pool));
    if (ok) {
        describe(t, number);
        time_rounds(t);
    }
    for (int i = t->begin; i < t->end; i++)
        if (t->methods[i]) t->methods[i]->destroy(t->methods[i]);
    return ok;
}

/* How far a method's results may be from those of exact arithmetic; naive rounds nothing to speak of. */
static double tolerance_of(const contest *t, int i) {
    const method_id id = t->c->of[i];
    return id == METHOD_NAIVE ? 0 : types[method_kv_type(id, t->c->shape)].tolerance;
}

/* Whether two methods computed the same: those with the same arithmetic, bit for bit. */
static bool pair_agrees(const contest *t, int i, int j) {
    const comparison *c = t->c;
    const float *a = out_of(t, i), *b = out_of(t, j);
    double worst = 0;
    for (size_t k = 0; k < t->n_out; k++) {
        const double error = fabs((double)a[k] - (double)b[k]);
        if (!(error <= worst)) worst = error;
    }
    const bool agrees = method_bits_agree(c->of[i], c->of[j], c->shape) ? memcmp(a, b, t->n_out * sizeof *a) == 0
                                                                        : worst < tolerance_of(t, i) + tolerance_of(t, j);
    return agrees || bench_fail(t->b, "%s and %s disagree by %g", method_name(c->of[i]), method_name(c->of[j]), worst);
}

static bool results_agree(const contest *t) {
    for (int i = 1; i < t->c->n; i++)
        for (int j = 0; j < i; j++)
            if (!pair_agrees(t, i, j)) return false;
    return true;
}

static bool make_inputs(contest *t) {
    const shape *s = t->c->shape;
    for (int32_t k = 0; k < method_step_layers(s); k++) {
        const shape one = method_layer_shape(s, k);
        t->n_out += (size_t)method_rows(s) * (size_t)one.heads * (size_t)one.head_dim;
    }
    t->q = method_queries(s);
    t->out = malloc((size_t)t->c->n * t->n_out * sizeof(float));
    const bool ok = t->q && t->out && (t->b->quick || (t->probe = limits_probe_create(t->b->pool)));
    return ok || bench_fail(t->b, "no memory for the rows of a step");
}

static bool contest_run(const bench *b, const method_id *methods, int n, shape *s, comparison *c) {
    contest t = {.b = b, .c = c};
    s->kv_type = compare_given.kv_type;
    s->level = compare_given.level;
    c->shape = s;
    memset(c->kv_bytes, 0, sizeof c->kv_bytes);
    c->n = n;
    c->n_steps = compare_given.n_steps;
    memcpy(c->of, methods, (size_t)n * sizeof *methods);
    bool ok = make_inputs(&t);
    for (int number = 0; ok && t.begin < n; t.begin = t.end, number++) ok = choose_set(&t) && run_set(&t, number);
    ok = ok && results_agree(&t);
    limits_probe_destroy(&t.probe);
    free(t.out);
    free(t.q);
    return ok;
}

bool compare_run(const bench *b, shape *s, comparison *c) {
    s->cold_bytes = compare_given.cold_bytes;
    return contest_run(b, compare_given.methods, compare_given.n_methods, s, c);
}

bool compare_run_chunk(const bench *b, shape *s, comparison *c) {
    s->cold_bytes = s->prefill ? 0 : compare_given.cold_bytes;
    return contest_run(b, &(method_id){METHOD_CHUNK}, 1, s, c);
}

/* ---- Results ---- */

double compare_us(const comparison *c, int i) {
    double us[COMPARE_MAX_STEPS];
    memcpy(us, c->us[i], (size_t)c->n_steps * sizeof *us);
    return load_median(us, (size_t)c->n_steps);
}

double compare_speedup(const comparison *c, int i, int j) {
    if (c->set_of[i] != c->set_of[j]) return compare_us(c, j) / compare_us(c, i);
    double ratios[COMPARE_MAX_STEPS];
    for (int k = 0; k < c->n_steps; k++) ratios[k] = c->us[j][k] / c->us[i][k];
    return load_median(ratios, (size_t)c->n_steps);
}

/* The median over the rounds of amount (in 1e9) / time / limit[round]. */
static double fraction(const comparison *c, int i, double amount, const double *limit) {
    double fractions[COMPARE_MAX_STEPS];
    for (int k = 0; k < c->n_steps; k++) fractions[k] = limit[k] > 0 ? amount / (c->us[i][k] * 1e-6) / limit[k] : 0;
    return load_median(fractions, (size_t)c->n_steps);
}

double compare_peak_fraction(const comparison *c, int i) { return fraction(c, i, c->flops * 1e-9, c->peak_gflops[i]); }
double compare_read_fraction(const comparison *c, int i) { return fraction(c, i, c->kv_bytes[i] * 1e-9, c->read_gbs[i]); }

json_t *compare_row(const bench *b, const comparison *c, int i) {
    const shape *s = c->shape;
    const double us = compare_us(c, i);
    json_t *ratios = json_object();
    for (int j = 0; j < c->n; j++)
        if (j != i) json_object_set_new(ratios, method_name(c->of[j]), json_real(compare_speedup(c, i, j)));
    return json_pack("{ss ss sf sf so sf so so si si si si si ss si si}", "method", method_name(c->of[i]), "level",
                     c->levels[i], "step_us", us, "gflops", c->flops / us * 1e-3, "peak_fraction",
                     bench_number(compare_peak_fraction(c, i)), "kv_gbs", c->kv_bytes[i] / us * 1e-3, "read_fraction",
                     bench_number(compare_read_fraction(c, i)), "times_faster_than", ratios, "heads", s->heads, "kv_heads",
                     s->kv_heads, "head_dim", s->head_dim, "chunk", s->chunk, "batch", s->batch, "kv_type",
                     types[method_kv_type(c->of[i], s)].name, "threads", ca_pool_size(b->pool), "steps", c->n_steps);
}
