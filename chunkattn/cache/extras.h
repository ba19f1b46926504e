/*
 * Tokens with an extra hash: what K/V depend on beside the tokens, such as an image in whose place tokens stand, or an adapter.
 *
 * The tree compares ids. The id of a token without an extra hash, or with the hash 0, is the token itself. Each pair of a token
 * and another hash gets a negative id, as long as the tree has it. So a search costs the same with and without extra hashes,
 * and all that the tree says of tokens holds for these pairs.
 *
 * An id follows from a hash of the pair, so that a pair which comes again most often has the same one (explain.c). Where two
 * pairs collide, the second one gets the next id that is free. If the first has gone meanwhile, the second may get another id
 * when it comes again; this costs a match, and nothing else.
 *
 * One thread at a time may use a table.
 */
#ifndef CHUNKATTN_CACHE_EXTRAS_H
#define CHUNKATTN_CACHE_EXTRAS_H

#include <stddef.h>
#include <stdint.h>

#include "chunkattn/base/alloc.h"

typedef struct ca_extra {
    int32_t id; /* 0: the place is free */
    int32_t token;
    uint64_t hash;
    int64_t refs; /* places in the tree that have the id, and holds */
} ca_extra;

/* All zero: empty. */
typedef struct ca_extras {
    ca_extra *at; /* [size] hashed by id with linear probing */
    size_t n, size;
} ca_extras;

void ca_extras_free(ca_extras *extras, ca_alloc *alloc);

/* The bytes of a larger table, and growing to it. Returns 0, or -1 without memory. */
size_t ca_extras_growth(const ca_extras *extras);
int ca_extras_grow(ca_extras *extras, ca_alloc *alloc);

/* Replace tokens [n] by the ids that their pairs with a hash, which is not 0, have or would get. */
void ca_extras_find(const ca_extras *extras, int32_t *tokens, int64_t n, uint64_t hash);

/*
 * The same, but all these ids stay until ca_extras_end_hold, which ignores tokens that are no ids of pairs. Returns how many of
 * them have been replaced, the first ones, before the table would have to grow.
 */
int64_t ca_extras_hold(ca_extras *extras, int32_t *tokens, int64_t n, uint64_t hash);
void ca_extras_end_hold(ca_extras *extras, const int32_t *ids, int64_t n);

/* The tree has n more places with these ids [n], or has them no more. The ids are there. */
void ca_extras_ref(ca_extras *extras, const int32_t *ids, int64_t n);
void ca_extras_unref(ca_extras *extras, const int32_t *ids, int64_t n);

/* Replace ids [n] by their tokens. hashes: [n] gets their hashes; NULL if they are not wanted. */
void ca_extras_show(const ca_extras *extras, int32_t *ids, uint64_t *hashes, int64_t n);

#endif
