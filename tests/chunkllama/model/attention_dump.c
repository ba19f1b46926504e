/*
 * Attention of one sequence as the library computes it with a K/V type, for tests/chunkllama/model/test_kv_types.py.
 *
 * attention_dump N HEADS KV_HEADS HEAD_DIM KV_TYPE IN OUT
 *
 * IN: q [N][HEADS][HEAD_DIM], k and v [N][KV_HEADS][HEAD_DIM], one after the other, f32. OUT: [N][HEADS][HEAD_DIM], f32. Row i
 * attends to rows 0 to i. Prints the kernel level.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn.h"

static _Noreturn void give_up(const char *what, const char *why) {
    (void)fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void check(cattn_status status, const cattn_error *error) {
    if (status != CATTN_OK) give_up(cattn_status_name(status), error->message);
}

static cattn_type type_of(const char *name) {
    static const char *const names[] = {[CATTN_F32] = "f32", [CATTN_F16] = "f16", [CATTN_BF16] = "bf16", [CATTN_I8] = "int8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return (cattn_type)i;
    give_up(name, "not a K/V type");
}

int main(int argc, char **argv) {
    if (argc != 8) give_up("usage", "attention_dump N HEADS KV_HEADS HEAD_DIM KV_TYPE IN OUT");
    cattn_config config;
    cattn_config_init(&config);
    const int n = atoi(argv[1]);
    config.n_layers = 1;
    config.n_heads = atoi(argv[2]);
    config.n_kv_heads = atoi(argv[3]);
    config.head_dim = atoi(argv[4]);
    config.kv_type = type_of(argv[5]);
    cattn_cache *cache;
    cattn_error error;
    check(cattn_cache_create(&config, &cache, &error), &error);

    const size_t q_row = (size_t)(config.n_heads * config.head_dim), kv_row = (size_t)(config.n_kv_heads * config.head_dim);
    const size_t n_out = (size_t)n * q_row, n_in = n_out + 2 * (size_t)n * kv_row;
    float *in = malloc(n_in * sizeof *in), *out = malloc(n_out * sizeof *out);
    int32_t *tokens = calloc((size_t)n, sizeof *tokens);
    if (!in || !out || !tokens) give_up("memory", "not enough");
    FILE *file = fopen(argv[6], "rb");
    if (!file || fread(in, sizeof *in, n_in, file) != n_in || fclose(file)) give_up(argv[6], "cannot be read");

    cattn_entry entry = {.max_rows = n};
    check(cattn_seq_join(cache, tokens, n, NULL, &entry.seq, NULL, &error), &error);
    check(cattn_step_begin(cache, &entry, 1, 0, &error), &error);
    const cattn_view q = {in, CATTN_F32, (int64_t)q_row, config.head_dim};
    const cattn_view k = {in + n_out, CATTN_F32, (int64_t)kv_row, config.head_dim};
    const cattn_view v = {in + n_out + (size_t)n * kv_row, CATTN_F32, (int64_t)kv_row, config.head_dim};
    const cattn_view result = {out, CATTN_F32, (int64_t)q_row, config.head_dim};
    check(cattn_step_write(cache, 0, &k, &v, &error), &error);
    check(cattn_step_attend(cache, 0, &q, &result, NULL, &error), &error);
    check(cattn_step_end(cache, &error), &error);
    (void)puts(cattn_cache_level(cache));
    cattn_cache_destroy(&cache);

    file = fopen(argv[7], "wb");
    if (!file || fwrite(out, sizeof *out, n_out, file) != n_out || fclose(file)) give_up(argv[7], "cannot be written");
    free(in), free(out), free(tokens);
    return 0;
}
