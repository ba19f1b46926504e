/*
 * Foreign pages on an emulated device give the bits of a cache there that holds the same K and V: for every page size, layout
 * and sharing mode, in any batch order and with any numbers of rows, while sequences join, fork, grow, shrink and leave. The
 * cache computes each sequence alone; some of its rows are compared with double precision. Work is deferred by random times.
 *
 * usage: cuda_device_page_worlds_test [--worlds N] [--long N] [--seed S]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CATTN_EXPERIMENTAL
#include "chunkattn/cuda/emu/emu_runtime.h"
#include "chunkattn_cuda.h"
#include "reference.h"
#include "tests/chunkattn/exact/world_run.h"
#include "tests/chunkattn/pages/traffic.h"

enum { N_MODES = 3 };

typedef struct fixture {
    traffic t;
    cattn_pages *pages[N_MODES]; /* by sharing mode */
    float *q, *out, *lse;        /* device memory, for all rows of a step */
    int64_t most_rows;
} fixture;

/* Cases that occurred, which the test requires to be enough. */
static int64_t n_compared, n_kept, n_shared_runs;
static double worst_error;

static void require(cattn_status status, const cattn_error *error, const world *w, const char *call) {
    CHECK(status == CATTN_OK, "seed %llu, %s: %s", (unsigned long long)w->seed, call, error->message);
    if (status) exit(1);
}

/* ---- Device memory ---- */

static void *device_alloc(size_t bytes) { return emu_alloc(bytes, "pages"); }
static float *device_floats(int64_t n, const char *name) { return emu_alloc((size_t)n * sizeof(float), name); }

/* Each head's row of d elements is followed by a gap. */
enum { GAP = 4 };
static cattn_view view_of(float *data, int heads, int dim) {
    return (cattn_view){data, CATTN_F32, heads * (dim + GAP), dim + GAP};
}
static void put_row(const cattn_view *view, int64_t row, int heads, int dim, const float *from) {
    for (int h = 0; h < heads; h++)
        memcpy((float *)view->data + row * view->row_stride + h * view->head_stride, from + h * dim,
               (size_t)dim * sizeof *from);
}
static void get_row(const cattn_view *view, int64_t row, int heads, int dim, float *to) {
    for (int h = 0; h < heads; h++)
        memcpy(to + h * dim, (float *)view->data + row * view->row_stride + h * view->head_stride, (size_t)dim * sizeof *to);
}

/* ---- Expected results ---- */

static void expect_layer(fixture *f, cattn_cache *cache, world_seq *s, int32_t layer) {
    const cattn_config *c = &f->t.w.config;
    const int32_t d = c->head_dim, heads = c->n_heads, kv_heads = c->n_kv_heads;
    float *k_data = device_floats(s->n_tokens * kv_heads * (d + GAP), "k"),
          *v_data = device_floats(s->n_tokens * kv_heads * (d + GAP), "v");
    const cattn_view q = view_of(f->q, heads, d), out = view_of(f->out, heads, d), k = view_of(k_data, kv_heads, d),
                     v = view_of(v_data, kv_heads, d);
    for (int64_t i = 0; i < s->n_tokens; i++) {
        const float *row = world_row(&f->t.w, s, i, layer);
        put_row(&q, i, heads, d, row);
        put_row(&k, i, kv_heads, d, row + heads * d);
        put_row(&v, i, kv_heads, d, row + (heads + kv_heads) * d);
    }
    cattn_error error = {0};
    require(cattn_cuda_step_write(cache, layer, &k, &v, NULL, &error), &error, &f->t.w, "write");
    require(cattn_cuda_step_attend(cache, layer, &q, &out, f->lse, NULL, &error), &error, &f->t.w, "attend");
    emu_finish();
    for (int64_t i = 0; i < s->n_tokens; i++) {
        const int64_t at = layer * s->n_tokens + i;
        get_row(&out, i, heads, d, s->out + at * heads * d);
        memcpy(s->lse + at * heads, f->lse + i * heads, (size_t)heads * sizeof *s->lse);
        if (i % 11 && i + 1 < s->n_tokens) continue; /* the reference is slow */
        const double e = reference_error(&f->t.w, s, i, layer, s->out + at * heads * d, s->lse + at * heads);
        worst_error = fmax(worst_error, e);
        CHECK(e <= 1, "seed %llu, position %lld: error %g", (unsigned long long)f->t.w.seed, (long long)i, e);
    }
    emu_free(k_data);
    emu_free(v_data);
}

static void expect_seq(fixture *f, cattn_cache *cache, world_seq *s) {
    cattn_entry entry = {.max_rows = s->n_tokens};
    cattn_error error = {0};
    require(cattn_seq_join(cache, s->tokens, s->n_tokens, NULL, &entry.seq, NULL, &error), &error, &f->t.w, "join");
    require(cattn_cuda_step_begin(cache, &entry, 1, 0, NULL, NULL, &error), &error, &f->t.w, "begin");
    for (int32_t layer = 0; layer < f->t.w.config.n_layers; layer++) expect_layer(f, cache, s, layer);
    require(cattn_step_end(cache, &error), &error, &f->t.w, "end");
    require(cattn_seq_leave(cache, &entry.seq, &error), &error, &f->t.w, "leave");
}

static void expect(fixture *f) {
    cattn_config config = f->t.w.config;
    cattn_cache *cache = NULL;
    cattn_error error = {0};
    config.sharing = CATTN_PRIVATE;
    config.retention = CATTN_RETAIN_NONE;
    config.budget_bytes = (uint64_t)48 << 20;
    config.cuda = &(cattn_cuda_config){.device = 0};
    require(cattn_cache_create(&config, &cache, &error), &error, &f->t.w, "create");
    world_new_results(&f->t.w);
    for (int i = 0; i < f->t.w.n_seqs; i++) expect_seq(f, cache, &f->t.w.seqs[i]);
    cattn_cache_destroy(&cache);
}

/* ---- A step ---- */

static void check_rows(const fixture *f, const traffic_batch *b, const cattn_view *out, int mode, int32_t layer) {
    const cattn_config *c = &f->t.w.config;
    float *got = malloc((size_t)(c->n_heads * c->head_dim) * sizeof *got);
    for (int i = 0; i < f->t.n_running; i++)
        for (int32_t row = b->query_indptr[i]; row < b->query_indptr[i + 1]; row++) {
            const world_seq *s = f->t.running[i].is;
            const int64_t position = traffic_position(&f->t, b, i, row), at = layer * s->n_tokens + position;
            get_row(out, row, c->n_heads, c->head_dim, got);
            CHECK(world_same(s->out + at * c->n_heads * c->head_dim, got, c->n_heads * c->head_dim) &&
                      world_same(s->lse + at * c->n_heads, f->lse + (int64_t)row * c->n_heads, c->n_heads),
                  "seed %llu, mode %d, page size %d, layout %d, layer %d: sequence %d, position %d",
                  (unsigned long long)f->t.w.seed, mode, f->t.e.page_size, f->t.e.layout, layer, i, (int)position);
            n_compared++;
        }
    free(got);
}

static void attend(fixture *f, const traffic_batch *b, int mode, int32_t layer) {
    const cattn_config *c = &f->t.w.config;
    const int32_t n_rows = b->query_indptr[f->t.n_running];
    const cattn_view q = view_of(f->q, c->n_heads, c->head_dim), out = view_of(f->out, c->n_heads, c->head_dim);
    for (int i = 0; i < f->t.n_running; i++)
        for (int32_t row = b->query_indptr[i]; row < b->query_indptr[i + 1]; row++)
            put_row(&q, row, c->n_heads, c->head_dim,
                    world_row(&f->t.w, f->t.running[i].is, traffic_position(&f->t, b, i, row), layer));
    memset(f->out, 0xff, (size_t)(n_rows * out.row_stride) * sizeof *f->out);
    memset(f->lse, 0xff, (size_t)(n_rows * c->n_heads) * sizeof *f->lse);
    cattn_error error = {0};
    require(cattn_cuda_pages_attend(f->pages[mode], layer, &f->t.e.k[layer], &f->t.e.v[layer], &q, &out, f->lse, NULL, &error),
            &error, &f->t.w, "attend");
    emu_finish();
    check_rows(f, b, &out, mode, layer);
}

static void step(fixture *f) {
    static traffic_batch b;
    cattn_error error = {0};
    traffic_make_batch(&f->t, &b);
    for (int mode = 0; mode < N_MODES; mode++) {
        if (mode != CATTN_SHARED && rng_chance(&f->t.r, 2)) continue; /* the emulation is slow */
        require(cattn_cuda_pages_plan(f->pages[mode], &b.is, NULL, NULL, &error), &error, &f->t.w, "plan");
        for (int32_t layer = 0; layer < f->t.w.config.n_layers; layer++) attend(f, &b, mode, layer);
    }
}

/* ---- Worlds ---- */

static void reshape(cattn_config *c, rng *r) {
    static const int32_t groups[] = {1, 1, 2, 2, 3, 4, 8}, sizes[] = {64, 64, 64, 64, 64, 96, 128, 256};
    c->n_kv_heads = (int32_t)rng_range(r, 1, 2);
    c->n_heads = c->n_kv_heads * groups[rng_below(r, 7)];
    c->n_layers = c->n_layers > 2 ? 2 : c->n_layers;
    c->head_dim = sizes[rng_below(r, 8)];
    c->head_dim_v = 0;
    c->chunk_size = 64;
    c->kv_type = rng_chance(r, 2) ? CATTN_BF16 : CATTN_F16;
}

static void make(fixture *f, uint64_t seed, int64_t longest, int32_t page_size) {
    static const engine_memory device = {device_alloc, emu_free, 8};
    *f = (fixture){.t = {.r = {seed * 77 + 5}, .most_rows = 20}};
    emu_set_streams(seed % 4 ? EMU_DEFERRED : EMU_IMMEDIATE, seed);
    world_make_shaped(&f->t.w, seed, longest, reshape);
    const cattn_config *c = &f->t.w.config;
    cattn_pages_config config = traffic_config(&f->t.w, page_size, longest);
    config.common.cuda = &(cattn_cuda_config){.device = 0};
    for (int mode = 0; mode < N_MODES; mode++) {
        cattn_error error = {0};
        config.common.sharing = (cattn_sharing)mode;
        require(cattn_pages_create(&config, &f->pages[mode], &error), &error, &f->t.w, "create");
    }
    f->most_rows = longest > TRAFFIC_MAX_RUNNING * 20 ? longest : TRAFFIC_MAX_RUNNING * 20;
    f->q = device_floats(f->most_rows * c->n_heads * (c->head_dim + GAP), "q");
    f->out = device_floats(f->most_rows * c->n_heads * (c->head_dim + GAP), "out");
    f->lse = device_floats(f->most_rows * c->n_heads, "lse");
    expect(f);
    engine_init(&f->t.e, &f->t.w, &config, f->pages[0], rng_below(&f->t.r, ENGINE_LAYOUTS), &device);
}

static void drop(fixture *f) {
    cattn_pages_info info = {.struct_size = sizeof info};
    cattn_pages_get_info(f->pages[CATTN_SHARED], &info);
    n_kept += info.n_kept;
    n_shared_runs += info.shared_runs;
    for (int mode = 0; mode < N_MODES; mode++) cattn_pages_destroy(&f->pages[mode]);
    engine_free(&f->t.e);
    emu_free(f->q);
    emu_free(f->out);
    emu_free(f->lse);
    world_free(&f->t.w);
    CHECK(emu_n_live() == 0, "seed %llu: %d allocations are left", (unsigned long long)f->t.w.seed, emu_n_live());
}

static void try_world(uint64_t seed, int64_t longest, int n_steps) {
    static fixture f;
    make(&f, seed, longest, 16 << seed % 4);
    for (int i = 0; i < n_steps; i++) {
        traffic_change(&f.t);
        step(&f);
    }
    drop(&f);
}

int main(int argc, char **argv) {
    world_options o = {.n_worlds = 12, .n_long = 1, .seed = 1}; /* what half a minute allows; more by hand */
    world_parse_options(argc, argv, &o);
    for (int64_t i = 0; i < o.n_worlds && world_failures + emu_errors() < 10; i++)
        try_world(o.seed + (uint64_t)i, i % 3 ? 90 : 200, 8);
    for (int64_t i = 0; i < o.n_long && world_failures + emu_errors() < 10; i++)
        try_world(o.seed + 1000000 + (uint64_t)i, 700, 4);
    const bool many = o.n_worlds >= 12; /* a few worlds may lack kept tokens and shared runs */
    CHECK(n_compared > 0 && (!many || (n_compared > 100 * o.n_worlds && n_kept > 0 && n_shared_runs > o.n_worlds)),
          "too few cases: %lld, %lld, %lld", (long long)n_compared, (long long)n_kept, (long long)n_shared_runs);
    const emu_totals n = emu_get_totals();
    printf(
        "%lld worlds from seed %llu and %lld long ones: %d failures, %d errors, %llu launches, %lld rows; largest error %.2g\n",
        (long long)o.n_worlds, (unsigned long long)o.seed, (long long)o.n_long, world_failures, emu_errors(),
        (unsigned long long)n.launches, (long long)n_compared, worst_error);
    return world_failures + emu_errors() != 0;
}
