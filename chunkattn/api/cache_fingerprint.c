/* The fingerprint of a cache, which the file tier and exports carry: see cache_fingerprint.h. */
#include "cache_fingerprint.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* What is hashed of an array that may be absent. */
static void add_array(XXH3_state_t *state, const void *array, size_t bytes) {
    const uint8_t present = array != NULL;
    XXH3_128bits_update(state, &present, sizeof present);
    if (array) XXH3_128bits_update(state, array, bytes);
}

static void add_text(XXH3_state_t *state, const char *text) { XXH3_128bits_update(state, text, strlen(text) + 1); }

static void add_layer(XXH3_state_t *state, const ca_chunk_layout *l, int32_t layer) {
    const ca_shape *s = ca_shape_of(l, layer);
    const int32_t numbers[] = {s->n_heads,   s->n_kv_heads,       s->tiles.d_k,
                               s->tiles.d_v, s->tiles.open_words, l->layers[layer].source};
    XXH3_128bits_update(state, numbers, sizeof numbers);
    XXH3_128bits_update(state, &s->scale, sizeof s->scale);
}

/*
 * Everything of this library and of the configuration on which the K/V of a token depend: by their layout, or because the
 * output of one layer is the input of the next. The caller's fingerprint stands for the model and the program.
 */
static XXH128_hash_t fingerprint_of(const cattn_cache *c, const cattn_config *config) {
    const ca_chunk_layout *l = &c->layout;
    const size_t n_layers = (size_t)l->n_layers;
    const int32_t numbers[] = {(int32_t)l->type, l->n_layers, l->c, CA_SEGMENT, CA_SLOT_GROUP, config->n_sink_tokens};
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, config->tier_fingerprint, sizeof config->tier_fingerprint);
    add_text(&state, cattn_version());
    add_text(&state, c->compute.level);
    XXH3_128bits_update(&state, numbers, sizeof numbers);
    XXH3_128bits_update(&state, &config->softcap, sizeof config->softcap);
    for (int32_t layer = 0; layer < l->n_layers; layer++) add_layer(&state, l, layer);
    add_array(&state, config->windows, n_layers * sizeof *config->windows);
    add_array(&state, config->sink_logits, (size_t)l->n_heads * sizeof *config->sink_logits);
    add_array(&state, config->alibi_slopes, (size_t)ca_shape_of(l, 0)->n_heads * sizeof *config->alibi_slopes);
    return XXH3_128bits_digest(&state);
}

void ca_fingerprint_init(cattn_cache *c, const cattn_config *config) {
    const XXH128_hash_t hash = fingerprint_of(c, config);
    c->record = (ca_record_format){{hash.high64, hash.low64}, c->layout.c, c->layout.chunk_bytes};
    c->model[0] = config->tier_fingerprint[0];
    c->model[1] = config->tier_fingerprint[1];
}
