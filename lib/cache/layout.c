/* The packed layout of a chunk: sizes, and scalar writes and copies of one token. */
#include "layout.h"

#include <assert.h>
#include <string.h>

#include "base/half.h"

static size_t round_up_64(size_t n) { return (n + 63) & ~(size_t)63; }

void ca_layout_init(ca_layout *l, cattn_type type, int n_layers, int n_kv_heads, int d_k, int d_v, int c) {
    assert(n_layers > 0 && n_kv_heads > 0);
    assert(d_k > 0 && d_k % 2 == 0 && d_v > 0);
    assert(c >= 2 && (c & (c - 1)) == 0);
    const size_t size = ca_type_size(type);
    *l = (ca_layout){.type = type, .n_layers = n_layers, .n_kv_heads = n_kv_heads, .d_k = d_k, .d_v = d_v, .c = c};
    l->log2_c = __builtin_ctz((unsigned)c);
    l->k_bytes = round_up_64((size_t)d_k * (size_t)c * size);
    l->v_bytes = round_up_64((size_t)d_v * (size_t)c * size);
    l->chunk_bytes = (size_t)n_layers * (size_t)n_kv_heads * (l->k_bytes + l->v_bytes);
}

void ca_layout_copy_slot(const ca_layout *l, void *dst, const void *src, int slot) {
    const size_t size = ca_type_size(l->type), tile_bytes = l->k_bytes + l->v_bytes;
    for (size_t tile = 0; tile < l->chunk_bytes; tile += tile_bytes) {
        char *to = (char *)dst + tile;
        const char *from = (const char *)src + tile;
        for (int i = 0; i < l->d_k; i++) {
            const size_t at = ca_layout_k_index(l, slot, i) * size;
            memcpy(to + at, from + at, size);
        }
        for (int i = 0; i < l->d_v; i++) {
            const size_t at = l->k_bytes + ca_layout_v_index(l, slot, i) * size;
            memcpy(to + at, from + at, size);
        }
    }
}

static void store(cattn_type type, void *tile, size_t index, float x) {
    switch (type) {
    case CATTN_F32: ((float *)tile)[index] = x; break;
    case CATTN_F16: ((uint16_t *)tile)[index] = ca_f16_from_f32(x); break;
    case CATTN_BF16: ((uint16_t *)tile)[index] = ca_bf16_from_f32(x); break;
    }
}

void ca_layout_write(const ca_layout *l, void *k_tile, void *v_tile, int slot, const float *k, const float *v) {
    for (int i = 0; i < l->d_k; i++) store(l->type, k_tile, ca_layout_k_index(l, slot, i), k[i]);
    for (int i = 0; i < l->d_v; i++) store(l->type, v_tile, ca_layout_v_index(l, slot, i), v[i]);
}
