/* A program of somebody else's: two sequences with a common prefix, one step, against the installed header and library only. */
#include <chunkattn.h>
#include <stdio.h>
#include <string.h>

enum { DIM = 64, N_TOKENS = 40 };

static int failed(const char *what, const cattn_error *error) {
    fprintf(stderr, "%s: %s: %s\n", what, cattn_status_name(error->code), error->message);
    return 1;
}

int main(void) {
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", CATTN_VERSION_MAJOR, CATTN_VERSION_MINOR, CATTN_VERSION_PATCH);
    if (strcmp(version, cattn_version()) != 0) return fprintf(stderr, "header %s, library %s\n", version, cattn_version());

    cattn_config config;
    cattn_config_init(&config);
    config.n_layers = config.n_heads = config.n_kv_heads = 1;
    config.head_dim = DIM;
    config.budget_bytes = 64 << 20;
    config.n_threads = 2;
    cattn_cache *cache;
    cattn_error error = {0};
    if (cattn_cache_create(&config, &cache, &error)) return failed("create", &error);

    int32_t tokens[N_TOKENS];
    for (int i = 0; i < N_TOKENS; i++) tokens[i] = i;
    cattn_entry entries[2] = {{.max_rows = N_TOKENS}, {.max_rows = N_TOKENS}};
    cattn_join_result joined;
    if (cattn_seq_join(cache, tokens, N_TOKENS, NULL, &entries[0].seq, NULL, &error)) return failed("join", &error);
    tokens[N_TOKENS - 1]++;
    if (cattn_seq_join(cache, tokens, N_TOKENS, NULL, &entries[1].seq, &joined, &error)) return failed("join", &error);
    if (joined.n_matched != N_TOKENS - 2) return fprintf(stderr, "matched %d tokens\n", (int)joined.n_matched);

    if (cattn_step_begin(cache, entries, 2, 0, &error)) return failed("begin", &error);
    static float k[2 * N_TOKENS][DIM], v[2 * N_TOKENS][DIM], q[2 * N_TOKENS][DIM], out[2 * N_TOKENS][DIM];
    for (int i = 0; i < 2 * N_TOKENS; i++)
        for (int j = 0; j < DIM; j++) v[i][j] = 1; /* so every output is a mean of ones */
    cattn_view views[4] = {
        {k, CATTN_F32, DIM, DIM}, {v, CATTN_F32, DIM, DIM}, {q, CATTN_F32, DIM, DIM}, {out, CATTN_F32, DIM, DIM}};
    if (cattn_step_write(cache, 0, &views[0], &views[1], &error)) return failed("write", &error);
    if (cattn_step_attend(cache, 0, &views[2], &views[3], NULL, &error)) return failed("attend", &error);
    if (cattn_step_end(cache, &error)) return failed("end", &error);
    const int64_t n_rows = entries[0].n_rows + entries[1].n_rows;
    if (n_rows != N_TOKENS + 2) return fprintf(stderr, "%d rows\n", (int)n_rows);
    for (int64_t i = 0; i < n_rows; i++)
        for (int j = 0; j < DIM; j++)
            if (out[i][j] < 0.99f || out[i][j] > 1.01f) return fprintf(stderr, "row %d is %g\n", (int)i, (double)out[i][j]);
    cattn_cache_destroy(&cache);
    puts("ok");
    return 0;
}
