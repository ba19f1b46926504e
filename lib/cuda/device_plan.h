/*
 * The host's image of a plan (image.h), and which of its bytes have changed since a device last copied it.
 *
 * One thread at a time may use a ca_device_plan. No function touches a device.
 */
#ifndef LIB_CUDA_DEVICE_PLAN_H
#define LIB_CUDA_DEVICE_PLAN_H

#include "base/array.h"
#include "image.h"
#include "lib/cache/plan.h"

typedef struct ca_device_plan_config {
    int32_t n_queues; /* thread blocks that run at a time, >= 1 */
    int32_t n_heads;  /* KV heads */
    /* What a head task reads and writes, by which the queues are balanced. */
    int64_t tile_bytes; /* K and V of one chunk, layer and KV head */
    int64_t row_bytes;  /* queries and states of one row in one block, for one KV head */
} ca_device_plan_config;

/* A range of the image, in bytes. */
typedef struct ca_image_change {
    size_t offset, bytes;
} ca_image_change;

/* How many rows, list entries in merge, chunks, items, blocks and spread chains an image has before a section's first. */
typedef struct ca_image_base {
    int32_t row, merge, chunk, item, block, chain;
} ca_image_base;

typedef struct ca_device_plan {
    ca_image *image; /* owned, valid until the next update or free; NULL before the first update */
    size_t image_bytes;
    bool moved; /* the last update allocated the image anew: a copy needs image_bytes of memory */
    ca_image_change changes[CA_IMAGE_ARRAYS + 1]; /* [n_changes] what the last update changed */
    int32_t n_changes;
    /* Private. */
    ca_device_plan_config config;
    ca_alloc *alloc;
    size_t capacity[CA_IMAGE_ARRAYS]; /* in elements */
    ca_image *other;                  /* the image before this one, of the same layout; the next one is written over it */
    CA_ARRAY(ca_image_base) bases;    /* [n_sections + 1], during an update */
    CA_ARRAY(int64_t) load;           /* [n_queues] bytes, during an update */
    CA_ARRAY(int32_t) heap;           /* [n_queues] queues, the one with the least load first, during an update */
    CA_ARRAY(int32_t) owner;          /* [head tasks] the queue of each, during an update */
} ca_device_plan;

/* Allocates nothing. alloc is borrowed until free. */
void ca_device_plan_init(ca_device_plan *dp, const ca_device_plan_config *config, ca_alloc *alloc);
void ca_device_plan_free(ca_device_plan *dp);

/*
 * Bring the image up to date; to be called once after each ca_plan_update of the same plan. It allocates only if a plan is
 * larger than any before. CATTN_ERR_NOMEM leaves no image, and the next call makes all of it.
 */
cattn_status ca_device_plan_update(ca_device_plan *dp, const ca_plan *plan);

#endif
