/*
 * Exactness with memcmp behind the file tier: a row's output has the same bits whether the tokens before it were computed or
 * read. Each world runs several times on one disk, each time with a new cache, as after a restart. Retained tokens are evicted
 * at random, so that they come back from the disk, while sequences join, branch off within chunks, fork, truncate and leave
 * during reads. Between the runs some bytes of the disk change, and some reads fail.
 *
 * usage: exact_tier_test [--worlds N] [--long N] [--seed S]
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "../tier/disk.h"
#include "chunkattn/api/file_tier.h"
#include "chunkattn/cache/tree_internal.h"
#include "world_step.h"

typedef struct totals {
    int64_t restored, written, refused, errors, waits;
    int64_t prompt_ends; /* times that a restore was seen whose prompt ends with its last chunk */
} totals;

static totals sum;
static disk the_disk;
static bool has_thread;

static void evict(world_cpu_run *x) {
    for (int n = (int)rng_range(&x->t.r, 0, 3); n > 0; n--) ca_budget_evict_one(x->t.cache->tree);
    if (rng_chance(&x->t.r, 20)) cattn_cache_drop_retained(x->t.cache, NULL);
    if (rng_chance(&x->t.r, 4)) ca_pack_one(x->t.cache->tree);
}

/* Between steps: tokens are evicted, and the disk works for a while, or the caller waits for it where a step had no rows. */
static void disturb(world_cpu_run *x) {
    rng *r = &x->t.r;
    const ca_tree *tree = x->t.cache->tree;
    for (size_t i = 0; i < tree->restores.n; i++)
        sum.prompt_ends += tree->restores.at[i].end < tree->restores.at[i].seq->n_tokens;
    evict(x);
    if (!has_thread) {
        the_disk.read_error = rng_chance(r, 30) ? -EIO : 0;
        for (int n = (int)rng_range(r, 0, 2); n > 0; n--) ca_tier_work(x->t.cache->tier);
    }
    bool ended = false;
    if (x->n_rows == 0) CHECK(cattn_cache_wait(x->t.cache, 1, &ended, NULL) == CATTN_OK, "wait");
    sum.waits += ended;
}

/* Change a byte in some of the slots of the file, so that their records are damaged. */
static void damage(rng *r, size_t slot_bytes) {
    for (size_t at = 0; at + slot_bytes <= the_disk.size; at += slot_bytes)
        if (rng_chance(r, 6)) the_disk.bytes[at + (size_t)rng_below(r, slot_bytes)] ^= (uint8_t)(1 << rng_below(r, 8));
}

static void no_disturbance(world_cpu_run *x) { (void)x; }

static void run_world(world *w, const world_variant *how, const char *level) {
    static const world_rates rates = {
        .append_many = 4, .most_appended = 4, .fork = 40, .truncate = 30, .leave = 12, .drop = 60};
    world_cpu_run x = {.t = world_run_of(w, how, &rates), .before = how->expected ? no_disturbance : disturb};
    const ca_file_tier_hooks hooks = {.files = &the_disk.files, .no_thread = !has_thread};
    cattn_config config = w->config;
    config.sharing = how->sharing;
    config.retention = how->retention;
    config.n_threads = how->threads;
    config.level = level;
    config.budget_bytes = (uint64_t)256 << 20;
    if (!how->expected) {
        config.tier_dir = "anywhere";
        config.tier_bytes = (uint64_t)(w->seed % 5 == 0 ? 4 : 64) << 20; /* the small one replaces records */
        config.tier_fingerprint[0] = w->seed;
    }
    cattn_error error = {0};
    const cattn_status status = ca_cache_create(&config, &hooks, &x.t.cache, &error);
    CHECK(status == CATTN_OK, "create: %s", error.message);
    if (status) exit(1);
    world_run_all(&x.t, world_cpu_step, &x);
    if (how->expected) {
        cattn_cache_destroy(&x.t.cache);
        world_cpu_free(&x);
        return;
    }
    cattn_stats stats = {.struct_size = sizeof stats};
    cattn_cache_stats(x.t.cache, &stats);
    ca_tier_stats tier;
    ca_tier_get_stats(x.t.cache->tier, &tier);
    sum.restored += (int64_t)stats.tokens_restored;
    sum.written += (int64_t)stats.tier_writes;
    sum.refused += (int64_t)stats.tier_refused;
    sum.errors += (int64_t)stats.tier_errors;
    CHECK(stats.n_seqs == 0 && stats.tokens_referenced == 0 && stats.chunks_live == 0, "seed %llu, %s",
          (unsigned long long)w->seed, how->name);
    the_disk.read_error = 0;
    cattn_cache_destroy(&x.t.cache);
    damage(&x.t.r, tier.slot_bytes);
    world_cpu_free(&x);
}

static void try_world(uint64_t seed, int64_t longest, const char *level) {
    enum { WHOLE = 1 << 20 };
    static const world_variant expected = {"expected", CATTN_PRIVATE, CATTN_RETAIN_NONE, 1, WHOLE, true, false, true};
    static const world_variant variants[] = {
        {"tier, whole prompts", CATTN_SHARED, CATTN_RETAIN_LRU, 1, WHOLE, false, false, false},
        {"tier, one by one, then warm", CATTN_SHARED, CATTN_RETAIN_LRU, 2, WHOLE, true, false, false},
        {"tier, pieces of 7, events", CATTN_SHARED, CATTN_RETAIN_LEARNED, 1, 7, false, true, false},
        {"tier, shared storage, random pieces, events", CATTN_SHARED_STORAGE, CATTN_RETAIN_LEARNED, 2, 0, false, true, false},
        {"tier, pieces of 64, events", CATTN_SHARED, CATTN_RETAIN_LRU, 2, 64, false, true, false},
    };
    world w;
    world_make(&w, seed, longest);
    world_new_results(&w);
    run_world(&w, &expected, level);
    disk_init(&the_disk);
    has_thread = seed % 3 == 0;
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) run_world(&w, &variants[i], level);
    disk_free(&the_disk);
    world_free(&w);
}

int main(int argc, char **argv) {
    world_options o = {.n_worlds = 300, .n_long = 4, .seed = 1};
    world_parse_options(argc, argv, &o);
    int n_levels = 1;
    while (cattn_level_name(n_levels)) n_levels++;
    for (int64_t i = 0; i < o.n_worlds && world_failures < 10; i++)
        try_world(o.seed + (uint64_t)i, 150, cattn_level_name(n_levels - 1));
    for (int64_t i = 0; i < o.n_long && world_failures < 10; i++)
        try_world(o.seed + 1000000 + (uint64_t)i, 2300, cattn_level_name(n_levels - 1));
    if (o.n_worlds >= 40) { /* fewer may lack a case */
        CHECK(sum.restored > 20 * o.n_worlds && sum.written > o.n_worlds, "restored");
        CHECK(sum.prompt_ends > o.n_worlds / 10, "prompts that end with a chunk");
        CHECK(sum.refused > o.n_worlds / 10 && sum.errors > o.n_worlds / 10 && sum.waits > 0, "failures of the disk");
    }
    printf(
        "%lld worlds from seed %llu and %lld long ones: %lld tokens restored, %lld chunks written, %lld refused, %lld errors, "
        "%lld waits, %lld ends of prompts, %d failures\n",
        (long long)o.n_worlds, (unsigned long long)o.seed, (long long)o.n_long, (long long)sum.restored, (long long)sum.written,
        (long long)sum.refused, (long long)sum.errors, (long long)sum.waits, (long long)sum.prompt_ends, world_failures);
    return world_failures != 0;
}
