/*
 * forward_check MODEL
 *
 * The forward pass of a model on a device, against that on the CPU:
 *
 * - With the CPU's attention in it, all logits and final states have the CPU's bits, unless the model has BF16 matrices, in
 *   several sequences, whole and in pieces.
 * - With its own attention, rows have the same bits alone and among others, whole and in pieces, and logits are near the CPU's.
 * - Decode steps that are replayed as graphs have the bits of those rows, too.
 *
 * Prints "same bits" or "close", for what was compared in the first way, and the largest difference in the second; exits with 1
 * after a message if something else is found.
 */
#define CATTN_EXPERIMENTAL
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn_cuda.h"
#include "chunkllama/model/device_forward.h"
#include "chunkllama/model/device_model.h"
#include "chunkllama/model/kv_cache.h"
#include "tests/chunkattn/cuda/device/test_device.h"

enum { MOST_SEQS = 10, SEQS = 3, TOKENS = 90, COMMON = 70, DECODED = 16, N_CTX = 256, MAX_ROWS = MOST_SEQS * TOKENS };

#define give_up(...) (fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))

static void check(cl_status status, const cl_error *error) {
    if (status != CL_OK) give_up("%s", error->message);
}

static void check_cache(cattn_status status, const cattn_error *error) {
    if (status != CATTN_OK) give_up("%s", error->message);
}

static ca_pool *pool;
static int32_t tokens[MOST_SEQS][TOKENS];

/* A way to compute all sequences: a forward pass, its cache, and what it has given. */
typedef struct way {
    const cl_model *m;
    cattn_cache *cache;
    cl_forward *f;
    int n_seqs;      /* of the following ones */
    bool spliced;    /* the cache is the CPU's, whatever f is */
    bool all_logits; /* of all rows, and no states; the last DECODED tokens are rows of steps of their own */
    float *logits;   /* [MOST_SEQS][TOKENS][n_vocab] of the rows that were computed, as the next; others are zeros */
    float *states;   /* [MOST_SEQS][TOKENS][n_embd] */
    bool computed[MOST_SEQS][TOKENS]; /* by the last `compute`: tokens of a common prefix are computed in one sequence */
    float *row_logits;
    int32_t rows[MAX_ROWS], row_tokens[MAX_ROWS], seq_of[MAX_ROWS], position_of[MAX_ROWS];
} way;

static void take_state(void *ctx, int32_t row, const float *state) {
    way *w = ctx;
    const size_t n = (size_t)w->m->params.n_embd;
    memcpy(w->states + ((size_t)w->seq_of[row] * TOKENS + (size_t)w->position_of[row]) * n, state, n * sizeof *state);
}

/* One step of the sequences, at most `most` rows of each. Returns its rows. */
static int32_t step(way *w, cattn_entry *entries, int n_seqs, int first_seq, int64_t most) {
    const size_t n_vocab = (size_t)w->m->params.n_vocab;
    cattn_error cause;
    cl_error error;
    int64_t positions[MAX_ROWS];
    int32_t n = 0;
    for (int i = 0; i < n_seqs; i++) entries[i].max_rows = most;
    if (w->spliced)
        check_cache(cattn_step_begin(w->cache, entries, n_seqs, 0, &cause), &cause);
    else
        check_cache(cl_forward_begin(w->f, entries, n_seqs, 0, &cause), &cause);
    for (int i = 0; i < n_seqs; i++)
        for (int64_t p = entries[i].first_pos; p < entries[i].first_pos + entries[i].n_rows; p++, n++) {
            w->rows[n] = n;
            w->seq_of[n] = first_seq + i;
            w->position_of[n] = (int32_t)p;
            w->computed[first_seq + i][p] = true;
            w->row_tokens[n] = tokens[first_seq + i][p];
            positions[n] = p;
        }
    if (n == 0) {
        check_cache(cattn_step_abort(w->cache, &cause), &cause);
        return 0;
    }
    /* Or of every fifth row the state alone, of the others the logits, and of some of them both. */
    int32_t with_logits[MAX_ROWS], with_state[MAX_ROWS];
    cl_forward_output out = {
        .logit_rows = with_logits, .logits = w->row_logits, .state_rows = with_state, .take_state = take_state, .ctx = w};
    for (int32_t i = 0; i < n; i++) {
        const int32_t p = w->position_of[i];
        if (w->all_logits || p % 5) with_logits[out.n_logits++] = i;
        if (!w->all_logits && (p % 5 == 0 || p % 3 == 0)) with_state[out.n_states++] = i;
    }
    check(cl_forward_step(w->f, w->row_tokens, positions, n, &out, &error), &error);
    check_cache(cattn_step_end(w->cache, &cause), &cause);
    for (int32_t i = 0; i < out.n_logits; i++) {
        const int32_t row = with_logits[i];
        memcpy(w->logits + ((size_t)w->seq_of[row] * TOKENS + (size_t)w->position_of[row]) * n_vocab,
               w->row_logits + (size_t)i * n_vocab, n_vocab * sizeof(float));
    }
    return n;
}

/* Up to DECODED tokens before the end, then a step of all sequences, and some of half of them, which are captured first. */
static void begin_decoding(way *w, cattn_entry *entries, int n_seqs, int first_seq) {
    step(w, entries, 1, first_seq, TOKENS - DECODED);
    step(w, entries, n_seqs, first_seq, TOKENS - DECODED - COMMON);
    for (int i = 0; i < 5; i++) step(w, entries, i == 0 ? n_seqs : (n_seqs + 1) / 2, first_seq, 1);
}

/* Compute all sequences, n_seqs at a time, at most `most` tokens of each in a step. */
static void compute(way *w, int n_seqs, int64_t most) {
    cattn_error cause;
    memset(w->computed, 0, sizeof w->computed);
    memset(w->logits, 0, MOST_SEQS * TOKENS * (size_t)w->m->params.n_vocab * sizeof(float));
    memset(w->states, 0, MOST_SEQS * TOKENS * (size_t)w->m->params.n_embd * sizeof(float));
    for (int first = 0; first < w->n_seqs; first += n_seqs) {
        cattn_entry entries[MOST_SEQS] = {{0}};
        for (int i = 0; i < n_seqs; i++)
            check_cache(cattn_seq_join(w->cache, tokens[first + i], TOKENS, NULL, &entries[i].seq, NULL, &cause), &cause);
        if (w->all_logits) begin_decoding(w, entries, n_seqs, first);
        while (step(w, entries, n_seqs, first, w->all_logits ? 1 : most)) continue;
        for (int i = 0; i < n_seqs; i++) check_cache(cattn_seq_leave(w->cache, &entries[i].seq, &cause), &cause);
    }
    check_cache(cattn_cache_drop_retained(w->cache, &cause), &cause);
}

/* device: the cache is on the device. */
static way *new_way(const cl_model *m, bool device, bool spliced) {
    static const cattn_cuda_config first = {0};
    const size_t n = MOST_SEQS * TOKENS, n_vocab = (size_t)m->params.n_vocab, n_embd = (size_t)m->params.n_embd;
    way *w = calloc(1, sizeof *w);
    cattn_config config;
    cattn_error cause;
    cl_error error;
    cattn_config_init(&config);
    cl_params_to_cache(&m->params, &config);
    config.budget_bytes = 256u << 20;
    config.kv_type = device ? CATTN_BF16 : CATTN_F32;
    if (device) config.cuda = &first;
    w->m = m;
    w->n_seqs = SEQS;
    w->spliced = spliced;
    check_cache(cattn_cache_create(&config, &w->cache, &cause), &cause);
    check(cl_forward_create(m, w->cache, pool, MAX_ROWS, N_CTX, &w->f, &error), &error);
    w->logits = calloc(n * n_vocab, sizeof(float));
    w->row_logits = calloc(MAX_ROWS * n_vocab, sizeof(float));
    w->states = calloc(n * n_embd, sizeof(float));
    if (!w->logits || !w->states || !w->row_logits) give_up("no memory");
    return w;
}

static void free_way(way *w) {
    dev_finish(); /* another cache's memory may still be queued to be freed */
    cl_forward_free(&w->f);
    cattn_cache_destroy(&w->cache);
    free(w->logits);
    free(w->row_logits);
    free(w->states);
    free(w);
}

/* ---- The CPU's attention for a device ---- */

static float *copy_of(const cl_device_model *on, const float *from, size_t n) {
    float *to = malloc((n + 1) * sizeof *to);
    if (!to || (n && on->runtime->copy_back(to, from, n * sizeof *to, NULL)) || on->runtime->wait(NULL)) give_up("no copy");
    return to;
}

static cl_status attend_on_cpu(void *ctx, int32_t layer, int32_t n_rows, const float *q, const float *k, const float *v,
                               float *attended) {
    const way *w = ctx;
    const cl_model_params *p = &w->m->params;
    const cl_device_model *on = w->m->on_device;
    const int32_t d = p->head_dim[layer], n_q = cl_n_q(p, layer), n_kv = cl_n_kv(p, layer);
    float *host_q = copy_of(on, q, (size_t)n_rows * (size_t)n_q),
          *host_k = copy_of(on, k, k ? (size_t)n_rows * (size_t)n_kv : 0),
          *host_v = copy_of(on, v, v ? (size_t)n_rows * (size_t)n_kv : 0), *out = malloc((size_t)n_rows * (size_t)n_q * 4);
    const cattn_view q_view = {host_q, CATTN_F32, n_q, d}, out_view = {out, CATTN_F32, n_q, d};
    const cattn_view k_view = {host_k, CATTN_F32, n_kv, d}, v_view = {host_v, CATTN_F32, n_kv, d};
    cattn_error cause;
    if (k) check_cache(cattn_step_write(w->cache, layer, &k_view, &v_view, &cause), &cause);
    check_cache(cattn_step_attend(w->cache, layer, &q_view, &out_view, NULL, &cause), &cause);
    if (on->runtime->copy(attended, out, (size_t)n_rows * (size_t)n_q * 4, NULL) || on->runtime->wait(NULL)) give_up("no copy");
    free(host_q), free(host_k), free(host_v), free(out);
    return CL_OK;
}

/* ---- Comparisons ---- */

/* Rows that both have computed; there are at least those of one sequence. */
static int list_common(const way *a, const way *b, size_t rows[MOST_SEQS * TOKENS]) {
    int n = 0;
    for (size_t i = 0; i < MOST_SEQS * TOKENS; i++)
        if (a->computed[i / TOKENS][i % TOKENS] && b->computed[i / TOKENS][i % TOKENS]) rows[n++] = i;
    if (n < TOKENS) give_up("only %d rows are compared", n);
    return n;
}

static void expect_same(const way *a, const way *b, const char *what) {
    const size_t n_vocab = (size_t)a->m->params.n_vocab, n_embd = (size_t)a->m->params.n_embd;
    size_t rows[MOST_SEQS * TOKENS];
    for (int n = list_common(a, b, rows), i = 0; i < n; i++) {
        const size_t r = rows[i];
        if (memcmp(a->logits + r * n_vocab, b->logits + r * n_vocab, n_vocab * sizeof(float)) ||
            memcmp(a->states + r * n_embd, b->states + r * n_embd, n_embd * sizeof(float)))
            give_up("position %d of sequence %d has other bits: %s", (int)(r % TOKENS), (int)(r / TOKENS), what);
    }
}

/* The largest difference of logits as a part of the largest logit. */
static double difference(const way *a, const way *b) {
    const size_t n_vocab = (size_t)a->m->params.n_vocab;
    double size = 0, most = 0;
    size_t rows[MOST_SEQS * TOKENS];
    for (int n = list_common(a, b, rows), i = 0; i < n; i++)
        for (size_t k = rows[i] * n_vocab; k < (rows[i] + 1) * n_vocab; k++) {
            const double off = fabs((double)a->logits[k] - (double)b->logits[k]);
            if (!(off <= most)) most = off;
            if (fabs((double)a->logits[k]) > size) size = fabs((double)a->logits[k]);
        }
    return most / size;
}

/* Decode steps by graphs, of one sequence and of several, have the bits of steps that are launched one by one. */
static void check_graphs(const cl_model *on_device) {
    static const int n_seqs[] = {1, MOST_SEQS};
    way *launched = new_way(on_device, true, false), *replayed = new_way(on_device, true, false);
    launched->all_logits = replayed->all_logits = true;
    launched->n_seqs = MOST_SEQS;
    cl_device_forward_set_graphs(launched->f, false);
    compute(launched, MOST_SEQS, 1);
    if (cl_device_forward_n_replays(launched->f)) give_up("graphs cannot be turned off");
    for (int i = 0; i < 2; i++) {
        const uint64_t before = cl_device_forward_n_replays(replayed->f);
        replayed->n_seqs = n_seqs[i];
        compute(replayed, n_seqs[i], 1);
        expect_same(launched, replayed, "by graphs");
        const uint64_t n = cl_device_forward_n_replays(replayed->f) - before;
        if (n < DECODED / 2) give_up("%d decode steps by graphs", (int)n);
    }
    free_way(launched), free_way(replayed);
}

/* Whether the CPU rounds what it multiplies BF16 matrices with, as a device does. */
static bool rounds_rows(void) {
    const char *level = cl_kernels_level(cl_kernels_find(NULL));
    return strcmp(level, "avx512_bf16") == 0 || strcmp(level, "amx") == 0;
}

int main(int argc, char **argv) {
    cl_model *m, *on_device;
    cl_error error;
    if (argc != 2) give_up("usage: forward_check MODEL");
    pool = ca_pool_create(2);
    dev_delay(true, 3);
    check(cl_model_load_on_pool(argv[1], NULL, pool, &m, &error), &error);
    cl_model_options options;
    cl_model_options_init(&options);
    options.device = "cuda:0";
    check(cl_model_load_watched(argv[1], &options, pool, NULL, &on_device, &error), &error);
    const bool has_bf16 = m->weights.forms & CL_LINEAR_IN_BF16;
    for (int s = 0; s < MOST_SEQS; s++)
        for (int i = 0; i < TOKENS; i++) tokens[s][i] = (i < COMMON ? i * 7 + 3 : i * 11 + s * 5 + 1) % m->params.n_vocab;

    way *cpu = new_way(m, false, false), *spliced = new_way(on_device, false, true);
    cl_device_forward_splice(spliced->f, attend_on_cpu, spliced);
    compute(cpu, SEQS, TOKENS);
    const int n_seqs[] = {SEQS, 1, SEQS}, most[] = {TOKENS, TOKENS, 17};
    for (int i = 0; i < 3; i++) {
        compute(spliced, n_seqs[i], most[i]);
        if (!has_bf16) expect_same(cpu, spliced, "with the CPU's attention");
    }
    const double splice = difference(cpu, spliced);
    if (splice > (rounds_rows() ? 0.02 : 0.05))
        give_up("with the CPU's attention, logits are off by %g of the largest", splice);
    free_way(spliced);

    way *own = new_way(on_device, true, false), *other = new_way(on_device, true, false);
    compute(own, SEQS, TOKENS);
    for (int i = 1; i < 3; i++) {
        compute(other, n_seqs[i], most[i]);
        expect_same(own, other, i == 1 ? "alone" : "in pieces");
    }
    const double off = difference(cpu, own);
    printf("%s, %.2g\n", has_bf16 ? "close" : "same bits", off);
    if (off > 0.05) give_up("logits are off by %g of the largest", off);
    free_way(cpu), free_way(own), free_way(other);
    check_graphs(on_device);
    cl_model_free(&m);
    cl_model_free(&on_device);
    ca_pool_destroy(&pool);
    return dev_errors() > 0;
}
