/*
 * Foreign pages give the bits of a cache whose chunk size is the page size and that holds the same K and V: for every type,
 * layout, sharing mode and level, in any batch order and with any numbers of rows, while sequences join, fork, grow, shrink and
 * leave.
 */
#define CATTN_EXPERIMENTAL
#include "../support/testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

enum { MAX_RUNNING = 12, MAX_ROWS = 4096, N_MODES = 3 };

typedef struct fixture {
    world w;
    rng r;
    engine e;
    cattn_pages_config config;
    cattn_pages *pages[N_MODES]; /* by sharing mode */
    engine_seq running[MAX_RUNNING];
    int n_running;
    int64_t n_compared, n_shared_runs;
    float *q, *out, *lse;
} fixture;

/* ---- Expected results ---- */

static void expect_seq(fixture *f, cattn_cache *cache, world_seq *s) {
    const cattn_config *c = &f->w.config;
    const int32_t d_v = world_dim_v(&f->w), nq = c->n_heads * c->head_dim, nk = c->n_kv_heads * c->head_dim;
    const int32_t no = c->n_heads * d_v, n_input = nq + nk + c->n_kv_heads * d_v;
    cattn_entry entry = {.max_rows = s->n_tokens};
    s->out = malloc((size_t)(c->n_layers * s->n_tokens * no) * sizeof *s->out);
    s->lse = malloc((size_t)(c->n_layers * s->n_tokens * c->n_heads) * sizeof *s->lse);
    assert_int_equal(cattn_seq_join(cache, s->tokens, s->n_tokens, NULL, &entry.seq, NULL, NULL), CATTN_OK);
    assert_int_equal(cattn_step_begin(cache, &entry, 1, 0, NULL), CATTN_OK);
    assert_int_equal(entry.n_rows, s->n_tokens);
    for (int32_t layer = 0; layer < c->n_layers; layer++) {
        const float *row = world_row(&f->w, s, 0, layer);
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
    if (cattn_cache_create(&f->w.config, &cache, &error)) fail_msg("%s", error.message);
    for (int i = 0; i < f->w.n_seqs; i++) expect_seq(f, cache, &f->w.seqs[i]);
    cattn_cache_destroy(&cache);
}

/* ---- A step ---- */

typedef struct batch {
    cattn_pages_batch is;
    int32_t ids[MAX_RUNNING * ENGINE_MAX_TABLE], page_indptr[MAX_RUNNING + 1], query_indptr[MAX_RUNNING + 1];
    int32_t lengths[MAX_RUNNING], last_lens[MAX_RUNNING];
} batch;

static int32_t draw_rows(fixture *f, int32_t n_tokens) {
    if (rng_chance(&f->r, 2)) return 1;
    if (rng_chance(&f->r, 8)) return 0;
    return (int32_t)rng_range(&f->r, 1, rng_chance(&f->r, 3) || n_tokens < 5 ? n_tokens : 5);
}

/* The running sequences in order: as a padded table, with arbitrary ids behind the last page, or as ids with an indptr. */
static void make_batch(fixture *f, batch *b) {
    const int n = f->n_running;
    const bool padded = rng_chance(&f->r, 2), one_each = rng_chance(&f->r, 3), by_last = !padded && rng_chance(&f->r, 2);
    const int32_t stride = ENGINE_MAX_TABLE - (int32_t)rng_range(&f->r, 0, 3);
    *b = (batch){.is = {.struct_size = sizeof b->is, .n_seqs = n, .page_ids = b->ids}};
    for (int i = 0; i < n; i++) {
        const engine_seq *s = &f->running[i];
        int32_t *to = b->ids + (padded ? i * stride : b->page_indptr[i]);
        for (int32_t j = 0; j < (padded ? stride : s->n_pages); j++) to[j] = j < s->n_pages ? s->table[j] : -7;
        b->page_indptr[i + 1] = b->page_indptr[i] + s->n_pages;
        b->query_indptr[i + 1] = b->query_indptr[i] + (one_each ? 1 : draw_rows(f, s->n_tokens));
        b->lengths[i] = s->n_tokens;
        b->last_lens[i] = (s->n_tokens - 1) % f->e.page_size + 1;
    }
    if (padded) b->is.page_stride = stride;
    if (!padded) b->is.page_indptr = b->page_indptr;
    if (by_last) b->is.last_page_lens = b->last_lens;
    if (!by_last) b->is.seq_lens = b->lengths;
    if (!one_each) b->is.query_indptr = b->query_indptr;
}

static void check_rows(fixture *f, const batch *b, int mode, int32_t layer) {
    const cattn_config *c = &f->w.config;
    const int32_t no = c->n_heads * world_dim_v(&f->w);
    for (int i = 0; i < f->n_running; i++)
        for (int32_t row = b->query_indptr[i]; row < b->query_indptr[i + 1]; row++) {
            const world_seq *s = f->running[i].is;
            const int64_t position = f->running[i].n_tokens - (b->query_indptr[i + 1] - row);
            const int64_t at = layer * s->n_tokens + position;
            if (!world_same(s->out + at * no, f->out + (int64_t)row * no, no) ||
                !world_same(s->lse + at * c->n_heads, f->lse + (int64_t)row * c->n_heads, c->n_heads))
                fail_msg("seed %llu, mode %d, level %s, type %d, page size %d, layout %d, layer %d: sequence %d, position %d",
                         (unsigned long long)f->w.seed, mode, cattn_pages_level(f->pages[mode]), f->e.type, f->e.page_size,
                         f->e.layout, layer, i, (int)position);
            f->n_compared++;
        }
}

static void attend(fixture *f, const batch *b, int mode, int32_t layer) {
    const cattn_config *c = &f->w.config;
    const int32_t nq = c->n_heads * c->head_dim, d_v = world_dim_v(&f->w), n_rows = b->query_indptr[f->n_running];
    for (int i = 0; i < f->n_running; i++)
        for (int32_t row = b->query_indptr[i]; row < b->query_indptr[i + 1]; row++)
            memcpy(f->q + (int64_t)row * nq,
                   world_row(&f->w, f->running[i].is, f->running[i].n_tokens - (b->query_indptr[i + 1] - row), layer),
                   (size_t)nq * sizeof *f->q);
    for (int64_t i = 0; i < (int64_t)n_rows * c->n_heads * d_v; i++) f->out[i] = NAN;
    for (int64_t i = 0; i < (int64_t)n_rows * c->n_heads; i++) f->lse[i] = NAN;
    const cattn_view q = {f->q, CATTN_F32, nq, c->head_dim}, out = {f->out, CATTN_F32, (int64_t)c->n_heads * d_v, d_v};
    cattn_error error = {0};
    if (cattn_pages_attend(f->pages[mode], layer, &f->e.k[layer], &f->e.v[layer], &q, &out, f->lse, &error))
        fail_msg("%s", error.message);
    check_rows(f, b, mode, layer);
}

static void step(fixture *f) {
    static batch b;
    make_batch(f, &b);
    for (int mode = 0; mode < N_MODES; mode++) {
        cattn_error error = {0};
        if (cattn_pages_plan(f->pages[mode], &b.is, &error))
            fail_msg("seed %llu: %s", (unsigned long long)f->w.seed, error.message);
        for (int32_t layer = 0; layer < f->w.config.n_layers; layer++) attend(f, &b, mode, layer);
    }
    cattn_pages_info info = {.struct_size = sizeof info};
    assert_int_equal(cattn_pages_get_info(f->pages[CATTN_SHARED], &info), CATTN_OK);
    assert_int_equal(info.n_rows, b.query_indptr[f->n_running]);
    f->n_shared_runs += info.shared_runs;
}

/* ---- Between steps ---- */

static void swap(fixture *f, int i, int j) {
    const engine_seq x = f->running[i];
    f->running[i] = f->running[j];
    f->running[j] = x;
}

static void change(fixture *f) {
    rng *r = &f->r;
    for (int i = f->n_running - 1; i >= 0; i--) {
        engine_seq *s = &f->running[i];
        const int32_t most = (int32_t)s->is->n_tokens;
        if (s->n_tokens == most ? rng_chance(r, 3) : rng_chance(r, 20)) {
            engine_leave(&f->e, s);
            swap(f, i, --f->n_running);
            continue;
        }
        if (rng_chance(r, 12)) {
            engine_resize(&f->e, s, (int32_t)rng_range(r, s->n_tokens > 20 ? s->n_tokens - 20 : 1, s->n_tokens), true);
        } else if (s->n_tokens < most) {
            const int32_t n = rng_chance(r, 8) ? (int32_t)rng_range(r, 1, most - s->n_tokens) : 1;
            engine_resize(&f->e, s, s->n_tokens + n, rng_chance(r, 2));
        }
        if (rng_chance(r, 10) && f->n_running < MAX_RUNNING) engine_fork(&f->e, &f->running[f->n_running++], &f->running[i]);
    }
    while (f->n_running < MAX_RUNNING && rng_chance(r, 2)) {
        const world_seq *is = &f->w.seqs[rng_below(r, f->w.n_seqs)];
        engine_join(&f->e, &f->running[f->n_running++], is, (int32_t)rng_range(r, 1, is->n_tokens));
    }
    if (rng_chance(r, 4))
        for (int i = f->n_running - 1; i > 0; i--) swap(f, i, rng_below(r, i + 1));
}

/* ---- Worlds ---- */

static void make(fixture *f, uint64_t seed, int64_t longest, const char *level) {
    *f = (fixture){.r = {seed * 77 + 5}};
    world_make(&f->w, seed, longest);
    f->w.config.kv_type = (cattn_type)rng_below(&f->r, CATTN_I8);
    f->w.config.chunk_size = 16 << (rng_chance(&f->r, 2) ? 0 : rng_below(&f->r, 4));
    f->w.config.sharing = CATTN_PRIVATE;
    f->w.config.n_threads = 1;
    f->w.config.level = level;
    const cattn_config *c = &f->w.config;
    cattn_pages_config_init(&f->config);
    f->config.n_layers = c->n_layers;
    f->config.n_heads = c->n_heads;
    f->config.n_kv_heads = c->n_kv_heads;
    f->config.head_dim = c->head_dim;
    f->config.head_dim_v = c->head_dim_v;
    f->config.page_size = c->chunk_size;
    f->config.n_pages = (int32_t)(MAX_RUNNING + 1) * (int32_t)((longest + c->chunk_size - 1) / c->chunk_size);
    f->config.kv_type = c->kv_type;
    f->config.windows = c->windows;
    f->config.n_sink_tokens = c->n_sink_tokens;
    f->config.softcap = c->softcap;
    f->config.sink_logits = c->sink_logits;
    f->config.alibi_slopes = c->alibi_slopes;
    f->config.level = level;
    for (int mode = 0; mode < N_MODES; mode++) {
        cattn_error error = {0};
        f->config.sharing = (cattn_sharing)mode;
        f->config.n_threads = 1 + (int32_t)(seed + (uint64_t)mode) % 2;
        if (cattn_pages_create(&f->config, &f->pages[mode], &error)) fail_msg("%s", error.message);
    }
    expect(f);
    engine_init(&f->e, &f->w, &f->config, f->pages[0], rng_below(&f->r, ENGINE_LAYOUTS));
    const size_t most = (size_t)(MAX_RUNNING * longest);
    f->q = malloc(most * (size_t)(c->n_heads * c->head_dim) * sizeof *f->q);
    f->out = malloc(most * (size_t)(c->n_heads * world_dim_v(&f->w)) * sizeof *f->out);
    f->lse = malloc(most * (size_t)c->n_heads * sizeof *f->lse);
}

static void drop(fixture *f) {
    for (int mode = 0; mode < N_MODES; mode++) cattn_pages_destroy(&f->pages[mode]);
    engine_free(&f->e);
    world_free(&f->w);
    free(f->q);
    free(f->out);
    free(f->lse);
}

/* The number of shared runs of pages, over all steps. */
static int64_t try_world(uint64_t seed, int64_t longest, int n_steps, const char *level) {
    fixture f;
    make(&f, seed, longest, level);
    for (int i = 0; i < n_steps; i++) {
        change(&f);
        step(&f);
    }
    assert_true(f.n_compared > 0);
    drop(&f);
    return f.n_shared_runs;
}

/* Sanitizers, which are many times slower, define FEW_WORLDS. */
#ifdef FEW_WORLDS
enum { N_WORLDS = 16, N_LONG_WORLDS = 1 };
#else
enum { N_WORLDS = 120, N_LONG_WORLDS = 4 };
#endif

static void test_worlds(void **state) {
    (void)state;
    int n_levels = 1;
    int64_t n_shared_runs = 0;
    while (cattn_level_name(n_levels)) n_levels++;
    for (uint64_t seed = 1; seed <= N_WORLDS; seed++) {
        const int level = seed % 4 ? n_levels - 1 : (int)(seed / 4 % (uint64_t)n_levels);
        n_shared_runs += try_world(seed, level ? 72 : 40, level ? 25 : 12, cattn_level_name(level));
    }
    assert_true(n_shared_runs > 8 * N_WORLDS);
}

static void test_long_worlds(void **state) {
    (void)state;
    for (uint64_t seed = 1000001; seed <= 1000000 + N_LONG_WORLDS; seed++) try_world(seed, 2300, 6, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worlds),
        cmocka_unit_test(test_long_worlds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
