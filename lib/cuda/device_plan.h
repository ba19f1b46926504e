/* Keeping the image of a plan: flattening what is new, and telling which bytes a device's copy lacks. */
#ifndef LIB_CUDA_DEVICE_PLAN_H
#define LIB_CUDA_DEVICE_PLAN_H

#include "base/array.h"
#include "image.h"
#include "lib/cache/plan.h"

typedef struct ca_device_plan_config {
    int32_t n_parts; /* thread blocks that work at a time */
    int32_t n_heads; /* K/V heads */
    /* What a job reads or writes, for parts to finish together. */
    int64_t tile_bytes; /* a chunk's K and V of one K/V head */
    int64_t row_bytes;  /* a row's queries and states in one unit, of one K/V head */
} ca_device_plan_config;

/* Bytes of the image. */
typedef struct ca_image_change {
    size_t offset, bytes;
} ca_image_change;

/* What of an image comes before a section's. */
typedef struct ca_flat_base {
    int32_t row, merge, chunk, run, unit, chain;
} ca_flat_base;

typedef struct ca_device_plan {
    ca_image *image;
    size_t image_bytes;
    bool moved;                                   /* the last update laid the image out anew: a copy needs image_bytes */
    ca_image_change changes[CA_IMAGE_ARRAYS + 1]; /* what the last update changed */
    int32_t n_changes;
    /* Its own. */
    ca_device_plan_config config;
    ca_alloc *alloc;
    size_t capacity[CA_IMAGE_ARRAYS]; /* in elements */
    ca_image *other;                  /* the image before, of the same layout; where the next one is made */
    CA_ARRAY(ca_flat_base) bases;     /* while flattening: of each section, and of one behind the last */
    CA_ARRAY(int64_t) load;           /* while dealing jobs: bytes of each part */
    CA_ARRAY(int32_t) heap;           /* parts, the one with the least load first */
    CA_ARRAY(int32_t) owner;          /* [n_jobs] */
} ca_device_plan;

/* alloc is borrowed until free. */
void ca_device_plan_init(ca_device_plan *dp, const ca_device_plan_config *config, ca_alloc *alloc);
void ca_device_plan_free(ca_device_plan *dp);

/*
 * Bring the image up to date: once after each ca_plan_update of the same plan. Allocates only where a plan is larger than any
 * before. CATTN_ERR_NOMEM leaves no image; the next call makes one from nothing.
 */
cattn_status ca_device_plan_update(ca_device_plan *dp, const ca_plan *plan);

#endif
