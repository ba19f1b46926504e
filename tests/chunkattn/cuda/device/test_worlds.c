/*
 * Exactness on an emulated device with memcmp, as tests/chunkattn/exact/test_worlds.c on the CPU: what a row attends to is the
 * same bits alone or in any batch, in every sharing mode, in one piece or many, cold or warm, in any order of joining, after
 * forks, truncations, aborted steps and departures, with prefill by mma or by wgmma. The rows that are computed alone agree
 * with double precision. Work is deferred by random times, and the emulation finds nothing wrong with any kernel.
 *
 * usage: cuda_device_worlds_test [--worlds N] [--long N] [--seed S]
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

enum { MAX_PENDING = 16 };

/* A layer of a step that may not have run yet: its tensors, and which rows they have. */
typedef struct pending {
    float *q, *k, *v, *out, *lse; /* device memory */
    int layer;
    int n_parts;
    struct {
        world_seq *is;
        int64_t first, n;
    } parts[WORLD_MAX_RUNNERS];
} pending;

typedef struct run {
    world_run t;
    int stream;
    int n_pending;
    pending pending[MAX_PENDING];
} run;

static double worst_error; /* of the expected results */

/* ---- Tensors on the device, whose rows and heads have gaps ---- */

enum { HEAD_GAP = 4, ROW_GAP = 8 };

static cattn_view view_of(float *data, int heads, int dim) {
    return (cattn_view){data, CATTN_F32, heads * (dim + HEAD_GAP) + ROW_GAP, dim + HEAD_GAP};
}

static float *new_tensor(int64_t rows, int heads, int dim, const char *name) {
    const cattn_view view = view_of(NULL, heads, dim);
    return emu_alloc((size_t)(rows * view.row_stride) * sizeof(float), name);
}

static void put_row(float *data, int64_t row, int heads, int dim, const float *from) {
    const cattn_view view = view_of(data, heads, dim);
    for (int h = 0; h < heads; h++)
        memcpy(data + row * view.row_stride + h * view.head_stride, from + h * dim, (size_t)dim * sizeof *from);
}

static void get_row(float *data, int64_t row, int heads, int dim, float *to) {
    const cattn_view view = view_of(data, heads, dim);
    for (int h = 0; h < heads; h++)
        memcpy(to + h * dim, data + row * view.row_stride + h * view.head_stride, (size_t)dim * sizeof *to);
}

/* ---- Results ---- */

static void take_row(world_run *t, world_seq *s, int64_t position, int layer, const float *out, const float *lse) {
    world_take_row(t, s, position, layer, out, lse);
    if (!t->how->expected || (position % 7 && position + 1 < s->n_tokens)) return; /* the reference is slow */
    const double error = reference_error(t->w, s, position, layer, out, lse);
    worst_error = fmax(worst_error, error);
    CHECK(error <= 1, "seed %llu, sequence %d, position %lld, layer %d: error %g", (unsigned long long)t->w->seed,
          (int)(s - t->w->seqs), (long long)position, layer, error);
}

static void take_layer(world_run *t, const pending *p) {
    const cattn_config *c = &t->w->config;
    float *out = calloc((size_t)(c->n_heads * c->head_dim), sizeof *out);
    int64_t row = 0;
    for (int i = 0; i < p->n_parts; i++)
        for (int64_t j = 0; j < p->parts[i].n; j++, row++) {
            get_row(p->out, row, c->n_heads, c->head_dim, out);
            take_row(t, p->parts[i].is, p->parts[i].first + j, p->layer, out, p->lse + row * c->n_heads);
        }
    free(out);
}

/* Wait for the device, and look at what it has computed. */
static void finish(run *x) {
    emu_finish();
    for (int i = 0; i < x->n_pending; i++) {
        const pending *p = &x->pending[i];
        take_layer(&x->t, p);
        float *tensors[] = {p->q, p->k, p->v, p->out, p->lse};
        for (int k = 0; k < 5; k++) emu_free(tensors[k]);
    }
    x->n_pending = 0;
}

/* ---- Steps ---- */

static void fill_layer(world_run *t, pending *p, int64_t n_rows) {
    const cattn_config *c = &t->w->config;
    const int d = c->head_dim;
    p->q = new_tensor(n_rows, c->n_heads, d, "q");
    p->k = new_tensor(n_rows, c->n_kv_heads, d, "k");
    p->v = new_tensor(n_rows, c->n_kv_heads, d, "v");
    p->out = new_tensor(n_rows, c->n_heads, d, "out");
    p->lse = emu_alloc((size_t)(n_rows * c->n_heads) * sizeof(float), "lse");
    int64_t row = 0;
    for (int i = 0; i < p->n_parts; i++)
        for (int64_t j = 0; j < p->parts[i].n; j++, row++) {
            const float *from = world_row(t->w, p->parts[i].is, p->parts[i].first + j, p->layer);
            put_row(p->q, row, c->n_heads, d, from);
            put_row(p->k, row, c->n_kv_heads, d, from + c->n_heads * d);
            put_row(p->v, row, c->n_kv_heads, d, from + (c->n_heads + c->n_kv_heads) * d);
        }
}

static void run_layer(run *x, const cattn_entry *entries, const world_runner *const *who, int n, int layer, int64_t n_rows) {
    world_run *t = &x->t;
    const cattn_config *c = &t->w->config;
    if (x->n_pending == MAX_PENDING) finish(x);
    pending *p = &x->pending[x->n_pending++];
    p->layer = layer;
    p->n_parts = n;
    for (int i = 0; i < n; i++) {
        p->parts[i].is = who[i]->is;
        p->parts[i].first = entries[i].first_pos;
        p->parts[i].n = entries[i].n_rows;
    }
    fill_layer(t, p, n_rows);
    const cattn_view q = view_of(p->q, c->n_heads, c->head_dim), out = view_of(p->out, c->n_heads, c->head_dim);
    const cattn_view k = view_of(p->k, c->n_kv_heads, c->head_dim), v = view_of(p->v, c->n_kv_heads, c->head_dim);
    cattn_error error = {0};
    const cattn_cuda_stream stream = emu_stream(x->stream);
    CHECK(cattn_cuda_step_write(t->cache, layer, &k, &v, stream, &error) == CATTN_OK, "write: %s", error.message);
    CHECK(cattn_cuda_step_attend(t->cache, layer, &q, &out, p->lse, stream, &error) == CATTN_OK, "attend: %s", error.message);
}

/* One step over all runners that have something to compute. */
static void step(void *ctx) {
    run *x = ctx;
    world_run *t = &x->t;
    cattn_entry entries[WORLD_MAX_RUNNERS];
    const world_runner *who[WORLD_MAX_RUNNERS];
    int n = 0;
    const int shift = (int)rng_range(&t->r, 0, t->n_runners - 1);
    for (int i = 0; i < t->n_runners; i++) {
        who[n] = &t->runners[(i + shift) % t->n_runners];
        entries[n] = (cattn_entry){.seq = who[n]->seq, .max_rows = t->how->piece ? t->how->piece : rng_range(&t->r, 1, 200)};
        n++;
    }
    const int64_t limit = t->how->events && rng_chance(&t->r, 3) ? rng_range(&t->r, 1, 120) : 0;
    if (rng_chance(&t->r, 8)) {
        finish(x); /* streams must be ordered by the caller */
        x->stream = !x->stream;
    }
    cattn_error error = {0};
    const cattn_status status = cattn_cuda_step_begin(t->cache, entries, n, limit, emu_stream(x->stream), NULL, &error);
    CHECK(status == CATTN_OK, "seed %llu, begin: %s", (unsigned long long)t->w->seed, error.message);
    if (status) exit(1);
    int64_t n_rows = 0;
    for (int i = 0; i < n; i++) n_rows += entries[i].n_rows;
    const bool aborts = t->how->events && rng_chance(&t->r, 6);
    const int n_layers = aborts ? (int)rng_range(&t->r, 0, t->w->config.n_layers) : t->w->config.n_layers;
    for (int layer = 0; layer < n_layers && n_rows > 0; layer++) run_layer(x, entries, who, n, layer, n_rows);
    if (aborts)
        CHECK(cattn_step_abort(t->cache, NULL) == CATTN_OK, "abort");
    else
        CHECK(cattn_step_end(t->cache, NULL) == CATTN_OK, "end");
    if (rng_chance(&t->r, 4)) finish(x);
}

/* ---- Worlds ---- */

static void run_world(world *w, const world_variant *how, bool by_wgmma) {
    static const world_rates rates = {
        .append_many = 2, .most_appended = 9, .fork = 20, .truncate = 15, .leave = 20, .drop = 20};
    run x = {.t = world_run_of(w, how, &rates)};
    cattn_config config = w->config;
    config.sharing = how->sharing;
    config.retention = how->retention;
    config.budget_bytes = (uint64_t)48 << 20;
    config.cuda = &(cattn_cuda_config){.device = 0};
    emu_set_wgmma(by_wgmma);
    const uint64_t wgmma_before = emu_get_totals().wgmma;
    emu_set_streams(w->seed % 4 ? EMU_DEFERRED : EMU_IMMEDIATE, w->seed);
    cattn_error error = {0};
    const cattn_status status = cattn_cache_create(&config, &x.t.cache, &error);
    CHECK(status == CATTN_OK, "create: %s", error.message);
    if (status) exit(1);
    world_run_all(&x.t, step, &x);
    finish(&x);
    CHECK(by_wgmma || emu_get_totals().wgmma == wgmma_before, "seed %llu, %s: wgmma is used, which the device did not allow",
          (unsigned long long)w->seed, how->name);
    CHECK(how->expected || x.t.rows_compared > 0, "nothing was compared");
    cattn_cache_destroy(&x.t.cache);
    CHECK(emu_n_live() == 0, "seed %llu, %s: %d allocations are left", (unsigned long long)w->seed, how->name, emu_n_live());
}

static cattn_type shaped_type; /* of K and V in the next world */

/* Shapes that a device takes, small ones most of the time. */
static void reshape(cattn_config *c, rng *r) {
    static const int32_t groups[] = {1, 1, 2, 2, 3, 4, 8}, sizes[] = {64, 64, 64, 64, 64, 64, 96, 128};
    c->n_kv_heads = (int32_t)rng_range(r, 1, 2);
    c->n_heads = c->n_kv_heads * (rng_chance(r, 12) ? 16 : groups[rng_below(r, 7)]);
    c->n_layers = c->n_layers > 2 ? 2 : c->n_layers;
    c->head_dim = rng_chance(r, 40) ? 256 : sizes[rng_below(r, 8)];
    c->head_dim_v = 0;
    c->chunk_size = 64;
    c->kv_type = shaped_type;
}

static void try_world(uint64_t seed, int64_t longest) {
    enum { WHOLE = 1 << 20 };
    static const world_variant expected = {"expected", CATTN_PRIVATE, CATTN_RETAIN_NONE, 1, WHOLE, true, false, true};
    static const world_variant variants[] = {
        {"shared, whole prompts", CATTN_SHARED, CATTN_RETAIN_LRU, 1, WHOLE, false, false, false},
        {"shared, one by one, then warm", CATTN_SHARED, CATTN_RETAIN_LRU, 1, WHOLE, true, false, false},
        {"shared, pieces of 7", CATTN_SHARED, CATTN_RETAIN_LRU, 1, 7, false, false, false},
        {"shared, pieces of 64, events", CATTN_SHARED, CATTN_RETAIN_LRU, 1, 64, false, true, false},
        {"shared, random pieces, events", CATTN_SHARED, CATTN_RETAIN_NONE, 1, 0, false, true, false},
        {"shared storage, random pieces, events", CATTN_SHARED_STORAGE, CATTN_RETAIN_LRU, 1, 0, false, true, false},
        {"private, pieces of 64, events", CATTN_PRIVATE, CATTN_RETAIN_LRU, 1, 64, false, true, false},
    };
    static const cattn_type types[] = {CATTN_BF16, CATTN_F16, CATTN_E4M3};
    world w;
    shaped_type = types[seed / 3 % 3]; /* every third world is long: each type has one */
    world_make_shaped(&w, seed, longest, reshape);
    const int most = longest > 300 ? 2 : longest > 100 ? 5 : WORLD_MAX_SEQS; /* the emulation is slow */
    if (w.n_seqs > most) w.n_seqs = most;
    world_new_results(&w);
    run_world(&w, &expected, false);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) { /* long worlds are too slow with the smallest pieces */
        if (longest > 100 && variants[i].piece == 7) continue;
        if (longest > 300 && variants[i].piece == 0 && variants[i].sharing == CATTN_SHARED) continue;
        run_world(&w, &variants[i], (seed + i) % 2);
    }
    w.n_seqs = WORLD_MAX_SEQS;
    world_free(&w);
}

int main(int argc, char **argv) {
    world_options o = {.n_worlds = 7, .n_long = 1, .seed = 1}; /* what a minute allows; more by hand */
    world_parse_options(argc, argv, &o);
    for (int64_t i = 0; i < o.n_worlds && world_failures + emu_errors() < 10; i++)
        try_world(o.seed + (uint64_t)i, i % 3 ? 90 : 200);
    for (int64_t i = 0; i < o.n_long && world_failures + emu_errors() < 10; i++)
        try_world(o.seed + 1000000 + 3 * (uint64_t)i, i % 3 == 2 ? 1100 : 600);
    const emu_totals n = emu_get_totals();
    CHECK(n.wgmma > 0 || o.n_long == 0, "no prefill went through wgmma");
    printf("%lld worlds from seed %llu and %lld long ones: %d failures, %d errors, %llu launches; largest error %.2g\n",
           (long long)o.n_worlds, (unsigned long long)o.seed, (long long)o.n_long, world_failures, emu_errors(),
           (unsigned long long)n.launches, worst_error);
    return world_failures + emu_errors() != 0;
}
