/*
 * Exactness with memcmp: a row's output has the same bits alone or in any batch, in every sharing mode, on one thread or two,
 * with the prompt in one piece or many, with a cold or a warm cache, in any order of joining, and after forks, truncations,
 * aborted steps and early leaves.
 *
 * usage: exact_worlds_test [--worlds N] [--long N] [--seed S]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/api/cache_handle.h"
#include "chunkattn/cache/tree_internal.h"
#include "world_step.h"

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

static void run_world(world *w, const world_variant *how, const char *level) {
    static const world_rates rates = {.append_many = 4, .most_appended = 4, .fork = 40, .truncate = 30, .leave = 40};
    world_cpu_run x = {.t = world_run_of(w, how, &rates)};
    cattn_config config = w->config;
    config.sharing = how->sharing;
    config.retention = how->retention;
    config.n_threads = how->threads;
    config.level = level;
    config.budget_bytes = (uint64_t)256 << 20;
    cattn_error error = {0};
    const cattn_status status = cattn_cache_create(&config, &x.t.cache, &error);
    CHECK(status == CATTN_OK, "create: %s", error.message);
    if (status) exit(1);
    if (w->seed % 16 == 0) poison(x.t.cache);
    world_run_all(&x.t, world_cpu_step, &x);
    CHECK(how->expected || x.t.rows_compared > 0, "nothing was compared");
    cattn_cache_destroy(&x.t.cache);
    world_cpu_free(&x);
}

static void try_world(uint64_t seed, int64_t longest, const char *level) {
    enum { WHOLE = 1 << 20 };
    static const world_variant expected = {"expected", CATTN_PRIVATE, CATTN_RETAIN_NONE, 1, WHOLE, true, false, true};
    static const world_variant variants[] = {
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
    world_new_results(&w);
    run_world(&w, &expected, level);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        if (variants[i].piece == 1 && longest > 400) continue;
        run_world(&w, &variants[i], level);
    }
    world_free(&w);
}

int main(int argc, char **argv) {
    world_options o = {.n_worlds = 500, .n_long = 6, .seed = 1};
    world_parse_options(argc, argv, &o);
    int n_levels = 1; /* the reference is always there */
    while (cattn_level_name(n_levels)) n_levels++;
    /* Most worlds run at the highest level of this CPU, some at each lower one; the slow reference has short sequences. */
    for (int64_t i = 0; i < o.n_worlds && world_failures < 10; i++) {
        const uint64_t s = o.seed + (uint64_t)i;
        const int level = s % 4 ? n_levels - 1 : (int)(s / 4 % (uint64_t)n_levels);
        try_world(s, level ? 72 : 40, cattn_level_name(level));
    }
    for (int64_t i = 0; i < o.n_long && world_failures < 10; i++)
        try_world(o.seed + 1000000 + (uint64_t)i, 2300, cattn_level_name(n_levels - 1));
    printf("%lld worlds from seed %llu and %lld long ones, levels up to %s: %d failures\n", (long long)o.n_worlds,
           (unsigned long long)o.seed, (long long)o.n_long, cattn_level_name(n_levels - 1), world_failures);
    return world_failures != 0;
}
