/*
 * A tier of small chunks whose K/V are known: chunk memory in an array, and chains of chunks in which the tokens of chunk i of
 * chain `chain` are chain, i, and their K/V derive from both.
 */
#ifndef TESTS_CHUNKATTN_TIER_SMALL_TIER_H
#define TESTS_CHUNKATTN_TIER_SMALL_TIER_H

#include "tests/support/testing.h"

#include <string.h>

#include "chunkattn/tier/tier.h"
#include "disk.h"

enum { SMALL_TOKENS = 4, SMALL_PAYLOAD = 5000, SMALL_CELL = 12288, SMALL_CHUNKS = 64 };

typedef struct small_tier {
    disk disk;
    ca_alloc alloc;
    ca_tier *tier;
    uint8_t kv[SMALL_CHUNKS][SMALL_PAYLOAD];
} small_tier;

static inline void small_gather(void *ctx, int32_t chunk, void *payload) {
    const small_tier *s = ctx;
    memcpy(payload, s->kv[chunk], SMALL_PAYLOAD);
}

static inline void small_scatter(void *ctx, int32_t chunk, const void *payload) {
    small_tier *s = ctx;
    memcpy(s->kv[chunk], payload, SMALL_PAYLOAD);
}

static inline ca_tier_config small_config(small_tier *s, int n_cells) {
    return (ca_tier_config){.dir = "anywhere",
                            .bytes = (uint64_t)n_cells * SMALL_CELL,
                            .fingerprint = {1, 2},
                            .chunk_tokens = SMALL_TOKENS,
                            .payload_bytes = SMALL_PAYLOAD,
                            .chunks = {small_gather, small_scatter, s},
                            .files = &s->disk.files,
                            .no_thread = true};
}

/* Open the tier of n_cells again, on the disk as it is; without a thread. */
static inline void small_open(small_tier *s, int n_cells) {
    const ca_tier_config config = small_config(s, n_cells);
    assert_int_equal(ca_tier_open(&s->tier, &config, &s->alloc, NULL), CATTN_OK);
}

static inline void small_setup(small_tier *s, int n_cells) {
    memset(s, 0, sizeof *s);
    disk_init(&s->disk);
    s->alloc = ca_alloc_default();
    small_open(s, n_cells);
}

static inline void small_teardown(small_tier *s) {
    ca_tier_close(&s->tier);
    assert_int_equal(s->alloc.bytes, 0);
    disk_free(&s->disk);
}

/* [SMALL_TOKENS], valid until the next call. */
static inline const int32_t *small_tokens(int32_t chain, int32_t i) {
    static _Thread_local int32_t tokens[SMALL_TOKENS];
    tokens[0] = chain;
    tokens[1] = i;
    tokens[2] = tokens[3] = 7;
    return tokens;
}

static inline uint8_t small_byte(int32_t chain, int32_t i, int at) { return (uint8_t)(chain * 31 + i * 7 + at * 3 + at / 256); }

/* The key of chunk i of a chain; the root's for -1. */
static inline ca_tier_key small_key(small_tier *s, int32_t chain, int32_t i) {
    ca_tier_key key = ca_tier_root(s->tier, 0);
    for (int32_t at = 0; at <= i; at++) key = ca_tier_next(s->tier, key, small_tokens(chain, at));
    return key;
}

static inline bool small_has(small_tier *s, int32_t chain, int32_t i) { return ca_tier_has(s->tier, small_key(s, chain, i)); }

static inline bool small_write(small_tier *s, int32_t chain, int32_t i, int32_t chunk) {
    for (int at = 0; at < SMALL_PAYLOAD; at++) s->kv[chunk][at] = small_byte(chain, i, at);
    const ca_tier_key parent = small_key(s, chain, i - 1);
    return ca_tier_write(s->tier, parent, small_tokens(chain, i), chunk);
}

static inline bool small_read(small_tier *s, int32_t chain, int32_t i, int32_t chunk, uint64_t ticket) {
    memset(s->kv[chunk], 0xee, SMALL_PAYLOAD);
    const ca_tier_key parent = small_key(s, chain, i - 1);
    return ca_tier_read(s->tier, parent, small_tokens(chain, i), chunk, ticket);
}

static inline bool small_holds(const small_tier *s, int32_t chunk, int32_t chain, int32_t i) {
    for (int at = 0; at < SMALL_PAYLOAD; at++)
        if (s->kv[chunk][at] != small_byte(chain, i, at)) return false;
    return true;
}

static inline bool small_untouched(const small_tier *s, int32_t chunk) {
    for (int at = 0; at < SMALL_PAYLOAD; at++)
        if (s->kv[chunk][at] != 0xee) return false;
    return true;
}

static inline ca_tier_stats small_stats(small_tier *s) {
    ca_tier_stats stats;
    ca_tier_get_stats(s->tier, &stats);
    return stats;
}

/* Write a chunk and wait until it is in the file, or has failed. */
static inline void small_put(small_tier *s, int32_t chain, int32_t i) {
    assert_true(small_write(s, chain, i, 0));
    assert_true(ca_tier_flush(s->tier, 10));
}

/* Whether reading the chunk brings its K/V back. A read that is queued and fails leaves the chunk as it was. */
static inline bool small_get(small_tier *s, int32_t chain, int32_t i) {
    ca_tier_done done;
    if (!small_read(s, chain, i, 1, 99)) return false;
    assert_true(ca_tier_wait(s->tier, 10));
    assert_int_equal(ca_tier_poll(s->tier, &done, 1), 1);
    assert_true(done.ticket == 99 && done.chunk == 1);
    assert_true(done.ok ? small_holds(s, 1, chain, i) : small_untouched(s, 1));
    return done.ok;
}

#endif
