/* The toy model: see toy_model.h. Its functions take the place of those of the same names in llama. */
#include "toy_model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/model/forward.h"

enum { N_HEADS = 2, HEAD_DIM = 64, Q_SIZE = N_HEADS * HEAD_DIM, TOY_BYTES = 1000 /* what it says it has */ };
_Static_assert((int)Q_SIZE == (int)TOY_EMBD, "the output of attention is the state");

struct cl_tokenizer {
    int unused;
};

typedef struct toy_forward {
    cl_forward base;
    cattn_cache *cache;
    float *q, *k, *v, *out; /* [max_rows] each */
    float *w;               /* [TOY_VOCAB][Q_SIZE] */
} toy_forward;

static atomic_llong rows_computed;
static atomic_int steps_to_failure, failures_left;

int64_t toy_take_rows(void) { return atomic_exchange(&rows_computed, 0); }

void toy_fail_steps(int first, int n) {
    atomic_store(&steps_to_failure, first);
    atomic_store(&failures_left, n);
}

static bool fails(void) {
    if (atomic_load(&failures_left) == 0 || atomic_fetch_sub(&steps_to_failure, 1) > 1) return false;
    atomic_fetch_sub(&failures_left, 1);
    return true;
}

/* ---- Steps that wait ---- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static bool gate_is_closed, a_step_waits;
static int n_to_pass; /* steps that a closed gate lets pass */

static void set_gate(bool closed) {
    pthread_mutex_lock(&gate);
    gate_is_closed = closed;
    n_to_pass = 0;
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate);
}

void toy_hold(void) { set_gate(true); }
void toy_release(void) { set_gate(false); }

void toy_pass(int n) {
    pthread_mutex_lock(&gate);
    n_to_pass = n;
    pthread_cond_broadcast(&gate_changed);
    while (n_to_pass > 0 || !a_step_waits) pthread_cond_wait(&gate_changed, &gate);
    pthread_mutex_unlock(&gate);
}

static void pass_gate(void) {
    pthread_mutex_lock(&gate);
    while (gate_is_closed && n_to_pass == 0) {
        a_step_waits = true;
        pthread_cond_broadcast(&gate_changed);
        pthread_cond_wait(&gate_changed, &gate);
    }
    a_step_waits = false;
    if (n_to_pass > 0) n_to_pass--;
    pthread_mutex_unlock(&gate);
}

/* ---- The model ---- */

const cl_model *toy_model(void) {
    static cl_tokenizer tok;
    static int32_t n_kv_heads = 1, head_dim = HEAD_DIM, kv_source;
    static cl_model m = {
        .params = {.n_vocab = TOY_VOCAB,
                   .n_embd = TOY_EMBD,
                   .n_layers = 1,
                   .n_heads = N_HEADS,
                   .n_kv_heads = &n_kv_heads,
                   .head_dim = &head_dim,
                   .kv_source = &kv_source,
                   .n_ctx_train = TOY_CONTEXT},
        .weights = {.bytes = TOY_BYTES},
        .tok = &tok,
        .has_fingerprint = true,
    };
    m.kernels = cl_kernels_find(NULL); /* for the fingerprint of K/V */
    return &m;
}

const cl_model *toy_draft_model(float part) {
    static cl_model m;
    m = *toy_model();
    m.weights.bytes = (size_t)(part * (float)TOY_BYTES);
    return &m;
}

const cl_model *toy_free_model(void) {
    static cl_model m;
    m = *toy_model();
    m.weights.bytes = 0;
    return &m;
}

bool cl_tokenizer_is_end(const cl_tokenizer *tok, int32_t id) {
    (void)tok;
    return id == TOY_END;
}

size_t cl_tokenizer_piece(const cl_tokenizer *tok, int32_t id, bool special, char *buf, size_t size) {
    static const char *const pieces[TOY_VOCAB - 256] = {"ab",   "€",  "\xe2\x82", "\x82\xac", " the", "END", "é", "\xc3",
                                                        "\n\n", "EN", "D",        "😀",        "a b",  "",    "b", "  "};
    (void)tok;
    const char byte = (char)id;
    const bool is_special = id == TOY_END || id == TOY_SPECIAL;
    const char *piece = id == TOY_END ? "<end>" : id == TOY_SPECIAL ? "<s>" : id < 256 ? &byte : pieces[id - 256];
    const size_t n = is_special && !special ? 0 : piece == &byte ? 1 : strlen(piece);
    if (n > 0 && size > 0) memcpy(buf, piece, n < size ? n : size);
    return n;
}

/* In [-1, 1). */
static float noise(uint32_t a, uint32_t b, uint32_t c) {
    uint64_t x = ((uint64_t)a << 40) ^ ((uint64_t)b << 16) ^ c;
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return (float)(int32_t)(uint32_t)(x >> 32) * 0x1p-31f;
}

cl_status cl_forward_create(const cl_model *m, cattn_cache *cache, ca_pool *pool, int32_t max_rows, int64_t n_ctx,
                            cl_forward **out, cl_error *error) {
    const float off = m == toy_model() ? 0 : 0.1f;
    (void)pool;
    (void)n_ctx;
    const size_t n = (size_t)max_rows;
    toy_forward *f = calloc(1, sizeof *f);
    if (!f) return cl_fail(error, CL_ERR_NOMEM, "no memory");
    f->cache = cache;
    f->q = calloc(n, Q_SIZE * sizeof *f->q);
    f->out = calloc(n, Q_SIZE * sizeof *f->out);
    f->k = calloc(n, HEAD_DIM * sizeof *f->k);
    f->v = calloc(n, HEAD_DIM * sizeof *f->v);
    f->w = calloc(TOY_VOCAB, Q_SIZE * sizeof *f->w);
    *out = &f->base;
    if (!f->q || !f->out || !f->k || !f->v || !f->w) return cl_fail(error, CL_ERR_NOMEM, "no memory");
    for (uint32_t v = 0; v < TOY_VOCAB; v++)
        for (uint32_t i = 0; i < Q_SIZE; i++) f->w[v * Q_SIZE + i] = noise(v, i, 7) + off * noise(v, i, 8);
    return CL_OK;
}

void cl_forward_free(cl_forward **forward) {
    toy_forward *f = (toy_forward *)*forward;
    if (!f) return;
    free(f->q);
    free(f->k);
    free(f->v);
    free(f->out);
    free(f->w);
    free(f);
    *forward = NULL;
}

cattn_status cl_forward_begin(cl_forward *f, cattn_entry *entries, int32_t n_entries, int64_t row_limit, cattn_error *error) {
    return cattn_step_begin(((toy_forward *)f)->cache, entries, n_entries, row_limit, error);
}

static void compute_logits(const toy_forward *f, const float *out, int32_t token, float *logits) {
    for (int v = 0; v < TOY_VOCAB; v++) {
        float sum = noise((uint32_t)token, (uint32_t)v, 9);
        for (int i = 0; i < Q_SIZE; i++) sum += out[i] * f->w[v * Q_SIZE + i];
        logits[v] = v == TOY_END ? sum + 4 : sum;
    }
}

cl_status cl_forward_step(cl_forward *forward, const int32_t *tokens, const int64_t *positions, int32_t n_rows,
                          const cl_forward_output *wanted, cl_error *error) {
    const toy_forward *f = (toy_forward *)forward;
    pass_gate();
    if (fails()) return cl_fail(error, CL_ERR_NOMEM, "a failure that the test requested");
    for (int32_t row = 0; row < n_rows; row++) {
        const uint32_t t = (uint32_t)tokens[row], p = (uint32_t)positions[row];
        for (uint32_t i = 0; i < Q_SIZE; i++) f->q[(size_t)row * Q_SIZE + i] = 3 * noise(t, p, 1000 + i);
        for (uint32_t i = 0; i < HEAD_DIM; i++) {
            f->k[(size_t)row * HEAD_DIM + i] = 3 * noise(t, p, 2000 + i);
            f->v[(size_t)row * HEAD_DIM + i] = 3 * noise(t, p, 3000 + i);
        }
    }
    const cattn_view k = {f->k, CATTN_F32, HEAD_DIM, HEAD_DIM}, v = {f->v, CATTN_F32, HEAD_DIM, HEAD_DIM};
    const cattn_view q = {f->q, CATTN_F32, Q_SIZE, HEAD_DIM}, out = {f->out, CATTN_F32, Q_SIZE, HEAD_DIM};
    cattn_error cause;
    if (cattn_step_write(f->cache, 0, &k, &v, &cause) != CATTN_OK ||
        cattn_step_attend(f->cache, 0, &q, &out, NULL, &cause) != CATTN_OK)
        return cl_fail(error, CL_ERR_ARG, "%s", cause.message);
    for (int32_t i = 0; i < wanted->n_states; i++)
        wanted->take_state(wanted->ctx, wanted->state_rows[i], f->out + (size_t)wanted->state_rows[i] * Q_SIZE);
    for (int32_t i = 0; i < wanted->n_logits; i++) {
        const int32_t row = wanted->logit_rows[i];
        compute_logits(f, f->out + (size_t)row * Q_SIZE, tokens[row], wanted->logits + (size_t)i * TOY_VOCAB);
    }
    atomic_fetch_add(&rows_computed, n_rows);
    return CL_OK;
}
