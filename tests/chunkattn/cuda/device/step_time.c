/*
 * The host's time of a decode step on a device: begin, write and attend of each layer, end. Neither copies nor kernels run. The
 * first figure is of steps without structural change, the second of steps in which a sequence begins a chunk.
 *
 * usage: cuda_device_step_time [batch [shared tokens [own tokens [layers]]]]
 */
#define CATTN_EXPERIMENTAL
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "chunkattn/cuda/emu/emu_runtime.h"
#include "chunkattn_cuda.h"
#include "chunkattn_inspect.h"

enum { HEADS = 32, KV_HEADS = 8, DIM = 128, STEPS = 400 };

static void check(cattn_status status, const cattn_error *error) {
    if (status == CATTN_OK) return;
    fprintf(stderr, "%s: %s\n", cattn_status_name(status), error->message);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, double *times, int n) {
    qsort(times, (size_t)n, sizeof *times, compare);
    printf("%s: %d steps, median %.2f us, least %.2f\n", name, n, n ? times[n / 2] : 0.0, n ? times[0] : 0.0);
}

/* What is measured. */
typedef struct shape {
    int batch, shared, own, layers; /* sequences; tokens that all have, and that each has alone */
} shape;

static cattn_cache *create(const shape *s) {
    cattn_config config;
    cattn_error error;
    cattn_cache *cache;
    cattn_config_init(&config);
    config.n_layers = s->layers;
    config.n_heads = HEADS;
    config.n_kv_heads = KV_HEADS;
    config.head_dim = DIM;
    config.cuda = &(cattn_cuda_config){.device = 0};
    config.budget_bytes = (uint64_t)8 << 30;
    emu_set_processors(132); /* as many as an H100 has */
    emu_set_streams(EMU_NOTHING, 1);
    check(cattn_cache_create(&config, &cache, &error), &error);
    return cache;
}

static void join_all(cattn_cache *cache, const shape *s, cattn_entry *entries) {
    cattn_error error;
    const int n = s->shared + s->own;
    int32_t *prompt = calloc((size_t)n, sizeof *prompt);
    for (int i = 0; i < s->batch; i++) {
        for (int t = 0; t < n; t++) prompt[t] = t < s->shared ? t : 100000 + 1000 * i + t;
        check(cattn_seq_join(cache, prompt, n, NULL, &entries[i].seq, NULL, &error), &error);
        entries[i].max_rows = 1 << 20;
    }
    free(prompt);
}

/* Append a token, which no prompt has. Whether it begins a chunk. */
static bool append(cattn_cache *cache, cattn_seq seq) {
    const int32_t token = 5;
    cattn_error error;
    cattn_seq_info info = {.struct_size = sizeof info};
    check(cattn_seq_append(cache, seq, &token, 1, &error), &error);
    check(cattn_seq_get_info(cache, seq, &info, &error), &error);
    return info.n_tokens % 64 == 1;
}

/* A step without attention: the tokens count as computed. */
static void skip_step(cattn_cache *cache, const shape *s, cattn_entry *entries) {
    cattn_error error;
    check(cattn_cuda_step_begin(cache, entries, s->batch, 0, NULL, NULL, &error), &error);
    check(cattn_step_end(cache, &error), &error);
}

/* Returns the microseconds of a step. `rows` stands for device memory. */
static double decode(cattn_cache *cache, const shape *s, cattn_entry *entries, float *rows) {
    const cattn_view kv = {rows, CATTN_F32, KV_HEADS * DIM, DIM}, q = {rows, CATTN_F32, HEADS * DIM, DIM};
    cattn_error error;
    const double start = now();
    check(cattn_cuda_step_begin(cache, entries, s->batch, 0, NULL, NULL, &error), &error);
    for (int layer = 0; layer < s->layers; layer++) {
        check(cattn_cuda_step_write(cache, layer, &kv, &kv, NULL, &error), &error);
        check(cattn_cuda_step_attend(cache, layer, &q, &q, NULL, NULL, &error), &error);
    }
    check(cattn_step_end(cache, &error), &error);
    return now() - start;
}

/* Megabytes on the device besides chunks. */
static double workspace_of(const cattn_cache *cache) {
    cattn_stats stats = {.struct_size = sizeof stats};
    cattn_cache_stats(cache, &stats);
    return (double)(stats.bytes_in_use - stats.chunks_live * stats.chunk_bytes) * 1e-6;
}

int main(int argc, char **argv) {
    const shape s = {argc > 1 ? atoi(argv[1]) : 32, argc > 2 ? atoi(argv[2]) : 4096, argc > 3 ? atoi(argv[3]) : 64,
                     argc > 4 ? atoi(argv[4]) : 1};
    cattn_cache *cache = create(&s);
    cattn_entry *entries = calloc((size_t)s.batch, sizeof *entries);
    join_all(cache, &s, entries);
    skip_step(cache, &s, entries);
    printf("%d sequences of %d + %d tokens, %d layers; workspace of prefill in one step: at most %.1f MB\n", s.batch, s.shared,
           s.own, s.layers, workspace_of(cache));
    for (int i = 0; i < s.batch; i++) /* lengths differ, so that few sequences begin a chunk in the same step */
        for (int t = 0; t < i % 64; t++) append(cache, entries[i].seq);
    skip_step(cache, &s, entries);

    float *rows = aligned_alloc(16, (size_t)s.batch * HEADS * DIM * sizeof *rows);
    static double times[2][STEPS];
    int n[2] = {0, 0};
    for (int step = 0; step < STEPS; step++) {
        bool begins = false;
        for (int i = 0; i < s.batch; i++) begins |= append(cache, entries[i].seq);
        times[begins][n[begins]] = decode(cache, &s, entries, rows);
        n[begins]++;
    }
    report("without structural change", times[0], n[0]);
    report("a chunk begins", times[1], n[1]);
    cattn_cache_destroy(&cache);
    free(entries);
    free(rows);
    return 0;
}
