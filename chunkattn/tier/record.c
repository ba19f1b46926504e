/* Keys and checksums of records: see record.h. */
#include "record.h"

#include <assert.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* "CATTNKV1" where the least significant byte comes first; a machine of the other byte order refuses the record. */
#define RECORD_MAGIC 0x31564b4e54544143u

static ca_tier_key key_of(const void *bytes, size_t n) {
    const XXH128_hash_t hash = XXH3_128bits(bytes, n);
    return (ca_tier_key){hash.low64, hash.high64};
}

ca_tier_key ca_record_root(const ca_record_format *format, uint32_t domain) {
    const uint64_t words[3] = {format->fingerprint[0], format->fingerprint[1], domain};
    return (ca_tier_key){XXH3_64bits(words, sizeof words), 0};
}

ca_tier_key ca_record_mark(ca_tier_key before, const uint64_t *hashes, int32_t n) {
    struct {
        ca_tier_key before;
        uint64_t hashes[CA_RECORD_MAX_TOKENS];
    } name = {before, {0}};
    uint64_t any = 0;
    for (int32_t i = 0; i < n; i++) any |= name.hashes[i] = hashes[i];
    return any ? (ca_tier_key){XXH3_64bits(&name, sizeof name), 0} : before;
}

ca_tier_key ca_record_next(const ca_record_format *format, ca_tier_key parent, const int32_t *tokens) {
    struct {
        ca_tier_key parent;
        int32_t tokens[CA_RECORD_MAX_TOKENS];
    } name;
    const size_t n = (size_t)format->chunk_tokens;
    assert(n > 0 && n <= CA_RECORD_MAX_TOKENS);
    name.parent = parent;
    memcpy(name.tokens, tokens, n * sizeof *tokens);
    return key_of(&name, sizeof name.parent + n * sizeof *tokens);
}

static uint64_t header_hash(const ca_record_header *header) {
    return XXH3_64bits(header, offsetof(ca_record_header, header_hash));
}

void ca_record_seal(const ca_record_format *format, ca_record_header *header, const void *payload, ca_tier_key parent,
                    const int32_t *tokens, uint64_t sequence) {
    const ca_tier_key hash = key_of(payload, format->payload_bytes);
    *header = (ca_record_header){
        .magic = RECORD_MAGIC,
        .chunk_tokens = (uint32_t)format->chunk_tokens,
        .payload_bytes = format->payload_bytes,
        .fingerprint = {format->fingerprint[0], format->fingerprint[1]},
        .parent = parent,
        .key = ca_record_next(format, parent, tokens),
        .sequence = sequence,
        .payload_hash = {hash.low, hash.high},
    };
    memcpy(header->tokens, tokens, (size_t)format->chunk_tokens * sizeof *tokens);
    header->header_hash = header_hash(header);
}

void ca_record_add_extras(ca_record_header *header, const uint64_t *hashes, int32_t n) {
    memcpy(header->extras, hashes, (size_t)n * sizeof *hashes);
    header->header_hash = header_hash(header);
}

bool ca_record_header_valid(const ca_record_format *format, const ca_record_header *header) {
    return header->magic == RECORD_MAGIC && header->header_hash == header_hash(header) &&
           header->chunk_tokens == (uint32_t)format->chunk_tokens && header->payload_bytes == format->payload_bytes &&
           header->fingerprint[0] == format->fingerprint[0] && header->fingerprint[1] == format->fingerprint[1] &&
           ca_tier_key_equal(header->key, ca_record_next(format, header->parent, header->tokens));
}

bool ca_record_valid(const ca_record_format *format, const ca_record_header *header, const void *payload, ca_tier_key parent,
                     const int32_t *tokens) {
    if (!ca_record_header_valid(format, header) || !ca_tier_key_equal(header->parent, parent) ||
        memcmp(header->tokens, tokens, (size_t)format->chunk_tokens * sizeof *tokens) != 0)
        return false;
    return ca_tier_key_equal(key_of(payload, format->payload_bytes),
                             (ca_tier_key){header->payload_hash[0], header->payload_hash[1]});
}
