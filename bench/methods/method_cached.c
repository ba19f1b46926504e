/* The methods that run a step through libchunkattn's public interface, each in one sharing mode. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn_inspect.h"
#include "method.h"

enum { FILL_ROWS = 256, WORKSPACE_BYTES = 1 << 30 /* address space beside the K/V, of which little is used */ };

typedef struct cached_method {
    method base;
    const shape *s;
    cattn_cache *cache;
    cattn_seq *seqs;      /* [batch] */
    cattn_entry *entries; /* [batch] */
    float *rows[2];       /* K and V of up to n_rows rows */
    cattn_error error;
} cached_method;

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
    const shape s = method_layer_shape(m->s, layer);
    const cattn_view q_view = view_of(q, s.heads, s.head_dim), out_view = view_of(out, s.heads, s.head_dim);
    if (cattn_step_attend(m->cache, layer, &q_view, &out_view, NULL, &m->error) != CATTN_OK) {
        fprintf(stderr, "%s: %s\n", m->base.name, m->error.message);
        abort(); /* the arguments are ours */
    }
}

static cattn_sharing sharing_of(method_id id) {
    if (id == METHOD_PAGED) return CATTN_PRIVATE;
    return id == METHOD_PAGED_SHARED ? CATTN_SHARED_STORAGE : CATTN_SHARED;
}

static cattn_status create_cache(cached_method *m, method_id id, ca_pool *pool) {
    const shape *s = m->s;
    enum { HEADS, KV_HEADS, HEAD_DIM, WINDOW, SOURCE, N_LISTS };
    cattn_config c;
    cattn_config_init(&c);
    c.n_layers = m->base.n_layers;
    c.chunk_size = s->chunk;
    c.kv_type = method_kv_type(id, s);
    c.sharing = sharing_of(id);
    c.level = s->level;
    c.budget_bytes = (uint64_t)method_bytes(id, s) + WORKSPACE_BYTES;
    c.n_threads = ca_pool_size(pool);
    c.parallel = (cattn_parallel){.run = ca_pool_run, .ctx = pool};
    c.n_sink_tokens = s->sink_tokens;
    c.softcap = (float)s->softcap;
    int32_t *lists = malloc((size_t)c.n_layers * N_LISTS * sizeof *lists), *of[N_LISTS];
    if (!lists) return CATTN_ERR_NOMEM;
    for (int k = 0; k < N_LISTS; k++) of[k] = lists + (size_t)k * (size_t)c.n_layers;
    for (int32_t i = 0; i < c.n_layers; i++) {
        const shape one = method_layer_shape(s, i);
        of[HEADS][i] = one.heads;
        of[KV_HEADS][i] = one.kv_heads;
        of[HEAD_DIM][i] = one.head_dim;
        of[WINDOW][i] = one.window;
        of[SOURCE][i] = method_kv_source(s, i);
    }
    c.layer_n_heads = of[HEADS];
    c.layer_n_kv_heads = of[KV_HEADS];
    c.layer_head_dim = of[HEAD_DIM];
    c.windows = of[WINDOW];
    c.kv_source = of[SOURCE];
    const cattn_status status = cattn_cache_create(&c, &m->cache, &m->error);
    free(lists);
    return status;
}

/* Tokens differ between sequences where they are not shared. */
static cattn_status join_all(cached_method *m, int32_t *tokens) {
    const shape *s = m->s;
    cattn_status status = CATTN_OK;
    for (int32_t seq = 0; status == CATTN_OK && seq < s->batch; seq++) {
        for (int64_t i = 0; i <= s->prefix; i++) tokens[i] = i < s->shared ? 0 : seq + 1;
        status = cattn_seq_join(m->cache, tokens, s->prefix + 1, NULL, &m->seqs[seq], NULL, &m->error);
    }
    return status;
}

/* Write all layers of the rows that the open step has given to entries [n]; the first entry is m->seqs[first]. */
static cattn_status write_rows(cached_method *m, const cattn_entry *entries, int32_t n, int32_t first) {
    for (int32_t layer = 0; layer < m->base.n_layers; layer++) {
        if (method_kv_source(m->s, layer) != layer) continue;
        const shape one = method_layer_shape(m->s, layer), *s = &one;
        const cattn_view k = view_of(m->rows[0], s->kv_heads, s->head_dim), v = view_of(m->rows[1], s->kv_heads, s->head_dim);
        size_t row = 0;
        for (int32_t e = 0; e < n; e++)
            for (int64_t i = 0; i < entries[e].n_rows; i++, row++)
                for (int kind = 0; kind < 2; kind++) {
                    const float *from = method_kv_row(s, layer, first + e, entries[e].first_pos + i, kind);
                    memcpy(m->rows[kind] + row * method_row_size(s), from, method_row_size(s) * sizeof(float));
                }
        const cattn_status status = cattn_step_write(m->cache, layer, &k, &v, &m->error);
        if (status != CATTN_OK) return status;
    }
    return CATTN_OK;
}

/* A step that writes the K/V of up to FILL_ROWS tokens of a sequence. */
static cattn_status fill_some(cached_method *m, int32_t seq, int64_t n_left) {
    cattn_entry entry = {.seq = m->seqs[seq], .max_rows = n_left < FILL_ROWS ? n_left : FILL_ROWS};
    cattn_status status = cattn_step_begin(m->cache, &entry, 1, 0, &m->error);
    if (status == CATTN_OK) status = write_rows(m, &entry, 1, seq);
    return status == CATTN_OK ? cattn_step_end(m->cache, &m->error) : status;
}

/* Write the K/V of all tokens but the last of each sequence. */
static cattn_status fill(cached_method *m) {
    cattn_status status = CATTN_OK;
    for (int32_t seq = 0; status == CATTN_OK && seq < m->s->batch; seq++)
        for (int64_t n_left = 1; status == CATTN_OK && n_left > 0;) {
            cattn_seq_info info = {.struct_size = sizeof info};
            status = cattn_seq_get_info(m->cache, m->seqs[seq], &info, &m->error);
            n_left = m->s->prefix - info.n_ready;
            if (status == CATTN_OK && n_left > 0) status = fill_some(m, seq, n_left);
        }
    return status;
}

/* Open the step that is measured; it stays open and may attend any number of times. */
static cattn_status open_step(cached_method *m) {
    const int32_t n = m->s->batch;
    const int64_t n_rows = m->s->prefill ? m->s->prefix + 1 : 1;
    for (int32_t i = 0; i < n; i++) m->entries[i] = (cattn_entry){.seq = m->seqs[i], .max_rows = n_rows};
    const cattn_status status = cattn_step_begin(m->cache, m->entries, n, 0, &m->error);
    return status == CATTN_OK ? write_rows(m, m->entries, n, 0) : status;
}

method *method_create_cached(method_id id, const shape *s, ca_pool *pool) {
    const size_t n_seqs = (size_t)s->batch, n_rows = (size_t)method_rows(s) + FILL_ROWS;
    size_t row = 0;
    for (int32_t i = 0; i < method_step_layers(s); i++) {
        const shape one = method_layer_shape(s, i);
        row = row > method_row_size(&one) ? row : method_row_size(&one);
    }
    cached_method *m = calloc(1, sizeof *m);
    int32_t *tokens = malloc(((size_t)s->prefix + 1) * sizeof *tokens);
    if (!m || !tokens) goto no_memory;
    m->s = s;
    m->base = (method){.name = method_name(id), .attend = attend, .destroy = destroy};
    m->base.n_layers = method_n_layers(id, s);
    m->seqs = calloc(n_seqs, sizeof *m->seqs);
    m->entries = calloc(n_seqs, sizeof *m->entries);
    for (int kind = 0; kind < 2; kind++) m->rows[kind] = malloc(n_rows * row * sizeof(float));
    if (!m->seqs || !m->entries || !m->rows[0] || !m->rows[1]) goto no_memory;

    cattn_status status = create_cache(m, id, pool);
    if (status == CATTN_OK) status = join_all(m, tokens);
    if (status == CATTN_OK && !s->prefill) status = fill(m);
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
