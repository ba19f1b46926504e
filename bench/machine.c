/*
 * `cattn-bench machine`: how fast memory is read and what the arithmetic peaks are, by one thread and by all of them.
 *
 * Each figure is the best of several runs: what the machine can do, not what else happened on it.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cpu.h"
#include "base/threads.h"
#include "bench.h"
#include "options.h"
#include "peaks.h"
#include "report.h"

enum { N_RUNS = 7 };

static uint64_t read_portable(const void *data, size_t bytes) {
    const uint64_t *p = data;
    uint64_t sums[8] = {0};
    for (size_t i = 0; i < bytes / sizeof *p; i += 8)
        for (int k = 0; k < 8; k++) sums[k] ^= p[i + k];
    for (int k = 1; k < 8; k++) sums[0] ^= sums[k];
    return sums[0];
}

static const peak portable[1] = {{PEAK_READ, 0, 0, NULL, read_portable}};

/* Lowest first; of each kind the last one that the CPU can run counts. */
static const struct {
    const peak *peaks;
    int n;
} sources[] = {
    {portable, 1},
#if defined(__x86_64__)
    {peaks_avx2, 3}, {peaks_avx512, 2}, {peaks_avx512_vnni, 1}, {peaks_avx512_bf16, 1},
#endif
};

static const peak *find(peak_kind kind) {
    const peak *best = NULL;
    for (size_t s = 0; s < sizeof sources / sizeof *sources; s++)
        for (int i = 0; i < sources[s].n; i++) {
            const peak *p = &sources[s].peaks[i];
            if (p->kind == kind && (p->features & ca_cpu_features()) == p->features) best = p;
        }
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
    const double start = bench_seconds();
    ca_pool_run(pool, ca_pool_size(pool), run_share, w);
    return bench_seconds() - start;
}

/* Operations or bytes a second, in 1e9, of all threads of the pool; 0 where the CPU has no such instruction. */
static double measure(ca_pool *pool, peak_kind kind, const unsigned char *data, size_t bytes, int64_t ms) {
    const size_t n_threads = (size_t)ca_pool_size(pool), line = 256;
    work w = {.peak = find(kind), .rounds = 100000, .data = data, .bytes = bytes / n_threads / line * line};
    if (!w.peak) return 0;
    if (w.peak->compute) w.rounds = (int64_t)(1e-3 * (double)ms / time_run(pool, &w) * (double)w.rounds) + 1;
    double best = time_run(pool, &w);
    for (int i = 1; i < N_RUNS; i++) {
        const double t = time_run(pool, &w);
        if (t < best) best = t;
    }
    const double amount = w.peak->read ? (double)w.bytes : w.peak->ops * (double)w.rounds;
    return (double)n_threads * amount / best * 1e-9;
}

/* Large enough that a cache holds only a small part of it. */
static size_t default_bytes(void) {
    const size_t least = (size_t)512 << 20, cache = ca_cpu_cache_bytes();
    return cache * 8 > least ? cache * 8 : least;
}

static void *map(size_t bytes) {
    void *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return NULL;
    madvise(data, bytes, MADV_HUGEPAGE);
    memset(data, 1, bytes); /* untouched pages would all be the same zero page */
    return data;
}

typedef struct figure {
    const char *key, *what, *unit;
    peak_kind kind;
} figure;

static const figure figures[] = {
    {"read_gbs", "memory read", "GB/s", PEAK_READ},
    {"fma_gflops", "f32 FMA", "GFLOP/s", PEAK_FMA},
    {"bf16_gflops", "bf16 dot", "GFLOP/s", PEAK_BF16},
    {"int8_gops", "int8 dot", "GOP/s", PEAK_INT8},
};
enum { N_FIGURES = sizeof figures / sizeof *figures };

static void print_json(double results[][2]) {
    json_t *object = json_object();
    for (int i = 0; i < N_FIGURES; i++) {
        char key[32];
        snprintf(key, sizeof key, "%s_1", figures[i].key);
        json_object_set_new(object, key, report_number(results[i][0]));
        snprintf(key, sizeof key, "%s%s", figures[i].key, figures[i].kind == PEAK_READ ? "_all" : "");
        json_object_set_new(object, key, report_number(results[i][1]));
    }
    report_add_machine(object);
    report_print(object);
}

static void print_cell(double x) {
    if (x > 0)
        printf("%12.1f", x);
    else
        printf("%12s", "-");
}

static void print_table(double results[][2], int64_t n_threads) {
    char all[32];
    snprintf(all, sizeof all, "%" PRId64 " threads", n_threads);
    printf("%s, gcc %s\n\n%-12s%12s%12s\n", ca_cpu_name(), __VERSION__, "", "1 thread", all);
    for (int i = 0; i < N_FIGURES; i++) {
        printf("%-12s", figures[i].what);
        print_cell(results[i][0]);
        print_cell(results[i][1]);
        printf("  %s\n", figures[i].unit);
    }
}

int bench_machine(int argc, char **argv) {
    bool json = false;
    int64_t n_threads = ca_cpu_count(), ms = 50, mib = (int64_t)(default_bytes() >> 20);
    const option_row rows[] = {
        {"threads", OPTION_INT, &n_threads, 1, 1024, "threads of the second column"},
        {"mib", OPTION_INT, &mib, 1, 1 << 20, "MiB of memory to read"},
        {"ms", OPTION_INT, &ms, 1, 10000, "milliseconds of one run of arithmetic"},
        {"json", OPTION_FLAG, &json, 0, 0, "print a JSON object on a line"},
    };
    const options_result read = options_read(argc, argv, rows, sizeof rows / sizeof *rows,
                                             "read bandwidth and arithmetic peaks, of one and of all threads");
    if (read != OPTIONS_RUN) return read == OPTIONS_HELP ? 0 : 2;

    const size_t bytes = (size_t)mib << 20;
    unsigned char *data = map(bytes);
    ca_pool *pools[2] = {ca_pool_create(1), ca_pool_create((int)n_threads)};
    int status = 1;
    if (data && pools[0] && pools[1]) {
        double results[N_FIGURES][2];
        for (int i = 0; i < N_FIGURES; i++)
            for (int k = 0; k < 2; k++) results[i][k] = measure(pools[k], figures[i].kind, data, bytes, ms);
        if (json)
            print_json(results);
        else
            print_table(results, n_threads);
        status = 0;
    } else {
        fprintf(stderr,
                "cattn-bench machine: no memory for %" PRId64 " MiB and %" PRId64 " threads; lower --mib or --threads\n", mib,
                n_threads);
    }
    ca_pool_destroy(&pools[0]);
    ca_pool_destroy(&pools[1]);
    if (data) munmap(data, bytes);
    return status;
}
