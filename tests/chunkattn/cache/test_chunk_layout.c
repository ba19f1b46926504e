/* The tiles of a chunk: shapes that layers have in common, where each layer's tiles begin, and layers without tiles. */
#include "tests/support/testing.h"

#include "chunkattn/cache/chunk_layout.h"
#include "tests/support/failing_alloc.h"

enum { N = 5, C = 64 };

static void check_tiles(const ca_chunk_layout *l) {
    size_t end = 0;
    for (int32_t layer = 0, head = -1; ca_next_tile(l, &layer, &head);) {
        const ca_tile_at tile = ca_tile_of(l, layer, head);
        assert_int_equal(tile.begin, end); /* in their order, without gaps */
        assert_int_equal(tile.bytes, ca_shape_of(l, layer)->tiles.tile_bytes);
        assert_true(tile.bytes <= l->tile_bytes);
        end = tile.begin + tile.bytes;
    }
    assert_int_equal(l->chunk_bytes, end);
}

static void layers_that_are_alike(void **state) {
    (void)state;
    ca_alloc alloc = ca_alloc_default();
    ca_chunk_layout l;
    const cattn_config config = {.n_layers = N, .n_heads = 6, .n_kv_heads = 3, .head_dim = 64, .kv_type = CATTN_BF16};
    assert_int_equal(ca_chunk_layout_init(&l, &config, C, &alloc), CATTN_OK);
    assert_int_equal(l.n_shapes, 1);
    assert_int_equal(l.n_heads, N * 6);
    assert_int_equal(1 << l.log2_c, C);
    assert_int_equal(l.chunk_bytes, (size_t)N * 3 * 2 * 64 * C * 2);
    assert_true(l.has_open && l.shapes->scale == 0.125f && l.shapes->tiles.d_v == 64);
    check_tiles(&l);
    ca_chunk_layout_free(&l, &alloc);
    assert_int_equal(alloc.bytes, 0);
}

static void layers_that_differ(void **state) {
    (void)state;
    static const int32_t heads[N] = {8, 4, 8, 8, 2}, kv_heads[N] = {2, 1, 2, 2, 1}, d_k[N] = {64, 128, 64, 64, 128},
                         d_v[N] = {0, 64, 64, 0, 64}, source[N] = {0, 1, 0, 3, 1};
    static const float scale[N] = {0, 1, 0, 0.25f, 1};
    ca_alloc alloc = ca_alloc_default();
    ca_chunk_layout l;
    const cattn_config config = {.n_layers = N,
                                 .kv_type = CATTN_F16,
                                 .layer_n_heads = heads,
                                 .layer_n_kv_heads = kv_heads,
                                 .layer_head_dim = d_k,
                                 .layer_head_dim_v = d_v,
                                 .layer_scale = scale,
                                 .kv_source = source};
    assert_int_equal(ca_chunk_layout_init(&l, &config, C, &alloc), CATTN_OK);
    static const int32_t shapes[N] = {0, 1, 0, 2, 3}, first_heads[N] = {0, 8, 12, 20, 28};
    static const size_t begin[N] = {0, 2 * 128 * C * 2, 0, 2 * 128 * C * 2 + 192 * C * 2, 2 * 128 * C * 2};
    for (int32_t i = 0; i < N; i++) {
        assert_int_equal(l.layers[i].shape, shapes[i]);
        assert_int_equal(l.layers[i].first_head, first_heads[i]);
        assert_int_equal(l.layers[i].begin, begin[i]);
        assert_int_equal(ca_layer_stores(&l, i), source[i] == i);
        assert_int_equal(ca_tile_of(&l, i, 0).begin, ca_tile_of(&l, source[i], 0).begin);
    }
    assert_int_equal(l.n_shapes, 4);
    assert_int_equal(l.n_heads, 30);
    assert_int_equal(l.chunk_bytes, (4 * 128 + 192) * C * 2);
    assert_int_equal(l.tile_bytes, 192 * C * 2);
    assert_true(ca_shape_of(&l, 0)->scale == 0.125f && ca_shape_of(&l, 3)->scale == 0.25f);
    assert_true(!l.has_open); /* f16 has no open groups */
    check_tiles(&l);
    ca_chunk_layout_free(&l, &alloc);
    assert_int_equal(alloc.bytes, 0);
}

/* One layer's K is too narrow for open groups, the other's is not. */
static void open_groups_of_some_layers(void **state) {
    (void)state;
    static const int32_t d_k[2] = {32, 128};
    ca_alloc alloc = ca_alloc_default();
    ca_chunk_layout l;
    const cattn_config config = {
        .n_layers = 2, .n_heads = 1, .n_kv_heads = 1, .kv_type = CATTN_I8, .layer_head_dim = d_k, .chunk_size = C};
    assert_int_equal(ca_chunk_layout_init(&l, &config, C, &alloc), CATTN_OK);
    assert_int_equal(ca_shape_of(&l, 0)->tiles.open_words, 0);
    assert_int_equal(ca_shape_of(&l, 1)->tiles.open_words, 32);
    assert_true(l.has_open);
    ca_chunk_layout_free(&l, &alloc);
}

static void no_memory(void **state) {
    (void)state;
    const cattn_config config = {.n_layers = 2, .n_heads = 1, .n_kv_heads = 1, .head_dim = 64};
    for (int n = 0; n < 2; n++) {
        failing fails = {.left = n, .times = 1};
        ca_alloc alloc = {failing_alloc, failing_free, &fails, 0};
        ca_chunk_layout l;
        assert_int_equal(ca_chunk_layout_init(&l, &config, C, &alloc), CATTN_ERR_NOMEM);
        assert_null(l.layers);
        assert_int_equal(alloc.bytes, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_that_are_alike),
        cmocka_unit_test(layers_that_differ),
        cmocka_unit_test(open_groups_of_some_layers),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
