/*
 * Times a kernel on whole chunks of 64 slots, for a few numbers of rows: hot (one chunk repeatedly) and cold (32 heads x 4096
 * positions in the order of a decode step, which exceeds the last-level cache).
 */
#include "kcheck.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "bench/shared/peaks.h"
#include "chunkattn/base/fp.h"

enum { C = 64, HEADS = 32, CHUNKS = 64, REPEATS = 7 };

/* Seconds of this thread's CPU time. Other programs on its CPU do not count, but their use of caches and bandwidth does. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- The peak of the instruction that a level multiplies with ----------------------------------------------------- */

double peak_gflops(const char *level, cattn_type kv_type) {
    enum { ROUNDS = 2000000 };
    const peak *peak = peak_find(limit_of_level(level, kv_type));
    double best = 0;
    for (int repeat = 0; peak && repeat < REPEATS; repeat++) {
        const double start = now();
        peak->compute(ROUNDS);
        const double rate = ROUNDS * peak->ops / (now() - start) / 1e9;
        best = rate > best ? rate : best;
    }
    return best;
}

/* ---- The kernel ------------------------------------------------------------------------------------------------------ */

typedef struct bench {
    const ca_kernel *kernel;
    int32_t d, n_rows, n_heads, n_chunks;
    char *kv, *q, *states, *scratch;
    size_t tile_bytes; /* K or V of a head and chunk */
} bench;

/* [chunk][head][K, V], as in a cache of one layer. */
static char *k_tile(const bench *b, int32_t chunk, int32_t head) {
    return b->kv + ((size_t)chunk * (size_t)b->n_heads + (size_t)head) * 2 * b->tile_bytes;
}

static void fill(const bench *b, const ca_layout *l) {
    rng r = {1};
    float row[CA_MAX_HEAD_SIZE];
    for (int32_t i = 0; i < b->d; i++) row[i] = rng_float(&r);
    for (int32_t chunk = 0; chunk < CHUNKS; chunk++)
        for (int32_t head = 0; head < HEADS; head++)
            for (int32_t slot = 0; slot < C; slot++) {
                char *k = b->kv + ((size_t)chunk * HEADS + (size_t)head) * 2 * b->tile_bytes;
                row[rng_below(&r, b->d)] = rng_float(&r);
                ca_layout_write(l, k, k + b->tile_bytes, 0, slot, row, row);
            }
}

static void pass(const bench *b) {
    const size_t query = b->kernel->query_bytes(b->d), state = b->kernel->state_bytes(b->d);
    for (int32_t head = 0; head < b->n_heads; head++)
        for (int32_t chunk = 0; chunk < b->n_chunks; chunk++) {
            const char *k = k_tile(b, chunk, head), *next = k_tile(b, chunk + 1 < b->n_chunks ? chunk + 1 : 0, head);
            const size_t row = (size_t)head * (size_t)b->n_rows;
            const ca_tile tile = {.d_k = b->d,
                                  .d_v = b->d,
                                  .c = C,
                                  .n_rows = b->n_rows,
                                  .q = b->q + query * row,
                                  .state = b->states + state * row,
                                  .k = k,
                                  .v = k + b->tile_bytes,
                                  .next_k = next,
                                  .next_v = next + b->tile_bytes,
                                  .scratch = b->scratch};
            b->kernel->attend(&tile);
        }
}

/* Seconds for each chunk and head, the best of several measurements. */
static double time_chunk(const bench *b, int32_t n_passes) {
    const int32_t rows = b->n_heads * b->n_rows;
    double best = 1e9;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        b->kernel->init(b->states, rows, b->d);
        const double start = now();
        for (int32_t i = 0; i < n_passes; i++) pass(b);
        const double seconds = now() - start;
        best = seconds < best ? seconds : best;
    }
    return best / ((double)b->n_heads * b->n_chunks * n_passes);
}

static bench open_bench(const ca_kernel *kernel, int32_t d) {
    const size_t align = (size_t)2 << 20;
    const ca_layout l = layout_of(kernel->kv_type, d, d, C);
    bench b = {.kernel = kernel, .d = d, .tile_bytes = l.k_bytes};
    const size_t kv_bytes = (2 * b.tile_bytes * HEADS * CHUNKS + align - 1) / align * align;
    const size_t n_rows = (size_t)HEADS * (size_t)kernel->max_rows;
    b.kv = aligned_alloc(align, kv_bytes);
    b.q = guard_new(kernel->query_bytes(d) * n_rows);
    b.states = guard_new(kernel->state_bytes(d) * n_rows);
    b.scratch = guard_new(kernel->scratch_bytes(d, d, C));
    float *q = guard_new(n_rows * (size_t)d * sizeof(float));
    if (!b.kv) exit(2);
    madvise(b.kv, kv_bytes, MADV_HUGEPAGE);
    fill(&b, &l);
    rng r = {2};
    for (size_t i = 0; i < n_rows * (size_t)d; i++) q[i] = rng_float(&r);
    kernel->pack_query(q, d, (int32_t)n_rows, d, 0.3f, b.q);
    guard_free(q);
    return b;
}

static void close_bench(bench *b) {
    free(b->kv);
    guard_free(b->q), guard_free(b->states), guard_free(b->scratch);
}

static double time_cold(bench *b, int32_t n_rows) {
    b->n_rows = n_rows;
    b->n_heads = HEADS;
    b->n_chunks = CHUNKS;
    return time_chunk(b, 1);
}

static void bench_shape(const ca_kernel *kernel, int32_t d, double peak) {
    static const int32_t all_rows[] = {1, 8, 32, 96};
    bench b = open_bench(kernel, d);
    const unsigned mode = ca_fp_enter();
    for (size_t i = 0; i < sizeof all_rows / sizeof all_rows[0]; i++) {
        b.n_rows = all_rows[i];
        b.n_heads = b.n_chunks = 1;
        const double hot = time_chunk(&b, 4000 / (b.n_rows + 4) + 1);
        const double cold = time_cold(&b, all_rows[i]);
        const double flops = 4.0 * b.n_rows * C * d / 1e9, bytes = 2 * (double)b.tile_bytes / 1e9;
        printf("%-12s %-5s %4d %5d %9.1f %7.1f %9.1f %7.1f %9.1f\n", kernel->level, type_names[kernel->kv_type], d, b.n_rows,
               flops / hot, peak > 0 ? 100 * flops / hot / peak : 0, flops / cold, peak > 0 ? 100 * flops / cold / peak : 0,
               bytes / cold);
    }
    ca_fp_leave(mode);
    close_bench(&b);
}

void bench_kernel(const ca_kernel *kernel, int32_t head_dim) {
    const double peak = peak_gflops(kernel->level, kernel->kv_type);
    printf("\n%s: one core's peak %.0f GFLOP/s\n", kernel->level, peak);
    printf("%-12s %-5s %4s %5s %9s %7s %9s %7s %9s\n", "level", "type", "d", "rows", "hot GF/s", "% peak", "cold GF/s",
           "% peak", "GB/s");
    if (head_dim) {
        bench_shape(kernel, head_dim, peak);
        return;
    }
    bench_shape(kernel, 64, peak);
    bench_shape(kernel, 128, peak);
}

/* ---- The cost model ---- */

/* Least squares of the relative error of a + b * rows. Returns a / b: what a chunk costs, in rows. */
static double chunk_cost(const ca_kernel *kernel, int32_t d) {
    static const int32_t all_rows[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96};
    double s0 = 0, s1 = 0, s2 = 0, t0 = 0, t1 = 0; /* sums of 1, r, r^2 over t^2, and of 1, r over t */
    bench b = open_bench(kernel, d);
    const unsigned mode = ca_fp_enter();
    for (size_t i = 0; i < sizeof all_rows / sizeof all_rows[0] && all_rows[i] <= kernel->max_rows; i++) {
        const double r = all_rows[i], t = time_cold(&b, all_rows[i]) * 1e9;
        s0 += 1 / (t * t), s1 += r / (t * t), s2 += r * r / (t * t);
        t0 += 1 / t, t1 += r / t;
    }
    ca_fp_leave(mode);
    close_bench(&b);
    return (t0 * s2 - t1 * s1) / (t1 * s0 - t0 * s1);
}

void measure_costs(const ca_kernel *kernel) {
    const double small = chunk_cost(kernel, 64), large = chunk_cost(kernel, 128);
    printf("%-12s %-5s tile_rows %2d  chunk_cost %4.1f (d = 64), %4.1f (d = 128); the table has %.1f\n", kernel->level,
           type_names[kernel->kv_type], kernel->tile_rows, small, large, (double)kernel->chunk_cost);
}
