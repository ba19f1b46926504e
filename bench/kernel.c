/*
 * `cattn-bench kernel`: the latency of one decode step over one layer, by several methods side by side.
 *
 * A round times one step of each method, so that what happens on the machine happens to all; ratios are medians of the
 * rounds' ratios. Each method has several layers and goes from one to the next, so that what a step reads is not in a cache.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "bench.h"
#include "method.h"
#include "options.h"
#include "report.h"

enum { MAX_METHODS = 4, MAX_STEPS = 1000, N_WARMUP = 2 };

static const struct {
    const char *name;
    cattn_sharing sharing; /* of those with a cache */
} kinds[MAX_METHODS] = {
    {"naive", 0}, {"paged", CATTN_PRIVATE}, {"paged_shared", CATTN_SHARED_STORAGE}, {"chunk", CATTN_SHARED}};

static const char *const type_names[] = {[CATTN_F32] = "f32", [CATTN_F16] = "f16", [CATTN_BF16] = "bf16", [CATTN_I8] = "int8"};
enum { N_TYPES = sizeof type_names / sizeof *type_names };

typedef struct bench {
    shape s;
    ca_pool *pool;
    int chosen[MAX_METHODS]; /* indices into kinds */
    int n_methods, n_steps;
    method *methods[MAX_METHODS];
    float *q, *out[MAX_METHODS];
    double us[MAX_METHODS][MAX_STEPS];
} bench;

static int fail(const char *text) {
    fprintf(stderr, "cattn-bench kernel: %s\n", text);
    return 2;
}

static bool parse_type(const char *text, cattn_type *type) {
    for (int i = 0; i < N_TYPES; i++)
        if (strcmp(text, type_names[i]) == 0) {
            *type = (cattn_type)i;
            return true;
        }
    return false;
}

/* "naive,chunk" -> indices into kinds, each at most once. */
static bool parse_methods(const char *text, bench *b) {
    for (;;) {
        const size_t length = strcspn(text, ",");
        int kind = MAX_METHODS;
        while (--kind >= 0 && (strlen(kinds[kind].name) != length || strncmp(kinds[kind].name, text, length) != 0)) {
        }
        for (int i = 0; i < b->n_methods; i++)
            if (b->chosen[i] == kind) kind = -1;
        if (kind < 0) return false;
        b->chosen[b->n_methods++] = kind;
        if (!text[length]) return true;
        text += length + 1;
    }
}

static double available_bytes(void) {
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    double bytes = INFINITY; /* not told: try */
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "MemAvailable:", 13) == 0) bytes = strtod(line + 13, NULL) * 1024;
    if (f) fclose(f);
    return bytes;
}

static bool fits(const bench *b) {
    double needed = 0;
    for (int i = 0; i < b->n_methods; i++) {
        const int kind = b->chosen[i];
        needed += kind == 0 ? method_bytes_naive(&b->s) : method_bytes_cached(kinds[kind].sharing, &b->s);
    }
    if (needed < 0.9 * available_bytes()) return true;
    fprintf(stderr,
            "cattn-bench kernel: these methods need %.1f GiB and %.1f are available; choose fewer --methods or a smaller "
            "--batch or --prefix\n",
            needed / 0x1p30, available_bytes() / 0x1p30);
    return false;
}

static bool create_all(bench *b) {
    const size_t n = (size_t)b->s.batch * (size_t)b->s.heads * (size_t)b->s.head_dim;
    const size_t kv_row = (size_t)b->s.kv_heads * (size_t)b->s.head_dim;
    b->q = malloc(n * sizeof(float));
    if (!b->q) return false;
    method_rows_init();
    shape own = b->s; /* rows of a sequence each; what is in them does not matter */
    own.shared = 0;
    for (size_t i = 0; i < n; i++) b->q[i] = method_kv_row(&own, -1, (int32_t)(i / kv_row), 0, 0)[i % kv_row];
    for (int i = 0; i < b->n_methods; i++) {
        const int kind = b->chosen[i];
        b->out[i] = malloc(n * sizeof(float));
        b->methods[i] = kind == 0 ? method_create_naive(&b->s, b->pool)
                                  : method_create_cached(kinds[kind].name, kinds[kind].sharing, &b->s, b->pool);
        if (!b->out[i] || !b->methods[i]) return false;
    }
    return true;
}

static void measure(bench *b) {
    for (int step = -N_WARMUP; step < b->n_steps; step++)
        for (int i = 0; i < b->n_methods; i++) {
            method *m = b->methods[i];
            const double start = bench_seconds();
            m->attend(m, (step + N_WARMUP) % m->n_layers, b->q, b->out[i]);
            if (step >= 0) b->us[i][step] = (bench_seconds() - start) * 1e6;
        }
}

/*
 * A benchmark of wrong results measures nothing. The cache's methods give the same bits. Naive differs from them by the
 * rounding of K and V: with scores of about one and |V| <= 1, an error of 2^-9 (bf16) in each comes out as less than 1e-2.
 */
static bool results_agree(const bench *b) {
    const size_t n = (size_t)b->s.batch * (size_t)b->s.heads * (size_t)b->s.head_dim;
    for (int i = 0; i < b->n_methods; i++) b->methods[i]->attend(b->methods[i], 0, b->q, b->out[i]);
    for (int i = 1; i < b->n_methods; i++) {
        const bool exact = b->chosen[i] != 0 && b->chosen[i - 1] != 0;
        double worst = 0;
        for (size_t k = 0; k < n; k++) {
            const double error = fabs((double)b->out[i][k] - (double)b->out[i - 1][k]);
            if (!(error <= worst)) worst = error;
        }
        if (exact ? memcmp(b->out[i], b->out[i - 1], n * sizeof(float)) == 0 : worst < 1e-2) continue;
        fprintf(stderr, "cattn-bench kernel: %s and %s disagree by %g\n", b->methods[i]->name, b->methods[i - 1]->name, worst);
        return false;
    }
    return true;
}

/* How many times faster method i is than method j. */
static double speedup(const bench *b, int i, int j) {
    double ratios[MAX_STEPS];
    for (int k = 0; k < b->n_steps; k++) ratios[k] = b->us[j][k] / b->us[i][k];
    return report_median(ratios, b->n_steps);
}

typedef struct result {
    double us, gflops, kv_gbs;
} result;

static result result_of(const bench *b, int i) {
    const shape *s = &b->s;
    double us[MAX_STEPS];
    memcpy(us, b->us[i], (size_t)b->n_steps * sizeof *us);
    const double median = report_median(us, b->n_steps);
    const double flops = 4.0 * s->batch * s->heads * (double)(s->prefix + 1) * s->head_dim; /* q.k and p v, both 2 d */
    return (result){.us = median, .gflops = flops / median * 1e-3, .kv_gbs = b->methods[i]->kv_bytes / median * 1e-3};
}

static void print_json(const bench *b) {
    const shape *s = &b->s;
    for (int i = 0; i < b->n_methods; i++) {
        const method *m = b->methods[i];
        const result r = result_of(b, i);
        json_t *ratios = json_object();
        for (int j = 0; j < b->n_methods; j++)
            if (j != i) json_object_set_new(ratios, b->methods[j]->name, json_real(speedup(b, i, j)));
        json_t *o = json_pack("{ss sf sf sf so ss}", "method", m->name, "step_us", r.us, "gflops", r.gflops, "kv_gbs", r.kv_gbs,
                              "times_faster_than", ratios, "level", m->level);
        json_t *parameters =
            json_pack("{si si si si si sI sI ss si si}", "heads", s->heads, "kv_heads", s->kv_heads, "head_dim", s->head_dim,
                      "chunk", s->chunk, "batch", s->batch, "prefix", (json_int_t)s->prefix, "shared", (json_int_t)s->shared,
                      "kv_type", type_names[s->kv_type], "threads", ca_pool_size(b->pool), "steps", b->n_steps);
        json_object_update(o, parameters);
        json_decref(parameters);
        report_add_machine(o);
        report_print(o);
    }
}

static void print_table(const bench *b) {
    const shape *s = &b->s;
    printf("%s, gcc %s, %d threads\n", ca_cpu_name(), __VERSION__, ca_pool_size(b->pool));
    printf("%d heads, %d K/V heads, head size %d, %s K/V, chunks of %d; %d sequences of %" PRId64 " + 1 tokens, %" PRId64
           " shared; medians of %d\n\n",
           s->heads, s->kv_heads, s->head_dim, type_names[s->kv_type], s->chunk, s->batch, s->prefix, s->shared, b->n_steps);
    printf("%-14s%-14s%12s%10s%10s", "method", "level", "step us", "GFLOP/s", "K/V GB/s");
    for (int j = 0; j < b->n_methods; j++) printf("   / %s", b->methods[j]->name);
    putchar('\n');
    for (int i = 0; i < b->n_methods; i++) {
        const result r = result_of(b, i);
        printf("%-14s%-14s%12.1f%10.1f%10.1f", b->methods[i]->name, b->methods[i]->level, r.us, r.gflops, r.kv_gbs);
        for (int j = 0; j < b->n_methods; j++) printf("%*.2f", (int)strlen(b->methods[j]->name) + 5, speedup(b, i, j));
        putchar('\n');
    }
    printf("\n/ method: how many times faster than it. K/V GB/s: distinct K/V bytes that a step reads, each counted once.\n");
}

static int run(bench *b, bool json) {
    int status = 1;
    if (create_all(b)) {
        measure(b);
        if (results_agree(b)) {
            if (json)
                print_json(b);
            else
                print_table(b);
            status = 0;
        }
    }
    for (int i = 0; i < b->n_methods; i++) {
        if (b->methods[i]) b->methods[i]->destroy(b->methods[i]);
        free(b->out[i]);
    }
    free(b->q);
    return status;
}

int bench_kernel(int argc, char **argv) {
    static bench b;
    int64_t heads = 32, kv_heads = 0, head_dim = 128, chunk = 64, batch = 32, prefix = 4096, shared = -1, steps = 15;
    int64_t threads = ca_cpu_count(), cold_mib = 0;
    const char *type = "bf16", *methods = "naive,paged,paged_shared,chunk", *level = NULL;
    bool json = false;
    const option_row rows[] = {
        {"heads", OPTION_INT, &heads, 1, 1024, "query heads"},
        {"kv-heads", OPTION_INT, &kv_heads, 0, 1024, "K/V heads; 0: as many as query heads"},
        {"head-dim", OPTION_INT, &head_dim, 64, 256, "head size: 64, 80, 96, 128 or 256"},
        {"chunk", OPTION_INT, &chunk, 16, 256, "tokens a chunk: 16, 32, 64, 128 or 256"},
        {"batch", OPTION_INT, &batch, 1, 1024, "sequences"},
        {"prefix", OPTION_INT, &prefix, 1, 1000000, "tokens in the cache before the step's own"},
        {"shared", OPTION_INT, &shared, -1, 1000000, "of those, the first that all sequences have in common; -1: all"},
        {"kv-type", OPTION_TEXT, &type, 0, 0, "f32, f16, bf16 or int8; naive has f32"},
        {"methods", OPTION_TEXT, &methods, 0, 0, "some of them"},
        {"threads", OPTION_INT, &threads, 1, 1024, "threads"},
        {"isa", OPTION_TEXT, &level, 0, 0, "highest kernel level; the CPU's best without"},
        {"steps", OPTION_INT, &steps, 1, MAX_STEPS, "steps of each method; medians are reported"},
        {"cold-mib", OPTION_INT, &cold_mib, 0, 1 << 20, "MiB read before a layer comes again; 0: twice the last cache"},
        {"json", OPTION_FLAG, &json, 0, 0, "print a JSON object on a line for each method"},
    };
    const options_result read = options_read(argc, argv, rows, sizeof rows / sizeof *rows,
                                             "latency of one decode step over one layer, method by method");
    if (read != OPTIONS_RUN) return read == OPTIONS_HELP ? 0 : 2;
    if (kv_heads == 0) kv_heads = heads;
    if (shared < 0) shared = prefix;
    if (heads % kv_heads) return fail("--heads must be a multiple of --kv-heads");
    if (kv_heads * head_dim > METHOD_MAX_ROW) return fail("--kv-heads times --head-dim must be at most 32768");
    if (shared > prefix) return fail("--shared must be at most --prefix");

    b.s = (shape){.heads = (int32_t)heads, .kv_heads = (int32_t)kv_heads, .head_dim = (int32_t)head_dim};
    b.s.chunk = (int32_t)chunk;
    b.s.batch = (int32_t)batch;
    b.s.prefix = prefix;
    b.s.shared = shared;
    b.s.level = level;
    b.s.cold_bytes = cold_mib ? (size_t)cold_mib << 20 : 2 * ca_cpu_cache_bytes();
    b.n_steps = (int)steps;
    if (!parse_type(type, &b.s.kv_type)) return fail("--kv-type must be f32, f16, bf16 or int8");
    if (!parse_methods(methods, &b)) return fail("--methods must list naive, paged, paged_shared, chunk, each at most once");
    if (!fits(&b)) return 1;
    b.pool = ca_pool_create((int)threads);
    if (!b.pool) return fail("the threads cannot be started; lower --threads");
    const int status = run(&b, json);
    ca_pool_destroy(&b.pool);
    return status;
}
