/*
 * Exactness of a whole model with memcmp: the logits of a row have the same bits alone or in a batch, in every sharing mode, on
 * one thread or two, with the prompt in one piece or many, with a cold or a warm cache, in any order of joining, and with every
 * K/V type.
 *
 * The model is the file in CHUNKLLAMA_MODEL; without one the test says "skipped". It runs on the device that CHUNKLLAMA_DEVICE
 * names.
 */
#define CATTN_EXPERIMENTAL
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn_cuda.h"
#include "chunkllama/model/forward.h"
#include "chunkllama/model/kv_cache.h"
#include "tests/support/rng.h"

enum { N_SEQS = 5, PROMPT = 110, DECODED = 3, LONGEST = PROMPT + DECODED, MAX_ROWS = N_SEQS * LONGEST, WHOLE = MAX_ROWS };

/* A way to run the sequences. */
typedef struct variant {
    const char *name;
    cattn_sharing sharing;
    int threads;
    int64_t piece;
    bool one_by_one; /* each alone; the next joins when the previous one has left */
    bool backwards;  /* joined in the opposite order */
    bool warm;       /* everything is run once before, so prompts are found in the tree */
} variant;

static const variant variants[] = {
    {"shared, together", CATTN_SHARED, 2, WHOLE, false, false, false},
    {"shared, backwards, one thread", CATTN_SHARED, 1, WHOLE, false, true, false},
    {"shared, pieces of 1", CATTN_SHARED, 2, 1, false, false, false},
    {"shared, pieces of 7", CATTN_SHARED, 2, 7, false, true, false},
    {"shared, pieces of 64", CATTN_SHARED, 1, 64, false, false, false},
    {"shared, warm", CATTN_SHARED, 2, WHOLE, false, false, true},
    {"shared, warm, one by one", CATTN_SHARED, 2, 64, true, false, true},
    {"shared storage, pieces of 64", CATTN_SHARED_STORAGE, 2, 64, false, false, false},
    {"private, together", CATTN_PRIVATE, 2, WHOLE, false, false, false},
};

static const cl_model *the_model;
static int32_t tokens[N_SEQS][LONGEST];
static int32_t n_prompt[N_SEQS];

static void make_sequences(void) {
    rng r = {20};
    for (int s = 0; s < N_SEQS; s++) {
        n_prompt[s] = PROMPT - 7 * s;
        const int common = s == 0 ? 0 : 50 + 3 * s; /* tokens in common with the sequence before */
        for (int i = 0; i < LONGEST; i++)
            tokens[s][i] = i < common ? tokens[s - 1][i] : (int32_t)rng_range(&r, 100, the_model->params.n_vocab - 1);
    }
}

static void die(const char *what, const char *message) {
    printf("%s: %s\n", what, message);
    exit(1);
}

/* Logits that are compared, [N_SEQS][1 + DECODED][n_vocab]: those of the prompt's last row and of the rows after it. */
static float *logits_at(float *logits, int s, int64_t position) {
    return logits + ((size_t)s * (1 + DECODED) + (size_t)(position - n_prompt[s] + 1)) * (size_t)the_model->params.n_vocab;
}

typedef struct run {
    cattn_cache *cache;
    cl_forward *f;
    int64_t piece;
    cattn_seq seqs[N_SEQS];
    int64_t length[N_SEQS]; /* 0: not running */
    float *logits, *step_logits;
} run;

static void join(run *t, int s) {
    cattn_error error;
    if (cattn_seq_join(t->cache, tokens[s], n_prompt[s], NULL, &t->seqs[s], NULL, &error)) die("join", error.message);
    t->length[s] = n_prompt[s];
}

/* A step of all running sequences; then those with no token left to compute get another one, or leave. */
static void step(run *t) {
    static int32_t row_tokens[MAX_ROWS], logit_rows[MAX_ROWS];
    static int64_t positions[MAX_ROWS];
    float *to[N_SEQS];
    cattn_entry entries[N_SEQS];
    int running[N_SEQS], n = 0;
    cattn_error error;
    for (int s = 0; s < N_SEQS; s++)
        if (t->length[s] > 0) {
            running[n] = s;
            entries[n++] = (cattn_entry){.seq = t->seqs[s], .max_rows = t->piece};
        }
    if (cl_forward_begin(t->f, entries, n, 0, &error)) die("begin", error.message);
    int32_t row = 0, n_logits = 0;
    for (int i = 0; i < n; i++)
        for (int64_t p = entries[i].first_pos; p < entries[i].first_pos + entries[i].n_rows; p++, row++) {
            row_tokens[row] = tokens[running[i]][p];
            positions[row] = p;
            if (p < t->length[running[i]] - 1) continue;
            to[n_logits] = logits_at(t->logits, running[i], p);
            logit_rows[n_logits++] = row;
        }
    cl_error cause;
    const cl_forward_output out = {.logit_rows = logit_rows, .n_logits = n_logits, .logits = t->step_logits};
    if (cl_forward_step(t->f, row_tokens, positions, row, &out, &cause)) die("forward", cause.message);
    cattn_step_end(t->cache, NULL);
    const size_t n_vocab = (size_t)the_model->params.n_vocab;
    for (int i = 0; i < n_logits; i++) memcpy(to[i], t->step_logits + (size_t)i * n_vocab, n_vocab * sizeof(float));
    for (int i = 0; i < n; i++) {
        const int s = running[i];
        if (entries[i].first_pos + entries[i].n_rows < t->length[s]) continue;
        if (t->length[s] < n_prompt[s] + DECODED) {
            cattn_seq_append(t->cache, t->seqs[s], &tokens[s][t->length[s]], 1, NULL);
            t->length[s]++;
        } else {
            cattn_seq_leave(t->cache, &t->seqs[s], NULL);
            t->length[s] = 0;
        }
    }
}

static void run_all(run *t, bool one_by_one, bool backwards) {
    for (int i = 0; i < N_SEQS; i++) {
        const int s = backwards ? N_SEQS - 1 - i : i;
        join(t, s);
        while (one_by_one && t->length[s] > 0) step(t);
    }
    bool running = true;
    while (running) {
        running = false;
        for (int s = 0; s < N_SEQS; s++) running |= t->length[s] > 0;
        if (running) step(t);
    }
}

static void run_variant(const variant *v, cattn_type kv_type, float *logits) {
    const cl_model_params *p = &the_model->params;
    ca_pool *pool = ca_pool_create(v->threads);
    cattn_config config;
    cattn_config_init(&config);
    cl_params_to_cache(p, &config);
    config.kv_type = kv_type;
    config.sharing = v->sharing;
    config.n_threads = v->threads;
    config.parallel = (cattn_parallel){ca_pool_run, pool};
    const cattn_cuda_config device = {0};
    if (the_model->on_device) config.cuda = &device;
    cattn_error error;
    cl_error cause;
    run t = {.piece = v->piece, .logits = logits};
    if (cattn_cache_create(&config, &t.cache, &error)) die("create", error.message);
    if (cl_forward_create(the_model, t.cache, pool, MAX_ROWS, p->n_ctx_train, &t.f, &cause)) die("forward", cause.message);
    t.step_logits = malloc((size_t)N_SEQS * (size_t)p->n_vocab * sizeof(float));
    for (int round = v->warm ? 0 : 1; round < 2; round++) run_all(&t, v->one_by_one, v->backwards);
    free(t.step_logits);
    cl_forward_free(&t.f);
    cattn_cache_destroy(&t.cache);
    ca_pool_destroy(&pool);
}

int main(void) {
    static const variant alone = {"alone", CATTN_PRIVATE, 1, WHOLE, true, false, false};
    static const char *const types[] = {"f32", "f16", "bf16", "int8", "e4m3"};
    const char *path = getenv("CHUNKLLAMA_MODEL");
    if (!path) {
        printf("skipped: no model; name a GGUF file in CHUNKLLAMA_MODEL\n");
        return 0;
    }
    ca_pool *pool = ca_pool_create(2);
    cl_model *m;
    cl_error error;
    cl_model_options options;
    cl_model_options_init(&options);
    options.device = getenv("CHUNKLLAMA_DEVICE");
    if (cl_model_load_watched(path, &options, pool, NULL, &m, &error)) die("load", error.message);
    the_model = m;
    make_sequences();
    const size_t size = (size_t)N_SEQS * (1 + DECODED) * (size_t)m->params.n_vocab * sizeof(float);
    float *expected = calloc(1, size), *got = malloc(size);
    int failures = 0, compared = 0;
    for (int type = CATTN_F32; type <= CATTN_E4M3; type++) {
        if (m->on_device ? type == CATTN_F32 || type == CATTN_I8 : type == CATTN_E4M3) continue; /* the other has it */
        run_variant(&alone, (cattn_type)type, expected);
        for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
            if (type != CATTN_BF16 && i % 4 != 0) continue; /* the default type in all variants, the others in a quarter */
            memset(got, 0xff, size);
            run_variant(&variants[i], (cattn_type)type, got);
            compared++;
            if (!memcmp(expected, got, size)) continue;
            printf("FAILED: %s, %s K/V: the logits differ from those of each sequence alone\n", variants[i].name, types[type]);
            failures++;
        }
    }
    printf("%d runs compared, %d failures\n", compared, failures);
    free(expected);
    free(got);
    cl_model_free(&m);
    ca_pool_destroy(&pool);
    return failures != 0;
}
