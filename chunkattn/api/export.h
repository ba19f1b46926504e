/*
 * Exports: the K/V of a sequence's first tokens as bytes, which a cache of the same kind can import.
 *
 *      0  header, CA_EXPORT_HEADER_BYTES bytes
 *    256  a record (chunkattn/tier/record.h) for each absolute chunk, ascending
 *
 * Slot groups are closed. The last record may have tokens for some of its slots only; its other slots and tokens are zero. Keys
 * are chained from the root of domain 0, since the importer chooses a domain of its own. So the bytes depend on the tokens,
 * their extra hashes and their K/V alone.
 *
 * One thread at a time may call these functions for a cache. It is on the CPU, and no step is open.
 */
#ifndef CHUNKATTN_API_EXPORT_H
#define CHUNKATTN_API_EXPORT_H

#include "cache_handle.h"

enum { CA_EXPORT_HEADER_BYTES = 256 };

/* What the bytes are, and what their K/V depend on. The fingerprint is the hash of that and of the options. */
typedef struct ca_export_header {
    uint64_t magic;
    int64_t n_tokens;
    int32_t kv_type, chunk_size, n_layers, n_heads, n_kv_heads, head_dim, head_dim_v, unused;
    uint64_t model[2]; /* the caller's fingerprint */
    uint64_t fingerprint[2];
    char version[16], level[32]; /* zeros after the text */
    uint8_t zeros[CA_EXPORT_HEADER_BYTES - 136];
    uint64_t hash; /* XXH3-64 of all bytes before it */
} ca_export_header;

_Static_assert(sizeof(ca_export_header) == CA_EXPORT_HEADER_BYTES, "a header fills its bytes without padding");

/* The header of an export of n_tokens tokens from this cache, and the hash that belongs to a header. */
ca_export_header ca_export_header_of(const cattn_cache *cache, int64_t n_tokens);
uint64_t ca_export_header_hash(const ca_export_header *header);

/* Number of records of n_tokens >= 1 tokens, bytes of one, and bytes of the export. */
static inline uint64_t ca_export_n_records(const cattn_cache *cache, int64_t n_tokens) {
    return ((uint64_t)n_tokens - 1) / (uint64_t)cache->layout.c + 1;
}
static inline uint64_t ca_export_record_bytes(const cattn_cache *cache) {
    return CA_RECORD_HEADER_BYTES + cache->record.payload_bytes;
}
static inline uint64_t ca_export_bytes(const cattn_cache *cache, int64_t n_tokens) {
    return CA_EXPORT_HEADER_BYTES + ca_export_n_records(cache, n_tokens) * ca_export_record_bytes(cache);
}

/* As cattn_seq_export, with checked arguments. */
cattn_status ca_export(cattn_cache *cache, const ca_seq *seq, int64_t n_tokens,
                       int (*write)(void *ctx, const void *bytes, size_t n_bytes), void *ctx, cattn_error *error);

/* As cattn_seq_import, with checked arguments but for the bytes. */
cattn_status ca_import(cattn_cache *cache, const void *bytes, size_t n_bytes, const cattn_join_options *options, cattn_seq *seq,
                       cattn_join_result *result, cattn_error *error);

#endif
