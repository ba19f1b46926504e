/*
 * libchunkattn on a CUDA device: what a cache needs beyond chunkattn.h where its K and V are in a device's memory, and what
 * foreign pages need beyond chunkattn_pages.h ("Foreign pages", below).
 *
 * EXPERIMENTAL. Status: complete, tested in an emulation of the device, checked and measured on an H200 (docs/cuda.md). What is
 * written here may still change.
 *
 * The tree, the plan and the calls are those of chunkattn.h; the device is chosen in the config:
 *
 *   config.cuda = &(cattn_cuda_config){.device = 0};
 *   cattn_cache_create(&config, &cache, &error);
 *   cattn_seq_join(...), cattn_seq_append(...), ...                       as on the CPU
 *   cattn_cuda_step_begin(cache, entries, n, 0, stream, &graph, &error);  instead of cattn_step_begin
 *   cattn_cuda_step_write(cache, layer, &k, &v, stream, &error);          instead of cattn_step_write
 *   cattn_cuda_step_attend(cache, layer, &q, &out, lse, stream, &error);  instead of cattn_step_attend
 *   cattn_step_end(cache, &error);                                        as on the CPU
 *
 * A call for the other kind of cache fails with CATTN_ERR_ARG and names the call to use.
 *
 * Supported: compute capability 8.0 or later; kv_type CATTN_BF16, CATTN_F16 or CATTN_E4M3; head_dim 64, 96, 128 or 256, and
 * head_dim_v equal to it; chunk_size 64; up to 16 query heads for each KV head; sequences of up to 2^25 tokens; all sharing
 * modes, windows, sink tokens, soft-cap, ALiBi and sink logits. cattn_cache_create refuses anything else, and kernels that need
 * more shared memory than the device has. `level`, `parallel` and `n_threads` have no effect, and cattn_cache_level returns
 * "cuda".
 *
 * Memory: budget_bytes is of device memory. Fifteen sixteenths of it are for chunks and are allocated by cattn_cache_create;
 * one sixteenth is for the steps' workspace, which is allocated when a step needs it. cattn_stats.bytes_in_use counts the
 * chunks that have been used so far and the workspace. The host's memory (the tree, the plan and the memory from which the
 * device copies) counts against no budget; `allocator` provides it, but for the memory from which the device copies.
 * cattn_cache_prefault does nothing, and cattn_cache_drop_retained returns no memory to the device. There is no file tier, and
 * cattn_seq_export, cattn_seq_import and cattn_seq_read fail with CATTN_ERR_UNSUPPORTED.
 *
 * Exact as on the CPU: a row's bits do not depend on the rest of the batch, on one device and build; CPU and device differ in
 * rounding. Queries are rounded to kv_type, like K and V; with CATTN_E4M3 they are rounded to f16.
 *
 * Streams: a call of this header queues its work on its stream and returns without waiting. The calls of one cache must be
 * ordered on the device as they are on the host: pass one stream, or order the streams by events. Device memory that a call
 * borrows must stay until the queued work has run, and so must the cache: before cattn_cache_destroy or cattn_pages_destroy,
 * wait for the streams, also for graphs that were replayed. No call waits for the device, but create and begin may wait inside
 * the CUDA runtime where they allocate memory. K and V that calls of chunkattn.h copy (cattn_seq_fork with CATTN_PRIVATE, for
 * example) are copied when the next step begins. If more copies wait than the cache has chunks, and 512, such a call fails with
 * CATTN_ERR_STATE: run a step first.
 *
 * Graphs: any call may be made while another thread captures. cattn_cuda_step_write and cattn_cuda_step_attend can be captured
 * and replayed: they read everything that changes from step to step from device memory, which cattn_cuda_step_begin updates;
 * begin itself must not be captured. It reports a number for the work that the two calls will queue. A graph that was captured
 * in one step may be replayed in each later step with the same number and the same views. Decode steps of a steady batch have
 * the same number; a step that prefills has another one.
 *
 * Create: the first one on a kind of device compares how its instructions sum, and waits for that. Where a sum depends on the
 * place of its row, cattn_cache_create and cattn_pages_create fail with CATTN_ERR_UNSUPPORTED.
 *
 * Errors of the CUDA runtime other than missing memory are CATTN_ERR_STATE, with its text; only destroy is useful then.
 *
 * Threads: owner, as chunkattn.h defines it; those about devices: any. A call makes the cache's device the current one for its
 * duration.
 */
#ifndef CHUNKATTN_CUDA_H
#define CHUNKATTN_CUDA_H

#ifndef CATTN_EXPERIMENTAL
#error "chunkattn_cuda.h may still change between any two versions; define CATTN_EXPERIMENTAL before it and chunkattn.h"
#endif

#include "chunkattn.h"
#include "chunkattn_pages.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A cudaStream_t or CUstream, which are the same pointer; NULL is the default stream. No CUDA header is needed. */
typedef struct CUstream_st *cattn_cuda_stream;

/* ---- Devices ------------------------------------------------------------------------------------------------------- */

/* Where K and V are, for cattn_config.cuda. */
typedef struct cattn_cuda_config {
    int32_t device; /* its number, from 0 on */
} cattn_cuda_config;

/*
 * Count the devices: *n >= 1. On an error *n is 0, and the message says what is missing: the backend in this build, the driver,
 * or a device.
 * Errors: CATTN_ERR_ARG; CATTN_ERR_UNSUPPORTED.
 */
CATTN_API cattn_status cattn_cuda_device_count(int32_t *n, cattn_error *error);

typedef struct cattn_cuda_device_info {
    size_t struct_size; /* set by the caller to sizeof(cattn_cuda_device_info) */
    char name[64];      /* terminated */
    int32_t major;      /* compute capability */
    int32_t minor;
    int32_t n_processors;  /* streaming multiprocessors */
    uint64_t memory_bytes; /* of the whole device, not only what is free */
} cattn_cuda_device_info;

/* Describe a device, from 0 on. Errors as cattn_cuda_device_count; *info is untouched then. */
CATTN_API cattn_status cattn_cuda_device_get_info(int32_t device, cattn_cuda_device_info *info, cattn_error *error);

/* ---- Steps --------------------------------------------------------------------------------------------------------- */

/*
 * As cattn_step_begin. Copies the part of the plan that has changed since the last step to the device: where the batch is the
 * same and no chunk was filled, 4 bytes for each row. The copies are queued on `stream`, and so are those of K and V that the
 * tree's calls have recorded.
 *
 * *graph (NULL if not wanted): a number for the work that write and attend of this step queue, see "Graphs" above.
 *
 * Errors as cattn_step_begin; CATTN_ERR_ARG for a cache that is not on a device; CATTN_ERR_NOMEM where host or device has no
 * memory; CATTN_ERR_BUDGET if the workspace exceeds its share of budget_bytes: lower row_limit or raise the budget.
 */
CATTN_API cattn_status cattn_cuda_step_begin(cattn_cache *cache, cattn_entry *entries, int32_t n_entries, int64_t row_limit,
                                             cattn_cuda_stream stream, uint64_t *graph, cattn_error *error);

/*
 * As cattn_step_write. k, v: [rows][n_kv_heads][head_dim], device memory, of type f32, f16 or bf16 each, rounded to kv_type
 * (CATTN_E4M3: by the rule in chunkattn.h).
 * Each row's head must begin at a multiple of 16 bytes: data, row_stride and head_stride are multiples of 16 bytes. Both are
 * read when the stream gets there. Every layer must be written before cattn_step_end, which cannot check it, since a graph may
 * have written it. Errors: CATTN_ERR_ARG; CATTN_ERR_STATE without an open step; CATTN_ERR_UNSUPPORTED for other types.
 */
CATTN_API cattn_status cattn_cuda_step_write(cattn_cache *cache, int32_t layer, const cattn_view *k, const cattn_view *v,
                                             cattn_cuda_stream stream, cattn_error *error);

/*
 * As cattn_step_attend, on device memory. q, out: [rows][n_heads][head_dim], of type f32, f16 or bf16 each, aligned as for
 * write; they must not overlap. lse: [rows][n_heads] f32 contiguous, log-sum-exp in base 2 of the scores after scale and
 * options; NULL if not wanted.
 *
 * (out, lse) is what FlashInfer calls a state (V, S), with the same shapes and the same base, so its merge_state and
 * merge_state_in_place accept them. Its merge_states expects states side by side, [rows][states][n_heads][...]: `out` can be
 * written there by its row_stride, lse cannot. To merge with natural logarithms, multiply lse by ln(2).
 *
 * Allocates nothing and takes no lock. Errors as cattn_cuda_step_write.
 * Source: ChunkAttention (arXiv 2402.15220), two-phase partition.
 */
CATTN_API cattn_status cattn_cuda_step_attend(cattn_cache *cache, int32_t layer, const cattn_view *q, const cattn_view *out,
                                              float *lse, cattn_cuda_stream stream, cattn_error *error);

/* ---- Foreign pages -------------------------------------------------------------------------------------------------- */

/*
 * Attention over an engine's own pages in device memory (chunkattn_pages.h):
 *
 *   config.common.cuda = &(cattn_cuda_config){.device = 0};
 *   cattn_pages_create(&config, &pages, &error);
 *   for each step {
 *       cattn_cuda_pages_plan(pages, &batch, stream, &graph, &error);                  instead of cattn_pages_plan
 *       for each layer {
 *           cattn_pages_views(pages, layer, CATTN_PAGES_VLLM, kv[layer], n_pages, &k, &v, &error);          as on the CPU
 *           cattn_cuda_pages_attend(pages, layer, &k, &v, &q, &out, lse, stream, &error);  instead of cattn_pages_attend
 *       }
 *   }
 *
 * Supported: everything that caches support except CATTN_E4M3, since pages have no scales; pages of 16, 32, 64 or 128 tokens in
 * any layout. cattn_pages_create refuses anything else. Sequences have up to 2^25 tokens, and ids are below 2^35 / page_size;
 * cattn_cuda_pages_plan refuses others. `level`, `parallel` and `n_threads` have no effect.
 *
 * The unit of sharing is a chunk of 64 tokens, part of one page or of several: sequences share it if they share all its pages.
 * So with smaller pages, up to 3 shared pages before the first that differs are read by each sequence for itself.
 *
 * Exact: the bits are those of a cattn_cache on the same device with the same K and V.
 *
 * "Streams", "Graphs", errors of the runtime and "Threads" above hold here, with cattn_cuda_pages_plan for
 * cattn_cuda_step_begin, and cattn_cuda_pages_attend for the calls that are captured. There is no budget: workspace is
 * allocated when a plan needs it and kept.
 */

/*
 * As cattn_pages_plan; the arrays of the batch are the host's. Copies the part of the plan that has changed since the last one
 * to the device: where no sequence has entered another page or chunk or changed places, 4 bytes for each row. They are queued
 * on `stream`.
 *
 * *graph (NULL if not wanted): a number for the work that cattn_cuda_pages_attend queues until the next plan, see "Graphs"
 * above.
 *
 * Errors as cattn_pages_plan; CATTN_ERR_ARG for a handle that is not on a device; CATTN_ERR_NOMEM where host or device has no
 * memory.
 */
CATTN_API cattn_status cattn_cuda_pages_plan(cattn_pages *pages, const cattn_pages_batch *batch, cattn_cuda_stream stream,
                                             uint64_t *graph, cattn_error *error);

/*
 * As cattn_pages_attend, on device memory. k, v: pages of this layer, read when the stream gets there; data and strides are
 * multiples of 16 bytes. q, out: [rows][n_heads][head_dim], of type f32, f16 or bf16 each, aligned as for
 * cattn_cuda_step_attend; queries are rounded to kv_type. lse: as there, NULL if not wanted.
 *
 * Allocates nothing and takes no lock. A plan without rows queues nothing. Errors as cattn_pages_attend.
 */
CATTN_API cattn_status cattn_cuda_pages_attend(cattn_pages *pages, int32_t layer, const cattn_page_view *k,
                                               const cattn_page_view *v, const cattn_view *q, const cattn_view *out, float *lse,
                                               cattn_cuda_stream stream, cattn_error *error);

#ifdef __cplusplus
}
#endif

#endif
