/* Times attention when whole prompts are computed. */
#include "prefill_time.h"

#include <stdio.h>
#include <stdlib.h>

#include "chunkattn/base/clock.h"
#include "results.h"
#include "statistics.h"

enum { MAX_STEPS = 1000 };

typedef struct prefill {
    const prefill_options *options;
    const layer_shape *shape;
    int64_t batch, length;
    cattn_cache *cache;
    cattn_seq *seqs;
    cattn_entry *entries;
    int32_t *tokens;
    float *q, *kv, *out; /* of all rows */
    cattn_error error;
} prefill;

static size_t n_rows(const prefill *p) { return (size_t)p->batch * (size_t)p->length; }
static size_t q_row(const layer_shape *s) { return (size_t)s->heads * (size_t)s->head_dim; }
static size_t kv_row(const layer_shape *s) { return (size_t)s->kv_heads * (size_t)s->head_dim; }

/* K and V in f32 at most, and the rows of q, out, K and V; the library's workspace is about as large as the rows. */
double prefill_time_bytes(const layer_shape *s, int64_t batch, int64_t length) {
    const double rows = (double)batch * (double)length;
    return rows * sizeof(float) * (2.0 * (double)kv_row(s) + 2 * (2.0 * (double)q_row(s) + (double)kv_row(s)));
}

static cattn_view view_of(const float *data, int32_t heads, int32_t dim) {
    return (cattn_view){.data = (void *)data, .type = CATTN_F32, .row_stride = (int64_t)heads * dim, .head_stride = dim};
}

static bool allocate(prefill *p) {
    p->seqs = calloc((size_t)p->batch, sizeof *p->seqs);
    p->entries = calloc((size_t)p->batch, sizeof *p->entries);
    p->tokens = malloc((size_t)p->length * sizeof *p->tokens);
    p->q = malloc(n_rows(p) * q_row(p->shape) * sizeof(float));
    p->kv = malloc(n_rows(p) * kv_row(p->shape) * sizeof(float));
    p->out = malloc(n_rows(p) * q_row(p->shape) * sizeof(float));
    return p->seqs && p->entries && p->tokens && p->q && p->kv && p->out;
}

/* Numbers from -1 to 1. */
static void fill(float *x, size_t n) {
    uint64_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)(int32_t)(state >> 32) * 0x1p-31f;
    }
}

static cattn_status create_cache(prefill *p) {
    const layer_shape *s = p->shape;
    cattn_config c;
    cattn_config_init(&c);
    c.n_layers = 1;
    c.n_heads = s->heads;
    c.n_kv_heads = s->kv_heads;
    c.head_dim = s->head_dim;
    c.chunk_size = p->options->chunk;
    c.kv_type = p->options->kv_type;
    c.level = p->options->level;
    c.budget_bytes = ((uint64_t)1 << 30) + (uint64_t)(2 * prefill_time_bytes(s, p->batch, p->length));
    c.n_threads = ca_pool_size(p->options->pool);
    c.parallel = (cattn_parallel){.run = ca_pool_run, .ctx = p->options->pool};
    return cattn_cache_create(&c, &p->cache, &p->error);
}

/* Open a step with all rows of all sequences and write their K and V. */
static cattn_status open_step(prefill *p) {
    const layer_shape *s = p->shape;
    cattn_status status = CATTN_OK;
    for (int64_t i = 0; status == CATTN_OK && i < p->batch; i++) {
        for (int64_t k = 0; k < p->length; k++) p->tokens[k] = (int32_t)(i * p->length + k);
        p->entries[i].max_rows = p->length;
        status = cattn_seq_join(p->cache, p->tokens, p->length, NULL, &p->seqs[i], NULL, &p->error);
        p->entries[i].seq = p->seqs[i];
    }
    const cattn_view kv = view_of(p->kv, s->kv_heads, s->head_dim);
    if (status == CATTN_OK) status = cattn_step_begin(p->cache, p->entries, (int32_t)p->batch, 0, &p->error);
    return status == CATTN_OK ? cattn_step_write(p->cache, 0, &kv, &kv, &p->error) : status;
}

/* The step stays open and attends repeatedly; the first time warms up. */
static cattn_status time_steps(prefill *p, double *us) {
    const layer_shape *s = p->shape;
    const cattn_view q = view_of(p->q, s->heads, s->head_dim), out = view_of(p->out, s->heads, s->head_dim);
    cattn_status status = CATTN_OK;
    for (int i = -1; status == CATTN_OK && i < p->options->n_steps; i++) {
        const double start = clock_seconds();
        status = cattn_step_attend(p->cache, 0, &q, &out, NULL, &p->error);
        if (i >= 0) us[i] = (clock_seconds() - start) * 1e6;
    }
    return status;
}

double prefill_time_us(const layer_shape *shape, int64_t batch, int64_t length, const prefill_options *options) {
    prefill p = {
        .options = options, .shape = shape, .batch = batch, .length = length, .error.message = "no memory for the rows"};
    double us[MAX_STEPS];
    cattn_status status = allocate(&p) ? CATTN_OK : CATTN_ERR_NOMEM;
    if (status == CATTN_OK) {
        fill(p.q, n_rows(&p) * q_row(shape));
        fill(p.kv, n_rows(&p) * kv_row(shape));
        status = create_cache(&p);
    }
    if (status == CATTN_OK) status = open_step(&p);
    if (status == CATTN_OK) status = time_steps(&p, us);
    if (status != CATTN_OK) fprintf(stderr, "cattn-bench: %s\n", p.error.message);
    cattn_cache_destroy(&p.cache);
    free(p.seqs);
    free(p.entries);
    free(p.tokens);
    free(p.q);
    free(p.kv);
    free(p.out);
    return status == CATTN_OK ? statistics_median(us, options->n_steps) : -1;
}
