/*
 * Attention over foreign pages: K and V are in an engine's own pages and layout, and the library reads them there.
 *
 * The ids of a sequence's pages are in no order, as they are in an engine that has run for a while. Tokens that fill whole
 * pages and are shared have the same pages in all sequences.
 */
#define CATTN_EXPERIMENTAL
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/half.h"
#include "chunkattn_pages.h"
#include "method.h"

typedef struct pages_method {
    method base;
    const shape *s;
    int32_t page_size, n_pages;
    int32_t n_columns, n_shared; /* pages of a sequence, and the first of them, which all have */
    cattn_page_layout layout;
    cattn_pages *handle;
    int32_t *table; /* [batch][n_columns] ids */
    char **kv;      /* [n_layers]; NULL: the layer reads another one's */
    cattn_error error;
} pages_method;

static void destroy(method *base) {
    pages_method *m = (pages_method *)base;
    for (int32_t i = 0; m->kv && i < m->base.n_layers; i++) free(m->kv[i]);
    free(m->kv);
    free(m->table);
    cattn_pages_destroy(&m->handle);
    free(m);
}

/* ---- Steps ---- */

static cattn_view view_of(const float *data, const shape *s) {
    const int32_t dim = s->head_dim;
    return (cattn_view){.data = (void *)data, .type = CATTN_F32, .row_stride = (int64_t)s->heads * dim, .head_stride = dim};
}

/* The arguments are ours, so an error is a fault of this program. */
static void check(const pages_method *m, cattn_status status) {
    if (status == CATTN_OK) return;
    fprintf(stderr, "%s: %s\n", m->base.name, m->error.message);
    abort();
}

/* K (kv = 0) and V of a layer's pages. */
static void find_pages(pages_method *m, int32_t layer, cattn_page_view *views) {
    const int32_t shape_of = layer % method_step_layers(m->s);
    check(m, cattn_pages_views(m->handle, shape_of, m->layout, m->kv[method_kv_source(m->s, layer)], m->n_pages, &views[0],
                               &views[1], &m->error));
}

static void attend(method *base, int32_t layer, const float *q, float *out) {
    pages_method *m = (pages_method *)base;
    const shape s = method_layer_shape(m->s, layer);
    const cattn_view q_view = view_of(q, &s), out_view = view_of(out, &s);
    cattn_page_view kv[2];
    find_pages(m, layer, kv);
    check(m,
          cattn_pages_attend(m->handle, layer % method_step_layers(m->s), &kv[0], &kv[1], &q_view, &out_view, NULL, &m->error));
}

/* ---- Creation ---- */

static bool make_table(pages_method *m) {
    const shape *s = m->s;
    int32_t *ids = calloc((size_t)m->n_pages, sizeof *ids);
    m->table = malloc((size_t)s->batch * (size_t)m->n_columns * sizeof *m->table);
    if (!ids || !m->table) return free(ids), false;
    unsigned short state[3] = {1, 2, 3};
    for (int32_t i = 0; i < m->n_pages; i++) { /* a random permutation */
        const int32_t j = (int32_t)(nrand48(state) % (i + 1));
        ids[i] = ids[j];
        ids[j] = i;
    }
    int32_t next = m->n_shared;
    for (int32_t seq = 0; seq < s->batch; seq++)
        for (int32_t i = 0; i < m->n_columns; i++) m->table[seq * m->n_columns + i] = i < m->n_shared ? ids[i] : ids[next++];
    free(ids);
    return true;
}

static cattn_status create_handle(pages_method *m, ca_pool *pool) {
    enum { MAX_LAYERS = 256 }; /* of `cattn-bench kernel --layers` */
    static int32_t heads[MAX_LAYERS], kv_heads[MAX_LAYERS], head_dims[MAX_LAYERS], windows[MAX_LAYERS];
    const shape *s = m->s;
    cattn_pages_config c;
    cattn_pages_config_init(&c);
    c.page_size = m->page_size;
    c.n_pages = m->n_pages;
    c.common.n_layers = method_step_layers(s);
    for (int32_t i = 0; i < c.common.n_layers; i++) {
        const shape one = method_layer_shape(s, i);
        heads[i] = one.heads;
        kv_heads[i] = one.kv_heads;
        head_dims[i] = one.head_dim;
        windows[i] = one.window;
    }
    c.common.layer_n_heads = heads;
    c.common.layer_n_kv_heads = kv_heads;
    c.common.layer_head_dim = head_dims;
    c.common.windows = windows;
    c.common.kv_type = s->kv_type;
    c.common.level = s->level;
    c.common.n_sink_tokens = s->sink_tokens;
    c.common.softcap = (float)s->softcap;
    c.common.n_threads = ca_pool_size(pool);
    c.common.parallel = (cattn_parallel){.run = ca_pool_run, .ctx = pool};
    return cattn_pages_create(&c, &m->handle, &m->error);
}

static bool allocate_layers(pages_method *m) {
    m->kv = calloc((size_t)m->base.n_layers, sizeof *m->kv);
    for (int32_t i = 0; m->kv && i < m->base.n_layers; i++) {
        if (method_kv_source(m->s, i) != i) continue;
        const shape one = method_layer_shape(m->s, i);
        m->kv[i] = malloc((size_t)m->n_pages * (size_t)m->page_size * method_token_bytes(METHOD_PAGES16, &one));
        if (!m->kv[i]) return false;
    }
    return m->kv;
}

static void convert(cattn_type type, const float *from, int32_t n, char *to) {
    if (type == CATTN_F32) memcpy(to, from, (size_t)n * sizeof *from);
    for (int32_t i = 0; type != CATTN_F32 && i < n; i++) {
        const uint16_t half = type == CATTN_BF16 ? ca_bf16_from_f32(from[i]) : ca_f16_from_f32(from[i]);
        memcpy(to + sizeof half * (size_t)i, &half, sizeof half);
    }
}

/* Write a sequence's token into all heads of its slot. */
static void write_token(pages_method *m, int32_t layer, int32_t seq, int64_t position, const cattn_page_view *views) {
    const shape s = method_layer_shape(m->s, layer);
    const int64_t size = s.kv_type == CATTN_F32 ? 4 : 2;
    const int32_t page = m->table[seq * m->n_columns + position / m->page_size];
    for (int v = 0; v < 2; v++)
        for (int32_t h = 0; h < s.kv_heads; h++) {
            const int64_t at = page * views[v].page_stride + position % m->page_size * views[v].token_stride;
            convert(s.kv_type, method_kv_row(&s, layer, seq, position, v) + (ptrdiff_t)h * s.head_dim, s.head_dim,
                    (char *)views[v].data + (at + h * views[v].head_stride) * size);
        }
}

static void fill_sequence(void *arg, int32_t seq, int32_t worker) {
    (void)worker;
    pages_method *m = arg;
    const int64_t first = seq == 0 ? 0 : (int64_t)m->n_shared * m->page_size;
    for (int32_t layer = 0; layer < m->base.n_layers; layer++) {
        if (!m->kv[layer]) continue;
        cattn_page_view views[2];
        find_pages(m, layer, views);
        for (int64_t position = first; position <= m->s->prefix; position++) write_token(m, layer, seq, position, views);
    }
}

static cattn_status plan(pages_method *m) {
    const shape *s = m->s;
    int32_t *lengths = malloc((size_t)s->batch * sizeof *lengths), *rows = malloc((size_t)(s->batch + 1) * sizeof *rows);
    for (int32_t i = 0; lengths && rows && i <= s->batch; i++) {
        if (i < s->batch) lengths[i] = (int32_t)s->prefix + 1;
        rows[i] = i * (s->prefill ? (int32_t)s->prefix + 1 : 1);
    }
    const cattn_pages_batch batch = {.struct_size = sizeof batch,
                                     .n_seqs = s->batch,
                                     .page_ids = m->table,
                                     .page_stride = m->n_columns,
                                     .seq_lens = lengths,
                                     .query_indptr = rows};
    const cattn_status status = lengths && rows ? cattn_pages_plan(m->handle, &batch, &m->error) : CATTN_ERR_NOMEM;
    free(lengths);
    free(rows);
    return status;
}

method *method_create_pages(method_id id, const shape *s, ca_pool *pool) {
    pages_method *m = calloc(1, sizeof *m);
    if (!m) return fprintf(stderr, "%s: no memory\n", method_name(id)), NULL;
    m->s = s;
    m->page_size = id == METHOD_PAGES16 ? 16 : 64;
    m->layout = id == METHOD_PAGES16 ? CATTN_PAGES_VLLM : CATTN_PAGES_HND;
    m->n_columns = (int32_t)(s->prefix / m->page_size) + 1;
    m->n_shared = (int32_t)(s->shared / m->page_size);
    m->n_pages = m->n_shared + s->batch * (m->n_columns - m->n_shared);
    m->base = (method){.name = method_name(id), .attend = attend, .destroy = destroy, .n_layers = method_n_layers(id, s)};
    snprintf(m->error.message, sizeof m->error.message, "no memory");
    if (create_handle(m, pool) || !make_table(m) || !allocate_layers(m) || plan(m)) {
        fprintf(stderr, "%s: %s\n", m->base.name, m->error.message);
        destroy(&m->base);
        return NULL;
    }
    m->base.level = cattn_pages_level(m->handle);
    ca_pool_run(pool, s->batch, fill_sequence, m);
    return &m->base;
}
