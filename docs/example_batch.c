/* A batch as an engine meets it: a prompt with an image, two completions of it, and who gets the logits. */
#include <chunkattn_inspect.h>
#include <stdio.h>
#include <stdlib.h>

enum { DIM = 64, PROMPT = 100, IMAGE_BEGIN = 20, IMAGE = 32, PLACEHOLDER = 7, DECODED = 4 };

static cattn_error error;

static void check(cattn_status status) {
    if (status == CATTN_OK) return;
    fprintf(stderr, "%s: %s\n", cattn_status_name(status), error.message);
    exit(1);
}

/* A step. next[i]: the token that the logits of entry i's last row give; -1 if it has no such row. */
static void step(cattn_cache *cache, cattn_entry *batch, int n, int32_t *next) {
    static float data[PROMPT * DIM], out[PROMPT * DIM];
    static int32_t tokens[PROMPT], entries[PROMPT];
    static int64_t positions[PROMPT];
    static bool is_last[PROMPT];
    const cattn_view in = {data, CATTN_F32, DIM, DIM}, to = {out, CATTN_F32, DIM, DIM};
    cattn_rows rows = {sizeof rows, PROMPT, 0, tokens, positions, entries, is_last};
    check(cattn_step_begin(cache, batch, n, 0, &error));
    check(cattn_step_rows(cache, &rows, &error)); /* what the model embeds and rotates */
    for (int64_t row = 0; row < rows.n_rows; row++)
        for (int i = 0; i < DIM; i++) data[row * DIM + i] = (float)(tokens[row] + positions[row]);
    check(cattn_step_write(cache, 0, &in, &in, &error));
    check(cattn_step_attend(cache, 0, &in, &to, NULL, &error));
    check(cattn_step_end(cache, &error));
    for (int i = 0; i < n; i++) next[i] = -1;
    for (int64_t i = 0; i < rows.n_rows; i++)
        if (is_last[i]) next[entries[i]] = 1000 + (int32_t)positions[i]; /* a sampler's choice */
}

int main(void) {
    cattn_config config;
    cattn_config_init(&config);
    config.n_layers = config.n_heads = config.n_kv_heads = 1;
    config.head_dim = DIM;
    config.kv_type = CATTN_F32;
    config.chunk_size = 16; /* short chats: see docs/library.md, "Memory" */
    cattn_cache *cache;
    check(cattn_cache_create(&config, &cache, &error));

    /* The same tokens stand for any image; its hash says which one it is. */
    int32_t prompt[PROMPT], next[2];
    for (int i = 0; i < PROMPT; i++) prompt[i] = i >= IMAGE_BEGIN && i < IMAGE_BEGIN + IMAGE ? PLACEHOLDER : i;
    const cattn_extra image = {IMAGE_BEGIN, IMAGE, 0x5eed};
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.extras = &image;
    options.n_extras = 1;
    cattn_entry batch[2] = {{.max_rows = PROMPT}, {.max_rows = 1}};
    check(cattn_seq_join(cache, prompt, PROMPT, &options, &batch[0].seq, NULL, &error));
    step(cache, batch, 1, next);

    /* The fork has all K/V, and so gets no row of its own, unless it has its last token computed once more. */
    check(cattn_seq_fork(cache, batch[0].seq, 0, &batch[1].seq, &error));
    check(cattn_seq_recompute_last(cache, batch[1].seq, &error));
    step(cache, &batch[1], 1, &next[1]);
    for (int i = 0; i < DECODED; i++) { /* both decode */
        const cattn_append appends[] = {{batch[0].seq, &next[0], 1, 0}, {batch[1].seq, &next[1], 1, 0}};
        check(cattn_seqs_append(cache, appends, 2, NULL, &error));
        batch[0].max_rows = 1;
        step(cache, batch, 2, next);
    }
    float k[DIM];
    const cattn_view view = {k, CATTN_F32, DIM, DIM};
    check(cattn_seq_read(cache, batch[1].seq, 0, PROMPT - 1, 1, &view, NULL, &error));
    printf("K of the last token of the prompt begins with %g\n", (double)k[0]);

    cattn_join_result with, without; /* the same tokens, with and without the image */
    check(cattn_cache_match(cache, prompt, PROMPT, &options, &with, &error));
    check(cattn_cache_match(cache, prompt, PROMPT, NULL, &without, &error));
    cattn_stats stats = {.struct_size = sizeof stats};
    check(cattn_cache_stats_fast(cache, &stats));
    printf("%d and %d tokens match; %d sequences\n", (int)with.n_matched, (int)without.n_matched, (int)stats.n_seqs);
    cattn_cache_destroy(&cache);
    return 0;
}
