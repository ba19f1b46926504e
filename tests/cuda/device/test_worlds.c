/*
 * Exactness on an emulated device with memcmp, as tests/exact/test_worlds.c on the CPU: what a row attends to is the same bits
 * alone or in any batch, in every sharing mode, in one piece or many, cold or warm, in any order of joining, after forks,
 * truncations, aborted steps and departures. The rows that are computed alone agree with double precision. Work is deferred by
 * random times, and the emulation finds nothing wrong with any kernel.
 *
 * usage: cuda_device_worlds_test [--worlds N] [--long N] [--seed S]
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CATTN_EXPERIMENTAL
#include "../../exact/world.h"
#include "chunkattn_cuda.h"
#include "emu_backend.h"
#include "reference.h"

static int failures;

#define CHECK(condition, ...)                                                                                                  \
    do {                                                                                                                       \
        if (!(condition)) {                                                                                                    \
            printf("FAILED %s:%d: %s: ", __FILE__, __LINE__, #condition);                                                      \
            printf(__VA_ARGS__);                                                                                               \
            printf("\n");                                                                                                      \
            failures++;                                                                                                        \
        }                                                                                                                      \
    } while (0)

enum { MAX_RUNNERS = 2 * WORLD_MAX_SEQS, MAX_PENDING = 16 };

/* How a world is run. */
typedef struct variant {
    const char *name;
    cattn_sharing sharing;
    cattn_retention retention;
    int64_t piece;   /* most rows of a sequence in a step; 0: random */
    bool one_by_one; /* each sequence alone: the next joins when the last has left */
    bool events;     /* forks, truncations, aborted steps, early departures, row limits */
    bool expected;   /* fill in the expected results instead of comparing */
} variant;

/* A running copy of a world's sequence. */
typedef struct runner {
    cattn_seq seq;
    world_seq *is;
    int64_t length;
} runner;

/* A layer of a step that may not have run yet: its tensors, and which rows they have. */
typedef struct pending {
    float *q, *k, *v, *out, *lse; /* device memory */
    int layer;
    int n_parts;
    struct {
        world_seq *is;
        int64_t first, n;
    } parts[MAX_RUNNERS];
} pending;

typedef struct run {
    world *w;
    const variant *how;
    cattn_cache *cache;
    rng r;
    int stream;
    int n_runners;
    runner runners[MAX_RUNNERS];
    int n_pending;
    pending pending[MAX_PENDING];
    int64_t rows_compared;
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

/* A row whose own context holds infinities may be NaN, of which only the fact is defined. */
static bool same(const float *a, const float *b, int n) {
    if (!memcmp(a, b, (size_t)n * sizeof *a)) return true;
    for (int i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

static void take_row(run *t, world_seq *s, int64_t position, int layer, const float *out, const float *lse) {
    const int n_heads = t->w->config.n_heads, n_out = n_heads * t->w->config.head_dim;
    float *want_out = s->out + ((int64_t)layer * s->n_tokens + position) * n_out;
    float *want_lse = s->lse + ((int64_t)layer * s->n_tokens + position) * n_heads;
    if (t->how->expected) {
        memcpy(want_out, out, (size_t)n_out * sizeof *out);
        memcpy(want_lse, lse, (size_t)n_heads * sizeof *lse);
        if (position % 7 && position + 1 < s->n_tokens) return; /* the reference is slow */
        const double error = reference_error(t->w, s, position, layer, out, lse);
        worst_error = fmax(worst_error, error);
        CHECK(error <= 1, "seed %llu, sequence %d, position %lld, layer %d: error %g", (unsigned long long)t->w->seed,
              (int)(s - t->w->seqs), (long long)position, layer, error);
        return;
    }
    t->rows_compared++;
    CHECK(same(want_out, out, n_out) && same(want_lse, lse, n_heads), "seed %llu, %s, sequence %d, position %lld, layer %d",
          (unsigned long long)t->w->seed, t->how->name, (int)(s - t->w->seqs), (long long)position, layer);
}

static void take_layer(run *t, const pending *p) {
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
static void finish(run *t) {
    emu_finish();
    for (int i = 0; i < t->n_pending; i++) {
        const pending *p = &t->pending[i];
        take_layer(t, p);
        float *tensors[] = {p->q, p->k, p->v, p->out, p->lse};
        for (int k = 0; k < 5; k++) emu_free(tensors[k]);
    }
    t->n_pending = 0;
}

/* ---- Steps ---- */

static void fill_layer(run *t, pending *p, int64_t n_rows) {
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

static void run_layer(run *t, const cattn_entry *entries, const runner *const *who, int n, int layer, int64_t n_rows) {
    const cattn_config *c = &t->w->config;
    if (t->n_pending == MAX_PENDING) finish(t);
    pending *p = &t->pending[t->n_pending++];
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
    const cattn_cuda_stream stream = emu_stream(t->stream);
    CHECK(cattn_cuda_step_write(t->cache, layer, &k, &v, stream, &error) == CATTN_OK, "write: %s", error.message);
    CHECK(cattn_cuda_step_attend(t->cache, layer, &q, &out, p->lse, stream, &error) == CATTN_OK, "attend: %s", error.message);
}

/* One step over all runners that have something to compute. */
static void step(run *t) {
    cattn_entry entries[MAX_RUNNERS];
    const runner *who[MAX_RUNNERS];
    int n = 0;
    const int shift = (int)rng_range(&t->r, 0, t->n_runners - 1);
    for (int i = 0; i < t->n_runners; i++) {
        who[n] = &t->runners[(i + shift) % t->n_runners];
        entries[n] = (cattn_entry){.seq = who[n]->seq, .max_rows = t->how->piece ? t->how->piece : rng_range(&t->r, 1, 200)};
        n++;
    }
    const int64_t limit = t->how->events && rng_chance(&t->r, 3) ? rng_range(&t->r, 1, 120) : 0;
    if (rng_chance(&t->r, 8)) {
        finish(t); /* streams must be ordered by the caller */
        t->stream = !t->stream;
    }
    cattn_error error = {0};
    const cattn_status status = cattn_cuda_step_begin(t->cache, entries, n, limit, emu_stream(t->stream), NULL, &error);
    CHECK(status == CATTN_OK, "seed %llu, begin: %s", (unsigned long long)t->w->seed, error.message);
    if (status) exit(1);
    int64_t n_rows = 0;
    for (int i = 0; i < n; i++) n_rows += entries[i].n_rows;
    const bool aborts = t->how->events && rng_chance(&t->r, 6);
    const int n_layers = aborts ? (int)rng_range(&t->r, 0, t->w->config.n_layers) : t->w->config.n_layers;
    for (int layer = 0; layer < n_layers && n_rows > 0; layer++) run_layer(t, entries, who, n, layer, n_rows);
    if (aborts)
        CHECK(cattn_step_abort(t->cache, NULL) == CATTN_OK, "abort");
    else
        CHECK(cattn_step_end(t->cache, NULL) == CATTN_OK, "end");
    if (rng_chance(&t->r, 4)) finish(t);
}

static void join(run *t, world_seq *s) {
    cattn_error error = {0};
    runner *x = &t->runners[t->n_runners++];
    *x = (runner){.is = s, .length = s->n_prompt};
    CHECK(cattn_seq_join(t->cache, s->tokens, s->n_prompt, NULL, &x->seq, NULL, &error) == CATTN_OK, "join: %s", error.message);
}

static void leave(run *t, int i) {
    CHECK(cattn_seq_leave(t->cache, &t->runners[i].seq, NULL) == CATTN_OK, "leave");
    t->runners[i] = t->runners[--t->n_runners];
}

static int64_t n_ready(const run *t, const runner *x) {
    cattn_seq_info info = {.struct_size = sizeof info};
    CHECK(cattn_seq_get_info(t->cache, x->seq, &info, NULL) == CATTN_OK, "info");
    return info.n_ready;
}

/* A fork, a truncation or a departure, now and then. */
static void disturb(run *t, int i) {
    runner *x = &t->runners[i];
    if (rng_chance(&t->r, 20) && t->n_runners < MAX_RUNNERS) {
        runner *fork = &t->runners[t->n_runners];
        *fork = *x;
        CHECK(cattn_seq_fork(t->cache, x->seq, 0, &fork->seq, NULL) == CATTN_OK, "fork");
        t->n_runners++;
    } else if (rng_chance(&t->r, 15) && x->length > 1) {
        x->length -= rng_range(&t->r, 1, x->length - 1 < 7 ? x->length - 1 : 7);
        CHECK(cattn_seq_truncate(t->cache, x->seq, x->length, NULL) == CATTN_OK, "truncate");
    } else if (rng_chance(&t->r, 20)) {
        leave(t, i);
    }
}

/* After a step: append to those who are through their prompt, let those leave who are done, and now and then something else. */
static void between_steps(run *t) {
    for (int i = t->n_runners - 1; i >= 0; i--) {
        runner *x = &t->runners[i];
        if (n_ready(t, x) == x->length && x->length == x->is->n_tokens) {
            leave(t, i);
            continue;
        }
        if (n_ready(t, x) == x->length) {
            const int64_t left = x->is->n_tokens - x->length,
                          n = rng_chance(&t->r, 2) ? rng_range(&t->r, 1, left < 9 ? left : 9) : 1;
            CHECK(cattn_seq_append(t->cache, x->seq, x->is->tokens + x->length, n, NULL) == CATTN_OK, "append");
            x->length += n;
        }
        if (t->how->events) disturb(t, i);
    }
    if (t->how->events && rng_chance(&t->r, 20)) CHECK(cattn_cache_drop_retained(t->cache, NULL) == CATTN_OK, "drop");
}

/* ---- Worlds ---- */

static void run_all(run *t) {
    while (t->n_runners > 0) {
        step(t);
        between_steps(t);
    }
}

static void shuffle(run *t, int *order, int n) {
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0 && !t->how->one_by_one; i--) {
        const int j = (int)rng_range(&t->r, 0, i), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

static void run_world(world *w, const variant *how) {
    run t = {.w = w, .how = how, .r = {w->seed * 1000003 + (uint64_t)how->piece + (uint64_t)how->sharing}};
    cattn_config config = w->config;
    config.sharing = how->sharing;
    config.retention = how->retention;
    config.budget_bytes = (uint64_t)48 << 20;
    config.cuda_device = 0;
    emu_set_streams(w->seed % 4 ? EMU_DEFERRED : EMU_IMMEDIATE, w->seed);
    cattn_error error = {0};
    const cattn_status status = cattn_cache_create(&config, &t.cache, &error);
    CHECK(status == CATTN_OK, "create: %s", error.message);
    if (status) exit(1);
    int order[WORLD_MAX_SEQS] = {0};
    shuffle(&t, order, w->n_seqs);
    for (int joined = 0; joined < w->n_seqs || t.n_runners > 0;) {
        if (how->one_by_one ? t.n_runners == 0 : joined < w->n_seqs) do
                join(&t, &w->seqs[order[joined++]]);
            while (!how->one_by_one && joined < w->n_seqs && rng_chance(&t.r, 2));
        if (t.n_runners > 0) step(&t);
        between_steps(&t);
    }
    if (how->one_by_one && how->sharing != CATTN_PRIVATE && how->retention == CATTN_RETAIN_LRU) {
        for (int i = 0; i < w->n_seqs; i++) join(&t, &w->seqs[i]); /* warm */
        run_all(&t);
    }
    finish(&t);
    CHECK(how->expected || t.rows_compared > 0, "nothing was compared");
    cattn_cache_destroy(&t.cache);
    CHECK(emu_n_live() == 0, "seed %llu, %s: %d allocations are left", (unsigned long long)w->seed, how->name, emu_n_live());
}

/* Shapes that a device takes, small ones most of the time. */
static void reshape(cattn_config *c, rng *r) {
    static const int32_t groups[] = {1, 1, 2, 2, 3, 4, 8}, sizes[] = {64, 64, 64, 64, 64, 64, 96, 128};
    c->n_kv_heads = (int32_t)rng_range(r, 1, 2);
    c->n_heads = c->n_kv_heads * (rng_chance(r, 12) ? 16 : groups[rng_below(r, 7)]);
    c->n_layers = c->n_layers > 2 ? 2 : c->n_layers;
    c->head_dim = rng_chance(r, 40) ? 256 : sizes[rng_below(r, 8)];
    c->head_dim_v = 0;
    c->chunk_size = 64;
    c->kv_type = rng_chance(r, 2) ? CATTN_BF16 : CATTN_F16;
}

static void try_world(uint64_t seed, int64_t longest) {
    enum { WHOLE = 1 << 20 };
    static const variant expected = {"expected", CATTN_PRIVATE, CATTN_RETAIN_NONE, WHOLE, true, false, true};
    static const variant variants[] = {
        {"shared, whole prompts", CATTN_SHARED, CATTN_RETAIN_LRU, WHOLE, false, false, false},
        {"shared, one by one, then warm", CATTN_SHARED, CATTN_RETAIN_LRU, WHOLE, true, false, false},
        {"shared, pieces of 7", CATTN_SHARED, CATTN_RETAIN_LRU, 7, false, false, false},
        {"shared, pieces of 64, events", CATTN_SHARED, CATTN_RETAIN_LRU, 64, false, true, false},
        {"shared, random pieces, events", CATTN_SHARED, CATTN_RETAIN_NONE, 0, false, true, false},
        {"shared storage, random pieces, events", CATTN_SHARED_STORAGE, CATTN_RETAIN_LRU, 0, false, true, false},
        {"private, pieces of 64, events", CATTN_PRIVATE, CATTN_RETAIN_LRU, 64, false, true, false},
    };
    world w;
    world_make_shaped(&w, seed, longest, reshape);
    const int most = longest > 300 ? 2 : longest > 100 ? 5 : WORLD_MAX_SEQS; /* the emulation is slow */
    if (w.n_seqs > most) w.n_seqs = most;
    for (int i = 0; i < WORLD_MAX_SEQS; i++) {
        world_seq *s = &w.seqs[i];
        const size_t rows = (size_t)(w.config.n_layers * s->n_tokens) * (size_t)w.config.n_heads;
        if (s->n_tokens == 0) continue;
        s->out = malloc(rows * (size_t)w.config.head_dim * sizeof *s->out);
        s->lse = malloc(rows * sizeof *s->lse);
    }
    run_world(&w, &expected);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (longest > 100 && variants[i].piece == 7) continue;
        if (longest > 300 && variants[i].piece == 0 && variants[i].sharing == CATTN_SHARED) continue;
        run_world(&w, &variants[i]);
    }
    w.n_seqs = WORLD_MAX_SEQS;
    world_free(&w);
}

int main(int argc, char **argv) {
    int64_t n_worlds = 4, n_long = 1; /* what a minute allows; more by hand */
    uint64_t seed = 1;
    static const struct option options[] = {{"worlds", 1, 0, 'w'}, {"long", 1, 0, 'l'}, {"seed", 1, 0, 's'}, {0}};
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (o == 'w')
            n_worlds = strtoll(optarg, NULL, 10);
        else if (o == 'l')
            n_long = strtoll(optarg, NULL, 10);
        else if (o == 's')
            seed = strtoull(optarg, NULL, 10);
        else
            return 2;
    }
    for (int64_t i = 0; i < n_worlds && failures + emu_errors() < 10; i++) try_world(seed + (uint64_t)i, i % 3 ? 90 : 200);
    for (int64_t i = 0; i < n_long && failures + emu_errors() < 10; i++)
        try_world(seed + 1000000 + (uint64_t)i, i % 3 == 2 ? 1100 : 600);
    const emu_totals n = emu_get_totals();
    printf("%lld worlds from seed %llu and %lld long ones: %d failures, %d errors, %llu launches; largest error %.2g\n",
           (long long)n_worlds, (unsigned long long)seed, (long long)n_long, failures, emu_errors(),
           (unsigned long long)n.launches, worst_error);
    return failures + emu_errors() != 0;
}
