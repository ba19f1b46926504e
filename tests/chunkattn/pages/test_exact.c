/*
 * Foreign pages give the bits of a cache whose chunk size is the page size and that holds the same K and V: for every type,
 * layout, sharing mode and level, in any batch order and with any numbers of rows, while sequences join, fork, grow, shrink and
 * leave.
 */
#define CATTN_EXPERIMENTAL
#include "tests/support/testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "traffic.h"

enum { N_MODES = 3 };

static int64_t n_compared; /* rows */

typedef struct fixture {
    traffic t;
    cattn_pages_config config;
    cattn_pages *pages[N_MODES]; /* by sharing mode */
    int64_t n_shared_runs;
    float *q, *out, *lse;
} fixture;

/* ---- Expected results ---- */

static void expect_seq(fixture *f, cattn_cache *cache, world_seq *s) {
    const cattn_config *c = &f->t.w.config;
    const int32_t d_v = world_dim_v(&f->t.w), nq = c->n_heads * c->head_dim, nk = c->n_kv_heads * c->head_dim;
    const int32_t no = c->n_heads * d_v, n_input = nq + nk + c->n_kv_heads * d_v;
    cattn_entry entry = {.max_rows = s->n_tokens};
    s->out = malloc((size_t)(c->n_layers * s->n_tokens * no) * sizeof *s->out);
    s->lse = malloc((size_t)(c->n_layers * s->n_tokens * c->n_heads) * sizeof *s->lse);
    assert_int_equal(cattn_seq_join(cache, s->tokens, s->n_tokens, NULL, &entry.seq, NULL, NULL), CATTN_OK);
    assert_int_equal(cattn_step_begin(cache, &entry, 1, 0, NULL), CATTN_OK);
    assert_int_equal(entry.n_rows, s->n_tokens);
    for (int32_t layer = 0; layer < c->n_layers; layer++) {
        const float *row = world_row(&f->t.w, s, 0, layer);
        const int64_t stride = (int64_t)n_input * c->n_layers;
        const cattn_view q = {(void *)row, CATTN_F32, stride, c->head_dim},
                         k = {(void *)(row + nq), CATTN_F32, stride, c->head_dim};
        const cattn_view v = {(void *)(row + nq + nk), CATTN_F32, stride, d_v};
        const cattn_view out = {s->out + layer * s->n_tokens * no, CATTN_F32, no, d_v};
        assert_int_equal(cattn_step_write(cache, layer, &k, &v, NULL), CATTN_OK);
        assert_int_equal(cattn_step_attend(cache, layer, &q, &out, s->lse + layer * s->n_tokens * c->n_heads, NULL), CATTN_OK);
    }
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_leave(cache, &entry.seq, NULL), CATTN_OK);
}

static void expect(fixture *f) {
    cattn_cache *cache = NULL;
    cattn_error error = {0};
    if (cattn_cache_create(&f->t.w.config, &cache, &error)) fail_msg("%s", error.message);
    for (int i = 0; i < f->t.w.n_seqs; i++) expect_seq(f, cache, &f->t.w.seqs[i]);
    cattn_cache_destroy(&cache);
}

/* ---- A step ---- */

static void check_rows(fixture *f, const traffic_batch *b, int mode, int32_t layer) {
    const cattn_config *c = &f->t.w.config;
    const int32_t no = c->n_heads * world_dim_v(&f->t.w);
    for (int i = 0; i < f->t.n_running; i++)
        for (int32_t row = b->query_indptr[i]; row < b->query_indptr[i + 1]; row++) {
            const world_seq *s = f->t.running[i].is;
            const int64_t position = traffic_position(&f->t, b, i, row);
            const int64_t at = layer * s->n_tokens + position;
            if (!world_same(s->out + at * no, f->out + (int64_t)row * no, no) ||
                !world_same(s->lse + at * c->n_heads, f->lse + (int64_t)row * c->n_heads, c->n_heads))
                fail_msg("seed %llu, mode %d, level %s, type %d, page size %d, layout %d, layer %d: sequence %d, position %d",
                         (unsigned long long)f->t.w.seed, mode, cattn_pages_level(f->pages[mode]), f->t.e.type,
                         f->t.e.page_size, f->t.e.layout, layer, i, (int)position);
            n_compared++;
        }
}

static void attend(fixture *f, const traffic_batch *b, int mode, int32_t layer) {
    const cattn_config *c = &f->t.w.config;
    const int32_t nq = c->n_heads * c->head_dim, d_v = world_dim_v(&f->t.w), n_rows = b->query_indptr[f->t.n_running];
    for (int i = 0; i < f->t.n_running; i++)
        for (int32_t row = b->query_indptr[i]; row < b->query_indptr[i + 1]; row++)
            memcpy(f->q + (int64_t)row * nq, world_row(&f->t.w, f->t.running[i].is, traffic_position(&f->t, b, i, row), layer),
                   (size_t)nq * sizeof *f->q);
    for (int64_t i = 0; i < (int64_t)n_rows * c->n_heads * d_v; i++) f->out[i] = NAN;
    for (int64_t i = 0; i < (int64_t)n_rows * c->n_heads; i++) f->lse[i] = NAN;
    const cattn_view q = {f->q, CATTN_F32, nq, c->head_dim}, out = {f->out, CATTN_F32, (int64_t)c->n_heads * d_v, d_v};
    cattn_error error = {0};
    if (cattn_pages_attend(f->pages[mode], layer, &f->t.e.k[layer], &f->t.e.v[layer], &q, &out, f->lse, &error))
        fail_msg("%s", error.message);
    check_rows(f, b, mode, layer);
}

static void step(fixture *f) {
    static traffic_batch b;
    traffic_make_batch(&f->t, &b);
    for (int mode = 0; mode < N_MODES; mode++) {
        cattn_error error = {0};
        if (cattn_pages_plan(f->pages[mode], &b.is, &error))
            fail_msg("seed %llu: %s", (unsigned long long)f->t.w.seed, error.message);
        for (int32_t layer = 0; layer < f->t.w.config.n_layers; layer++) attend(f, &b, mode, layer);
    }
    cattn_pages_info info = {.struct_size = sizeof info};
    assert_int_equal(cattn_pages_get_info(f->pages[CATTN_SHARED], &info), CATTN_OK);
    assert_int_equal(info.n_rows, b.query_indptr[f->t.n_running]);
    f->n_shared_runs += info.shared_runs;
}

/* ---- Worlds ---- */

static void make(fixture *f, uint64_t seed, int64_t longest, const char *level) {
    *f = (fixture){.t.r = {seed * 77 + 5}};
    world_make(&f->t.w, seed, longest);
    f->t.w.config.kv_type = (cattn_type)rng_below(&f->t.r, CATTN_I8);
    f->t.w.config.chunk_size = 16 << (rng_chance(&f->t.r, 2) ? 0 : rng_below(&f->t.r, 4));
    f->t.w.config.sharing = CATTN_PRIVATE;
    f->t.w.config.n_threads = 1;
    f->t.w.config.level = level;
    const cattn_config *c = &f->t.w.config;
    f->config = traffic_config(&f->t.w, c->chunk_size, longest);
    for (int mode = 0; mode < N_MODES; mode++) {
        cattn_error error = {0};
        f->config.common.sharing = (cattn_sharing)mode;
        f->config.common.n_threads = 1 + (int32_t)(seed + (uint64_t)mode) % 2;
        if (cattn_pages_create(&f->config, &f->pages[mode], &error)) fail_msg("%s", error.message);
    }
    expect(f);
    engine_init(&f->t.e, &f->t.w, &f->config, f->pages[0], rng_below(&f->t.r, ENGINE_LAYOUTS), NULL);
    const size_t most = (size_t)(TRAFFIC_MAX_RUNNING * longest);
    f->q = malloc(most * (size_t)(c->n_heads * c->head_dim) * sizeof *f->q);
    f->out = malloc(most * (size_t)(c->n_heads * world_dim_v(&f->t.w)) * sizeof *f->out);
    f->lse = malloc(most * (size_t)c->n_heads * sizeof *f->lse);
}

static void drop(fixture *f) {
    for (int mode = 0; mode < N_MODES; mode++) cattn_pages_destroy(&f->pages[mode]);
    engine_free(&f->t.e);
    world_free(&f->t.w);
    free(f->q);
    free(f->out);
    free(f->lse);
}

/* The number of shared runs of pages, over all steps. */
static int64_t try_world(uint64_t seed, int64_t longest, int n_steps, const char *level) {
    fixture f;
    make(&f, seed, longest, level);
    for (int i = 0; i < n_steps; i++) {
        traffic_change(&f.t);
        step(&f);
    }
    drop(&f);
    return f.n_shared_runs;
}

static world_options options = {.n_worlds = 120, .n_long = 4, .seed = 1};

static void test_worlds(void **state) {
    (void)state;
    int n_levels = 1;
    int64_t n_shared_runs = 0;
    while (cattn_level_name(n_levels)) n_levels++;
    for (int64_t i = 0; i < options.n_worlds; i++) {
        const uint64_t seed = options.seed + (uint64_t)i;
        const int level = seed % 4 ? n_levels - 1 : (int)(seed / 4 % (uint64_t)n_levels);
        n_shared_runs += try_world(seed, level ? 72 : 40, level ? 25 : 12, cattn_level_name(level));
    }
    assert_true(n_compared > options.n_worlds);
    if (options.n_worlds >= 16) assert_true(n_shared_runs > 8 * options.n_worlds);
}

static void test_long_worlds(void **state) {
    (void)state;
    for (int64_t i = 0; i < options.n_long; i++) try_world(options.seed + 1000000 + (uint64_t)i, 2300, 6, NULL);
}

int main(int argc, char **argv) {
    world_parse_options(argc, argv, &options);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worlds),
        cmocka_unit_test(test_long_worlds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
