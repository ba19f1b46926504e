/*
 * Records: the K/V of one full chunk with everything that is needed to recognise and to verify them.
 *
 * A record is a header of 4096 bytes, followed by the payload: the chunk's tiles as the cache keeps them. All numbers are in
 * the byte order of the machine.
 *
 *      0  magic, chunk size, payload bytes
 *     24  fingerprint                  of everything that K/V depend on beside tokens: model, build, options of the cache
 *     40  parent                       key of the chunk before it
 *     56  key                          of this chunk
 *     72  sequence                     number of the write, which orders the records of a file
 *     80  payload_hash                 XXH3-128 of the payload
 *     96  tokens                       of the chunk
 *   1120  extras                       their extra hashes, in an export; zeros where tokens have none
 *         zeros
 *   4088  header_hash                  XXH3-64 of the 4088 bytes before it
 *   4096  payload
 *
 * Keys are chained: a chunk's key is the XXH3-128 of its parent's key and its tokens, and the parent of a first chunk is a
 * root, the XXH3-64 of the fingerprint and the domain. So the key names all tokens up to the chunk's end. It is not
 * cryptographic, hence a key alone is never trusted: a record that is used has the tokens and the parent that its reader
 * expects, and by induction the tokens before it. The hashes find damage, not forgery: who can write the file can write any K/V
 * into it.
 *
 * Tokens may have extra hashes (cattn_join_options). A chunk that has some begins a chain of its own: its parent is a root, the
 * XXH3-64 of the key of the chunk before it and of the hashes.
 *
 * These functions keep no state. They may be called by any threads at once.
 */
#ifndef CHUNKATTN_TIER_RECORD_H
#define CHUNKATTN_TIER_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CA_RECORD_HEADER_BYTES = 4096, CA_RECORD_MAX_TOKENS = 256 };

/* The name of a chunk's K/V: of all tokens up to its end, their domain and the fingerprint. */
typedef struct ca_tier_key {
    uint64_t low, high;
} ca_tier_key;

static inline bool ca_tier_key_equal(ca_tier_key a, ca_tier_key b) { return a.low == b.low && a.high == b.high; }

/* Whether a key is a root's. Of a chunk's key, `high` is 0 with probability 2^-64; the chunk is then written to no purpose. */
static inline bool ca_tier_key_is_root(ca_tier_key key) { return key.high == 0; }

/* What all records of a file or a stream have in common. */
typedef struct ca_record_format {
    uint64_t fingerprint[2];
    int32_t chunk_tokens; /* at most CA_RECORD_MAX_TOKENS */
    size_t payload_bytes;
} ca_record_format;

typedef struct ca_record_header {
    uint64_t magic;
    uint32_t chunk_tokens, unused;
    uint64_t payload_bytes;
    uint64_t fingerprint[2];
    ca_tier_key parent, key;
    uint64_t sequence;
    uint64_t payload_hash[2];
    int32_t tokens[CA_RECORD_MAX_TOKENS]; /* zeros after chunk_tokens */
    uint64_t extras[CA_RECORD_MAX_TOKENS];
    uint8_t zeros[CA_RECORD_HEADER_BYTES - 104 - 12 * CA_RECORD_MAX_TOKENS];
    uint64_t header_hash;
} ca_record_header;

_Static_assert(sizeof(ca_record_header) == CA_RECORD_HEADER_BYTES, "a header fills its bytes without padding");

/* The key that a first chunk has as its parent. */
ca_tier_key ca_record_root(const ca_record_format *format, uint32_t domain);

/* The key that a chunk has as its parent, after the chunk with the key `before`, where its n tokens have these hashes [n]. */
ca_tier_key ca_record_mark(ca_tier_key before, const uint64_t *hashes, int32_t n);

/* The key of the chunk with these tokens [chunk_tokens] after the chunk with the key `parent`. */
ca_tier_key ca_record_next(const ca_record_format *format, ca_tier_key parent, const int32_t *tokens);

/* Fill the header for a payload. tokens: [chunk_tokens], copied. Reads the whole payload. */
void ca_record_seal(const ca_record_format *format, ca_record_header *header, const void *payload, ca_tier_key parent,
                    const int32_t *tokens, uint64_t sequence);

/* Add the extra hashes [n] of the tokens to a sealed header. */
void ca_record_add_extras(ca_record_header *header, const uint64_t *hashes, int32_t n);

/*
 * Whether the header is undamaged and of this format, and its key that of its parent and tokens. Says nothing of the payload.
 */
bool ca_record_header_valid(const ca_record_format *format, const ca_record_header *header);

/*
 * Whether the header is valid and that of the chunk with these tokens [chunk_tokens] after `parent`, and the payload is the one
 * that the header was sealed for. Reads the whole payload.
 */
bool ca_record_valid(const ca_record_format *format, const ca_record_header *header, const void *payload, ca_tier_key parent,
                     const int32_t *tokens);

#endif
