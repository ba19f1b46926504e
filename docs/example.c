/* Two prompts with 1000 common tokens: stored once, computed once, read once. */
#include <chunkattn.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 8, KV_HEADS = 2, DIM = 64, COMMON = 1000, OWN = 20, N = COMMON + OWN };

int main(void) {
    cattn_error error;
    cattn_config config;
    cattn_config_init(&config);
    config.n_layers = 1;
    config.n_heads = HEADS;
    config.n_kv_heads = KV_HEADS;
    config.head_dim = DIM;
    cattn_cache *cache;
    if (cattn_cache_create(&config, &cache, &error)) return fprintf(stderr, "%s\n", error.message), 1;

    cattn_entry batch[2];
    for (int s = 0; s < 2; s++) {
        int32_t tokens[N];
        for (int i = 0; i < N; i++) tokens[i] = i < COMMON ? i : 5000 + 100 * s + i;
        batch[s] = (cattn_entry){.max_rows = N};
        if (cattn_seq_join(cache, tokens, N, NULL, &batch[s].seq, NULL, &error))
            return fprintf(stderr, "%s\n", error.message), 1;
    }

    if (cattn_step_begin(cache, batch, 2, 0, &error)) return fprintf(stderr, "%s\n", error.message), 1;
    const long rows = (long)(batch[0].n_rows + batch[1].n_rows); /* 1040, not 2040: the prefix is computed once */
    float *kv = calloc((size_t)rows * KV_HEADS * DIM, sizeof *kv), *q = calloc((size_t)rows * HEADS * DIM, sizeof *q);
    float *out = calloc((size_t)rows * HEADS * DIM, sizeof *out); /* a model fills k, v and q from the rows' tokens */
    cattn_step_write(cache, 0, &(cattn_view){kv, CATTN_F32, KV_HEADS * DIM, DIM},
                     &(cattn_view){kv, CATTN_F32, KV_HEADS * DIM, DIM}, NULL);
    cattn_step_attend(cache, 0, &(cattn_view){q, CATTN_F32, HEADS * DIM, DIM}, &(cattn_view){out, CATTN_F32, HEADS * DIM, DIM},
                      NULL, NULL);
    cattn_step_end(cache, NULL);

    cattn_stats stats = {.struct_size = sizeof stats};
    cattn_cache_stats(cache, &stats);
    printf("rows computed %ld, tokens stored %d, without sharing %d\n", rows, (int)stats.tokens_stored,
           (int)stats.tokens_referenced);
    cattn_cache_destroy(&cache);
    return 0;
}
