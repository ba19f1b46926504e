/* A decode loop: two prompts that begin alike, then 16 tokens each. The model is one layer that makes its numbers up. */
#include <chunkattn.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS = 8, KV_HEADS = 2, DIM = 64, PROMPT = 1020, COMMON = 1000, DECODED = 16, MAX_ROWS = 2 * PROMPT };

static void check(cattn_status status, const cattn_error *error) {
    if (status == CATTN_OK) return;
    fprintf(stderr, "%s: %s\n", cattn_status_name(status), error->message);
    exit(1);
}

/* A step of all layers. Its rows are batch[0].n_rows tokens from batch[0].first_pos on, then those of batch[1]. */
static void step(cattn_cache *cache, cattn_entry *batch, int n) {
    static float k[MAX_ROWS][KV_HEADS * DIM], v[MAX_ROWS][KV_HEADS * DIM];
    static float q[MAX_ROWS][HEADS * DIM], out[MAX_ROWS][HEADS * DIM];
    const cattn_view k_view = {k, CATTN_F32, KV_HEADS * DIM, DIM}, v_view = {v, CATTN_F32, KV_HEADS * DIM, DIM};
    const cattn_view q_view = {q, CATTN_F32, HEADS * DIM, DIM}, out_view = {out, CATTN_F32, HEADS * DIM, DIM};
    cattn_error error;
    check(cattn_step_begin(cache, batch, n, 0, &error), &error);
    for (int layer = 0; layer < 1; layer++) { /* a model makes k, v and q of the rows first, and goes on from out */
        check(cattn_step_write(cache, layer, &k_view, &v_view, &error), &error);
        check(cattn_step_attend(cache, layer, &q_view, &out_view, NULL, &error), &error);
    }
    check(cattn_step_end(cache, &error), &error); /* the rows' tokens are ready, for all */
}

int main(void) {
    cattn_error error;
    cattn_config config;
    cattn_config_init(&config);
    config.n_layers = 1;
    config.n_heads = HEADS;
    config.n_kv_heads = KV_HEADS;
    config.head_dim = DIM;
    cattn_cache *cache;
    check(cattn_cache_create(&config, &cache, &error), &error);

    cattn_entry batch[2];
    for (int s = 0; s < 2; s++) {
        int32_t prompt[PROMPT];
        for (int i = 0; i < PROMPT; i++) prompt[i] = i < COMMON ? i : 5000 + 100 * s + i;
        batch[s] = (cattn_entry){.max_rows = PROMPT};
        check(cattn_seq_join(cache, prompt, PROMPT, NULL, &batch[s].seq, NULL, &error), &error);
    }
    step(cache, batch, 2); /* prefill: the common 1000 are rows of one of the two */
    printf("prefill: %d and %d rows\n", (int)batch[0].n_rows, (int)batch[1].n_rows);

    for (int i = 0; i < DECODED; i++) {
        for (int s = 0; s < 2; s++) {
            const int32_t token = 7000 + 100 * s + i; /* a sampler takes it from the logits of the sequence's last row */
            check(cattn_seq_append(cache, batch[s].seq, &token, 1, &error), &error);
            batch[s].max_rows = 1;
        }
        step(cache, batch, 2);
    }
    for (int s = 0; s < 2; s++) check(cattn_seq_leave(cache, &batch[s].seq, &error), &error);
    cattn_cache_destroy(&cache);
    return 0;
}
