/* The stub model: see stub_model.h. */
#include "stub_model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/model/forward.h"
#include "faults.h"

enum { DIM = 32, KEY_STEP = DIM / SIM_KEYS, VALUE_STEP = DIM / SIM_VALUES };

struct cl_tokenizer {
    int unused;
};

typedef struct stub_forward {
    cl_forward base;
    cattn_cache *cache;
    float *rows; /* [3][max_rows][DIM] q, k, v, then of each layer out [max_rows][DIM], then lse [max_rows] each; owned */
} stub_forward;

static cattn_cache *caches[SIM_CACHES];
static int64_t n_rows_computed;

cattn_cache *const *sim_caches(void) { return caches; }
int64_t sim_n_rows(void) { return n_rows_computed; }

static cl_tokenizer tokenizer;
static int32_t one_head[SIM_LAYERS] = {1, 1}, head_dims[SIM_LAYERS] = {DIM, DIM}, sources[SIM_LAYERS] = {0, 1};

#define MODEL(n_bytes)                                                                                                         \
    {                                                                                                                          \
        .params = {.n_vocab = SIM_VOCAB,                                                                                       \
                   .n_layers = 1,                                                                                              \
                   .n_heads = 1,                                                                                               \
                   .n_kv_heads = one_head,                                                                                     \
                   .head_dim = head_dims,                                                                                      \
                   .kv_source = sources,                                                                                       \
                   .n_ctx_train = SIM_CONTEXT,                                                                                 \
                   .score_scale = 0.69314718f},                                                                                \
        .weights = {.bytes = (n_bytes)}, .tok = &tokenizer,                                                                    \
    }

static cl_model model = MODEL(1000);
static const cl_model draft_model = MODEL(100);
static int32_t windows[SIM_LAYERS];

void sim_set_window(int32_t window) {
    windows[SIM_LAYERS - 1] = window;
    model.params.n_layers = window > 0 ? SIM_LAYERS : 1;
    model.params.windows = window > 0 ? windows : NULL;
}

const cl_model *sim_model(void) {
    model.kernels = cl_kernels_find(NULL);
    model.has_fingerprint = true;
    return &model;
}
const cl_model *sim_draft_model(void) { return &draft_model; }

/* ---- Tokenizer: token i is the letter 'a' + i, except the end token, which has no text ---- */

bool cl_tokenizer_is_end(const cl_tokenizer *tok, int32_t id) {
    (void)tok;
    return id == SIM_END;
}

size_t cl_tokenizer_piece(const cl_tokenizer *tok, int32_t id, bool special, char *buf, size_t size) {
    (void)tok;
    (void)special;
    if (id == SIM_END) return 0;
    if (size > 0) *buf = (char)('a' + id);
    return 1;
}

/* ---- Arithmetic ---- */

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

static uint64_t hash_of(int32_t token, int64_t position) { return mix((uint64_t)(position + 1) << 20 ^ (uint64_t)(token + 1)); }
static int key_of(uint64_t hash, int j) { return (int)(hash >> 3 * j & 3); }
static int value_of(uint64_t hash, int d) { return (int)(hash >> (16 + 5 * d) & 31); }

/* Add a token to the sums of a layer (sign = 1), or remove it (-1). */
static void add_to_layer(sim_sums *sums, int layer, int32_t token, int64_t position, int sign) {
    const uint64_t hash = hash_of(token, position);
    for (int j = 0; j < SIM_KEYS; j++) {
        const int weight = sign * (1 << key_of(hash, j));
        sums->weights[layer][j] += weight;
        for (int d = 0; d < SIM_VALUES; d++) sums->values[layer][j][d] += weight * value_of(hash, d);
    }
}

void sim_sums_add(sim_sums *sums, const int32_t *tokens) {
    const int64_t position = sums->n_tokens++;
    for (int layer = 0; layer < model.params.n_layers; layer++) {
        const int64_t gone = position - windows[layer];
        add_to_layer(sums, layer, tokens[position], position, 1);
        if (windows[layer] > 0 && gone >= 0) add_to_layer(sums, layer, tokens[gone], gone, -1);
    }
}

int32_t sim_next(int32_t token) { return (token * 5 + 3) % SIM_VOCAB; }

/* The sums of one key in a layer. */
typedef struct key_sums {
    int64_t weight, values[SIM_VALUES];
} key_sums;

/*
 * Logits from the sums of one key in n_layers layers. Most rows prefer sim_next, which goes round in cycles, so that drafts are
 * often right; the others depend on the hash alone.
 */
static void logits_from(const key_sums *sums, int n_layers, int32_t token, float *logits) {
    uint64_t hash = 0;
    for (int layer = 0; layer < n_layers; layer++) {
        hash = mix(hash ^ (uint64_t)sums[layer].weight);
        for (int d = 0; d < SIM_VALUES; d++) hash = mix(hash ^ (uint64_t)sums[layer].values[d]);
    }
    for (int32_t id = 0; id < SIM_VOCAB; id++)
        logits[id] = (float)(int32_t)(uint32_t)mix(hash ^ (uint64_t)id << 50) * 0x1p-31f - (id == SIM_END ? 3 : 0);
    if (hash % 8 != 0) logits[sim_next(token)] += 4;
    if (hash % 32 == 8) logits[SIM_END] += 6;
}

void sim_logits(const sim_sums *sums, int32_t token, float *logits) {
    const int64_t j = (sums->n_tokens - 1) % SIM_KEYS;
    key_sums of_key[SIM_LAYERS];
    for (int layer = 0; layer < SIM_LAYERS; layer++) {
        of_key[layer].weight = sums->weights[layer][j];
        memcpy(of_key[layer].values, sums->values[layer][j], sizeof of_key[layer].values);
    }
    logits_from(of_key, model.params.n_layers, token, logits);
}

/* ---- Forward pass ---- */

cl_status cl_forward_create(const cl_model *m, cattn_cache *cache, ca_pool *pool, int32_t max_rows, int64_t n_ctx,
                            cl_forward **out, cl_error *error) {
    (void)pool;
    (void)n_ctx;
    *out = NULL;
    stub_forward *f = calloc(1, sizeof *f);
    float *rows = calloc((size_t)max_rows, (3 * DIM + SIM_LAYERS * (DIM + 1)) * sizeof *rows);
    if (!f || !rows) {
        free(f);
        free(rows);
        return cl_fail(error, CL_ERR_NOMEM, "no memory");
    }
    *f = (stub_forward){.base = {.m = m, .max_rows = max_rows}, .cache = cache, .rows = rows};
    caches[m == &draft_model] = cache;
    *out = &f->base;
    return CL_OK;
}

void cl_forward_free(cl_forward **f) {
    if (!*f) return;
    caches[(*f)->m == &draft_model] = NULL;
    free(((stub_forward *)*f)->rows);
    free(*f);
    *f = NULL;
}

cattn_status cl_forward_begin(cl_forward *f, cattn_entry *entries, int32_t n_entries, int64_t row_limit, cattn_error *error) {
    return cattn_step_begin(((stub_forward *)f)->cache, entries, n_entries, row_limit, error);
}

static float *part(const stub_forward *f, int i) { return f->rows + (size_t)i * (size_t)f->base.max_rows * DIM; }
static float *out_of(const stub_forward *f, int layer) { return part(f, 3 + layer); }
static float *lse_of(const stub_forward *f, int layer) {
    return part(f, 3 + SIM_LAYERS) + (size_t)layer * (size_t)f->base.max_rows;
}

/* Fill in row i of q, k and v. The dimensions that no q selects, and that no sum uses, are filled too; one of them with 127. */
static void fill_row(const stub_forward *f, size_t i, int32_t token, int64_t position) {
    const uint64_t hash = hash_of(token, position);
    float *q = part(f, 0) + i * DIM, *k = part(f, 1) + i * DIM, *v = part(f, 2) + i * DIM;
    for (int d = 0; d < DIM; d++) {
        q[d] = d == (int)(position % SIM_KEYS) * KEY_STEP ? 1 : 0;
        k[d] = (float)key_of(hash, d / KEY_STEP);
        v[d] = (float)value_of(hash, d / VALUE_STEP);
    }
    k[1] = v[1] = 127;
}

/* The logits of row i from what attention has read. The draft model knows less, so it is wrong where the hash decides. */
static void row_logits(const stub_forward *f, size_t i, int32_t token, float *logits) {
    key_sums sums[SIM_LAYERS] = {0};
    for (int layer = 0; layer < f->base.m->params.n_layers; layer++) {
        const float *out = out_of(f, layer) + i * DIM;
        key_sums *s = &sums[layer];
        s->weight = llrint(exp2((double)lse_of(f, layer)[i]));
        for (int d = 0; d < SIM_VALUES; d++) s->values[d] = llrint((double)out[d * VALUE_STEP] * (double)s->weight);
    }
    sums[0].weight += f->base.m == &draft_model;
    logits_from(sums, f->base.m->params.n_layers, token, logits);
}

cl_status cl_forward_step(cl_forward *forward, const int32_t *tokens, const int64_t *positions, int32_t n_rows,
                          const cl_forward_output *wanted, cl_error *error) {
    const stub_forward *f = (stub_forward *)forward;
    if (fault_fires(FAULT_FORWARD)) return cl_fail(error, CL_ERR_NOMEM, "a failure that the plan requests");
    for (int32_t i = 0; i < n_rows; i++) fill_row(f, (size_t)i, tokens[i], positions[i]);
    const cattn_view q = {part(f, 0), CATTN_F32, DIM, DIM}, k = {part(f, 1), CATTN_F32, DIM, DIM};
    const cattn_view v = {part(f, 2), CATTN_F32, DIM, DIM};
    for (int32_t layer = 0; layer < f->base.m->params.n_layers; layer++) {
        const cattn_view out = {out_of(f, layer), CATTN_F32, DIM, DIM};
        cattn_error cause;
        if (cattn_step_write(f->cache, layer, &k, &v, &cause) != CATTN_OK ||
            cattn_step_attend(f->cache, layer, &q, &out, lse_of(f, layer), &cause) != CATTN_OK)
            return cl_fail(error, CL_ERR_ARG, "%s", cause.message);
    }
    for (int32_t i = 0; i < wanted->n_logits; i++) {
        const int32_t row = wanted->logit_rows[i];
        row_logits(f, (size_t)row, tokens[row], wanted->logits + (size_t)i * SIM_VOCAB);
    }
    n_rows_computed += n_rows;
    sim_time += sim_row_seconds * n_rows;
    return CL_OK;
}
