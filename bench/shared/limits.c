/* The machine's limits, measured: read bandwidth and arithmetic peaks. */
#define _GNU_SOURCE
#include "limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "chunkattn/base/clock.h"
#include "chunkattn/base/cpu.h"

enum { N_RUNS = 7, MAX_KEPT = 8 };

const limit_kind limit_kinds[N_LIMITS] = {
    [LIMIT_READ] = {"read_gbs", "memory read", "GB/s"},
    [LIMIT_FMA] = {"fma_gflops", "f32 FMA", "GFLOP/s"},
    [LIMIT_FMA_AVX2] = {NULL, "f32 FMA, AVX2", "GFLOP/s"},
    [LIMIT_BF16] = {"bf16_gflops", "bf16 dot", "GFLOP/s"},
    [LIMIT_TILES] = {"tiles_gflops", "bf16 tiles", "GFLOP/s"},
    [LIMIT_INT8] = {"int8_gops", "int8 dot", "GOP/s"},
    [LIMIT_INT8_AVX_VNNI] = {NULL, "int8 dot, AVX-VNNI", "GOP/s"},
    [LIMIT_INT8_TILES] = {"int8_tiles_gops", "int8 tiles", "GOP/s"},
};

/* How much is done. */
typedef struct effort {
    size_t bytes; /* of memory to read */
    int64_t ms;   /* of one run of arithmetic */
} effort;

typedef struct work {
    const peak *peak;
    int64_t rounds;
    const unsigned char *data;
    size_t bytes; /* a thread's share */
    volatile uint64_t sink;
} work;

static void run_share(void *arg, int32_t task, int32_t worker) {
    (void)worker;
    work *w = arg;
    if (w->peak->read)
        w->sink = w->peak->read(w->data + (size_t)task * w->bytes, w->bytes);
    else
        w->peak->compute(w->rounds);
}

static double time_run(ca_pool *pool, work *w) {
    const double start = clock_seconds();
    ca_pool_run(pool, ca_pool_size(pool), run_share, w);
    return clock_seconds() - start;
}

/*
 * The rate of all threads of the pool together in the best of n_runs, in 1e9 operations or bytes per second; 0 if the CPU lacks
 * the instruction.
 */
static double measure(ca_pool *pool, limit kind, const unsigned char *data, const effort *effort, int n_runs) {
    const peak *peak = peak_find(kind);
    const size_t n_threads = (size_t)ca_pool_size(pool), line = 256;
    work w = {.peak = peak, .rounds = 100000, .data = data, .bytes = effort->bytes / n_threads / line * line};
    if (!peak) return 0;
    if (peak->compute) w.rounds = (int64_t)(1e-3 * (double)effort->ms / time_run(pool, &w) * (double)w.rounds) + 1;
    double best = time_run(pool, &w);
    for (int i = 1; i < n_runs; i++) {
        const double t = time_run(pool, &w);
        if (t < best) best = t;
    }
    const double amount = peak->read ? (double)w.bytes : peak->ops * (double)w.rounds;
    return (double)n_threads * amount / best * 1e-9;
}

static void *map(size_t bytes) {
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return NULL;
    madvise(data, bytes, MADV_HUGEPAGE);
    memset(data, 1, bytes); /* pages that were never written would all be the zero page */
    return data;
}

/* Enough that figures are repeatable. */
static effort effort_of(bool quick) {
    if (quick) return (effort){(size_t)1 << 20, 1};
    /* So large that a cache holds only a small part of it. */
    const size_t least = (size_t)512 << 20, cache = ca_cpu_cache_bytes();
    return (effort){cache * 8 > least ? cache * 8 : least, 50};
}

static bool measure_all(limits *l, int n_threads, const effort *effort) {
    unsigned char *data = map(effort->bytes);
    ca_pool *pool = ca_pool_create(n_threads);
    const bool ok = data && pool;
    l->n_threads = n_threads;
    for (limit i = 0; ok && i < N_LIMITS; i++) l->of[i] = measure(pool, i, data, effort, N_RUNS);
    if (!ok) fprintf(stderr, "cattn-bench: no memory for %zu MiB and %d threads\n", effort->bytes >> 20, n_threads);
    ca_pool_destroy(&pool);
    if (data) munmap(data, effort->bytes);
    return ok;
}

const limits *limits_of(int n_threads, bool quick) {
    static limits kept[MAX_KEPT];
    static int n;
    for (int i = 0; i < n; i++)
        if (kept[i].n_threads == n_threads) return &kept[i];
    const effort effort = effort_of(quick);
    if (n == MAX_KEPT) n = 0;
    return measure_all(&kept[n], n_threads, &effort) ? &kept[n++] : NULL;
}

struct limits_probe {
    ca_pool *pool;
    effort effort;
    unsigned char *data;
};

limits_probe *limits_probe_create(ca_pool *pool) {
    const size_t cache = 4 * ca_cpu_cache_bytes(), least = (size_t)128 << 20;
    limits_probe *p = malloc(sizeof *p);
    if (!p) return NULL;
    *p = (limits_probe){.pool = pool, .effort = {cache > least ? cache : least, 2}};
    p->data = map(p->effort.bytes);
    if (!p->data) limits_probe_destroy(&p);
    return p;
}

void limits_probe_destroy(limits_probe **probe) {
    if (*probe && (*probe)->data) munmap((*probe)->data, (*probe)->effort.bytes);
    free(*probe);
    *probe = NULL;
}

double limits_probe_run(limits_probe *p, limit kind) {
    return kind == N_LIMITS ? 0 : measure(p->pool, kind, p->data, &p->effort, 1);
}
