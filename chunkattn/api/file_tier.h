/*
 * A cache's file tier: what cattn_config says of it, how the tier reaches the cache's chunks, and what the cache measures to
 * decide whether reading is cheaper than computing. The tier itself is in chunkattn/tier/, its place in the tree in
 * chunkattn/cache/restore.c and chunkattn/cache/write_behind.c.
 *
 * One thread at a time may call these for a cache. None of them costs more than a comparison where there is no tier.
 */
#ifndef CHUNKATTN_API_FILE_TIER_H
#define CHUNKATTN_API_FILE_TIER_H

#include "cache_handle.h"

/* What tests replace: the system calls (NULL: the system's), and the I/O threads (chunkattn/tier/tier.h). */
typedef struct ca_file_tier_hooks {
    const ca_tier_files *files;
    bool no_thread;
} ca_file_tier_hooks;

/* As cattn_cache_create; hooks may be NULL. */
cattn_status ca_cache_create(const cattn_config *config, const ca_file_tier_hooks *hooks, cattn_cache **cache,
                             cattn_error *error);

/* Open the tier of a cache whose pool and layout are there. The config has one. */
cattn_status ca_file_tier_open(cattn_cache *cache, const cattn_config *config, const ca_file_tier_hooks *hooks,
                               cattn_error *error);

/*
 * Finish what is queued, as ca_tier_close, and forget the tier. inherited: this process is a child of the one that has opened
 * it, whose file is left alone.
 */
void ca_file_tier_close(cattn_cache *cache, bool inherited);

/* Measure the time of a step, from its beginning to its end with n_rows rows. */
void ca_file_tier_step_begins(cattn_cache *cache);
void ca_file_tier_step_ends(cattn_cache *cache, int64_t n_rows);

/* Make tokens ready that have been read since the last call. Called when a step begins and when a sequence joins. */
static inline void ca_file_tier_poll(const cattn_cache *cache) {
    if (cache->tier && ca_tree_restores(cache->tree)) ca_tree_poll_tier(cache->tree);
}

/* Add the tier's statistics to a cache's. */
void ca_file_tier_stats(const cattn_cache *cache, cattn_stats *stats);

#endif
