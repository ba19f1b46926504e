/*
 * A cache's half on a CUDA device: the memory of its chunks, its steps' workspace, and the launches of its kernels. A
 * cattn_pages on a device has the same without chunks, and without the kernels that write and copy.
 *
 * Device memory is budgeted apart from the host's. The budget's chunks are allocated when the cache is created, as one piece;
 * what is left, a sixteenth, is for the workspace. The host's memory does not count.
 *
 * What a step changes is copied from staging memory, which no later step overwrites before the copy has run, and K/V copies
 * wait for a step. Hence no call waits for the device.
 *
 * One thread at a time may use a ca_device. Functions that take one expect its device to be current (ca_device_enter).
 */
#ifndef CHUNKATTN_CUDA_DEVICE_H
#define CHUNKATTN_CUDA_DEVICE_H

#include "chunkattn.h"
#include "chunkattn/cache/kv_commands.h"
#include "chunkattn/cache/layout.h"
#include "device_plan.h"
#include "runtime.h"

/* Workspace on the device, allocated when a step needs more than any before it. */
typedef enum ca_workspace {
    CA_WORK_STATES,   /* O of the states */
    CA_WORK_ML,       /* M and l of the states */
    CA_WORK_CARRY,    /* carried states */
    CA_WORK_ARRIVALS, /* counters of arrivals, zero between launches */
    CA_WORK_COMMANDS, /* K/V copies: a header, the copies after the rows, the copies before the rows */
    CA_N_WORK
} ca_workspace;

/* The header of K/V copies in memory: how many come before the rows, and how many after them, 4 bytes each. */
enum { CA_COPIES_HEADER = 16 };

typedef struct ca_device_buffer {
    void *at; /* device memory; NULL if bytes is 0 */
    size_t bytes;
} ca_device_buffer;

/* Memory of the host from which a step's changes are copied. */
typedef struct ca_staging {
    char *at;
    size_t bytes;
    ca_cuda_event *event; /* passed when the copies of the last step that used it have run */
} ca_staging;

/* The kernels of a cache, and the thread blocks of their launches. */
typedef struct ca_device_kernel {
    int32_t id, blocks;
} ca_device_kernel;

/* What follows from a shape of the layers (ca_shape) and the device. */
typedef struct ca_device_shape {
    int32_t group;          /* query heads of a KV head */
    int32_t prefill_tokens; /* the most tokens of a work item for the prefill kernel */
    float scale_log2;       /* base 2 */
    ca_device_kernel prefill, decode, write, copy;
} ca_device_shape;

typedef struct ca_device {
    const ca_cuda_runtime *runtime;
    int32_t id;
    ca_cuda_device info;
    ca_alloc *alloc; /* of the host */
    const ca_chunk_layout *layout;
    ca_device_shape *shapes;      /* [layout->n_shapes] */
    ca_page_source pages;         /* foreign ones */
    const ca_page_source *source; /* those; NULL: the chunks are its own */
    cattn_sharing sharing;
    float softcap;                     /* base 2 */
    void *kv;                          /* [chunks] of the layout; NULL with a source */
    float *slopes, *sinks;             /* [query heads], [query heads of all layers], base 2; NULL: none */
    size_t bytes;                      /* of device memory but the chunks' */
    size_t most_bytes;                 /* that the budget leaves for it */
    CA_ARRAY(ca_device_plan) plans;    /* as the cache's plans */
    CA_ARRAY(ca_device_buffer) images; /* theirs */
    ca_device_buffer work[CA_N_WORK];
    size_t after_capacity; /* K/V copies after the rows for which CA_WORK_COMMANDS has memory */
    CA_ARRAY(ca_staging) staging;
    ca_staging *free_staging; /* for the step that begins */
    ca_cuda_stream stream;    /* of the step that begins */
    uint64_t generation;      /* changes whenever workspace moves */
    uint32_t lists;           /* bit i: the open step launches list i */
    bool copies_after;        /* it launches copies after the rows of each layer */
    const char *failure;      /* of the first failure other than missing memory; all later calls report it; NULL: none */
} ca_device;

/* ---- Creating ---- */

/* Describe a device. CATTN_ERR_ARG if none has this number; CATTN_ERR_UNSUPPORTED if there are none (cuda_api.c). */
cattn_status ca_cuda_find_device(int32_t device, ca_cuda_device *info, cattn_error *error);

/*
 * Compare the sums of mma and wgmma on a device, once for each kind of device (device_sums.c): *info, as get_device fills it,
 * says afterwards whether prefill may use wgmma. CATTN_ERR_UNSUPPORTED if a sum depends on where its row stands in a product,
 * so that no result could be exact; CATTN_ERR_NOMEM; CATTN_ERR_STATE, with what the runtime reports.
 */
cattn_status ca_device_check_sums(const ca_cuda_runtime *runtime, int32_t device, ca_cuda_device *info, cattn_error *error);

/* The bytes of a budget that are for chunks. */
uint64_t ca_device_chunk_budget(uint64_t budget_bytes);

/*
 * Allocate a device's half for n_chunks chunks, or for foreign pages if `source` is not NULL; budget_bytes has no effect then.
 * alloc and layout are borrowed until destroy, and so is what source->ctx points to. CATTN_ERR_ARG names a field of the config,
 * its limit and the fix; CATTN_ERR_UNSUPPORTED says what the machine lacks; CATTN_ERR_NOMEM where the host or the device has no
 * memory. Errors leave *device NULL.
 */
cattn_status ca_device_create(ca_device **device, ca_alloc *alloc, const ca_chunk_layout *layout, const cattn_config *config,
                              size_t n_chunks, const ca_page_source *source, cattn_error *error);

/* The work that was queued must have finished. Sets *device to NULL, which it may be already. */
void ca_device_destroy(ca_device **device);

/* The same in a child of the process that has created it, which cannot use the device: frees what is the allocator's. */
void ca_device_abandon(ca_device **device);

/* Add the image of one more plan. Returns 0, or -1 without memory. */
int ca_device_add_plan(ca_device *device, int32_t shape);

/* How plans for this device are made, without a window. */
ca_plan_config ca_device_plan_for(const ca_device *device, int32_t shape, int32_t n_sink_tokens);

/* Make the device current (ca_cuda_runtime.enter), and the one before it again. After an error there is nothing to leave. */
cattn_status ca_device_enter(ca_device *device, ca_cuda_caller *before, cattn_error *error);
void ca_device_leave(const ca_device *device, const ca_cuda_caller *before);

/*
 * What the CUDA runtime reports of a call, as a status: CATTN_ERR_STATE. From now on ca_device_enter reports it, too: work of a
 * step may be missing, so later results could be wrong.
 */
cattn_status ca_device_failed(ca_device *device, const char *failure, cattn_error *error);

/* ---- Steps ---- */

/*
 * Bring the images up to date and allocate what the step needs: workspace, and memory for n_before and n_after K/V copies.
 * CATTN_ERR_NOMEM; CATTN_ERR_BUDGET for the workspace. To be called once after each update of the plans.
 */
cattn_status ca_device_reserve(ca_device *device, const ca_plan *plans, size_t n_before, size_t n_after, cattn_error *error);

/* Where the K and V of the step's rows go: the chunk of the caller's row i is at chunk + i * stride bytes. */
typedef struct ca_device_rows {
    const ca_chunk_id *chunk;
    size_t stride;
} ca_device_rows;

/* Queue the copies of what has changed, and the K/V copies before the rows. After ca_device_reserve. */
cattn_status ca_device_begin(ca_device *device, const ca_device_rows *rows, const ca_kv_commands *before,
                             const ca_kv_commands *after, cattn_error *error);

/* A number for what write and attend of the open step queue: the same launches with the same arguments, for the same views. */
uint64_t ca_device_graph(const ca_device *device);

/* As cattn_cuda_step_write and cattn_cuda_step_attend, with checked views; plan: the layer's; pages: foreign ones, or NULL. */
cattn_status ca_device_write(ca_device *device, int32_t layer, const cattn_view *k, const cattn_view *v, ca_cuda_stream stream,
                             cattn_error *error);
cattn_status ca_device_attend(ca_device *device, int32_t layer, int32_t plan, const ca_plan_config *config,
                              const ca_cuda_pages *pages, const cattn_view *q, const cattn_view *out, float *lse,
                              ca_cuda_stream stream, cattn_error *error);

/* Free, in the order of the stream of the step that begins, what steps keep for the next one. */
void ca_device_release(ca_device *device);

#endif
