/*
 * The host's time of a decode step on a device: begin, write and attend of each layer, end. Neither copies nor kernels run. The
 * first figure is of steps without structural change, the second of steps in which a sequence fills a chunk.
 *
 * usage: cuda_device_step_time [batch [shared tokens [own tokens [layers]]]]
 */
#define CATTN_EXPERIMENTAL
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "chunkattn_cuda.h"
#include "emu_backend.h"

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

int main(int argc, char **argv) {
    const int batch = argc > 1 ? atoi(argv[1]) : 32, shared = argc > 2 ? atoi(argv[2]) : 4096,
              own = argc > 3 ? atoi(argv[3]) : 64, layers = argc > 4 ? atoi(argv[4]) : 1;
    cattn_config config;
    cattn_error error;
    cattn_cache *cache;
    cattn_config_init(&config);
    config.n_layers = layers;
    config.n_heads = HEADS;
    config.n_kv_heads = KV_HEADS;
    config.head_dim = DIM;
    config.cuda_device = 0;
    config.budget_bytes = (uint64_t)8 << 30;
    emu_set_processors(132); /* as many as an H100 has */
    emu_set_streams(EMU_NOTHING, 1);
    check(cattn_cache_create(&config, &cache, &error), &error);
    cattn_entry *entries = calloc((size_t)batch, sizeof *entries);
    int32_t *prompt = calloc((size_t)(shared + own), sizeof *prompt);
    for (int i = 0; i < batch; i++) {
        for (int t = 0; t < shared + own; t++) prompt[t] = t < shared ? t : 100000 + 1000 * i + t;
        check(cattn_seq_join(cache, prompt, shared + own, NULL, &entries[i].seq, NULL, &error), &error);
        entries[i].max_rows = 1 << 20;
    }
    check(cattn_cuda_step_begin(cache, entries, batch, 0, NULL, NULL, &error), &error);
    check(cattn_step_end(cache, &error), &error);
    cattn_stats stats = {.struct_size = sizeof stats};
    check(cattn_cache_stats(cache, &stats), &error);
    const double workspace = (double)(stats.bytes_in_use - stats.chunks_live * stats.chunk_bytes) * 1e-6;
    /* Lengths differ, so that at most some sequences fill a chunk in a step. */
    for (int i = 0; i < batch; i++) {
        const int32_t token = 5;
        for (int t = 0; t < i % 64; t++) check(cattn_seq_append(cache, entries[i].seq, &token, 1, &error), &error);
    }
    check(cattn_cuda_step_begin(cache, entries, batch, 0, NULL, NULL, &error), &error);
    check(cattn_step_end(cache, &error), &error);
    float *rows = aligned_alloc(16, (size_t)batch * HEADS * DIM * sizeof *rows); /* stands for device memory */
    const cattn_view kv = {rows, CATTN_F32, KV_HEADS * DIM, DIM}, q = {rows, CATTN_F32, HEADS * DIM, DIM};
    static double same[STEPS], other[STEPS];
    int n_same = 0, n_other = 0;
    for (int step = 0; step < STEPS; step++) {
        bool fills = false;
        for (int i = 0; i < batch; i++) {
            const int32_t token = 5;
            check(cattn_seq_append(cache, entries[i].seq, &token, 1, &error), &error);
            cattn_seq_info info = {.struct_size = sizeof info};
            check(cattn_seq_get_info(cache, entries[i].seq, &info, &error), &error);
            fills |= info.n_tokens % 64 == 1;
            entries[i].max_rows = 1;
        }
        const double start = now();
        check(cattn_cuda_step_begin(cache, entries, batch, 0, NULL, NULL, &error), &error);
        for (int layer = 0; layer < layers; layer++) {
            check(cattn_cuda_step_write(cache, layer, &kv, &kv, NULL, &error), &error);
            check(cattn_cuda_step_attend(cache, layer, &q, &q, NULL, NULL, &error), &error);
        }
        check(cattn_step_end(cache, &error), &error);
        const double time = now() - start;
        if (fills)
            other[n_other++] = time;
        else
            same[n_same++] = time;
    }
    printf("%d sequences of %d + %d tokens, %d layers; workspace of prefill in one step: at most %.1f MB\n", batch, shared, own,
           layers, workspace);
    report("without structural change", same, n_same);
    report("a chunk is filled", other, n_other);
    cattn_cache_destroy(&cache);
    free(entries);
    free(prompt);
    free(rows);
    return 0;
}
