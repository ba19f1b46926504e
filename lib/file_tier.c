/* A cache's file tier: opening it with the cache's fingerprint, copying chunks, measuring steps: see file_tier.h. */
#include "file_tier.h"

#include <string.h>

#include "base/clock.h"
#include "error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- Chunks ---- */

/* The payload of a record: the chunk's tiles in their order, each K tile with its V tile behind it. */
static void gather(void *ctx, int32_t chunk, void *payload) {
    const cattn_cache *c = ctx;
    char *to = payload;
    for (size_t i = 0; i < c->layout.n_tiles; i++, to += c->layout.tile_bytes)
        memcpy(to, ca_chunk_tile(c->pool, chunk, i), c->layout.tile_bytes);
}

static void scatter(void *ctx, int32_t chunk, const void *payload) {
    const cattn_cache *c = ctx;
    const char *from = payload;
    for (size_t i = 0; i < c->layout.n_tiles; i++, from += c->layout.tile_bytes)
        memcpy(ca_chunk_tile(c->pool, chunk, i), from, c->layout.tile_bytes);
}

/* ---- Fingerprint ---- */

/* What is hashed of an array that may be absent. */
static void add_array(XXH3_state_t *state, const void *array, size_t bytes) {
    const uint8_t present = array != NULL;
    XXH3_128bits_update(state, &present, sizeof present);
    if (array) XXH3_128bits_update(state, array, bytes);
}

static void add_text(XXH3_state_t *state, const char *text) { XXH3_128bits_update(state, text, strlen(text) + 1); }

/*
 * Everything of this library and of the configuration on which the K/V of a token depend: by their layout, or because the
 * output of one layer is the input of the next. The caller's fingerprint stands for the model and the program.
 */
static void fingerprint_of(const cattn_cache *c, const cattn_config *config, uint64_t fingerprint[2]) {
    const ca_layout *l = &c->layout;
    const size_t n_layers = (size_t)l->n_layers, n_heads = (size_t)config->n_heads;
    const int32_t numbers[] = {(int32_t)l->type, l->n_layers, config->n_heads, l->n_kv_heads,        l->d_k, l->d_v, l->c,
                               l->open_words,    CA_SEGMENT,  CA_SLOT_GROUP,   config->n_sink_tokens};
    const float reals[] = {config->scale, config->softcap};
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, config->tier_fingerprint, sizeof config->tier_fingerprint);
    add_text(&state, cattn_version());
    add_text(&state, c->level);
    XXH3_128bits_update(&state, numbers, sizeof numbers);
    XXH3_128bits_update(&state, reals, sizeof reals);
    add_array(&state, config->windows, n_layers * sizeof *config->windows);
    add_array(&state, config->sink_logits, n_layers * n_heads * sizeof *config->sink_logits);
    add_array(&state, config->alibi_slopes, n_heads * sizeof *config->alibi_slopes);
    const XXH128_hash_t hash = XXH3_128bits_digest(&state);
    fingerprint[0] = hash.high64;
    fingerprint[1] = hash.low64;
}

/* ---- Life ---- */

cattn_status ca_file_tier_open(cattn_cache *c, const cattn_config *config, const ca_file_tier_hooks *hooks,
                               cattn_error *error) {
    if (!config->tier_dir) return CATTN_OK;
    ca_tier_config tier = {.dir = config->tier_dir,
                           .bytes = config->tier_bytes,
                           .chunk_tokens = c->layout.c,
                           .payload_bytes = c->layout.chunk_bytes,
                           .chunks = {gather, scatter, c}};
    if (hooks) {
        tier.files = hooks->files;
        tier.no_thread = hooks->no_thread;
    }
    fingerprint_of(c, config, tier.fingerprint);
    return ca_tier_open(&c->tier, &tier, &c->alloc, error);
}

void ca_file_tier_close(cattn_cache *c) {
    if (!c->tier) return;
    if (c->tree) ca_tree_detach_tier(c->tree);
    ca_tier_close(&c->tier);
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
    stats->tier_chunks_capacity = t.n_slots;
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
