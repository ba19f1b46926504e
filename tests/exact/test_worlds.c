/*
 * Exactness with memcmp: a row's output has the same bits alone or in any batch, in every sharing mode, on one thread or two,
 * with the prompt in one piece or many, with a cold or a warm cache, in any order of joining, and after forks, truncations,
 * aborted steps and early leaves.
 *
 * usage: exact_worlds_test [--worlds N] [--long N] [--seed S]
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cache_handle.h"
#include "world.h"

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

/* A way to run a world. */
typedef struct variant {
    const char *name;
    cattn_sharing sharing;
    cattn_retention retention;
    int threads;
    int64_t piece;   /* most rows of a sequence in a step; 0: random */
    bool one_by_one; /* each sequence alone: the next joins when the previous one has left */
    bool events;     /* forks, truncations, aborted steps, early leaves, row limits */
    bool expected;   /* fill in the expected results instead of comparing */
} variant;

/* A running copy of a world's sequence. */
typedef struct runner {
    cattn_seq seq;
    world_seq *is;
    int64_t length;
} runner;

typedef struct run {
    world *w;
    const variant *how;
    cattn_cache *cache;
    rng r;
    int n_runners;
    runner runners[2 * WORLD_MAX_SEQS];
    float *q, *k, *v, *out, *lse; /* rows of a step */
    int64_t rows_capacity;
    int64_t rows_compared;
} run;

/* Fill every chunk that the pool can hold with infinities and NaN, as earlier sequences could leave them. */
static void poison(cattn_cache *cache) {
    enum { MOST = 4096 };
    static ca_chunk_id ids[MOST];
    int n = 0;
    while (n < MOST && ca_chunk_pool_get(cache->pool, &ids[n]) == CATTN_OK) {
        for (size_t tile = 0; tile < cache->layout.n_tiles; tile++) {
            uint16_t *data = ca_chunk_tile(cache->pool, ids[n], tile);
            for (size_t i = 0; i < cache->layout.tile_bytes / 2; i++) data[i] = i % 3 ? 0x7f80 : 0xffff;
        }
        n++;
    }
    while (n > 0) ca_chunk_pool_put(cache->pool, ids[--n]);
}

static void room(run *t, int64_t n_rows) {
    if (n_rows <= t->rows_capacity) return;
    const cattn_config *c = &t->w->config;
    t->rows_capacity = n_rows;
    t->q = realloc(t->q, (size_t)(n_rows * c->n_heads * c->head_dim) * sizeof(float));
    t->k = realloc(t->k, (size_t)(n_rows * c->n_kv_heads * c->head_dim) * sizeof(float));
    t->v = realloc(t->v, (size_t)(n_rows * c->n_kv_heads * world_dim_v(t->w)) * sizeof(float));
    t->out = realloc(t->out, (size_t)(n_rows * c->n_heads * world_dim_v(t->w)) * sizeof(float));
    t->lse = realloc(t->lse, (size_t)(n_rows * c->n_heads) * sizeof(float));
}

static void take_row(run *t, world_seq *s, int64_t position, int layer, const float *out, const float *lse) {
    const int n_heads = t->w->config.n_heads, n_out = n_heads * world_dim_v(t->w);
    float *want_out = s->out + ((int64_t)layer * s->n_tokens + position) * n_out;
    float *want_lse = s->lse + ((int64_t)layer * s->n_tokens + position) * n_heads;
    if (t->how->expected) {
        memcpy(want_out, out, (size_t)n_out * sizeof *out);
        memcpy(want_lse, lse, (size_t)n_heads * sizeof *lse);
        return;
    }
    t->rows_compared++;
    CHECK(world_same(want_out, out, n_out) && world_same(want_lse, lse, n_heads),
          "seed %llu, %s, level %s, sequence %d, position %lld, layer %d", (unsigned long long)t->w->seed, t->how->name,
          cattn_cache_level(t->cache), (int)(s - t->w->seqs), (long long)position, layer);
}

/* One step over all runners with tokens to compute. Returns the number of rows. */
static int64_t step(run *t) {
    const cattn_config *c = &t->w->config;
    cattn_entry entries[2 * WORLD_MAX_SEQS];
    const runner *running[2 * WORLD_MAX_SEQS];
    int n = 0;
    const int shift = (int)rng_range(&t->r, 0, t->n_runners - 1);
    for (int i = 0; i < t->n_runners; i++) {
        const runner *x = &t->runners[(i + shift) % t->n_runners];
        running[n] = x;
        entries[n++] = (cattn_entry){.seq = x->seq, .max_rows = t->how->piece ? t->how->piece : rng_range(&t->r, 1, 100)};
    }
    const int64_t limit = t->how->events && rng_chance(&t->r, 3) ? rng_range(&t->r, 1, 60) : 0;
    cattn_error error = {0};
    const cattn_status status = cattn_step_begin(t->cache, entries, n, limit, &error);
    CHECK(status == CATTN_OK, "begin: %s", error.message);
    if (status) exit(1);
    int64_t n_rows = 0;
    for (int i = 0; i < n; i++) n_rows += entries[i].n_rows;
    room(t, n_rows);
    const int nq = c->n_heads * c->head_dim, nk = c->n_kv_heads * c->head_dim, nv = c->n_kv_heads * world_dim_v(t->w);
    const int no = c->n_heads * world_dim_v(t->w);
    const cattn_view q = {t->q, CATTN_F32, nq, c->head_dim}, k = {t->k, CATTN_F32, nk, c->head_dim};
    const cattn_view v = {t->v, CATTN_F32, nv, world_dim_v(t->w)}, out = {t->out, CATTN_F32, no, world_dim_v(t->w)};
    const bool aborts = t->how->events && rng_chance(&t->r, 6);
    const int n_layers = aborts ? (int)rng_range(&t->r, 0, c->n_layers) : c->n_layers;
    for (int layer = 0; layer < n_layers; layer++) {
        int64_t row = 0;
        for (int i = 0; i < n; i++)
            for (int64_t p = 0; p < entries[i].n_rows; p++, row++) {
                const float *from = world_row(t->w, running[i]->is, entries[i].first_pos + p, layer);
                memcpy(t->q + row * nq, from, (size_t)nq * sizeof *from);
                memcpy(t->k + row * nk, from + nq, (size_t)nk * sizeof *from);
                memcpy(t->v + row * nv, from + nq + nk, (size_t)nv * sizeof *from);
            }
        CHECK(cattn_step_write(t->cache, layer, &k, &v, NULL) == CATTN_OK, "write");
        CHECK(cattn_step_attend(t->cache, layer, &q, &out, t->lse, NULL) == CATTN_OK, "attend");
        row = 0;
        for (int i = 0; i < n; i++)
            for (int64_t p = 0; p < entries[i].n_rows; p++, row++)
                take_row(t, running[i]->is, entries[i].first_pos + p, layer, t->out + row * no, t->lse + row * c->n_heads);
    }
    if (aborts)
        CHECK(cattn_step_abort(t->cache, NULL) == CATTN_OK, "abort");
    else
        CHECK(cattn_step_end(t->cache, NULL) == CATTN_OK, "end");
    return n_rows;
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

static int64_t n_ready(run *t, const runner *x) {
    cattn_seq_info info = {.struct_size = sizeof info};
    CHECK(cattn_seq_get_info(t->cache, x->seq, &info, NULL) == CATTN_OK, "info");
    return info.n_ready;
}

/*
 * After a step: append to runners with a complete prompt, let complete runners leave, and sometimes fork, truncate or leave
 * early.
 */
static void between_steps(run *t) {
    for (int i = t->n_runners - 1; i >= 0; i--) {
        runner *x = &t->runners[i];
        if (n_ready(t, x) == x->length && x->length == x->is->n_tokens) {
            leave(t, i);
            continue;
        }
        if (n_ready(t, x) == x->length) {
            const int64_t left = x->is->n_tokens - x->length,
                          n = rng_chance(&t->r, 4) ? rng_range(&t->r, 1, left < 4 ? left : 4) : 1;
            CHECK(cattn_seq_append(t->cache, x->seq, x->is->tokens + x->length, n, NULL) == CATTN_OK, "append");
            x->length += n;
        }
        if (!t->how->events) continue;
        if (rng_chance(&t->r, 40) && t->n_runners < 2 * WORLD_MAX_SEQS) {
            runner *fork = &t->runners[t->n_runners];
            *fork = *x;
            CHECK(cattn_seq_fork(t->cache, x->seq, 0, &fork->seq, NULL) == CATTN_OK, "fork");
            t->n_runners++;
        } else if (rng_chance(&t->r, 30) && x->length > 1) {
            x->length -= rng_range(&t->r, 1, x->length - 1 < 7 ? x->length - 1 : 7);
            CHECK(cattn_seq_truncate(t->cache, x->seq, x->length, NULL) == CATTN_OK, "truncate");
        } else if (rng_chance(&t->r, 40)) {
            leave(t, i);
        }
    }
}

static void run_world(world *w, const variant *how, const char *level) {
    run t = {.w = w, .how = how, .r = {w->seed * 1000003 + (uint64_t)how->piece + (uint64_t)how->sharing}};
    cattn_config config = w->config;
    config.sharing = how->sharing;
    config.retention = how->retention;
    config.n_threads = how->threads;
    config.level = level;
    config.budget_bytes = (uint64_t)256 << 20;
    cattn_error error = {0};
    const cattn_status status = cattn_cache_create(&config, &t.cache, &error);
    CHECK(status == CATTN_OK, "create: %s", error.message);
    if (status) exit(1);
    if (w->seed % 16 == 0) poison(t.cache);
    int order[WORLD_MAX_SEQS] = {0};
    for (int i = 0; i < w->n_seqs; i++) order[i] = i;
    for (int i = w->n_seqs - 1; i > 0 && !how->one_by_one; i--) {
        const int j = (int)rng_range(&t.r, 0, i), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    for (int joined = 0; joined < w->n_seqs || t.n_runners > 0;) {
        if (how->one_by_one ? t.n_runners == 0 : joined < w->n_seqs) do
                join(&t, &w->seqs[order[joined++]]);
            while (!how->one_by_one && joined < w->n_seqs && rng_chance(&t.r, 2));
        if (t.n_runners > 0) step(&t);
        between_steps(&t);
    }
    if (how->one_by_one && how->sharing != CATTN_PRIVATE && how->retention == CATTN_RETAIN_LRU) {
        for (int i = 0; i < w->n_seqs; i++) join(&t, &w->seqs[i]); /* warm */
        while (t.n_runners > 0) {
            step(&t);
            between_steps(&t);
        }
    }
    CHECK(how->expected || t.rows_compared > 0, "nothing was compared");
    cattn_cache_destroy(&t.cache);
    free(t.q);
    free(t.k);
    free(t.v);
    free(t.out);
    free(t.lse);
}

static void try_world(uint64_t seed, int64_t longest, const char *level) {
    enum { WHOLE = 1 << 20 };
    static const variant expected = {"expected", CATTN_PRIVATE, CATTN_RETAIN_NONE, 1, WHOLE, true, false, true};
    static const variant variants[] = {
        {"shared, whole prompts", CATTN_SHARED, CATTN_RETAIN_LRU, 1, WHOLE, false, false, false},
        {"shared, one by one, then warm", CATTN_SHARED, CATTN_RETAIN_LRU, 2, WHOLE, true, false, false},
        {"shared, pieces of 1", CATTN_SHARED, CATTN_RETAIN_NONE, 2, 1, false, false, false},
        {"shared, pieces of 7", CATTN_SHARED, CATTN_RETAIN_LRU, 1, 7, false, false, false},
        {"shared, pieces of 64, events", CATTN_SHARED, CATTN_RETAIN_LRU, 2, 64, false, true, false},
        {"shared, random pieces, events", CATTN_SHARED, CATTN_RETAIN_NONE, 2, 0, false, true, false},
        {"shared storage, random pieces, events", CATTN_SHARED_STORAGE, CATTN_RETAIN_LRU, 2, 0, false, true, false},
        {"private, pieces of 64, events", CATTN_PRIVATE, CATTN_RETAIN_LRU, 2, 64, false, true, false},
    };
    world w;
    world_make(&w, seed, longest);
    for (int i = 0; i < w.n_seqs; i++) {
        world_seq *s = &w.seqs[i];
        const size_t rows = (size_t)(w.config.n_layers * s->n_tokens) * (size_t)w.config.n_heads;
        s->out = malloc(rows * (size_t)world_dim_v(&w) * sizeof *s->out);
        s->lse = malloc(rows * sizeof *s->lse);
    }
    run_world(&w, &expected, level);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (variants[i].piece == 1 && longest > 400) continue;
        run_world(&w, &variants[i], level);
    }
    world_free(&w);
}

int main(int argc, char **argv) {
    int64_t n_worlds = 500, n_long = 6;
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
    int n_levels = 1; /* the reference is always there */
    while (cattn_level_name(n_levels)) n_levels++;
    /* Most worlds run at the highest level of this CPU, some at each lower one; the slow reference has short sequences. */
    for (int64_t i = 0; i < n_worlds && failures < 10; i++) {
        const uint64_t s = seed + (uint64_t)i;
        const int level = s % 4 ? n_levels - 1 : (int)(s / 4 % (uint64_t)n_levels);
        try_world(s, level ? 72 : 40, cattn_level_name(level));
    }
    for (int64_t i = 0; i < n_long && failures < 10; i++)
        try_world(seed + 1000000 + (uint64_t)i, 2300, cattn_level_name(n_levels - 1));
    printf("%lld worlds from seed %llu and %lld long ones, levels up to %s: %d failures\n", (long long)n_worlds,
           (unsigned long long)seed, (long long)n_long, cattn_level_name(n_levels - 1), failures);
    return failures != 0;
}
