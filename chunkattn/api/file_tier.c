/* A cache's file tier: opening it, copying chunks, measuring steps: see file_tier.h. */
#include "file_tier.h"

#include <string.h>

#include "chunkattn/base/clock.h"
#include "chunkattn/base/fail.h"

/* ---- Chunks ---- */

/* The payload of a record: the chunk's tiles in their order, each K tile with its V tile behind it. */
static void gather(void *ctx, int32_t chunk, void *payload) {
    const cattn_cache *c = ctx;
    for (int32_t layer = 0, head = -1; ca_next_tile(&c->layout, &layer, &head);) {
        const ca_tile_at tile = ca_tile_of(&c->layout, layer, head);
        memcpy((char *)payload + tile.begin, ca_chunk_tile(c->pool, chunk, tile), tile.bytes);
    }
}

static void scatter(void *ctx, int32_t chunk, const void *payload) {
    const cattn_cache *c = ctx;
    for (int32_t layer = 0, head = -1; ca_next_tile(&c->layout, &layer, &head);) {
        const ca_tile_at tile = ca_tile_of(&c->layout, layer, head);
        memcpy(ca_chunk_tile(c->pool, chunk, tile), (const char *)payload + tile.begin, tile.bytes);
    }
}

/* ---- Life ---- */

cattn_status ca_file_tier_open(cattn_cache *c, const cattn_config *config, const ca_file_tier_hooks *hooks,
                               cattn_error *error) {
    ca_tier_config tier = {.dir = config->tier_dir,
                           .bytes = config->tier_bytes,
                           .fingerprint = {c->record.fingerprint[0], c->record.fingerprint[1]},
                           .chunk_tokens = c->record.chunk_tokens,
                           .payload_bytes = c->record.payload_bytes,
                           .chunks = {gather, scatter, c}};
    if (hooks) {
        tier.files = hooks->files;
        tier.no_thread = hooks->no_thread;
    }
    return ca_tier_open(&c->tier, &tier, &c->alloc, error);
}

void ca_file_tier_close(cattn_cache *c, bool inherited) {
    if (!c->tier) return;
    if (c->tree) (inherited ? ca_tree_forget_tier : ca_tree_detach_tier)(c->tree);
    (inherited ? ca_tier_abandon : ca_tier_close)(&c->tier);
}

/* ---- Measuring ---- */

void ca_file_tier_step_begins(cattn_cache *c) {
    if (c->tier) c->step_began = clock_seconds();
}

void ca_file_tier_step_ends(cattn_cache *c, int64_t n_rows) {
    enum { PART = 8 };                            /* of the mean that one step makes up */
    if (!c->tier || n_rows < c->layout.c) return; /* a few rows cost much more each than those of a prompt */
    const double seconds = (clock_seconds() - c->step_began) / (double)n_rows;
    c->row_seconds += c->row_seconds == 0 ? seconds : (seconds - c->row_seconds) / PART;
}

/* ---- Statistics ---- */

void ca_file_tier_stats(const cattn_cache *c, cattn_stats *stats) {
    if (!c->tier) return;
    ca_tier_stats t;
    ca_tier_get_stats(c->tier, &t);
    stats->tokens_restored = ca_tree_get_counts(c->tree)->tokens_restored;
    stats->tier_file_bytes = t.file_bytes;
    stats->tier_chunks = t.n_records;
    stats->tier_chunks_capacity = t.n_cells;
    stats->tier_reads = t.n_reads;
    stats->tier_writes = t.n_writes;
    stats->tier_queued = t.n_queued_reads + t.n_queued_writes;
    stats->tier_errors = t.n_read_errors + t.n_write_errors;
    stats->tier_refused = t.n_refused;
    stats->tier_replaced = t.n_replaced;
    stats->tier_dropped = t.n_dropped_writes;
    stats->tier_read_seconds = t.read_seconds;
    stats->tier_write_seconds = t.write_seconds;
}
