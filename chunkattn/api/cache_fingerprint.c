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

/*
 * Everything of this library and of the configuration on which the K/V of a token depend: by their layout, or because the
 * output of one layer is the input of the next. The caller's fingerprint stands for the model and the program.
 */
static XXH128_hash_t fingerprint_of(const cattn_cache *c, const cattn_config *config) {
    const ca_layout *l = &c->layout;
    const size_t n_layers = (size_t)l->n_layers, n_heads = (size_t)config->n_heads;
    const int32_t numbers[] = {(int32_t)l->type, l->n_layers, config->n_heads, l->n_kv_heads,        l->d_k, l->d_v, l->c,
                               l->open_words,    CA_SEGMENT,  CA_SLOT_GROUP,   config->n_sink_tokens};
    const float reals[] = {config->scale, config->softcap};
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    XXH3_128bits_update(&state, config->tier_fingerprint, sizeof config->tier_fingerprint);
    add_text(&state, cattn_version());
    add_text(&state, c->compute.level);
    XXH3_128bits_update(&state, numbers, sizeof numbers);
    XXH3_128bits_update(&state, reals, sizeof reals);
    add_array(&state, config->windows, n_layers * sizeof *config->windows);
    add_array(&state, config->sink_logits, n_layers * n_heads * sizeof *config->sink_logits);
    add_array(&state, config->alibi_slopes, n_heads * sizeof *config->alibi_slopes);
    return XXH3_128bits_digest(&state);
}

void ca_fingerprint_init(cattn_cache *c, const cattn_config *config) {
    const XXH128_hash_t hash = fingerprint_of(c, config);
    c->record = (ca_record_format){{hash.high64, hash.low64}, c->layout.c, c->layout.chunk_bytes};
    c->model[0] = config->tier_fingerprint[0];
    c->model[1] = config->tier_fingerprint[1];
}
