/* The pages of a small engine, and writing K and V into them. */
#include "engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/half.h"

static int64_t type_size(const engine *e) { return e->type == CATTN_F32 ? 4 : 2; }

static void store(const engine *e, const cattn_page_view *view, int32_t page, int32_t slot, int32_t head, int32_t i, float x) {
    char *at = (char *)view->data +
               (page * view->page_stride + slot * view->token_stride + head * view->head_stride + i) * type_size(e);
    const uint16_t half = e->type == CATTN_F16 ? ca_f16_from_f32(x) : ca_bf16_from_f32(x);
    memcpy(at, e->type == CATTN_F32 ? (const void *)&x : &half, (size_t)type_size(e));
}

static void write_token(const engine *e, const world_seq *is, int32_t position, int32_t page) {
    const int32_t slot = position % e->page_size;
    for (int32_t layer = 0; layer < e->w->config.n_layers; layer++) {
        const ca_heads h = world_heads(e->w, layer);
        const world_input row = world_row(e->w, is, position, layer);
        for (int32_t head = 0; head < h.n_kv_heads; head++) {
            for (int32_t i = 0; i < h.d_k; i++) store(e, &e->k[layer], page, slot, head, i, row.k[head * h.d_k + i]);
            for (int32_t i = 0; i < h.d_v; i++) store(e, &e->v[layer], page, slot, head, i, row.v[head * h.d_v + i]);
        }
    }
}

/* Fill a page with NaN and infinities, as an earlier sequence could leave it. */
static void poison(const engine *e, int32_t page) {
    static const float bad[] = {0.0f / 0.0f, 1.0f / 0.0f, -1.0f / 0.0f};
    for (int32_t layer = 0; layer < e->w->config.n_layers; layer++) {
        const ca_heads h = world_heads(e->w, layer);
        for (int32_t slot = 0; slot < e->page_size; slot++)
            for (int32_t head = 0; head < h.n_kv_heads; head++) {
                for (int32_t i = 0; i < h.d_k; i++) store(e, &e->k[layer], page, slot, head, i, bad[i % 3]);
                for (int32_t i = 0; i < h.d_v; i++) store(e, &e->v[layer], page, slot, head, i, bad[i % 3]);
            }
    }
}

void engine_init(engine *e, const world *w, const cattn_pages_config *config, const cattn_pages *pages, int layout,
                 const engine_memory *of) {
    *e = (engine){.w = w,
                  .of = *of,
                  .type = config->common.kv_type,
                  .page_size = config->page_size,
                  .n_pages = config->n_pages,
                  .layout = layout};
    const int64_t c = config->page_size;
    for (int32_t layer = 0; layer < w->config.n_layers; layer++) {
        const ca_heads h = world_heads(w, layer);
        if (h.d_k != h.d_v) e->layout = ENGINE_LAYOUTS - 1;
    }
    for (int32_t layer = 0; layer < w->config.n_layers; layer++) {
        const ca_heads h = world_heads(w, layer);
        const int64_t d_k = h.d_k, d_v = h.d_v, token_k = h.n_kv_heads * d_k + e->of.gap,
                      token_v = h.n_kv_heads * d_v + e->of.gap, elements = e->n_pages * (c + 1) * (token_k + token_v);
        char *kv = e->memory[layer] = e->of.alloc((size_t)(elements * type_size(e)), "pages");
        e->k[layer] = (cattn_page_view){kv, (c + 1) * token_k, token_k, d_k};
        e->v[layer] = (cattn_page_view){kv + e->n_pages * (c + 1) * token_k * type_size(e), (c + 1) * token_v, token_v, d_v};
        if (e->layout < ENGINE_LAYOUTS - 1) {
            cattn_error error;
            const cattn_status s = cattn_pages_views(pages, layer, (cattn_page_layout)e->layout, kv, e->n_pages, &e->k[layer],
                                                     &e->v[layer], &error);
            assert(s == CATTN_OK), (void)s;
        }
    }
    for (int32_t page = 0; page < e->n_pages; page++) poison(e, page);
}

void engine_free(engine *e) {
    for (int layer = 0; layer < e->w->config.n_layers; layer++) e->of.free(e->memory[layer]);
}

/* The full page whose tokens have this hash, or a free page if the hash is 0. */
static int32_t find_page(engine *e, uint64_t hash) {
    int32_t page = 0;
    while (page < e->n_pages && (hash ? e->holds[page] != hash : e->refs[page] > 0)) page++;
    return page < e->n_pages ? page : -1;
}

static int32_t take_page(engine *e) {
    const int32_t page = find_page(e, 0);
    assert(page >= 0);
    e->holds[page] = 0;
    return page;
}

static void drop_page(engine *e, int32_t page) {
    if (--e->refs[page] > 0) return;
    e->holds[page] = 0;
    poison(e, page);
}

/* Write tokens [first, end) of a page, and record its hash when it is full. */
static void fill(engine *e, const engine_seq *s, int32_t index, int32_t end) {
    const int32_t begin = index * e->page_size, page = s->table[index];
    for (int32_t p = begin; p < end && p < begin + e->page_size; p++) write_token(e, s->is, p, page);
    const uint64_t hash = end >= begin + e->page_size ? s->is->path[begin + e->page_size - 1] : 0;
    if (hash && find_page(e, hash) < 0) e->holds[page] = hash;
}

void engine_resize(engine *e, engine_seq *s, int32_t n_tokens, bool share) {
    const int32_t n_pages = (n_tokens + e->page_size - 1) / e->page_size;
    while (s->n_pages > n_pages) drop_page(e, s->table[--s->n_pages]);
    const int32_t last = s->n_pages - 1;
    if (n_tokens > s->n_tokens && last >= 0 && s->n_tokens < s->n_pages * e->page_size) {
        if (e->refs[s->table[last]] > 1 && !share) {
            const int32_t own = take_page(e);
            e->refs[own]++;
            drop_page(e, s->table[last]);
            s->table[last] = own;
        }
        fill(e, s, last, n_tokens);
    }
    assert(n_pages <= ENGINE_MAX_TABLE);
    while (s->n_pages < n_pages) {
        const int32_t end = (s->n_pages + 1) * e->page_size;
        const int32_t known = end <= n_tokens ? find_page(e, s->is->path[end - 1]) : -1;
        const int32_t page = known >= 0 ? known : take_page(e);
        e->refs[page]++;
        s->table[s->n_pages++] = page;
        if (known < 0) fill(e, s, s->n_pages - 1, n_tokens);
    }
    s->n_tokens = n_tokens;
}

void engine_join(engine *e, engine_seq *s, const world_seq *is, int32_t n_tokens) {
    *s = (engine_seq){.is = is};
    engine_resize(e, s, n_tokens, false);
}

void engine_fork(engine *e, engine_seq *fork, const engine_seq *s) {
    *fork = *s;
    for (int32_t i = 0; i < s->n_pages; i++) e->refs[s->table[i]]++;
}

void engine_leave(engine *e, engine_seq *s) {
    while (s->n_pages > 0) drop_page(e, s->table[--s->n_pages]);
}
