/* The packed layout of a chunk: sizes, scalar writes of one token, copies. */
#include "layout.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/half.h"

static size_t round_up_64(size_t n) { return (n + 63) & ~(size_t)63; }

void ca_layout_init(ca_layout *l, cattn_type type, int n_layers, int n_kv_heads, int d_k, int d_v, int c) {
    assert(n_layers > 0 && n_kv_heads > 0);
    assert(d_k > 0 && d_k % 2 == 0 && d_v > 0);
    assert(c >= 2 && c <= 32 * CA_GROUP && (c & (c - 1)) == 0);
    assert(type != CATTN_I8 || (d_k % 4 == 0 && c >= 4));
    const size_t size = ca_type_size(type), scales = type == CATTN_I8 ? (size_t)c * sizeof(float) : 0;
    *l = (ca_layout){.type = type, .n_layers = n_layers, .n_kv_heads = n_kv_heads, .d_k = d_k, .d_v = d_v, .c = c};
    l->log2_c = __builtin_ctz((unsigned)c);
    if (type != CATTN_F16 && c >= CA_GROUP) l->open_words = d_k / (int)ca_type_neighbours(type) / CA_GROUP * CA_GROUP;
    l->k_bytes = round_up_64((size_t)d_k * (size_t)c * size + scales);
    l->v_bytes = round_up_64((size_t)d_v * (size_t)c * size + scales);
    l->tile_bytes = l->k_bytes + l->v_bytes;
    l->n_tiles = (size_t)n_layers * (size_t)n_kv_heads;
    l->chunk_bytes = l->n_tiles * l->tile_bytes;
}

/* ---- Open groups ---- */

static bool is_open(uint32_t open, int slot) { return (open & ca_group_bit(slot)) != 0; }

/* Words of a token's K, and bytes of one. */
static int k_words(const ca_layout *l) { return l->d_k / (int)ca_type_neighbours(l->type); }
static size_t word_bytes(const ca_layout *l) { return ca_type_size(l->type) * ca_type_neighbours(l->type); }

/* Offset of a word of the token in a slot, in its K tile. */
static size_t word_at(const ca_layout *l, uint32_t open, int slot, int word) {
    return ca_layout_k_index(l, open, slot, word * (int)ca_type_neighbours(l->type)) * ca_type_size(l->type);
}

static void swap_words(char *a, char *b) {
    char x[4];
    memcpy(x, a, 4);
    memcpy(a, b, 4);
    memcpy(b, x, 4);
}

void ca_layout_turn(const ca_layout *l, void *k_tile, int group) {
    const size_t line = 4 * (size_t)l->c;
    for (int block = 0; block < l->open_words; block += CA_GROUP) {
        char *first = (char *)k_tile + (size_t)block * line + (size_t)(4 * CA_GROUP * group);
        for (size_t i = 0; i < CA_GROUP; i++)
            for (size_t j = 0; j < i; j++) swap_words(first + i * line + 4 * j, first + j * line + 4 * i);
    }
}

/* ---- Copies ---- */

/* The words of a slot that stand together in one of the two places, and apart in the other or not. */
static void turn_slot(const ca_layout *l, ca_tokens dst, ca_tokens src, int slot) {
    const size_t line = 4 * (size_t)l->c;
    const size_t to_step = is_open(dst.open, slot) ? 4 : line, from_step = is_open(src.open, slot) ? 4 : line;
    for (int block = 0; block < l->open_words; block += CA_GROUP) {
        char *to = (char *)dst.data + word_at(l, dst.open, slot, block);
        const char *from = (const char *)src.data + word_at(l, src.open, slot, block);
        for (size_t i = 0; i < CA_GROUP; i++) memcpy(to + i * to_step, from + i * from_step, 4);
    }
}

static void copy_lines(char *to, const char *from, size_t n_lines, size_t line, size_t bytes) {
    enum { WHOLE = 4 * CA_GROUP }; /* of a size that the compiler knows */
    for (size_t i = 0; i < n_lines && bytes == WHOLE; i++) memcpy(to + i * line, from + i * line, WHOLE);
    for (size_t i = 0; i < n_lines && bytes != WHOLE; i++) memcpy(to + i * line, from + i * line, bytes);
}

/* Slots [begin, end) of one group of K. */
static void copy_group(const ca_layout *l, ca_tokens dst, ca_tokens src, int begin, int end) {
    const bool closed = !is_open(dst.open | src.open, begin);
    for (int slot = begin; slot < end && !closed; slot++) turn_slot(l, dst, src, slot);
    const int first = closed ? 0 : l->open_words;
    const size_t word = word_bytes(l), at = word_at(l, 0, begin, first);
    copy_lines((char *)dst.data + at, (const char *)src.data + at, (size_t)(k_words(l) - first), word * (size_t)l->c,
               word * (size_t)(end - begin));
}

static void copy_scales(void *dst, const void *src, size_t scales, int begin, int end) {
    const size_t at = scales + (size_t)begin * sizeof(float);
    memcpy((char *)dst + at, (const char *)src + at, (size_t)(end - begin) * sizeof(float));
}

static void copy_keys(const ca_layout *l, ca_tokens dst, ca_tokens src, int begin, int end) {
    for (int slot = begin, next; slot < end; slot = next) {
        next = (slot / CA_GROUP + 1) * CA_GROUP;
        next = next < end ? next : end;
        copy_group(l, dst, src, slot, next);
    }
    if (l->type == CATTN_I8) copy_scales(dst.data, src.data, ca_layout_scales(l->d_k, l->c), begin, end);
}

static void copy_values(const ca_layout *l, void *dst, const void *src, int begin, int end) {
    const size_t size = ca_type_size(l->type), word = word_bytes(l);
    const int per = (int)ca_type_neighbours(l->type);
    char *to = dst;
    const char *from = src;
    for (int slot = begin; slot < end;) {
        const size_t at = ca_layout_v_index(l, slot, 0) * size;
        if (slot % per == 0 && end - slot >= per) {
            memcpy(to + at, from + at, (size_t)l->d_v * word);
            slot += per;
        } else {
            for (size_t i = 0; i < (size_t)l->d_v; i++) memcpy(to + at + i * word, from + at + i * word, size);
            slot++;
        }
    }
    if (l->type == CATTN_I8) copy_scales(dst, src, ca_layout_scales(l->d_v, l->c), begin, end);
}

void ca_layout_copy_tile(const ca_layout *l, ca_tokens dst, ca_tokens src, int begin, int end) {
    copy_keys(l, dst, src, begin, end);
    copy_values(l, (char *)dst.data + l->k_bytes, (const char *)src.data + l->k_bytes, begin, end);
}

/* ---- Writing a token ---- */

static void store(cattn_type type, void *tile, size_t index, float x) {
    switch (type) {
    case CATTN_F32: ((float *)tile)[index] = x; break;
    case CATTN_F16: ((uint16_t *)tile)[index] = ca_f16_from_f32(x); break;
    case CATTN_BF16: ((uint16_t *)tile)[index] = ca_bf16_from_f32(x); break;
    case CATTN_I8: break; /* not an element alone */
    }
}

/* The scale of one token's x [d]; *inverse: x times this, rounded, is what is stored. */
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
