/* A cache's half on a CUDA device: checking its config, creating and destroying it. device_step.c has the steps. */
#include "device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "chunkattn/base/fail.h"
#include "chunkattn_cuda.h"

/* ---- Devices ---- */

static cattn_status find_device(int32_t device, ca_cuda_device *info, cattn_error *error) {
    const cattn_status s = ca_cuda_find_device(device, info, error);
    if (s) return s;
    if (info->major >= 8) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1,
                   "cuda->device is %d (%s), whose compute capability is %d.%d; the kernels need 8.0", device, info->name,
                   info->major, info->minor);
}

cattn_status ca_device_failed(ca_device *d, const char *failure, cattn_error *error) {
    if (!d->failure) d->failure = failure;
    return ca_fail(error, CATTN_ERR_STATE, -1, "CUDA device %d reports: %s; destroy the %s", d->id, failure,
                   d->source ? "handle" : "cache");
}

cattn_status ca_device_enter(ca_device *d, ca_cuda_caller *before, cattn_error *error) {
    if (d->failure) return ca_device_failed(d, d->failure, error);
    const char *failure = d->runtime->enter(d->id, before);
    if (!failure) return CATTN_OK;
    d->runtime->leave(before);
    return ca_device_failed(d, failure, error);
}

void ca_device_leave(const ca_device *d, const ca_cuda_caller *before) { d->runtime->leave(before); }

/* ---- Kernels ---- */

/* The rows of kernels.def. */
static const struct kernel_row {
    const char *name;
    int32_t blocks, shared, sm; /* thread blocks of a multiprocessor by their registers; bytes of a block; 80 or 90 */
} kernel_rows[] = {
#define CA_CUDA_KERNEL(family, name, threads, blocks, shared, sm, args, function) {#name, blocks, shared, sm},
#include "kernels.def"
#undef CA_CUDA_KERNEL
};

/* The id of the kernel whose name the format gives; -1 if there is none. */
static int32_t find_kernel(const char *format, const char *type, int32_t head_dim) {
    char name[64];
    snprintf(name, sizeof name, format, type, head_dim);
    int32_t id = CA_CUDA_N_KERNELS;
    while (--id >= 0 && strcmp(kernel_rows[id].name, name) != 0) continue;
    return id;
}

/* In the names of kernels; NULL for types that a device lacks. */
static const char *type_name(cattn_type type) {
    static const char *const names[] = {[CATTN_F16] = "f16", [CATTN_BF16] = "bf16", [CATTN_E4M3] = "e4m3"};
    return names[type];
}

static int32_t most(int32_t a, int32_t b) { return a > b ? a : b; }

/* As many thread blocks as run at a time. CUDA reserves 1 KB of shared memory for each. */
static ca_device_kernel grid_of(int32_t id, const ca_cuda_device *info) {
    const struct kernel_row *row = &kernel_rows[id];
    const int32_t by_shared = (int32_t)(info->shared_processor / ((size_t)row->shared + 1024));
    return (ca_device_kernel){id, info->n_processors * (by_shared < row->blocks ? most(by_shared, 1) : row->blocks)};
}

static cattn_status check_kernel(int32_t id, const ca_cuda_device *info, cattn_error *error) {
    const struct kernel_row *row = &kernel_rows[id];
    if (info->major * 10 + info->minor >= row->sm && (size_t)row->shared <= info->shared_block) return CATTN_OK;
    return ca_fail(error, CATTN_ERR_UNSUPPORTED, -1,
                   "the kernel %s needs compute capability %d.%d and %d bytes of shared memory; %s has %d.%d and %zu: use a "
                   "smaller head_dim or another device",
                   row->name, row->sm / 10, row->sm % 10, row->shared, info->name, info->major, info->minor,
                   info->shared_block);
}

/* ---- Config ---- */

/* Foreign pages have no scales, so they are not e4m3; pages.c has refused that. */
static cattn_status check_chunks(const ca_chunk_layout *l, bool pages, cattn_error *error) {
    if (!type_name(l->type))
        return ca_fail(error, CATTN_ERR_ARG, -1, "kv_type is %s; on a CUDA device it must be CATTN_BF16%s CATTN_F16%s",
                       ca_type_name(l->type), pages ? " or" : ",", pages ? "" : " or CATTN_E4M3");
    if (l->c != CA_CUDA_CHUNK)
        return ca_fail(error, CATTN_ERR_ARG, -1, "chunk_size is %d; on a CUDA device it must be %d", l->c, CA_CUDA_CHUNK);
    return CATTN_OK;
}

static cattn_status check_shape(const ca_shape *s, cattn_error *error) {
    const ca_layout *l = &s->tiles;
    if (find_kernel("decode_%s_%d", type_name(l->type), l->d_k) < 0)
        return ca_fail(error, CATTN_ERR_ARG, -1, "head_dim is %d; on a CUDA device it must be 64, 96, 128 or 256", l->d_k);
    if (l->d_v != l->d_k)
        return ca_fail(error, CATTN_ERR_ARG, -1, "head_dim_v is %d; on a CUDA device it must be head_dim, %d", l->d_v, l->d_k);
    if (s->n_heads / s->n_kv_heads > 16)
        return ca_fail(error, CATTN_ERR_ARG, -1,
                       "n_heads is %d and n_kv_heads is %d; on a CUDA device a KV head has at most 16 query heads", s->n_heads,
                       s->n_kv_heads);
    return CATTN_OK;
}

/* Pages and e4m3 are copied or converted by the warps that compute, so wgmma has no kernels for them. */
static bool prefills_by_wgmma(cattn_type type, bool pages, const ca_cuda_device *info) {
    return info->wgmma && !pages && type != CATTN_E4M3;
}

/* Tokens of a prefill work item. Up to head size 128 the kernels by wgmma have two groups of 64 rows, which whole tokens fill.
 */
static int32_t find_prefill_tokens(const ca_shape *s, bool pages, const ca_cuda_device *info) {
    const int32_t of_group = CA_CUDA_PREFILL_ROWS / (s->n_heads / s->n_kv_heads);
    return prefills_by_wgmma(s->tiles.type, pages, info) && s->tiles.d_k <= 128 ? 2 * of_group : of_group;
}

typedef struct kernel_ids {
    int32_t prefill, decode, write, copy;
} kernel_ids;

/* pages: for foreign pages, which need only the first two. */
static kernel_ids find_kernels(const ca_layout *l, bool pages, const ca_cuda_device *info) {
    const char *type = type_name(l->type);
    const char *prefill = prefills_by_wgmma(l->type, pages, info) ? "prefill_wgmma_%s_%d" : "prefill_%s_%d";
    if (pages)
        return (kernel_ids){find_kernel("prefill_pages_%s_%d", type, l->d_k), find_kernel("decode_pages_%s_%d", type, l->d_k),
                            -1, -1};
    return (kernel_ids){find_kernel(prefill, type, l->d_k), find_kernel("decode_%s_%d", type, l->d_k),
                        find_kernel("write_%s_%d", type, l->d_k),
                        find_kernel(l->type == CATTN_E4M3 ? "copy_%s_%d" : "copy_%.0s%d", type, l->d_k)};
}

static cattn_status check_kernels(const ca_layout *l, bool pages, const ca_cuda_device *info, cattn_error *error) {
    const kernel_ids ids = find_kernels(l, pages, info);
    const cattn_status s = check_kernel(ids.prefill, info, error);
    return s ? s : check_kernel(ids.decode, info, error);
}

static cattn_status check(const ca_chunk_layout *l, int32_t device, bool pages, ca_cuda_device *info, cattn_error *error) {
    cattn_status s = find_device(device, info, error);
    if (s == CATTN_OK) s = check_chunks(l, pages, error);
    if (s == CATTN_OK) s = ca_device_check_sums(ca_cuda_get(), device, info, error);
    for (int32_t i = 0; i < l->n_shapes && s == CATTN_OK; i++) {
        s = check_shape(&l->shapes[i], error);
        if (s == CATTN_OK) s = check_kernels(&l->shapes[i].tiles, pages, info, error);
    }
    return s;
}

/* ---- Creating ---- */

uint64_t ca_device_chunk_budget(uint64_t budget_bytes) { return budget_bytes - budget_bytes / 16; }

static cattn_status no_device_memory(const ca_device *d, size_t bytes, const char *failure, cattn_error *error) {
    return ca_fail(error, CATTN_ERR_NOMEM, -1, "the device gives no %zu bytes (%s)%s", bytes, failure,
                   d->source ? "" : "; lower budget_bytes");
}

static const char *copy_and_wait(const ca_cuda_runtime *r, void *to, const void *from, size_t bytes) {
    ca_cuda_stream stream;
    const char *failure = r->create_stream(&stream);
    if (failure) return failure;
    failure = r->copy(to, from, bytes, stream);
    const char *second = r->wait(stream);
    r->destroy_stream(stream);
    return failure ? failure : second;
}

/* Convert n numbers to base 2 and copy them to new device memory *to. Does nothing if `from` is NULL. */
static cattn_status copy_to_base_2(ca_device *d, const float *from, size_t n, float **to, cattn_error *error) {
    if (!from) return CATTN_OK;
    const size_t bytes = n * sizeof **to;
    const char *failure = d->runtime->allocate((void **)to, bytes);
    if (failure) return no_device_memory(d, bytes, failure, error);
    d->bytes += bytes;
    float *values = ca_new(d->alloc, n, sizeof *values);
    if (!values) return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the options of %zu heads", n);
    for (size_t i = 0; i < n; i++) values[i] = (float)(from[i] * 1.4426950408889634);
    failure = copy_and_wait(d->runtime, *to, values, bytes);
    ca_delete(d->alloc, values, n, sizeof *values);
    return failure ? ca_device_failed(d, failure, error) : CATTN_OK;
}

static cattn_status prepare_kernels(ca_device *d, const ca_layout *l, ca_device_shape *s, cattn_error *error) {
    const kernel_ids ids = find_kernels(l, d->source != NULL, &d->info);
    const int32_t all[] = {ids.prefill, ids.decode, ids.write, ids.copy};
    ca_device_kernel *const kernels[] = {&s->prefill, &s->decode, &s->write, &s->copy};
    for (int i = 0; i < 4 && all[i] >= 0; i++) {
        *kernels[i] = grid_of(all[i], &d->info);
        const char *failure = d->runtime->prepare(&d->runtime->kernels[all[i]]);
        if (failure) return ca_device_failed(d, failure, error);
    }
    return CATTN_OK;
}

static cattn_status create_shapes(ca_device *d, cattn_error *error) {
    const ca_chunk_layout *l = d->layout;
    cattn_status s = CATTN_OK;
    d->shapes = ca_new(d->alloc, (size_t)l->n_shapes, sizeof *d->shapes);
    if (!d->shapes) return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for %d shapes of layers", l->n_shapes);
    for (int32_t i = 0; i < l->n_shapes && s == CATTN_OK; i++) {
        const ca_shape *of = &l->shapes[i];
        d->shapes[i] = (ca_device_shape){.group = of->n_heads / of->n_kv_heads,
                                         .prefill_tokens = find_prefill_tokens(of, d->source != NULL, &d->info),
                                         .scale_log2 = (float)(of->scale * 1.4426950408889634)};
        s = prepare_kernels(d, &of->tiles, &d->shapes[i], error);
    }
    return s;
}

static cattn_status allocate_chunks(ca_device *d, size_t n_chunks, cattn_error *error) {
    const size_t kv_bytes = n_chunks * d->layout->chunk_bytes;
    const char *failure = d->runtime->allocate(&d->kv, kv_bytes);
    return failure ? no_device_memory(d, kv_bytes, failure, error) : CATTN_OK;
}

static cattn_status allocate_parts(ca_device *d, const cattn_config *config, size_t n_chunks, cattn_error *error) {
    const ca_chunk_layout *l = d->layout;
    cattn_status s = create_shapes(d, error);
    if (s || (!d->source && (s = allocate_chunks(d, n_chunks, error)))) return s;
    if ((s = copy_to_base_2(d, config->alibi_slopes, (size_t)ca_shape_of(l, 0)->n_heads, &d->slopes, error))) return s;
    return copy_to_base_2(d, config->sink_logits, (size_t)l->n_heads, &d->sinks, error);
}

cattn_status ca_device_create(ca_device **device, ca_alloc *alloc, const ca_chunk_layout *layout, const cattn_config *config,
                              size_t n_chunks, const ca_page_source *source, cattn_error *error) {
    *device = NULL;
    ca_cuda_device info;
    cattn_status s = check(layout, config->cuda->device, source != NULL, &info, error);
    if (s) return s;
    ca_device *d = ca_new_zero(alloc, 1, sizeof *d);
    if (!d) return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the %s", source ? "handle" : "cache");
    const uint64_t workspace = config->budget_bytes - ca_device_chunk_budget(config->budget_bytes);
    *d = (ca_device){.runtime = ca_cuda_get(),
                     .id = config->cuda->device,
                     .info = info,
                     .alloc = alloc,
                     .layout = layout,
                     .sharing = config->sharing,
                     .softcap = (float)(config->softcap * 1.4426950408889634),
                     .most_bytes = source ? SIZE_MAX : (size_t)workspace};
    if (source) d->pages = *source, d->source = &d->pages;
    ca_cuda_caller before;
    s = ca_device_enter(d, &before, error);
    if (s) {
        ca_delete(alloc, d, 1, sizeof *d);
        return s;
    }
    s = allocate_parts(d, config, n_chunks, error);
    ca_device_leave(d, &before);
    if (s) ca_device_destroy(&d);
    *device = d;
    return s;
}

static void free_staging(ca_device *d) {
    for (size_t i = 0; i < d->staging.n; i++) {
        d->runtime->destroy_event(d->staging.at[i].event);
        d->runtime->free_host(d->staging.at[i].at);
    }
}

/* Free what is the allocator's. */
static void free_host(ca_device **device) {
    ca_device *d = *device;
    for (size_t i = 0; i < d->plans.n; i++) ca_device_plan_free(&d->plans.at[i]);
    CA_ARRAY_FREE(d->alloc, &d->staging);
    CA_ARRAY_FREE(d->alloc, &d->plans);
    CA_ARRAY_FREE(d->alloc, &d->images);
    ca_delete(d->alloc, d->shapes, (size_t)d->layout->n_shapes, sizeof *d->shapes);
    ca_delete(d->alloc, d, 1, sizeof *d);
    *device = NULL;
}

void ca_device_abandon(ca_device **device) {
    if (*device) free_host(device);
}

void ca_device_destroy(ca_device **device) {
    ca_device *d = *device;
    if (!d) return;
    const ca_cuda_runtime *b = d->runtime;
    ca_cuda_caller before;
    b->enter(d->id, &before);
    b->free_memory(d->kv);
    b->free_memory(d->slopes);
    b->free_memory(d->sinks);
    for (int i = 0; i < CA_N_WORK; i++) b->free_memory(d->work[i].at);
    for (size_t i = 0; i < d->images.n; i++) b->free_memory(d->images.at[i].at);
    free_staging(d);
    ca_device_leave(d, &before);
    free_host(device);
}

/* ---- Plans ---- */

int ca_device_add_plan(ca_device *d, int32_t shape) {
    const ca_shape *of = &d->layout->shapes[shape];
    const ca_device_shape *s = &d->shapes[shape];
    if (CA_ROOM(d->alloc, &d->plans, 1) || CA_ROOM(d->alloc, &d->images, 1)) return -1;
    const ca_device_plan_config config = {.n_heads = of->n_kv_heads,
                                          .group = s->group,
                                          .head_dim = of->tiles.d_k,
                                          .tile_bytes = (int64_t)of->tiles.tile_bytes,
                                          .prefill_tokens = s->prefill_tokens,
                                          .prefill_blocks = s->prefill.blocks,
                                          .decode_blocks = s->decode.blocks,
                                          .source = d->source};
    ca_device_plan_init(&d->plans.at[d->plans.n++], &config, d->alloc);
    d->images.at[d->images.n++] = (ca_device_buffer){0};
    return 0;
}

/* The limits of tasks do not matter, since only the CPU has tasks; on a device ca_device_plan divides the work. */
ca_plan_config ca_device_plan_for(const ca_device *d, int32_t shape, int32_t n_sink_tokens) {
    return (ca_plan_config){.shape = shape,
                            .together = d->sharing == CATTN_SHARED,
                            .group = d->shapes[shape].group,
                            .max_rows = d->shapes[shape].prefill_tokens,
                            .min_slice = CA_CUDA_PREFILL_ROWS,
                            .chunk_cost = 8,
                            .min_tasks = 1,
                            .task_step = 1,
                            .log2_segment = __builtin_ctz(CA_CUDA_CHUNK * CA_CUDA_SEGMENT_CHUNKS),
                            .n_sink_tokens = n_sink_tokens};
}
