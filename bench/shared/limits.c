/* The machine's limits, measured: read bandwidth and arithmetic peaks. */
#define _GNU_SOURCE
#include "limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "chunkattn/base/clock.h"
#include "chunkattn/base/cpu.h"
#include "chunkattn/base/threads.h"
#include "peaks.h"

enum { N_RUNS = 7, MAX_KEPT = 8 };

static const peak *find(peak_kind kind, uint32_t features) {
    const peak *best = NULL;
    for (int i = 0; i < n_peaks; i++)
        if (peaks[i].kind == kind && (peaks[i].features & features) == peaks[i].features) best = &peaks[i];
    return best;
}

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
 * The rate of all threads of the pool together in the best of n_runs, in 1e9 operations or bytes per second; 0 if the features
 * lack the instruction.
 */
static double measure(ca_pool *pool, const peak *peak, const unsigned char *data, const limits_effort *effort, int n_runs) {
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

limits_effort limits_default_effort(bool quick) {
    if (quick) return (limits_effort){(size_t)1 << 20, 1};
    /* So large that a cache holds only a small part of it. */
    const size_t least = (size_t)512 << 20, cache = ca_cpu_cache_bytes();
    return (limits_effort){cache * 8 > least ? cache * 8 : least, 50};
}

bool limits_measure(limits *l, int n_threads, const limits_effort *effort) {
    const uint32_t features = ca_cpu_features();
    unsigned char *data = map(effort->bytes);
    ca_pool *pool = ca_pool_create(n_threads);
    const bool ok = data && pool;
    if (ok)
        *l = (limits){.n_threads = n_threads,
                      .read_gbs = measure(pool, find(PEAK_READ, features), data, effort, N_RUNS),
                      .fma_gflops = measure(pool, find(PEAK_FMA, features), data, effort, N_RUNS),
                      .fma_avx2_gflops = measure(pool, find(PEAK_FMA, features & CA_CPU_AVX2), data, effort, N_RUNS),
                      .bf16_gflops = measure(pool, find(PEAK_BF16, features), data, effort, N_RUNS),
                      .tiles_gflops = measure(pool, find(PEAK_TILES, features), data, effort, N_RUNS),
                      .int8_gops = measure(pool, find(PEAK_INT8, features), data, effort, N_RUNS),
                      .int8_tiles_gops = measure(pool, find(PEAK_INT8_TILES, features), data, effort, N_RUNS)};
    else
        fprintf(stderr, "cattn-bench: no memory for %zu MiB and %d threads\n", effort->bytes >> 20, n_threads);
    ca_pool_destroy(&pool);
    if (data) munmap(data, effort->bytes);
    return ok;
}

const limits *limits_of(int n_threads, bool quick) {
    static limits kept[MAX_KEPT];
    static int n;
    for (int i = 0; i < n; i++)
        if (kept[i].n_threads == n_threads) return &kept[i];
    const limits_effort effort = limits_default_effort(quick);
    if (n == MAX_KEPT) n = 0;
    return limits_measure(&kept[n], n_threads, &effort) ? &kept[n++] : NULL;
}

struct limits_probe {
    ca_pool *pool;
    limits_effort effort;
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

/* The instruction that a kernel level computes with. */
static peak_kind instruction(const char *level, cattn_type kv_type) {
    if (strcmp(level, "avx512_bf16") == 0 && kv_type == CATTN_BF16) return PEAK_BF16;
    if (strcmp(level, "amx") == 0 && kv_type == CATTN_BF16) return PEAK_TILES;
    if (strcmp(level, "amx") == 0 && kv_type == CATTN_I8) return PEAK_INT8_TILES;
    if (strcmp(level, "avx512_vnni") == 0 && kv_type == CATTN_I8) return PEAK_INT8;
    return PEAK_FMA;
}

double limits_probe_read(limits_probe *p) {
    return measure(p->pool, find(PEAK_READ, ca_cpu_features()), p->data, &p->effort, 1);
}

double limits_probe_peak(limits_probe *p, const char *level, cattn_type kv_type) {
    const uint32_t features = strcmp(level, "avx2") == 0 ? CA_CPU_AVX2 : ca_cpu_features();
    if (strcmp(level, "ref") == 0) return 0;
    return measure(p->pool, find(instruction(level, kv_type), features), p->data, &p->effort, 1);
}

double limits_peak(const limits *l, const char *level, cattn_type kv_type) {
    if (strcmp(level, "ref") == 0) return 0;
    if (strcmp(level, "avx2") == 0) return l->fma_avx2_gflops;
    switch (instruction(level, kv_type)) {
    case PEAK_BF16: return l->bf16_gflops;
    case PEAK_TILES: return l->tiles_gflops;
    case PEAK_INT8: return l->int8_gops;
    case PEAK_INT8_TILES: return l->int8_tiles_gops;
    default: return l->fma_gflops;
    }
}
