/* Executing K/V commands on the CPU: copies of slots, and transposes of slot groups that are full. */
#include "kv_copy.h"

#include <stdbool.h>
#include <string.h>

/* ---- Open groups ---- */

static bool is_open(uint32_t open, int slot) { return (open & ca_slot_group_bit(slot)) != 0; }

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

void ca_kv_transpose(const ca_layout *l, void *k_tile, int group) {
    const size_t line = 4 * (size_t)l->c;
    for (int block = 0; block < l->open_words; block += CA_SLOT_GROUP) {
        char *first = (char *)k_tile + (size_t)block * line + (size_t)(4 * CA_SLOT_GROUP * group);
        for (size_t i = 0; i < CA_SLOT_GROUP; i++)
            for (size_t j = 0; j < i; j++) swap_words(first + i * line + 4 * j, first + j * line + 4 * i);
    }
}

/* ---- Copies ---- */

/*
 * Copy the words of a slot that fill whole 16 x 16 blocks. Each tile holds them contiguously where the slot's group is open in
 * it, one on each line where it is closed.
 */
static void copy_open_slot(const ca_layout *l, ca_kv_tile dst, ca_kv_tile src, int slot) {
    const size_t line = 4 * (size_t)l->c;
    const size_t to_step = is_open(dst.open, slot) ? 4 : line, from_step = is_open(src.open, slot) ? 4 : line;
    for (int block = 0; block < l->open_words; block += CA_SLOT_GROUP) {
        char *to = (char *)dst.data + word_at(l, dst.open, slot, block);
        const char *from = (const char *)src.data + word_at(l, src.open, slot, block);
        for (size_t i = 0; i < CA_SLOT_GROUP; i++) memcpy(to + i * to_step, from + i * from_step, 4);
    }
}

static void copy_lines(char *to, const char *from, size_t n_lines, size_t line, size_t bytes) {
    enum { WHOLE = 4 * CA_SLOT_GROUP }; /* of a size that the compiler knows */
    for (size_t i = 0; i < n_lines && bytes == WHOLE; i++) memcpy(to + i * line, from + i * line, WHOLE);
    for (size_t i = 0; i < n_lines && bytes != WHOLE; i++) memcpy(to + i * line, from + i * line, bytes);
}

/* Slots [begin, end) of K, which are in one group of each tile. */
static void copy_group(const ca_layout *l, ca_kv_tile dst, ca_kv_tile src, int begin, int end) {
    const bool closed = !is_open(src.open, begin) && !is_open(dst.open, begin);
    for (int slot = begin; slot < end && !closed; slot++) copy_open_slot(l, dst, src, slot);
    const int first = closed ? 0 : l->open_words;
    const size_t word = word_bytes(l);
    copy_lines((char *)dst.data + word_at(l, 0, begin, first), (const char *)src.data + word_at(l, 0, begin, first),
               (size_t)(k_words(l) - first), word * (size_t)l->c, word * (size_t)(end - begin));
}

static void copy_scales(void *dst, const void *src, size_t scales, int begin, int end) {
    float *to = (float *)((char *)dst + scales) + begin;
    memcpy(to, (const float *)((const char *)src + scales) + begin, (size_t)(end - begin) * sizeof(float));
}

/* The first slot behind `slot` that begins a group. */
static int next_group(int slot) { return (slot / CA_SLOT_GROUP + 1) * CA_SLOT_GROUP; }

static int least(int a, int b) { return a < b ? a : b; }

static void copy_keys(const ca_layout *l, ca_kv_tile dst, ca_kv_tile src, int begin, int end) {
    for (int slot = begin, next; slot < end; slot = next) {
        next = least(end, next_group(slot));
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

void ca_kv_copy_tile(const ca_layout *l, ca_kv_tile dst, ca_kv_tile src, int begin, int end) {
    copy_keys(l, dst, src, begin, end);
    copy_values(l, (char *)dst.data + l->k_bytes, (const char *)src.data + l->k_bytes, begin, end);
}

/* ---- Commands ---- */

static bool is_whole(const ca_layout *l, const ca_kv_command *command) {
    return command->begin == 0 && command->end == l->c && command->from_open == command->to_open;
}

void ca_kv_execute(const ca_chunk_layout *layout, const ca_chunk_pool *pool, int32_t layer, int32_t head,
                   const ca_kv_command *commands, size_t n) {
    const ca_layout *l = &ca_shape_of(layout, layer)->tiles;
    const ca_tile_at tile = ca_tile_of(layout, layer, head);
    for (size_t i = 0; i < n; i++) {
        const ca_kv_command *command = &commands[i];
        void *to = ca_chunk_tile(pool, command->to, tile), *from = ca_chunk_tile(pool, command->from, tile);
        if (command->kind == CA_KV_TRANSPOSE)
            ca_kv_transpose(l, to, command->begin / CA_SLOT_GROUP);
        else if (is_whole(l, command))
            memcpy(to, from, l->tile_bytes);
        else
            ca_kv_copy_tile(l, (ca_kv_tile){to, command->to_open}, (ca_kv_tile){from, command->from_open}, command->begin,
                            command->end);
    }
}
