/*
 * libchunkattn on a CUDA device: what a cache needs beyond chunkattn.h where its K and V are in a device's memory.
 *
 * EXPERIMENTAL, and not usable yet: this version finds devices and has the interface, but no kernels. Creating a cache on a
 * device fails with CATTN_ERR_UNSUPPORTED and says so. What is written here may still change.
 *
 * The tree, the plan and the calls are those of chunkattn.h; the device is chosen in the config:
 *
 *   config.cuda_device = 0;
 *   cattn_cache_create(&config, &cache, &error);
 *   cattn_seq_join(...), cattn_seq_append(...), ...                       as ever
 *   cattn_cuda_step_begin(cache, entries, n, 0, stream, &moved, &error);  instead of cattn_step_begin
 *   cattn_cuda_step_write(cache, layer, &k, &v, stream, &error);          instead of cattn_step_write
 *   cattn_cuda_step_attend(cache, layer, &q, &out, lse, stream, &error);  instead of cattn_step_attend
 *   cattn_step_end(cache, &error);                                        as ever
 *
 * Such a cache's budget_bytes is of device memory. Exact as on the CPU: a row's bits do not depend on what is around it, on one
 * device and build; CPU and device differ in rounding.
 *
 * Streams: each call that works on the device queues that work on the stream given and returns without waiting for it. Nothing
 * synchronises. One cache's calls must be ordered on the device as they are on the host: give one stream, or order the streams
 * by events. Device memory that a call borrows must stay until the work queued has run.
 *
 * Graphs: cattn_cuda_step_write and cattn_cuda_step_attend can be captured and replayed: what changes from step to step they
 * read from device memory that cattn_cuda_step_begin updates, which itself is not to be captured. A graph holds until a
 * begin tells that the workspace was moved.
 *
 * Threads: as chunkattn.h. A call makes the cache's device the current one for its duration.
 */
#ifndef CHUNKATTN_CUDA_H
#define CHUNKATTN_CUDA_H

#ifndef CATTN_EXPERIMENTAL
#error "chunkattn_cuda.h may still change between any two versions; define CATTN_EXPERIMENTAL before it and chunkattn.h"
#endif

#include "chunkattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A cudaStream_t or CUstream, which are the same pointer; NULL is the default stream. No CUDA header is needed. */
typedef struct CUstream_st *cattn_cuda_stream;

/* ---- Devices ------------------------------------------------------------------------------------------------------- */

/*
 * How many devices there are: *n >= 1. Otherwise *n is 0, and the message says what is missing: the backend in this build, the
 * driver, or a device.
 * Errors: CATTN_ERR_ARG; CATTN_ERR_UNSUPPORTED.
 */
CATTN_API cattn_status cattn_cuda_device_count(int32_t *n, cattn_error *error);

typedef struct cattn_cuda_device_info {
    size_t struct_size; /* set by the caller to sizeof(cattn_cuda_device_info) */
    char name[64];      /* terminated */
    int32_t major;      /* compute capability */
    int32_t minor;
    int32_t n_processors;  /* streaming multiprocessors */
    uint64_t memory_bytes; /* in all, not what is free */
} cattn_cuda_device_info;

/* Describe a device, from 0 on. Errors as cattn_cuda_device_count; *info is untouched then. */
CATTN_API cattn_status cattn_cuda_device_get_info(int32_t device, cattn_cuda_device_info *info, cattn_error *error);

/* ---- Steps --------------------------------------------------------------------------------------------------------- */

/*
 * As cattn_step_begin. Copies to the device what of the plan changed since the last step: where the batch is the same and no
 * chunk was filled, a few bytes for each row. The copy is queued on `stream`, and overlaps what runs on others.
 *
 * *moved (NULL if not wanted): whether graphs that were captured before must be captured again, since the workspace had to
 * grow; not in a steady state.
 *
 * Errors as cattn_step_begin; CATTN_ERR_ARG for a cache that is not on a device; CATTN_ERR_NOMEM where the device has no
 * memory.
 */
CATTN_API cattn_status cattn_cuda_step_begin(cattn_cache *cache, cattn_entry *entries, int32_t n_entries, int64_t row_limit,
                                             cattn_cuda_stream stream, int32_t *moved, cattn_error *error);

/*
 * As cattn_step_write. k: [rows][n_kv_heads][head_dim], v: [rows][n_kv_heads][head_dim_v], device memory, f32, f16 or bf16,
 * rounded to the cache's type; a view's head must begin at a multiple of 16 bytes. Both are read when the stream gets there.
 * Errors: CATTN_ERR_ARG; CATTN_ERR_STATE without an open step; CATTN_ERR_UNSUPPORTED for other types.
 */
CATTN_API cattn_status cattn_cuda_step_write(cattn_cache *cache, int32_t layer, const cattn_view *k, const cattn_view *v,
                                             cattn_cuda_stream stream, cattn_error *error);

/*
 * As cattn_step_attend, on device memory. q: [rows][n_heads][head_dim]; out: [rows][n_heads][head_dim_v]; f32, f16 or bf16
 * each, aligned as for write; must not overlap. lse: [rows][n_heads] f32 contiguous, log-sum-exp in base 2 of the scaled
 * scores; NULL if not wanted.
 *
 * (out, lse) is what FlashInfer calls a state (V, S): the same shapes, rows first, and the same base, so that its merge_state
 * and merge_state_in_place take them as they are. Its merge_states wants states side by side, [rows][states][n_heads][...]:
 * out goes there by its row_stride, lse does not. Who merges with natural logarithms takes lse * ln(2).
 *
 * Allocates nothing and takes no lock. Errors as cattn_cuda_step_write.
 * Source: ChunkAttention (arXiv 2402.15220), two-phase partition.
 */
CATTN_API cattn_status cattn_cuda_step_attend(cattn_cache *cache, int32_t layer, const cattn_view *q, const cattn_view *out,
                                              float *lse, cattn_cuda_stream stream, cattn_error *error);

#ifdef __cplusplus
}
#endif

#endif
