/* A prompt is computed in one cache, goes through a file, and is continued in another cache, as a second process would do it.
 */
#include <chunkattn.h>
#include <stdio.h>
#include <stdlib.h>

enum { DIM = 64, PROMPT = 1000 };

static cattn_error error;

static void check(cattn_status status) {
    if (status == CATTN_OK) return;
    fprintf(stderr, "%s: %s\n", cattn_status_name(status), error.message);
    exit(1);
}

static cattn_cache *create(void) {
    cattn_config config;
    cattn_config_init(&config);
    config.n_layers = config.n_heads = config.n_kv_heads = 1;
    config.head_dim = DIM;
    config.tier_fingerprint[0] = 0x5eed; /* a hash of the weights and of the program */
    cattn_cache *cache;
    check(cattn_cache_create(&config, &cache, &error));
    return cache;
}

/* One step of a sequence. Returns its rows. */
static int step(cattn_cache *cache, cattn_seq seq) {
    static float rows[PROMPT][DIM], out[PROMPT][DIM];
    const cattn_view in = {rows, CATTN_F32, DIM, DIM}, to = {out, CATTN_F32, DIM, DIM};
    cattn_entry entry = {.seq = seq, .max_rows = PROMPT};
    check(cattn_step_begin(cache, &entry, 1, 0, &error));
    check(cattn_step_write(cache, 0, &in, &in, &error));
    check(cattn_step_attend(cache, 0, &in, &to, NULL, &error));
    check(cattn_step_end(cache, &error));
    return (int)entry.n_rows;
}

static int to_file(void *file, const void *bytes, size_t n_bytes) { return fwrite(bytes, 1, n_bytes, file) != n_bytes; }

int main(void) {
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++) prompt[i] = i;
    FILE *file = tmpfile();
    if (!file) return 1;

    cattn_cache *cache = create();
    cattn_seq seq;
    check(cattn_seq_join(cache, prompt, PROMPT, NULL, &seq, NULL, &error));
    const int n_computed = step(cache, seq);
    /* The bytes go to the file chunk by chunk. */
    check(cattn_seq_export(cache, seq, PROMPT, to_file, file, &error));
    const size_t n_bytes = (size_t)cattn_cache_export_bytes(cache, PROMPT);
    cattn_cache_destroy(&cache);

    void *bytes = malloc(n_bytes);
    rewind(file);
    if (!bytes || fread(bytes, 1, n_bytes, file) != n_bytes) return 1;
    cache = create();
    /* All of the prompt is ready; the first step computes the token that is appended. */
    check(cattn_seq_import(cache, bytes, n_bytes, NULL, &seq, NULL, &error));
    check(cattn_seq_append(cache, seq, &(int32_t){7}, 1, &error));
    printf("%d rows, then %d\n", n_computed, step(cache, seq));
    cattn_cache_destroy(&cache);
    free(bytes);
    fclose(file);
    return 0;
}
