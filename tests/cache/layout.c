/* The packed layout against a naive one: a table that gives every element of K and V a place of its own. */
#include "tests/base/testing.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "lib/cache/layout.h"

static const cattn_type types[] = {CATTN_F32, CATTN_F16, CATTN_BF16};

static float load(cattn_type type, const void *tile, size_t index) {
    if (type == CATTN_F32) return ((const float *)tile)[index];
    const uint16_t bits = ((const uint16_t *)tile)[index];
    return type == CATTN_F16 ? ca_f32_from_f16(bits) : ca_f32_from_bf16(bits);
}

/* The drawing in layout.h, walked element by element in memory order. */
static void indices_follow_the_drawing(void **state) {
    (void)state;
    for (int t = 0; t < 3; t++) {
        ca_layout l;
        ca_layout_init(&l, types[t], 2, 3, 80, 64, 16);
        assert_int_equal(1 << l.log2_c, l.c);
        size_t at = 0;
        if (types[t] == CATTN_BF16) {
            for (int pair = 0; pair < 40; pair++)
                for (int slot = 0; slot < 16; slot++)
                    for (int i = 0; i < 2; i++) assert_int_equal(ca_layout_k_index(&l, slot, 2 * pair + i), at++);
            at = 0;
            for (int pair = 0; pair < 8; pair++)
                for (int i = 0; i < 64; i++)
                    for (int slot = 0; slot < 2; slot++) assert_int_equal(ca_layout_v_index(&l, 2 * pair + slot, i), at++);
        } else {
            for (int i = 0; i < 80; i++)
                for (int slot = 0; slot < 16; slot++) assert_int_equal(ca_layout_k_index(&l, slot, i), at++);
            at = 0;
            for (int slot = 0; slot < 16; slot++)
                for (int i = 0; i < 64; i++) assert_int_equal(ca_layout_v_index(&l, slot, i), at++);
        }
    }
}

static void tiles_are_aligned_and_do_not_overlap(void **state) {
    (void)state;
    static const int dims[] = {2, 64, 80, 96, 128, 256};
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < 6; k++)
            for (int c = 4; c <= 256; c *= 2) {
                ca_layout l;
                const int d_v = dims[5 - k];
                ca_layout_init(&l, types[t], 3, 2, dims[k], d_v, c);
                assert_true(l.k_bytes >= (size_t)dims[k] * (size_t)c * ca_type_size(types[t]));
                assert_true(l.v_bytes >= (size_t)d_v * (size_t)c * ca_type_size(types[t]));
                size_t at = 0;
                for (int layer = 0; layer < 3; layer++)
                    for (int head = 0; head < 2; head++) {
                        assert_int_equal(ca_layout_k(&l, layer, head), at);
                        assert_int_equal(ca_layout_v(&l, layer, head), at + l.k_bytes);
                        assert_int_equal(at % 64 + l.k_bytes % 64, 0);
                        at += l.k_bytes + l.v_bytes;
                    }
                assert_int_equal(l.chunk_bytes, at);
            }
}

/* Every slot of every tile written, then one slot copied over another chunk: each element is where it belongs. */
static void writing_and_copying(void **state) {
    (void)state;
    enum { LAYERS = 2, HEADS = 2, D_K = 6, D_V = 10, SLOTS = 8 };
    for (int t = 0; t < 3; t++) {
        ca_layout l;
        ca_layout_init(&l, types[t], LAYERS, HEADS, D_K, D_V, SLOTS);
        char *chunks[2];
        for (int n = 0; n < 2; n++) {
            chunks[n] = aligned_alloc(64, l.chunk_bytes);
            memset(chunks[n], 0xff, l.chunk_bytes);
            for (int layer = 0; layer < LAYERS; layer++)
                for (int head = 0; head < HEADS; head++)
                    for (int slot = 0; slot < SLOTS; slot++) {
                        float k[D_K], v[D_V];
                        const float base = (float)(64 * n + 16 * layer + 8 * head + slot); /* exact in bf16 */
                        for (int i = 0; i < D_K; i++) k[i] = i % 2 ? base : -base;
                        for (int i = 0; i < D_V; i++) v[i] = i == slot ? base : (float)i;
                        ca_layout_write(&l, chunks[n] + ca_layout_k(&l, layer, head), chunks[n] + ca_layout_v(&l, layer, head),
                                        slot, k, v);
                    }
        }
        enum { COPIED = 5 };
        ca_layout_copy_slot(&l, chunks[0], chunks[1], COPIED);
        for (int layer = 0; layer < LAYERS; layer++)
            for (int head = 0; head < HEADS; head++)
                for (int slot = 0; slot < SLOTS; slot++) {
                    const char *k = chunks[0] + ca_layout_k(&l, layer, head), *v = chunks[0] + ca_layout_v(&l, layer, head);
                    const float base = (float)(64 * (slot == COPIED) + 16 * layer + 8 * head + slot);
                    for (int i = 0; i < D_K; i++)
                        assert_true(load(l.type, k, ca_layout_k_index(&l, slot, i)) == (i % 2 ? base : -base));
                    for (int i = 0; i < D_V; i++)
                        assert_true(load(l.type, v, ca_layout_v_index(&l, slot, i)) == (i == slot ? base : (float)i));
                }
        free(chunks[0]);
        free(chunks[1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indices_follow_the_drawing),
        cmocka_unit_test(tiles_are_aligned_and_do_not_overlap),
        cmocka_unit_test(writing_and_copying),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
