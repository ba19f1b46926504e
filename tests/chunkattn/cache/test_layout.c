/* The packed layout against the drawing in layout.h, and the writes and copies that use it. */
#include "tests/support/testing.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/attn/head_sizes.h"
#include "chunkattn/attn/kv_copy.h"
#include "chunkattn/base/half.h"
#include "chunkattn/cache/layout.h"

static const cattn_type types[] = {CATTN_F32, CATTN_F16, CATTN_BF16, CATTN_I8};
enum { N_TYPES = sizeof types / sizeof types[0] };

static float load(cattn_type type, const void *tile, size_t index) {
    if (type == CATTN_F32) return ((const float *)tile)[index];
    const uint16_t bits = ((const uint16_t *)tile)[index];
    return type == CATTN_F16 ? ca_f32_from_f16(bits) : ca_f32_from_bf16(bits);
}

static float scale_of(const void *tile, int d, int c, int slot) { return ((const float *)((const char *)tile + d * c))[slot]; }

static float load_k(const ca_layout *l, const char *k, int slot, int i) {
    const size_t at = ca_layout_k_index(l, 0, slot, i);
    if (l->type != CATTN_I8) return load(l->type, k, at);
    return (float)(((const uint8_t *)k)[at] - 128) * scale_of(k, l->d_k, l->c, slot);
}
static float load_v(const ca_layout *l, const char *v, int slot, int i) {
    const size_t at = ca_layout_v_index(l, slot, i);
    if (l->type != CATTN_I8) return load(l->type, v, at);
    return (float)((const int8_t *)v)[at] * scale_of(v, l->d_v, l->c, slot);
}

/* The indices, element by element in memory order. */
static void indices_follow_the_drawing(void **state) {
    (void)state;
    for (int t = 0; t < N_TYPES; t++) {
        ca_layout l;
        ca_layout_init(&l, types[t], 80, 64, 16);
        size_t at = 0;
        const int n = types[t] == CATTN_I8 ? 4 : types[t] == CATTN_BF16 ? 2 : 1; /* quads, pairs, singles */
        for (int line = 0; line < 80 / n; line++)
            for (int slot = 0; slot < 16; slot++)
                for (int i = 0; i < n; i++) assert_int_equal(ca_layout_k_index(&l, 0, slot, n * line + i), at++);
        at = 0;
        for (int line = 0; line < 16 / n; line++)
            for (int i = 0; i < 64; i++)
                for (int slot = 0; slot < n; slot++) assert_int_equal(ca_layout_v_index(&l, n * line + slot, i), at++);
        const size_t scales = types[t] == CATTN_I8 ? 16 * sizeof(float) : 0;
        assert_int_equal(l.k_bytes, (size_t)80 * 16 * ca_type_size(types[t]) + scales);
        assert_int_equal(l.v_bytes, at * ca_type_size(types[t]) + scales);
        if (scales) assert_int_equal(ca_layout_scales(64, 16), at);
    }
}

static void tiles_are_aligned_and_do_not_overlap(void **state) {
    (void)state;
    for (int t = 0; t < N_TYPES; t++)
        for (int k = 0; k < CA_N_HEAD_SIZES; k++)
            for (int c = 4; c <= 256; c *= 2) {
                ca_layout l;
                const int d_k = ca_head_sizes[k], d_v = ca_head_sizes[CA_N_HEAD_SIZES - 1 - k];
                ca_layout_init(&l, types[t], d_k, d_v, c);
                const size_t scales = types[t] == CATTN_I8 ? (size_t)c * sizeof(float) : 0;
                assert_true(l.k_bytes >= (size_t)d_k * (size_t)c * ca_type_size(types[t]) + scales);
                assert_true(l.v_bytes >= (size_t)d_v * (size_t)c * ca_type_size(types[t]) + scales);
                assert_int_equal(l.k_bytes % 64 + l.v_bytes % 64, 0);
                assert_int_equal(l.tile_bytes, l.k_bytes + l.v_bytes);
            }
}

/* Equal; for int8, up to the rounding of its scale, 127 n / 127. */
static bool near(cattn_type type, float a, float b) { return type == CATTN_I8 ? fabsf(a - b) <= fabsf(b) * 0x1p-23f : a == b; }

/* All slots of two tiles are written, then some of one copied over the other's: each element must be at its place. */
static void writing_and_copying(void **state) {
    (void)state;
    enum { D_K = 8, D_V = 10, SLOTS = 8 };
    for (int t = 0; t < N_TYPES; t++) {
        ca_layout l;
        ca_layout_init(&l, types[t], D_K, D_V, SLOTS);
        char *tiles[2];
        for (int n = 0; n < 2; n++) {
            tiles[n] = aligned_alloc(64, l.tile_bytes);
            memset(tiles[n], 0xff, l.tile_bytes);
            for (int slot = 0; slot < SLOTS; slot++) {
                float k[D_K], v[D_V];
                const float base = (float)(64 * n + slot); /* exact in bf16, and in int8 as the token's only magnitude */
                for (int i = 0; i < D_K; i++) k[i] = i % 2 ? base : -base;
                for (int i = 0; i < D_V; i++) v[i] = i == slot ? 127 : base;
                ca_layout_write(&l, tiles[n], tiles[n] + l.k_bytes, 0, slot, k, v);
            }
        }
        enum { FROM = 1, TO = 7 }; /* in int8's V, parts of two quads */
        ca_kv_copy_tile(&l, (ca_kv_tile){tiles[0], 0}, (ca_kv_tile){tiles[1], 0}, FROM, TO);
        for (int slot = 0; slot < SLOTS; slot++) {
            const float base = (float)(64 * (slot >= FROM && slot < TO) + slot);
            for (int i = 0; i < D_K; i++) assert_true(near(l.type, load_k(&l, tiles[0], slot, i), i % 2 ? base : -base));
            for (int i = 0; i < D_V; i++) assert_true(load_v(&l, tiles[0] + l.k_bytes, slot, i) == (i == slot ? 127 : base));
        }
        free(tiles[0]);
        free(tiles[1]);
    }
}

/* A new K tile and V tile, in which slots [begin, end) are written one by one, with `open` groups open. */
static char *filled(const ca_layout *l, uint32_t open, int begin, int end) {
    char *tiles = aligned_alloc(64, l->tile_bytes);
    memset(tiles, 0x5a, l->tile_bytes);
    for (int slot = begin; slot < end; slot++) {
        float k[256], v[64];
        for (int i = 0; i < l->d_k; i++) k[i] = (float)((slot * 37 + i * 11) % 127);
        for (int i = 0; i < l->d_v; i++) v[i] = (float)((slot * 29 + i * 13) % 127);
        ca_layout_write(l, tiles, tiles + l->k_bytes, open, slot, k, v);
    }
    return tiles;
}

/* In an open group the words of a token are contiguous. Transposed, it equals a group written closed. Copies transpose. */
static void open_groups(void **state) {
    (void)state;
    enum { SLOTS = 32, MASKS = 4, FROM = 3, TO = 21 };
    static const int dims[] = {8, 64, 80, 128};
    for (int t = 0; t < N_TYPES; t++)
        for (int d = 0; d < 4; d++) {
            ca_layout l;
            ca_layout_init(&l, types[t], dims[d], 64, SLOTS);
            const int n = (int)ca_type_neighbours(l.type);
            assert_int_equal(l.open_words, types[t] == CATTN_F16 ? 0 : dims[d] / n / CA_SLOT_GROUP * CA_SLOT_GROUP);
            for (int i = 0; i < l.open_words * n; i++) {
                const size_t first = ca_layout_k_index(&l, 2, CA_SLOT_GROUP + 5, i / n / CA_SLOT_GROUP * CA_SLOT_GROUP * n);
                assert_int_equal(ca_layout_k_index(&l, 2, CA_SLOT_GROUP + 5, i), first + (size_t)(i % (CA_SLOT_GROUP * n)));
            }
            char *closed = filled(&l, 0, 0, SLOTS);
            for (uint32_t open = 0; open < MASKS; open++) {
                char *tiles = filled(&l, open, 0, SLOTS);
                for (uint32_t to = 0; to < MASKS; to++) {
                    char *want = filled(&l, to, FROM, TO), *got = filled(&l, to, FROM, FROM);
                    ca_kv_copy_tile(&l, (ca_kv_tile){got, to}, (ca_kv_tile){tiles, open}, FROM, TO);
                    assert_memory_equal(got, want, l.tile_bytes);
                    free(got);
                    free(want);
                }
                assert_int_equal(memcmp(tiles, closed, l.tile_bytes) != 0, open != 0 && l.open_words > 0);
                for (int group = 0; group < 2; group++)
                    if (open & ca_slot_group_bit(group * CA_SLOT_GROUP)) ca_kv_transpose(&l, tiles, group);
                assert_memory_equal(tiles, closed, l.tile_bytes);
                free(tiles);
            }
            free(closed);
        }
}

/* Tokens whose bytes and scale are known in advance. */
static void int8_of_known_tokens(void **state) {
    (void)state;
    enum { D = 4, SLOTS = 4 };
    static const struct {
        float x[D];
        int n[D];
        float scale;
    } cases[] = {
        {{0, -0.0f, 0, 0}, {0, 0, 0, 0}, 0},
        {{127, -127, 1, -1}, {127, -127, 1, -1}, 1},
        {{254, 1, -1, 3}, {127, 0, 0, 2}, 2}, /* halves round to even */
        {{-0x1p-100f, 0, 0x1p-101f, 0}, {-127, 0, 64, 0}, 0x1p-100f / 127},
        {{FLT_MAX, -FLT_MAX, 0, FLT_MAX / 2}, {127, -127, 0, 64}, FLT_MAX / 127},
        {{0x1p-120f, 0, 0, 0}, {0, 0, 0, 0}, 0}, /* the scale would be denormal */
        {{1, NAN, 2, 3}, {0, 0, 0, 0}, NAN},
        {{1, 2, INFINITY, 3}, {0, 0, 0, 0}, NAN},
        {{-INFINITY, 2, 1, 3}, {0, 0, 0, 0}, NAN},
    };
    ca_layout l;
    ca_layout_init(&l, CATTN_I8, D, D, SLOTS);
    for (size_t n = 0; n < sizeof cases / sizeof cases[0]; n++)
        for (int slot = 0; slot < SLOTS; slot++) {
            uint8_t k[128], v[128], before[128];
            memset(k, 0x5a, sizeof k);
            memset(v, 0x5a, sizeof v);
            memset(before, 0x5a, sizeof before);
            ca_layout_write(&l, k, v, 0, slot, cases[n].x, cases[n].x);
            for (int i = 0; i < D; i++) {
                assert_int_equal(k[4 * slot + i], cases[n].n[i] + 128);
                assert_int_equal((int8_t)v[4 * i + slot], cases[n].n[i]);
                k[4 * slot + i] = v[4 * i + slot] = 0x5a;
            }
            for (int tile = 0; tile < 2; tile++) {
                uint8_t *bytes = tile ? v : k;
                const float scale = scale_of(bytes, D, SLOTS, slot);
                assert_true(scale == cases[n].scale || (isnan(scale) && isnan(cases[n].scale)));
                memset(bytes + D * SLOTS + 4 * slot, 0x5a, 4);
                assert_memory_equal(bytes, before, sizeof before); /* nothing else was touched */
            }
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(int8_of_known_tokens),
        cmocka_unit_test(indices_follow_the_drawing),
        cmocka_unit_test(tiles_are_aligned_and_do_not_overlap),
        cmocka_unit_test(writing_and_copying),
        cmocka_unit_test(open_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
