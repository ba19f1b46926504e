/* The methods that run a step through libchunkattn's public interface, each in one sharing mode. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn_inspect.h"
#include "method.h"

enum { FILL_ROWS = 256 };

typedef struct cached_method {
    method base;
    const shape *s;
    cattn_cache *cache;
    cattn_seq *seqs;      /* [batch] */
    cattn_entry *entries; /* [batch] */
    float *rows[2];       /* K and V of up to n_rows rows */
    cattn_error error;
} cached_method;

cattn_cache *method_cache(const method *m) { return ((const cached_method *)m)->cache; }

static void destroy(method *base) {
    cached_method *m = (cached_method *)base;
    cattn_cache_destroy(&m->cache);
    free(m->seqs);
    free(m->entries);
    free(m->rows[0]);
    free(m->rows[1]);
    free(m);
}

static cattn_view view_of(const float *data, int32_t heads, int32_t dim) {
    return (cattn_view){.data = (void *)data, .type = CATTN_F32, .row_stride = (int64_t)heads * dim, .head_stride = dim};
}

static void attend(method *base, int32_t layer, const float *q, float *out) {
    cached_method *m = (cached_method *)base;
    const cattn_view q_view = view_of(q, m->s->heads, m->s->head_dim), out_view = view_of(out, m->s->heads, m->s->head_dim);
    if (cattn_step_attend(m->cache, layer, &q_view, &out_view, NULL, &m->error) != CATTN_OK) {
        fprintf(stderr, "%s: %s\n", m->base.name, m->error.message);
        abort(); /* the arguments are ours */
    }
}

static cattn_status create_cache(cached_method *m, method_id id, ca_pool *pool) {
    const shape *s = m->s;
    cattn_config c = method_config(id, s, pool);
    c.n_layers = m->base.n_layers;
    c.n_sink_tokens = s->sink_tokens;
    c.softcap = (float)s->softcap;
    int32_t *windows = malloc((size_t)c.n_layers * sizeof *windows);
    if (!windows) return CATTN_ERR_NOMEM;
    for (int32_t i = 0; i < c.n_layers; i++) windows[i] = s->window;
    c.windows = windows;
    const cattn_status status = cattn_cache_create(&c, &m->cache, &m->error);
    free(windows);
    return status;
}

static cattn_status join_all(cached_method *m, int32_t *tokens) {
    const token_tree *tree = m->s->tree;
    for (int32_t seq = 0; seq < tree->n_seqs; seq++) {
        token_tree_tokens(tree, seq, tokens);
        const cattn_status status =
            cattn_seq_join(m->cache, tokens, token_tree_prefix(tree, seq) + 1, NULL, &m->seqs[seq], NULL, &m->error);
        if (status != CATTN_OK) return status;
    }
    return CATTN_OK;
}

/* Write all layers of the rows that the open step has given to entries [n]; the first entry is m->seqs[first]. */
static cattn_status write_rows(cached_method *m, const cattn_entry *entries, int32_t n, int32_t first) {
    const shape *s = m->s;
    const cattn_view k = view_of(m->rows[0], s->kv_heads, s->head_dim), v = view_of(m->rows[1], s->kv_heads, s->head_dim);
    for (int32_t layer = 0; layer < m->base.n_layers; layer++) {
        size_t row = 0;
        for (int32_t e = 0; e < n; e++)
            for (int64_t i = 0; i < entries[e].n_rows; i++, row++)
                for (int kind = 0; kind < 2; kind++) {
                    const int64_t pos = entries[e].first_pos + i;
                    const int32_t run = token_tree_run_at(s->tree, first + e, pos);
                    memcpy(m->rows[kind] + row * method_row_size(s), method_kv_row(layer, run, pos, kind),
                           method_row_size(s) * sizeof(float));
                }
        const cattn_status status = cattn_step_write(m->cache, layer, &k, &v, &m->error);
        if (status != CATTN_OK) return status;
    }
    return CATTN_OK;
}

/* Compute the K/V of all tokens but the last of each sequence, which is the row of the step. */
static cattn_status fill(cached_method *m) {
    for (int32_t seq = 0; seq < m->s->tree->n_seqs; seq++) {
        for (;;) {
            cattn_seq_info info = {.struct_size = sizeof info};
            cattn_status status = cattn_seq_get_info(m->cache, m->seqs[seq], &info, &m->error);
            const int64_t n_left = token_tree_prefix(m->s->tree, seq) - info.n_ready;
            if (status != CATTN_OK) return status;
            if (n_left <= 0) break;
            cattn_entry entry = {.seq = m->seqs[seq], .max_rows = n_left < FILL_ROWS ? n_left : FILL_ROWS};
            status = cattn_step_begin(m->cache, &entry, 1, 0, &m->error);
            if (status == CATTN_OK) status = write_rows(m, &entry, 1, seq);
            if (status == CATTN_OK) status = cattn_step_end(m->cache, &m->error);
            if (status != CATTN_OK) return status;
        }
    }
    return CATTN_OK;
}

/* Open the step that is measured; it stays open and may attend any number of times. */
static cattn_status open_step(cached_method *m) {
    const int32_t n = m->s->tree->n_seqs;
    for (int32_t i = 0; i < n; i++) m->entries[i] = (cattn_entry){.seq = m->seqs[i], .max_rows = 1};
    const cattn_status status = cattn_step_begin(m->cache, m->entries, n, 0, &m->error);
    return status == CATTN_OK ? write_rows(m, m->entries, n, 0) : status;
}

static bool shorten(method *base, int64_t prefix) {
    cached_method *m = (cached_method *)base;
    cattn_status status = cattn_step_abort(m->cache, &m->error);
    for (int32_t i = 0; i < m->s->tree->n_seqs && status == CATTN_OK; i++) {
        const int32_t own = m->s->tree->n_runs + i;
        status = cattn_seq_truncate(m->cache, m->seqs[i], prefix, &m->error);
        if (status == CATTN_OK) status = cattn_seq_append(m->cache, m->seqs[i], &own, 1, &m->error);
    }
    if (status == CATTN_OK) status = open_step(m);
    if (status != CATTN_OK) fprintf(stderr, "%s: %s\n", base->name, m->error.message);
    return status == CATTN_OK;
}

method *method_create_cached(method_id id, const shape *s, ca_pool *pool) {
    const size_t n_seqs = (size_t)s->tree->n_seqs, n_rows = n_seqs > FILL_ROWS ? n_seqs : FILL_ROWS;
    cached_method *m = calloc(1, sizeof *m);
    int32_t *tokens = malloc(((size_t)token_tree_longest(s->tree) + 1) * sizeof *tokens);
    if (!m || !tokens) goto no_memory;
    m->s = s;
    m->base = (method){.name = method_name(id), .attend = attend, .shorten = shorten, .destroy = destroy};
    m->base.n_layers = method_n_layers(id, s);
    m->seqs = calloc(n_seqs, sizeof *m->seqs);
    m->entries = calloc(n_seqs, sizeof *m->entries);
    for (int kind = 0; kind < 2; kind++) m->rows[kind] = malloc(n_rows * method_row_size(s) * sizeof(float));
    if (!m->seqs || !m->entries || !m->rows[0] || !m->rows[1]) goto no_memory;

    cattn_status status = create_cache(m, id, pool);
    if (status == CATTN_OK) status = join_all(m, tokens);
    if (status == CATTN_OK) status = fill(m);
    if (status == CATTN_OK) status = open_step(m);
    if (status != CATTN_OK) {
        fprintf(stderr, "%s: %s\n", m->base.name, m->error.message);
        goto failed;
    }
    m->base.level = cattn_cache_level(m->cache);
    free(tokens);
    return &m->base;

no_memory:
    fprintf(stderr, "%s: no memory\n", method_name(id));
failed:
    free(tokens);
    if (m) destroy(&m->base);
    return NULL;
}
