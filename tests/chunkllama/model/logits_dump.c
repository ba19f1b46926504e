/*
 * logits_dump MODEL.gguf TOKENS.json OUT.npy [kv=f32|f16|bf16|int8] [threads=N] [piece=N] [greedy=N] [every=N]
 *             [level=NAME] [ctx=N]
 *
 * Runs a JSON array of token ids through the model, `piece` tokens a step (default: all at once), then `greedy` tokens more,
 * each the likeliest after what stands there, as an engine does whose sequences have at most `ctx` (default: the model's)
 * positions. Writes the f32 logits of every position, [n_tokens + greedy][n_vocab].
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn.h"
#include "chunkllama/model/forward.h"
#include "chunkllama/model/kv_cache.h"

typedef struct options {
    cattn_type kv_type;
    int32_t threads, piece, greedy, every, ctx;
    const char *level;
} options;

static _Noreturn void give_up(const char *what, const char *why) {
    (void)fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void check(cl_status status, const cl_error *error) {
    if (status != CL_OK) give_up("error", error->message);
}

static void check_cache(cattn_status status, const cattn_error *error) {
    if (status != CATTN_OK) give_up(cattn_status_name(status), error->message);
}

static cattn_type kv_type(const char *name) {
    static const char *const names[] = {[CATTN_F32] = "f32", [CATTN_F16] = "f16", [CATTN_BF16] = "bf16", [CATTN_I8] = "int8"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) return (cattn_type)i;
    give_up(name, "not a K/V type");
}

static options parse(int argc, char **argv) {
    options o = {.threads = 2, .piece = INT32_MAX, .every = 1};
    for (int i = 4; i < argc; i++) {
        const char *value = strchr(argv[i], '=');
        if (!value) give_up(argv[i], "not an option");
        value++;
        if (!strncmp(argv[i], "threads=", 8))
            o.threads = atoi(value);
        else if (!strncmp(argv[i], "piece=", 6))
            o.piece = atoi(value);
        else if (!strncmp(argv[i], "greedy=", 7))
            o.greedy = atoi(value);
        else if (!strncmp(argv[i], "every=", 6))
            o.every = atoi(value);
        else if (!strncmp(argv[i], "ctx=", 4))
            o.ctx = atoi(value);
        else if (!strncmp(argv[i], "level=", 6))
            o.level = value;
        else if (!strncmp(argv[i], "kv=", 3))
            o.kv_type = kv_type(value);
        else
            give_up(argv[i], "not an option");
    }
    return o;
}

/* The token ids of a JSON array, with capacity for `more`. */
static int32_t *read_tokens(const char *path, int32_t more, int32_t *n) {
    json_t *array = json_load_file(path, 0, NULL);
    if (!json_is_array(array) || json_array_size(array) == 0) give_up(path, "not an array of token ids");
    *n = (int32_t)json_array_size(array);
    int32_t *tokens = malloc(sizeof *tokens * (size_t)(*n + more));
    if (!tokens) give_up(path, "no memory");
    for (int32_t i = 0; i < *n; i++) tokens[i] = (int32_t)json_integer_value(json_array_get(array, (size_t)i));
    json_decref(array);
    return tokens;
}

/* Rows [first, first + n) of the sequence in one step, with the logits of every `every`-th position. */
static void step(cl_forward *f, cattn_cache *cache, cattn_seq seq, const int32_t *tokens, int32_t first, int32_t n,
                 int32_t every, int32_t n_vocab, float *logits) {
    cattn_error cache_error;
    cl_error error;
    int32_t *rows = malloc(sizeof *rows * (size_t)n), n_wanted = 0;
    int64_t *positions = malloc(sizeof *positions * (size_t)n);
    if (!rows || !positions) give_up("step", "no memory");
    for (int32_t i = 0; i < n; i++) {
        if ((first + i) % every == 0) rows[n_wanted++] = i;
        positions[i] = first + i;
    }
    cattn_entry entry = {.seq = seq, .max_rows = n};
    check_cache(cattn_step_begin(cache, &entry, 1, 0, &cache_error), &cache_error);
    if (entry.first_pos != first || entry.n_rows != n) give_up("cattn_step_begin", "other rows than requested");
    const cl_forward_output out = {.logit_rows = rows, .n_logits = n_wanted, .logits = logits};
    check(cl_forward_step(f, tokens + first, positions, n, &out, &error), &error);
    check_cache(cattn_step_end(cache, &cache_error), &cache_error);
    const size_t size = sizeof *logits * (size_t)n_vocab;
    for (int32_t i = n - 1, from = n_wanted; i >= 0; i--) { /* to their places, from the end */
        float *to = logits + (size_t)i * (size_t)n_vocab;
        if (from > 0 && rows[from - 1] == i)
            memmove(to, logits + (size_t)--from * (size_t)n_vocab, size);
        else
            memset(to, 0, size);
    }
    free(rows);
    free(positions);
}

static int32_t likeliest(const float *logits, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void write_npy(const char *path, const float *values, int32_t rows, int32_t columns) {
    static const char magic[10] = {'\x93', 'N', 'U', 'M', 'P', 'Y', 1, 0, 118, 0}; /* 118 bytes of text follow */
    char shape[80], text[120];
    (void)snprintf(shape, sizeof shape, "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", rows, columns);
    (void)snprintf(text, sizeof text, "%-117s\n", shape);
    FILE *file = fopen(path, "wb");
    const size_t count = (size_t)rows * (size_t)columns;
    if (!file || fwrite(magic, sizeof magic, 1, file) != 1 || fwrite(text, 118, 1, file) != 1 ||
        fwrite(values, sizeof *values, count, file) != count || fclose(file))
        give_up(path, "cannot be written");
}

static cattn_cache *create_cache(const cl_model *m, const options *o, ca_pool *pool) {
    cattn_config config;
    cattn_config_init(&config);
    cl_params_to_cache(&m->params, &config);
    config.kv_type = o->kv_type;
    config.n_threads = ca_pool_size(pool);
    config.parallel = (cattn_parallel){.run = ca_pool_run, .ctx = pool};
    config.level = o->level;
    cattn_cache *cache;
    cattn_error error;
    check_cache(cattn_cache_create(&config, &cache, &error), &error);
    return cache;
}

int main(int argc, char **argv) {
    if (argc < 4) give_up("usage", "logits_dump MODEL.gguf TOKENS.json OUT.npy [option=value ...]");
    const options o = parse(argc, argv);
    int32_t n;
    int32_t *tokens = read_tokens(argv[2], o.greedy, &n);
    ca_pool *pool = ca_pool_create(o.threads);
    if (!pool) give_up("threads", "cannot be started");
    cl_model *m;
    cl_forward *f;
    cl_error error;
    cattn_error cache_error;
    check(cl_model_load_on_pool(argv[1], o.level, pool, &m, &error), &error);
    cattn_cache *cache = create_cache(m, &o, pool);
    const int32_t piece = o.piece < n ? o.piece : n, n_vocab = m->params.n_vocab;
    check(cl_forward_create(m, cache, pool, piece, o.ctx ? o.ctx : m->params.n_ctx_train, &f, &error), &error);
    float *logits = malloc(sizeof *logits * (size_t)(n + o.greedy) * (size_t)n_vocab);
    if (!logits) give_up("logits", "no memory");

    cattn_seq seq;
    check_cache(cattn_seq_join(cache, tokens, n, NULL, &seq, NULL, &cache_error), &cache_error);
    for (int32_t first = 0; first < n; first += piece)
        step(f, cache, seq, tokens, first, n - first < piece ? n - first : piece, o.every, n_vocab,
             logits + (size_t)first * (size_t)n_vocab);
    for (int32_t i = n; i < n + o.greedy; i++) {
        tokens[i] = likeliest(logits + (size_t)(i - 1) * (size_t)n_vocab, n_vocab);
        check_cache(cattn_seq_append(cache, seq, tokens + i, 1, &cache_error), &cache_error);
        step(f, cache, seq, tokens, i, 1, 1, n_vocab, logits + (size_t)i * (size_t)n_vocab);
    }
    write_npy(argv[3], logits, n + o.greedy, n_vocab);

    free(logits);
    free(tokens);
    cl_forward_free(&f);
    cattn_cache_destroy(&cache);
    cl_model_free(&m);
    ca_pool_destroy(&pool);
    return 0;
}
