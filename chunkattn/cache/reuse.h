/*
 * The history of prefixes: how they come back, what it is therefore worth to retain a chunk, and which were evicted.
 *
 * The history knows prefixes by a hash of all their tokens. Of those that fill a chunk it remembers, also after their eviction,
 * when a sequence last left with them and how many sequences have used them. Chunks that were used once are one class, those
 * that were used more often the other. For each class the ages are counted at which chunks were used again. The age is the time
 * since the last use on the tree's clock, which advances by about one for each chunk of a prompt that joins.
 *
 * The worth of a chunk of a class and an age is the largest, over all ages until which it might be kept, of
 *
 *   uses that are expected until then / time for which it is expected to be kept
 *
 * This is the Gittins index. It falls with the age where chunks return soon or never, so the oldest is evicted first; it rises
 * where they return after a fixed time, as with cyclic prompts, so the youngest is; and it is low for the class of new chunks
 * where most prompts never come back.
 *
 * Evicting by worth leaves 21 % fewer tokens of the request files to compute than the order of least recent use; without the
 * memory of evicted chunks it would be 16 %, and with one class 11 % (docs/experiments.md, "Retention").
 */
#ifndef CHUNKATTN_CACHE_REUSE_H
#define CHUNKATTN_CACHE_REUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkattn/base/alloc.h"

enum {
    CA_USE_CLASSES = 2, /* used once, and more often */
    CA_AGES = 48        /* age i is from 2^(i/2) up to, but not including, 2^((i+1)/2) */
};

/* A prefix; all zero: the entry is free. */
typedef struct ca_history_entry {
    uint32_t hash;
    uint32_t last_use; /* the clock when a sequence last left with the chunk that the prefix fills, or when it was evicted */
    uint32_t n_uses;   /* of that chunk */
    uint32_t evicted;  /* the tree's time at which its last tokens were evicted, and one more; 0: never */
} ca_history_entry;

/* Owned by the tree. */
typedef struct ca_reuse {
    ca_history_entry *history; /* [n_sets][ways] */
    size_t n_sets;             /* a power of two; 0: nothing is remembered */
    double n_chunks[CA_USE_CLASSES];
    double n_reused[CA_USE_CLASSES][CA_AGES]; /* of these chunks, those that were used again at that age */
    double worth[CA_USE_CLASSES][CA_AGES];
    uint32_t memory;   /* clock ticks after which the counts are halved */
    uint32_t halved;   /* the clock when they were last halved */
    uint32_t n_leaves; /* sequences that have left */
} ca_reuse;

/*
 * Start without knowledge, for a cache of n_chunks chunks of chunk_bytes bytes: the worth falls with the age, and is lower
 * where chunks were used once. The history takes at most a 512th of these bytes, or 8 KB. Returns 0, or -1 without memory.
 */
int ca_reuse_init(ca_reuse *reuse, ca_alloc *alloc, size_t n_chunks, size_t chunk_bytes);
void ca_reuse_free(ca_reuse *reuse, ca_alloc *alloc);

/* What n tokens [n] from position `first` on add to the hash of a prefix, which is the sum over its tokens. */
uint32_t ca_reuse_hash(const int32_t *tokens, int64_t first, int64_t n);

/* A sequence that joined at clock `joined` leaves at clock `now` with a full chunk. Returns the chunk's number of uses. */
uint32_t ca_reuse_note(ca_reuse *reuse, uint32_t hash, uint32_t joined, uint32_t now);

/* It has left. From time to time this forgets a part of the counts and updates the worth. */
void ca_reuse_note_leave(ca_reuse *reuse, uint32_t now);

/* The prefix with this hash has been evicted, at a time of the tree and of its clock; and when that was, if it is known. */
void ca_reuse_note_evicted(ca_reuse *reuse, uint32_t hash, uint32_t now, uint32_t time);
bool ca_reuse_find_evicted(const ca_reuse *reuse, uint32_t hash, uint32_t *time);

static inline int ca_use_class(uint32_t n_uses) { return n_uses > 1; }

/* Expected uses for each chunk and clock tick. */
double ca_reuse_worth(const ca_reuse *reuse, int use_class, uint64_t age);

#endif
