/* Writing an export: its header, and records that are gathered from a sequence's chunks: see export.h. */
#include "export.h"

#include <string.h>

#include "chunkattn/attn/kv_copy.h"
#include "chunkattn/base/fail.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* "CATTNEX1" where the least significant byte comes first. */
#define EXPORT_MAGIC 0x3158454e54544143u

uint64_t ca_export_header_hash(const ca_export_header *header) { return XXH3_64bits(header, offsetof(ca_export_header, hash)); }

ca_export_header ca_export_header_of(const cattn_cache *c, int64_t n_tokens) {
    const ca_chunk_layout *l = &c->layout;
    const ca_shape *first = ca_shape_of(l, 0);
    ca_export_header header = {.magic = EXPORT_MAGIC,
                               .n_tokens = n_tokens,
                               .kv_type = (int32_t)l->type,
                               .chunk_size = l->c,
                               .n_layers = l->n_layers,
                               .n_heads = first->n_heads,
                               .n_kv_heads = first->n_kv_heads,
                               .head_dim = first->tiles.d_k,
                               .head_dim_v = first->tiles.d_v,
                               .model = {c->model[0], c->model[1]},
                               .fingerprint = {c->record.fingerprint[0], c->record.fingerprint[1]}};
    strncpy(header.version, cattn_version(), sizeof header.version - 1);
    strncpy(header.level, c->compute.level, sizeof header.level - 1);
    header.hash = ca_export_header_hash(&header);
    return header;
}

/* ---- Records ---- */

/* Gather K and V of n tokens from position `start` on, the first of an absolute chunk, with closed slot groups. */
static void gather(const cattn_cache *c, const ca_seq *seq, int64_t start, int64_t n, char *payload) {
    const ca_chunk_layout *l = &c->layout;
    ca_place places[CA_MAX_PLACES];
    const int32_t n_places = ca_path_places(c->tree, seq->leaf, start, start + n, places);
    const bool whole = n_places == 1 && n == l->c && ca_chunk_open(c->pool, places[0].chunk) == 0;
    if (!whole) memset(payload, 0, c->record.payload_bytes);
    for (int32_t layer = 0, head = -1; ca_next_tile(l, &layer, &head);) {
        const ca_tile_at tile = ca_tile_of(l, layer, head);
        for (int32_t i = 0; i < n_places; i++) {
            void *from = ca_chunk_tile(c->pool, places[i].chunk, tile);
            const uint32_t open = ca_chunk_open(c->pool, places[i].chunk);
            if (whole)
                memcpy(payload + tile.begin, from, tile.bytes);
            else
                ca_kv_copy_tile(&ca_shape_of(l, layer)->tiles, (ca_kv_tile){payload + tile.begin, 0}, (ca_kv_tile){from, open},
                                places[i].begin, places[i].end);
        }
    }
}

cattn_status ca_export(cattn_cache *c, const ca_seq *seq, int64_t n_tokens,
                       int (*write)(void *ctx, const void *bytes, size_t n_bytes), void *ctx, cattn_error *error) {
    const uint64_t n_records = ca_export_n_records(c, n_tokens);
    const size_t record_bytes = (size_t)ca_export_record_bytes(c);
    ca_alloc beside_budget = c->alloc;
    char *record = ca_new(&beside_budget, 1, record_bytes);
    if (!record) return ca_fail(error, CATTN_ERR_NOMEM, -1, "export: no memory for a record of %zu bytes", record_bytes);
    ca_kv_carry_out(ca_tree_pending(c->tree)); /* what is copied must be there */

    const ca_export_header header = ca_export_header_of(c, n_tokens);
    cattn_status status = CATTN_OK;
    uint64_t n_written = 0;
    if (write(ctx, &header, sizeof header)) status = CATTN_ERR_WRITE;
    ca_tier_key key = ca_record_root(&c->record, 0);
    for (uint64_t i = 0; status == CATTN_OK && i < n_records; i++) {
        int32_t tokens[CA_RECORD_MAX_TOKENS] = {0};
        uint64_t extras[CA_RECORD_MAX_TOKENS] = {0};
        const int64_t start = (int64_t)i * c->layout.c, n = ca_min(n_tokens - start, c->layout.c);
        ca_seq_tokens(seq, start, n, tokens);
        ca_tree_show_extras(c->tree, tokens, extras, n);
        gather(c, seq, start, n, record + CA_RECORD_HEADER_BYTES);
        ca_record_header *sealed = (ca_record_header *)(void *)record;
        const ca_tier_key parent = ca_record_mark(key, extras, c->layout.c);
        ca_record_seal(&c->record, sealed, record + CA_RECORD_HEADER_BYTES, parent, tokens, i);
        ca_record_add_extras(sealed, extras, c->layout.c);
        key = sealed->key;
        if (write(ctx, record, record_bytes)) status = CATTN_ERR_WRITE;
        n_written += status == CATTN_OK;
    }
    ca_delete(&beside_budget, record, 1, record_bytes);
    if (status == CATTN_OK) return CATTN_OK;
    return ca_fail(error, status, -1, "export: `write` has stopped it after %llu of %llu records",
                   (unsigned long long)n_written, (unsigned long long)n_records);
}
