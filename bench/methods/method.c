/* What is known about a method before it is created: its name, its memory, and the random rows that all methods store as K and
 * V. */
#include "method.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[N_METHODS] = {"naive", "flash",      "paged",   "paged_shared",
                                             "chunk", "chunk_int8", "pages16", "pages64"};

const char *method_name(method_id id) { return names[id]; }

bool method_shares(method_id id) { return id >= METHOD_PAGED_SHARED; }

cattn_type method_kv_type(method_id id, const shape *s) {
    return id == METHOD_NAIVE ? CATTN_F32 : id == METHOD_CHUNK_INT8 ? CATTN_I8 : s->kv_type;
}

/* Tokens of a chunk in a method's arithmetic, which is that of the library's kernels; 0: its arithmetic is its own. */
static int32_t chunk_of(method_id id, const shape *s) {
    switch (id) {
    case METHOD_NAIVE: return 0;
    case METHOD_PAGES16:
    case METHOD_PAGES64: return 64;
    default: return s->chunk;
    }
}

bool method_bits_agree(method_id a, method_id b, const shape *s) {
    const int32_t chunk = chunk_of(a, s);
    return chunk > 0 && chunk == chunk_of(b, s) && method_kv_type(a, s) == method_kv_type(b, s);
}

shape method_layer_shape(const shape *s, int32_t layer) {
    shape one = *s;
    if (!s->n_forms) return one;
    const layer_form *form = &s->forms[layer % s->n_forms];
    one.heads = form->heads;
    one.kv_heads = form->kv_heads;
    one.head_dim = form->head_dim;
    one.window = form->window;
    one.n_forms = 0;
    return one;
}

int32_t method_kv_source(const shape *s, int32_t layer) {
    return s->n_forms ? layer - layer % s->n_forms + s->forms[layer % s->n_forms].source : layer;
}

size_t method_token_bytes(method_id id, const shape *s) {
    const cattn_type type = method_kv_type(id, s);
    if (type == CATTN_I8) return 2 * (method_row_size(s) + (size_t)s->kv_heads * sizeof(float)); /* scales */
    return 2 * method_row_size(s) * (type == CATTN_F32 ? 4 : 2);
}

int64_t method_rows(const shape *s) { return s->prefill ? s->batch * (s->prefix + 1) : s->batch; }

int64_t method_seen(const shape *s, int64_t end) {
    const int64_t begin = s->window > 0 && s->prefix + 1 > s->window ? s->prefix + 1 - s->window : 0;
    const int64_t kept = s->sink_tokens < begin ? s->sink_tokens : begin;
    return (kept < end ? kept : end) + (end > begin ? end - begin : 0);
}

/* Of a token in all layers of a step that store K/V. */
static double stored_token_bytes(method_id id, const shape *s) {
    double bytes = 0;
    for (int32_t i = 0; i < method_step_layers(s); i++) {
        const shape one = method_layer_shape(s, i);
        if (method_kv_source(s, i) == i) bytes += (double)method_token_bytes(id, &one);
    }
    return bytes;
}

double method_layer_bytes(method_id id, const shape *s) {
    const int64_t shared = method_shares(id) ? s->shared : 0;
    return (double)(shared + s->batch * (s->prefix + 1 - shared)) * stored_token_bytes(id, s);
}

int32_t method_n_layers(method_id id, const shape *s) {
    return method_step_layers(s) * (1 + (int32_t)((double)s->cold_bytes / method_layer_bytes(id, s)));
}

/*
 * Besides whole chunks, the shared tokens and each sequence's own may fill parts of two, where they begin and where they end,
 * and so may its last token. Queries, outputs, and K or V of a step's rows count once more for the library's workspace.
 */
double method_bytes(method_id id, const shape *s) {
    const double ends = 2.0 * (1 + 2 * s->batch) * chunk_of(id, s);
    const double row = sizeof(float) * (2.0 * s->heads + s->kv_heads) * s->head_dim;
    const int32_t n_steps = method_n_layers(id, s) / method_step_layers(s);
    return (method_layer_bytes(id, s) + ends * stored_token_bytes(id, s)) * n_steps +
           (s->prefill ? 2 * row * (double)method_rows(s) : 0);
}

/* ---- Random rows ---- */

/* Rows are windows of one random table, so filling gigabytes costs little more than copying them. */
enum { TABLE_BITS = 16 };

static float table[(1 << TABLE_BITS) + METHOD_MAX_ROW];

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void init_rows(void) {
    for (int i = 0; i < (1 << TABLE_BITS) + METHOD_MAX_ROW; i++) table[i] = 0x1p-31f * (float)(int32_t)mix((uint64_t)i + 1);
}

static const float *row_at(uint64_t hash) { return table + (hash & ((1 << TABLE_BITS) - 1)); }

const float *method_kv_row(const shape *s, int32_t layer, int32_t seq, int64_t position, int v) {
    const uint64_t owner = position < s->shared ? 0 : (uint64_t)seq + 1;
    return row_at(mix(mix(mix(owner) + (uint64_t)position) + (uint64_t)layer * 2 + (uint64_t)v));
}

float *method_queries(const shape *s) {
    const size_t n_rows = (size_t)method_rows(s);
    size_t row = 0;
    for (int32_t i = 0; i < method_step_layers(s); i++) {
        const shape one = method_layer_shape(s, i);
        const size_t n = (size_t)one.heads * (size_t)one.head_dim;
        row = row > n ? row : n;
    }
    float *q = malloc(n_rows * row * sizeof *q);
    init_rows();
    for (size_t i = 0; q && i < n_rows; i++) memcpy(q + i * row, row_at(mix(mix(UINT64_MAX) + i)), row * sizeof *q);
    return q;
}

method *method_create(method_id id, const shape *s, ca_pool *pool) {
    init_rows();
    switch (id) {
    case METHOD_NAIVE: return method_create_naive(s, pool);
    case METHOD_FLASH: return method_create_flash(s, pool);
    case METHOD_PAGES16:
    case METHOD_PAGES64: return method_create_pages(id, s, pool);
    default: return method_create_cached(id, s, pool);
    }
}
