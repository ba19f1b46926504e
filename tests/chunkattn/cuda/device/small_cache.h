/*
 * A small cache on a device for tests, and sequences of made-up tokens, whose rows follow from token and position. All layers
 * have the same input. A call that fails is a failed test.
 */
#ifndef TESTS_CHUNKATTN_CUDA_DEVICE_SMALL_CACHE_H
#define TESTS_CHUNKATTN_CUDA_DEVICE_SMALL_CACHE_H

#define CATTN_EXPERIMENTAL
#include "chunkattn_cuda.h"
#include "device_testing.h"

enum { HEADS = 4, KV_HEADS = 2, DIM = 64, LAYERS = 2, MAX_ROWS = 1200 };

/* Of device 0, with bf16. */
cattn_config config_of(uint64_t megabytes);
cattn_cache *create(const cattn_config *config);

/* A sequence of n_shared tokens that all have, and n_own that no other `which` has. */
cattn_seq join(cattn_cache *cache, int n_shared, int n_own, int which);
void append(cattn_cache *cache, cattn_seq seq, int32_t token);

/* The tensors of a step on the device: [MAX_ROWS][heads][DIM], and lse [MAX_ROWS][HEADS]. */
typedef struct tensors {
    float *q, *k, *v, *out, *lse;
} tensors;

tensors new_tensors(void);
void free_tensors(tensors *t);

/* Of a tensor of q or out, and of k or v, whose data is still to be set. */
static const cattn_view Q_VIEW = {NULL, CATTN_F32, HEADS *DIM, DIM}, K_VIEW = {NULL, CATTN_F32, KV_HEADS *DIM, DIM};

static inline cattn_view view_of(cattn_view view, void *data) {
    view.data = data;
    return view;
}

/* The rows of the open step; results become NaN, so that none of an earlier step counts. */
void fill_tensors(const cattn_cache *cache, tensors *t, const cattn_entry *entries, int n);

/* Write a layer of the open step; write and attend to it; the same for all layers. */
void write_layer(cattn_cache *cache, int layer, tensors *t);
void run_layer(cattn_cache *cache, int layer, tensors *t);
void run_layers(cattn_cache *cache, tensors *t);

/* A whole step; returns the number of its graph. */
uint64_t step(cattn_cache *cache, tensors *t, cattn_entry *entries, int n);

/* A step that writes K and V and attends to nothing: attention of long prompts takes most of the emulation's time. */
void write_prompt(cattn_cache *cache, tensors *t, cattn_entry *entry);

/* A cache with four sequences that have been prefilled, and one row of each. */
cattn_cache *start_decoding(tensors *t, cattn_entry *entries);

#endif
