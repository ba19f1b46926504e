/* The fingerprint of a model's files, and their sample. */
#include <stdlib.h>

#include "model_file_data.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { BLOCK_BYTES = 1 << 20 };                  /* bytes that are read at once */
enum { SAMPLE_BYTES = 4096, MOST_SAMPLES = 64 }; /* of a file */

static void add(XXH3_state_t *state, const void *data, size_t n) {
    const uint64_t size = n;
    XXH3_128bits_update(state, &size, sizeof size);
    XXH3_128bits_update(state, data, n);
}

/* The name and the value of a key, which in other formats than GGUF are in no file. */
static void add_key(XXH3_state_t *state, const cl_meta_key *key) {
    const uint32_t types[] = {key->type, key->elem};
    add(state, key->name.data, key->name.size);
    add(state, types, sizeof types);
    const size_t n = key->type == CL_META_ARRAY ? key->n : 1;
    if (key->strings)
        for (size_t i = 0; i < n; i++) add(state, key->strings[i].data, key->strings[i].size);
    else
        add(state, key->raw, n * cl_meta_size(key->type == CL_META_ARRAY ? key->elem : key->type));
}

/* The size of a file, and of every `distance` bytes the first ones, as many as bytes [n_bytes] holds. */
static bool add_file(XXH3_state_t *state, const cl_file_bytes *file, unsigned char *bytes, size_t n_bytes, size_t distance) {
    const uint64_t size = file->size;
    XXH3_128bits_update(state, &size, sizeof size);
    for (size_t at = 0; at < file->size; at += distance) {
        const size_t n = file->size - at < n_bytes ? file->size - at : n_bytes;
        if (!cl_file_bytes_copy(file, file->data + at, n, bytes)) return false;
        XXH3_128bits_update(state, bytes, n);
    }
    return true;
}

static cl_status unreadable(cl_error *error) {
    return cl_fail(error, CL_ERR_FILE, "a file of the model cannot be read, or is shorter than when it was opened");
}

cl_status cl_model_file_fingerprint(const cl_model_file *file, uint64_t fingerprint[2], cl_error *error) {
    unsigned char *bytes = malloc(BLOCK_BYTES);
    if (!bytes) return cl_fail(error, CL_ERR_NOMEM, "no memory to hash the model's files");
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < file->n_keys; i++) add_key(&state, &file->keys[i]);
    bool ok = true;
    for (size_t i = 0; i < file->n_files && ok; i++) ok = add_file(&state, &file->files[i], bytes, BLOCK_BYTES, BLOCK_BYTES);
    free(bytes);
    if (!ok) return unreadable(error);
    const XXH128_hash_t hash = XXH3_128bits_digest(&state);
    fingerprint[0] = hash.high64;
    fingerprint[1] = hash.low64;
    return CL_OK;
}

cl_status cl_model_file_sample(const cl_model_file *file, uint64_t *sample, cl_error *error) {
    unsigned char bytes[SAMPLE_BYTES];
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < file->n_keys; i++) add_key(&state, &file->keys[i]);
    for (size_t i = 0; i < file->n_files; i++) {
        const size_t part = file->files[i].size / MOST_SAMPLES;
        if (!add_file(&state, &file->files[i], bytes, SAMPLE_BYTES, part > SAMPLE_BYTES ? part : SAMPLE_BYTES))
            return unreadable(error);
    }
    *sample = XXH3_128bits_digest(&state).low64;
    return CL_OK;
}
