/* A file tier beside the tree of random calls: see tree_model.h. */
#include "tests/support/testing.h"

#include "tree_model.h"

#include <errno.h>
#include <string.h>

static void gather(void *ctx, int32_t chunk, void *payload) {
    const world *w = ctx;
    memcpy(payload, small_tile(w->pool, &w->layout, chunk, 0), w->layout.chunk_bytes);
}

static void scatter(void *ctx, int32_t chunk, const void *payload) {
    const world *w = ctx;
    memcpy(small_tile(w->pool, &w->layout, chunk, 0), payload, w->layout.chunk_bytes);
}

void world_open_tier(world *w) {
    disk_init(&w->disk);
    w->tier_alloc = ca_alloc_default();
    const ca_tier_config config = {.dir = "anywhere",
                                   .bytes = 1 << 20, /* few enough slots that records are replaced */
                                   .chunk_tokens = w->layout.c,
                                   .payload_bytes = w->layout.chunk_bytes,
                                   .chunks = {gather, scatter, w},
                                   .files = &w->disk.files,
                                   .no_thread = true};
    assert_int_equal(ca_tier_open(&w->tier, &config, &w->tier_alloc, NULL), CATTN_OK);
    w->tree->config.tier = w->tier;
}

void world_close_tier(world *w) {
    if (!w->tier) return;
    ca_tree_detach_tier(w->tree);
    ca_tier_close(&w->tier);
    assert_int_equal(w->tier_alloc.bytes, 0);
    disk_free(&w->disk);
}

void world_tier(world *w) {
    w->disk.read_error = world_below(w, 20) == 0 ? -EIO : 0;
    w->disk.lies_at = world_below(w, 20) == 0 ? (size_t)world_below(w, 8192) : SIZE_MAX;
    for (int64_t n = world_below(w, 8); n > 0; n--) ca_tier_work(w->tier);
    if (world_below(w, 2)) ca_tree_poll_tier(w->tree);
    for (int64_t n = world_skewed_below(w, 60); n > 0; n--) ca_budget_evict_one(w->tree);
}

/* Bytes by which a restore may grow what is not checked against the budget. */
static size_t restore_bytes(const world *w) { return 2 * (w->tree->restores.n + 16) * sizeof(ca_restore) + MAX_TOKENS; }

void world_restore(world *w, const model_seq *s) {
    if (!w->tier) return;
    ca_tree_poll_tier(w->tree);
    world_check(w);
    w->unchecked = restore_bytes(w);
    if (w->faulty) w->fault_in = (int)world_below(w, 8); /* a restore for which there is no memory does not begin */
    ca_tree_restore(w->tree, world_find(w, s), s->tokens, 0);
    w->fault_in = -1;
}

void world_write_behind(world *w, const model_seq *s) {
    if (!w->tier) return;
    ca_tree_write_behind(w->tree, world_find(w, s));
    memcpy(w->templates[world_below(w, N_TEMPLATES)], s->tokens, (size_t)s->n * sizeof *s->tokens); /* it comes back */
}
