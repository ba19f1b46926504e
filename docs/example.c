/* Two prompts of 1020 tokens, of which the first 1000 are the same: stored once, computed once, read once. */
#include <chunkattn.h>
#include <chunkattn_inspect.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 8, KV_HEADS = 2, DIM = 64, COMMON = 1000, PROMPT = 1020, MAX_ROWS = 2 * PROMPT };

/* What a model computes for the rows of a step: here zeros. [rows][heads][DIM] */
static float q_data[MAX_ROWS][HEADS][DIM], k_data[MAX_ROWS][KV_HEADS][DIM], v_data[MAX_ROWS][KV_HEADS][DIM];
static float out_data[MAX_ROWS][HEADS][DIM];

static cattn_error error;

static void check(cattn_status status) {
    if (status == CATTN_OK) return;
    fprintf(stderr, "%s: %s\n", cattn_status_name(status), error.message);
    exit(1);
}

int main(void) {
    static int32_t prompt[2][PROMPT];
    for (int s = 0; s < 2; s++)
        for (int i = 0; i < PROMPT; i++) prompt[s][i] = i < COMMON ? i : 5000 + 100 * s + i;
    const cattn_view q = {q_data, CATTN_F32, HEADS * DIM, DIM}, out = {out_data, CATTN_F32, HEADS * DIM, DIM};
    const cattn_view k = {k_data, CATTN_F32, KV_HEADS * DIM, DIM}, v = {v_data, CATTN_F32, KV_HEADS * DIM, DIM};

    cattn_config config;
    cattn_config_init(&config);
    config.n_layers = 1, config.n_heads = HEADS, config.n_kv_heads = KV_HEADS, config.head_dim = DIM;
    cattn_cache *cache;
    check(cattn_cache_create(&config, &cache, &error));
    cattn_entry batch[2] = {{.max_rows = PROMPT}, {.max_rows = PROMPT}};
    for (int s = 0; s < 2; s++) /* a join finds the longest prefix that is in the cache */
        check(cattn_seq_join(cache, prompt[s], PROMPT, NULL, &batch[s].seq, NULL, &error));
    check(cattn_step_begin(cache, batch, 2, 0, &error)); /* 1020 rows for the first, 20 for the second */
    for (int layer = 0; layer < config.n_layers; layer++) {
        /* The model computes q, k and v of the rows here. */
        check(cattn_step_write(cache, layer, &k, &v, &error));
        check(cattn_step_attend(cache, layer, &q, &out, NULL, &error));
    }
    check(cattn_step_end(cache, &error));

    cattn_stats stats = {.struct_size = sizeof stats};
    check(cattn_cache_stats(cache, &stats));
    printf("rows computed: %d; tokens stored: %d, without sharing %d\n", (int)(batch[0].n_rows + batch[1].n_rows),
           (int)stats.tokens_stored, (int)stats.tokens_referenced);
    cattn_cache_destroy(&cache);
    return 0;
}
