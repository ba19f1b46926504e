/* The packed layout of a K and a V tile: their sizes, and scalar writes and reads of one token. */
#include "layout.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "chunkattn/base/half.h"

static size_t round_up_64(size_t n) { return (n + 63) & ~(size_t)63; }

const char *ca_type_name(cattn_type type) {
    static const char *const names[] = {[CATTN_F32] = "CATTN_F32",
                                        [CATTN_F16] = "CATTN_F16",
                                        [CATTN_BF16] = "CATTN_BF16",
                                        [CATTN_I8] = "CATTN_I8",
                                        [CATTN_E4M3] = "CATTN_E4M3"};
    return names[type];
}

void ca_layout_init(ca_layout *l, cattn_type type, int d_k, int d_v, int c) {
    assert(d_k > 0 && d_k % 2 == 0 && d_v > 0);
    assert(c >= 2 && c <= 32 * CA_SLOT_GROUP && (c & (c - 1)) == 0);
    assert(type != CATTN_I8 || (d_k % 4 == 0 && c >= 4));
    const size_t size = ca_type_size(type), scales = size == 1 ? (size_t)c * sizeof(float) : 0;
    *l = (ca_layout){.type = type, .d_k = d_k, .d_v = d_v, .c = c};
    if (type != CATTN_F16 && c >= CA_SLOT_GROUP)
        l->open_words = d_k / (int)ca_type_neighbours(type) / CA_SLOT_GROUP * CA_SLOT_GROUP;
    l->k_bytes = round_up_64((size_t)d_k * (size_t)c * size + scales);
    l->v_bytes = round_up_64((size_t)d_v * (size_t)c * size + scales);
    l->tile_bytes = l->k_bytes + l->v_bytes;
}

/* ---- Writing a token ---- */

/* Round x to the type and store it as element `index` of the tile. */
static void store(cattn_type type, void *tile, size_t index, float x) {
    switch (type) {
    case CATTN_F32: ((float *)tile)[index] = x; break;
    case CATTN_F16: ((uint16_t *)tile)[index] = ca_f16_from_f32(x); break;
    case CATTN_BF16: ((uint16_t *)tile)[index] = ca_bf16_from_f32(x); break;
    case CATTN_I8:          /* has no elements without a scale */
    case CATTN_E4M3: break; /* is on devices only */
    }
}

/* The scale of one token's x [d]. What is stored is x times *inverse, rounded. */
static float int8_scale(const float *x, int d, float *inverse) {
    float most = 0;
    bool finite = true;
    for (int i = 0; i < d; i++) {
        const float size = fabsf(x[i]);
        finite &= size <= FLT_MAX;
        most = size > most ? size : most;
    }
    const float scale = finite ? most / 127 : NAN;
    *inverse = scale >= FLT_MIN ? 127 / most : 0;
    return scale < FLT_MIN ? 0 : scale;
}

static int int8_of(float x, float inverse) { return inverse != 0 ? (int)rintf(x * inverse) : 0; }

static void write_int8(const ca_layout *l, void *k_tile, void *v_tile, uint32_t open, int slot, const float *k,
                       const float *v) {
    float inverse;
    ((float *)((char *)k_tile + ca_layout_scales(l->d_k, l->c)))[slot] = int8_scale(k, l->d_k, &inverse);
    for (int i = 0; i < l->d_k; i++)
        ((uint8_t *)k_tile)[ca_layout_k_index(l, open, slot, i)] = (uint8_t)(int8_of(k[i], inverse) + 128);
    ((float *)((char *)v_tile + ca_layout_scales(l->d_v, l->c)))[slot] = int8_scale(v, l->d_v, &inverse);
    for (int i = 0; i < l->d_v; i++) ((int8_t *)v_tile)[ca_layout_v_index(l, slot, i)] = (int8_t)int8_of(v[i], inverse);
}

void ca_layout_write(const ca_layout *l, void *k_tile, void *v_tile, uint32_t open, int slot, const float *k, const float *v) {
    if (l->type == CATTN_I8) {
        write_int8(l, k_tile, v_tile, open, slot, k, v);
        return;
    }
    for (int i = 0; i < l->d_k; i++) store(l->type, k_tile, ca_layout_k_index(l, open, slot, i), k[i]);
    for (int i = 0; i < l->d_v; i++) store(l->type, v_tile, ca_layout_v_index(l, slot, i), v[i]);
}

/* ---- Reading a token ---- */

/* Element `index` of a tile whose type has no scales. */
static float load(cattn_type type, const void *tile, size_t index) {
    if (type == CATTN_F32) return ((const float *)tile)[index];
    const uint16_t half = ((const uint16_t *)tile)[index];
    return type == CATTN_F16 ? ca_f32_from_f16(half) : ca_f32_from_bf16(half);
}

static float scale_of(const void *tile, int d, int c, int slot) {
    return ((const float *)(const void *)((const char *)tile + ca_layout_scales(d, c)))[slot];
}

void ca_layout_read_k(const ca_layout *l, const void *k_tile, uint32_t open, int slot, float *k) {
    const float scale = l->type == CATTN_I8 ? scale_of(k_tile, l->d_k, l->c, slot) : 1;
    for (int i = 0; i < l->d_k; i++) {
        const size_t at = ca_layout_k_index(l, open, slot, i);
        k[i] = l->type == CATTN_I8 ? (float)(((const uint8_t *)k_tile)[at] - 128) * scale : load(l->type, k_tile, at);
    }
}

void ca_layout_read_v(const ca_layout *l, const void *v_tile, int slot, float *v) {
    const float scale = l->type == CATTN_I8 ? scale_of(v_tile, l->d_v, l->c, slot) : 1;
    for (int i = 0; i < l->d_v; i++) {
        const size_t at = ca_layout_v_index(l, slot, i);
        v[i] = l->type == CATTN_I8 ? (float)((const int8_t *)v_tile)[at] * scale : load(l->type, v_tile, at);
    }
}
