/* Reading an export: verifying all of it, then joining with its tokens and scattering their K/V: see export.h. */
#include <string.h>

#include "chunkattn/attn/kv_copy.h"
#include "chunkattn/base/fail.h"
#include "export.h"
#include "file_tier.h"

/* ---- Verifying ---- */

/* A number on which two kinds of cache may differ. */
static cattn_status check_number(const char *field, int32_t export, int32_t cache, cattn_error *error) {
    if (export == cache) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_DATA, -1, "the export has %s %d, the cache %d; import it into a cache of the same kind",
                   field, export, cache);
}

/* The same for a text [size] that ends in zeros. */
static cattn_status check_text(const char *what, const char *export, const char *cache, int size, cattn_error *error) {
    if (memcmp(export, cache, (size_t)size) == 0) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_DATA, -1, "the export is of %s %.*s, the cache of %.*s; K/V of one need not be the other's",
                   what, size, export, size, cache);
}

/* Whether the cache is of the kind of the one that has written the header. */
static cattn_status check_kind(const ca_export_header *h, const ca_export_header *own, cattn_error *error) {
    cattn_status s;
    if ((s = check_text("libchunkattn", h->version, own->version, sizeof h->version, error)) ||
        (s = check_number("kv_type", h->kv_type, own->kv_type, error)) ||
        (s = check_number("chunk_size", h->chunk_size, own->chunk_size, error)) ||
        (s = check_number("n_layers", h->n_layers, own->n_layers, error)) ||
        (s = check_number("n_heads", h->n_heads, own->n_heads, error)) ||
        (s = check_number("n_kv_heads", h->n_kv_heads, own->n_kv_heads, error)) ||
        (s = check_number("head_dim", h->head_dim, own->head_dim, error)) ||
        (s = check_number("head_dim_v", h->head_dim_v, own->head_dim_v, error)) ||
        (s = check_text("kernel level", h->level, own->level, sizeof h->level, error)))
        return s;
    if (memcmp(h->model, own->model, sizeof h->model) != 0)
        return ca_fail(error, CATTN_ERR_DATA, -1, "the export has another tier_fingerprint: it is of another model or program");
    if (memcmp(h->fingerprint, own->fingerprint, sizeof h->fingerprint) != 0)
        return ca_fail(error, CATTN_ERR_DATA, -1,
                       "the exporting cache has another scale, softcap, windows, n_sink_tokens, sink_logits, alibi_slopes, "
                       "kv_source or shape of its layers");
    return CATTN_OK;
}

/* Check the header and the number of bytes, and set *n_tokens. */
static cattn_status check_header(const cattn_cache *c, const char *bytes, size_t n_bytes, int64_t *n_tokens,
                                 cattn_error *error) {
    const ca_export_header own = ca_export_header_of(c, 1);
    ca_export_header h;
    if (n_bytes < sizeof h)
        return ca_fail(error, CATTN_ERR_DATA, -1, "n_bytes is %zu; the header of an export alone has %zu", n_bytes, sizeof h);
    memcpy(&h, bytes, sizeof h);
    if (h.magic != own.magic) return ca_fail(error, CATTN_ERR_DATA, -1, "the bytes do not begin as an export");
    if (h.hash != ca_export_header_hash(&h)) return ca_fail(error, CATTN_ERR_DATA, -1, "the header of the export is damaged");
    const cattn_status s = check_kind(&h, &own, error);
    if (s) return s;
    /* As records, since the bytes of a length that no memory holds might overflow. */
    const uint64_t record_bytes = ca_export_record_bytes(c), n_records = (n_bytes - sizeof h) / record_bytes;
    if (h.n_tokens < 1 || n_records != ca_export_n_records(c, h.n_tokens) || (n_bytes - sizeof h) % record_bytes != 0)
        return ca_fail(error, CATTN_ERR_DATA, -1,
                       "n_bytes is %zu, which is not that of an export of %lld tokens: it is cut off, or more follows", n_bytes,
                       (long long)h.n_tokens);
    *n_tokens = h.n_tokens;
    return CATTN_OK;
}

/* Verify all records, and copy their tokens to tokens [n_tokens]. */
static cattn_status check_records(const cattn_cache *c, const char *records, int64_t n_tokens, int32_t *tokens,
                                  cattn_error *error) {
    ca_tier_key parent = ca_record_root(&c->record, 0);
    ca_record_header h;
    for (int64_t at = 0, i = 0; at < n_tokens; at += c->layout.c, i++, records += ca_export_record_bytes(c)) {
        memcpy(&h, records, sizeof h);
        parent = ca_record_mark(parent, h.extras, c->layout.c);
        if (!ca_record_valid(&c->record, &h, records + sizeof h, parent, h.tokens))
            return ca_fail(error, CATTN_ERR_DATA, (int32_t)i, "record %lld of the export, from token %lld on, is damaged",
                           (long long)i, (long long)at);
        parent = h.key;
        const int64_t n = ca_min(n_tokens - at, c->layout.c);
        for (int64_t k = 0; k < n; k++)
            if (h.tokens[k] < 0)
                return ca_fail(error, CATTN_ERR_DATA, (int32_t)i, "token %lld of the export is %d; tokens are not negative",
                               (long long)(at + k), h.tokens[k]);
        memcpy(tokens + at, h.tokens, (size_t)n * sizeof *tokens);
    }
    return CATTN_OK;
}

/* Replace the tokens of records that have extra hashes by their ids, which the caller's ca_tree_end_hold_extras frees. */
static cattn_status hold_extras(const cattn_cache *c, const char *records, int64_t n_tokens, int32_t *tokens,
                                cattn_error *error) {
    uint64_t hash;
    cattn_status s = CATTN_OK;
    for (int64_t i = 0; s == CATTN_OK && i < n_tokens; i++) {
        const char *record = records + (uint64_t)(i / c->layout.c) * ca_export_record_bytes(c);
        memcpy(&hash, record + offsetof(ca_record_header, extras) + (size_t)(i % c->layout.c) * sizeof hash, sizeof hash);
        if (hash != 0) s = ca_tree_hold_extras(c->tree, &tokens[i], 1, hash);
    }
    if (s == CATTN_OK) return CATTN_OK;
    return ca_fail(error, s, -1, "import: no memory, or none within budget_bytes, for the extra hashes of %lld tokens",
                   (long long)n_tokens);
}

/* ---- Scattering ---- */

/* Copy a payload's slots to places [n] of the cache. staging: aligned, for a K tile and its V tile. */
static void scatter(const cattn_cache *c, const char *payload, const ca_place *places, int32_t n, void *staging) {
    const ca_chunk_layout *l = &c->layout;
    const bool whole = n == 1 && places->begin == 0 && places->end == l->c && ca_chunk_open(c->pool, places->chunk) == 0;
    for (int32_t layer = 0, head = -1; ca_next_tile(l, &layer, &head);) {
        const ca_tile_at tile = ca_tile_of(l, layer, head);
        const char *from = payload + tile.begin;
        if (whole) {
            memcpy(ca_chunk_tile(c->pool, places->chunk, tile), from, tile.bytes);
            continue;
        }
        memcpy(staging, from, tile.bytes); /* the caller's bytes may have any alignment */
        for (int32_t i = 0; i < n; i++) {
            const ca_kv_tile to = {ca_chunk_tile(c->pool, places[i].chunk, tile), ca_chunk_open(c->pool, places[i].chunk)};
            ca_kv_copy_tile(&ca_shape_of(l, layer)->tiles, to, (ca_kv_tile){staging, 0}, places[i].begin, places[i].end);
        }
    }
}

/* Bring the K/V of a sequence that has joined with the tokens of the records, and make them ready. */
static void bring(cattn_cache *c, const ca_seq *seq, const char *records, void *staging) {
    const int64_t chunk = c->layout.c;
    for (int64_t begin = ca_tree_begin_import(c->tree, seq), end; begin < seq->n_tokens; begin = end) {
        const int64_t i = begin / chunk;
        end = ca_min((i + 1) * chunk, seq->n_tokens);
        ca_place places[CA_MAX_PLACES];
        const int32_t n = ca_tree_places_to_write(c->tree, seq, begin, end, places);
        const char *record = records + (uint64_t)i * ca_export_record_bytes(c);
        scatter(c, record + CA_RECORD_HEADER_BYTES, places, n, staging);
    }
    ca_tree_end_import(c->tree, seq);
}

cattn_status ca_import(cattn_cache *c, const void *bytes, size_t n_bytes, const cattn_join_options *options, cattn_seq *seq,
                       cattn_join_result *result, cattn_error *error) {
    const char *records = (const char *)bytes + CA_EXPORT_HEADER_BYTES;
    int64_t n_tokens;
    cattn_status status = check_header(c, bytes, n_bytes, &n_tokens, error);
    if (status) return status;
    ca_alloc beside_budget = c->alloc;
    int32_t *tokens = ca_new(&beside_budget, (size_t)n_tokens, sizeof *tokens);
    void *staging = ca_new(&beside_budget, 1, c->layout.tile_bytes);
    bool held = false;
    if (tokens && staging)
        status = check_records(c, records, n_tokens, tokens, error);
    else
        status = ca_fail(error, CATTN_ERR_NOMEM, -1, "import: no memory for %lld tokens and a tile", (long long)n_tokens);
    if (status == CATTN_OK) {
        held = true;
        status = hold_extras(c, records, n_tokens, tokens, error);
    }
    if (status == CATTN_OK) status = ca_tree_open_account(c->tree, options->account, (double)options->account_weight, error);
    if (status == CATTN_OK) {
        ca_file_tier_poll(c);
        status = ca_tree_join(c->tree, tokens, n_tokens, options->domain, options->reserve_tokens, 0, seq, result, error);
    }
    if (status == CATTN_OK) {
        ca_seq *joined = ca_tree_find(c->tree, *seq);
        joined->account = (uint16_t)options->account;
        joined->no_tier = options->flags & CATTN_JOIN_NO_TIER;
        bring(c, joined, records, staging);
    }
    if (held) ca_tree_end_hold_extras(c->tree, tokens, n_tokens);
    ca_delete(&beside_budget, staging, 1, c->layout.tile_bytes);
    ca_delete(&beside_budget, tokens, (size_t)n_tokens, sizeof *tokens);
    return status;
}
