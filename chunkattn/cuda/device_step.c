/* A step on a CUDA device: its memory, the copies of what has changed, and the launches of its kernels. */
#include <assert.h>
#include <string.h>

#include "chunkattn/base/fail.h"
#include "device.h"

/* ---- Workspace ---- */

static cattn_status no_budget(const ca_device *d, size_t bytes, cattn_error *error) {
    return ca_fail(error, CATTN_ERR_BUDGET, -1,
                   "the step's workspace on the device needs %zu bytes more, but a sixteenth of budget_bytes, %zu, is for it; "
                   "raise it or lower row_limit",
                   bytes, d->most_bytes);
}

static void release_buffer(ca_device *d, ca_device_buffer *b) {
    if (!b->at) return;
    d->runtime->release(b->at, d->stream);
    d->bytes -= b->bytes;
    *b = (ca_device_buffer){0};
    d->generation++;
}

/* Allocate a buffer of at least `bytes` bytes anew: twice as large as it was if the budget allows that. */
static cattn_status replace_buffer(ca_device *d, ca_device_buffer *b, size_t bytes, cattn_error *error) {
    size_t wanted = 2 * b->bytes > bytes ? 2 * b->bytes : bytes;
    release_buffer(d, b);
    if (d->bytes + wanted > d->most_bytes) wanted = bytes;
    if (d->bytes + wanted > d->most_bytes) return no_budget(d, wanted, error);
    const char *failure = d->runtime->acquire(&b->at, wanted, d->stream);
    if (failure)
        return ca_fail(error, CATTN_ERR_NOMEM, -1, "the device gives no %zu bytes for the step's workspace (%s)", wanted,
                       failure);
    b->bytes = wanted;
    d->bytes += wanted;
    d->generation++;
    return CATTN_OK;
}

static cattn_status grow_work(ca_device *d, ca_workspace which, size_t bytes, cattn_error *error) {
    ca_device_buffer *b = &d->work[which];
    if (bytes <= b->bytes) return CATTN_OK;
    const cattn_status s = replace_buffer(d, b, bytes, error);
    if (s || which != CA_WORK_ARRIVALS) return s;
    const char *failure = d->runtime->zero(b->at, b->bytes, d->stream);
    return failure ? ca_device_failed(d, failure, error) : CATTN_OK;
}

static cattn_status grow_image(ca_device *d, size_t i, cattn_error *error) {
    ca_device_plan *plan = &d->plans.at[i];
    const size_t bytes = plan->image_words * sizeof *plan->image;
    if (bytes <= d->images.at[i].bytes && !plan->moved) return CATTN_OK;
    ca_device_plan_forget(plan);
    if (bytes <= d->images.at[i].bytes) {
        d->generation++; /* its arrays have moved within it */
        return CATTN_OK;
    }
    return replace_buffer(d, &d->images.at[i], bytes, error);
}

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

/* All plans use the same workspace, one after the other. */
static cattn_status grow_workspace(ca_device *d, size_t n_before, size_t n_after, cattn_error *error) {
    size_t bytes[CA_N_WORK] = {0};
    cattn_status s = CATTN_OK;
    for (size_t i = 0; i < d->plans.n && s == CATTN_OK; i++) {
        const ca_device_plan *p = &d->plans.at[i];
        const size_t heads = (size_t)(p->config.n_heads * p->config.group), dim = (size_t)p->config.head_dim;
        const size_t n_states = (size_t)p->n_states, n_carried = (size_t)p->n_carried, n_rows = p->n[CA_IMAGE_POSITION];
        const size_t carry = CA_CUDA_QUARTERS * (dim + CA_CUDA_CARRY), size = sizeof(float);
        bytes[CA_WORK_STATES] = most(bytes[CA_WORK_STATES], n_states * heads * dim * size);
        bytes[CA_WORK_ML] = most(bytes[CA_WORK_ML], n_states * heads * 2 * size);
        bytes[CA_WORK_CARRY] = most(bytes[CA_WORK_CARRY], n_carried * heads * carry * size);
        bytes[CA_WORK_ARRIVALS] = most(bytes[CA_WORK_ARRIVALS], n_rows * (size_t)p->config.n_heads * sizeof(uint32_t));
        s = grow_image(d, i, error);
    }
    if (n_after > d->after_capacity) d->after_capacity = 2 * n_after;
    const size_t n_copies = n_before + n_after > 0 ? d->after_capacity + n_before : 0;
    bytes[CA_WORK_COMMANDS] = n_copies > 0 ? CA_COPIES_HEADER + n_copies * sizeof(ca_cuda_copy) : 0;
    for (int i = 0; i < CA_N_WORK && s == CATTN_OK; i++) s = grow_work(d, (ca_workspace)i, bytes[i], error);
    return s;
}

void ca_device_release(ca_device *d) {
    for (int i = 0; i < CA_N_WORK; i++) release_buffer(d, &d->work[i]);
    d->after_capacity = 0;
    for (size_t i = 0; i < d->images.n; i++) {
        release_buffer(d, &d->images.at[i]);
        ca_device_plan_free(&d->plans.at[i]);
    }
}

/* ---- Staging ---- */

/* Bytes that a step's copies have at most. */
static size_t staging_bytes(const ca_device *d) {
    size_t bytes = d->work[CA_WORK_COMMANDS].bytes;
    for (size_t i = 0; i < d->plans.n; i++) bytes += d->plans.at[i].image_words * sizeof(int32_t);
    return bytes;
}

/* Give staging memory the size that this step needs. It is not in use. */
static cattn_status resize_staging(ca_device *d, ca_staging *s, size_t bytes, cattn_error *error) {
    d->runtime->free_host(s->at);
    s->at = NULL;
    s->bytes = 0;
    const char *failure = d->runtime->allocate_host((void **)&s->at, bytes);
    if (failure) return ca_fail(error, CATTN_ERR_NOMEM, -1, "the host has no %zu bytes to copy from (%s)", bytes, failure);
    s->bytes = bytes;
    return CATTN_OK;
}

static cattn_status add_staging(ca_device *d, cattn_error *error) {
    ca_cuda_event *event = NULL;
    if (CA_ROOM(d->alloc, &d->staging, 1)) return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the step's copies");
    const char *failure = d->runtime->create_event(&event);
    if (failure) return ca_device_failed(d, failure, error);
    d->staging.at[d->staging.n++] = (ca_staging){.event = event};
    return CATTN_OK;
}

/* Find staging memory that no copy uses any more, or add some: one piece for each step under way. */
static cattn_status find_staging(ca_device *d, cattn_error *error) {
    const size_t bytes = staging_bytes(d);
    size_t i = 0;
    while (i < d->staging.n && !d->runtime->passed(d->staging.at[i].event)) i++;
    const cattn_status s = i < d->staging.n ? CATTN_OK : add_staging(d, error);
    if (s) return s;
    d->free_staging = &d->staging.at[i];
    return d->free_staging->bytes >= bytes ? CATTN_OK : resize_staging(d, d->free_staging, bytes, error);
}

cattn_status ca_device_reserve(ca_device *d, const ca_plan *plans, size_t n_before, size_t n_after, cattn_error *error) {
    for (size_t i = 0; i < d->plans.n; i++)
        if (ca_device_plan_update(&d->plans.at[i], &plans[i]))
            return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the step's work items");
    const cattn_status s = grow_workspace(d, n_before, n_after, error);
    return s ? s : find_staging(d, error);
}

/* ---- Begin ---- */

/* The copies of a step from its staging memory, until one fails. */
typedef struct sender {
    ca_device *device;
    size_t used; /* bytes of the staging memory */
    const char *failure;
} sender;

/* Where in the staging memory the next copy's bytes must be written. */
static char *stage(const sender *s) { return s->device->free_staging->at + s->used; }

/* Queue the copy of the `bytes` bytes there to device memory `to`. */
static void send(sender *s, void *to, size_t bytes) {
    if (!s->failure) s->failure = s->device->runtime->copy(to, stage(s), bytes, s->device->stream);
    s->used += bytes;
}

static void place_rows(const ca_device_plan *plan, const ca_device_rows *rows) {
    const int32_t *source = ca_device_plan_array(plan, CA_IMAGE_SOURCE);
    int32_t *chunk = ca_device_plan_array(plan, CA_IMAGE_CHUNK);
    for (size_t r = 0; r < plan->n[CA_IMAGE_CHUNK]; r++)
        chunk[r] = *(const ca_chunk_id *)((const char *)rows->chunk + (size_t)source[r] * rows->stride);
}

static void send_image(sender *s, size_t i) {
    ca_device_plan *plan = &s->device->plans.at[i];
    ca_image_range changes[CA_IMAGE_ARRAYS];
    const int32_t n = ca_device_plan_take_changes(plan, changes);
    for (int32_t c = 0; c < n; c++) {
        const size_t bytes = changes[c].n * sizeof *plan->image;
        memcpy(stage(s), plan->image + changes[c].at, bytes);
        send(s, (int32_t *)s->device->images.at[i].at + changes[c].at, bytes);
    }
}

static size_t write_copies(char *to, const ca_kv_command *commands, size_t n) {
    ca_cuda_copy *copies = (ca_cuda_copy *)to;
    for (size_t i = 0; i < n; i++) {
        copies[i] = (ca_cuda_copy){commands[i].from, commands[i].to, commands[i].begin, commands[i].end};
    }
    return n * sizeof *copies;
}

/* The copies after the rows come first in memory, so that their place is the same in every step. */
static void send_copies(sender *s, const ca_kv_commands *before, const ca_kv_commands *after) {
    if (before->n + after->n == 0) return;
    char *to = s->device->work[CA_WORK_COMMANDS].at;
    const int32_t header[CA_COPIES_HEADER / 4] = {(int32_t)before->n, (int32_t)after->n};
    memcpy(stage(s), header, sizeof header);
    send(s, to, sizeof header + write_copies(stage(s) + sizeof header, after->at, after->n));
    to += CA_COPIES_HEADER + s->device->after_capacity * sizeof(ca_cuda_copy);
    if (before->n > 0) send(s, to, write_copies(stage(s), before->at, before->n));
}

/* The layer's tiles in chunk 0. */
static char *layer_tiles(const ca_device *d, int32_t layer) { return (char *)d->kv + d->layout->layers[layer].begin; }

static const ca_device_shape *shape_of(const ca_device *d, int32_t layer) { return &d->shapes[d->layout->layers[layer].shape]; }

/* Copy slots in n_tiles pairs of tiles from a layer's on; the header's number `which` says how many copies there are. */
static const char *launch_copies(const ca_device *d, const char *header, int which, const char *copies, int32_t layer,
                                 int32_t n_tiles, ca_cuda_stream stream) {
    const ca_device_kernel *copy = &shape_of(d, layer)->copy;
    const ca_cuda_copy_args args = {.n_copies = (const int32_t *)header + which,
                                    .copies = (const ca_cuda_copy *)copies,
                                    .kv = layer_tiles(d, layer),
                                    .chunk_bytes = (int64_t)d->layout->chunk_bytes,
                                    .n_tiles = n_tiles};
    return d->runtime->launch(&d->runtime->kernels[copy->id], copy->blocks, &args, stream);
}

/* The same in all layers: a launch for each run of tiles of one head size. */
static const char *launch_all_copies(const ca_device *d, const char *header, int which, const char *copies,
                                     ca_cuda_stream stream) {
    const ca_chunk_layout *l = d->layout;
    const char *failure = NULL;
    for (int32_t first = 0, layer; first < l->n_layers && !failure; first = layer) {
        int32_t n_tiles = 0;
        for (layer = first; layer < l->n_layers && shape_of(d, layer)->copy.id == shape_of(d, first)->copy.id; layer++)
            if (ca_layer_stores(l, layer)) n_tiles += ca_shape_of(l, layer)->n_kv_heads;
        if (n_tiles > 0) failure = launch_copies(d, header, which, copies, first, n_tiles, stream);
    }
    return failure;
}

cattn_status ca_device_begin(ca_device *d, const ca_device_rows *rows, const ca_kv_commands *before,
                             const ca_kv_commands *after, cattn_error *error) {
    sender s = {.device = d};
    d->lists = 0;
    d->copies_after = after->n > 0;
    for (size_t i = 0; i < d->plans.n; i++) {
        place_rows(&d->plans.at[i], rows);
        send_image(&s, i);
        d->lists |= d->plans.at[i].lists;
    }
    send_copies(&s, before, after);
    if (!s.failure && s.used > 0) s.failure = d->runtime->record(d->free_staging->event, d->stream);
    const char *header = d->work[CA_WORK_COMMANDS].at;
    if (!s.failure && before->n > 0)
        s.failure =
            launch_all_copies(d, header, 0, header + CA_COPIES_HEADER + d->after_capacity * sizeof(ca_cuda_copy), d->stream);
    return s.failure ? ca_device_failed(d, s.failure, error) : CATTN_OK;
}

uint64_t ca_device_graph(const ca_device *d) { return d->generation << (CA_N_LISTS + 1) | d->lists << 1 | d->copies_after; }

/* ---- Launches ---- */

static ca_cuda_view view_of(const cattn_view *v) {
    const int64_t size = (int64_t)ca_type_size(v->type);
    return (ca_cuda_view){v->data, v->row_stride * size, v->head_stride * size, v->type, 0};
}

static const int32_t *array_on_device(const ca_device *d, int32_t plan, int array) {
    return (const int32_t *)d->images.at[plan].at + d->plans.at[plan].at[array];
}

/* All plans have the same rows in the same order. */
cattn_status ca_device_write(ca_device *d, int32_t layer, const cattn_view *k, const cattn_view *v, ca_cuda_stream stream,
                             cattn_error *error) {
    const ca_device_kernel *write = &shape_of(d, layer)->write;
    const int32_t n_kv_heads = ca_shape_of(d->layout, layer)->n_kv_heads;
    const ca_cuda_write_args args = {.n_rows = array_on_device(d, 0, CA_IMAGE_N_ROWS),
                                     .source = array_on_device(d, 0, CA_IMAGE_SOURCE),
                                     .position = array_on_device(d, 0, CA_IMAGE_POSITION),
                                     .chunk = array_on_device(d, 0, CA_IMAGE_CHUNK),
                                     .kv = layer_tiles(d, layer),
                                     .chunk_bytes = (int64_t)d->layout->chunk_bytes,
                                     .k = view_of(k),
                                     .v = view_of(v),
                                     .n_kv_heads = n_kv_heads};
    const char *failure = d->runtime->launch(&d->runtime->kernels[write->id], write->blocks, &args, stream);
    const char *header = d->work[CA_WORK_COMMANDS].at;
    if (!failure && d->copies_after)
        failure = launch_copies(d, header, 1, header + CA_COPIES_HEADER, layer, n_kv_heads, stream);
    return failure ? ca_device_failed(d, failure, error) : CATTN_OK;
}

static ca_cuda_attend_args attend_args(const ca_device *d, int32_t layer, int32_t plan, const ca_plan_config *config) {
    const ca_device_shape *s = shape_of(d, layer);
    return (ca_cuda_attend_args){
        .position = array_on_device(d, plan, CA_IMAGE_POSITION),
        .source = array_on_device(d, plan, CA_IMAGE_SOURCE),
        .merge_begin = array_on_device(d, plan, CA_IMAGE_MERGE_BEGIN),
        .merge = array_on_device(d, plan, CA_IMAGE_MERGE),
        .kv = d->kv ? layer_tiles(d, layer) : NULL,
        .chunk_bytes = (int64_t)d->layout->chunk_bytes,
        .o = d->work[CA_WORK_STATES].at,
        .ml = d->work[CA_WORK_ML].at,
        .carry = d->work[CA_WORK_CARRY].at,
        .arrivals = d->work[CA_WORK_ARRIVALS].at,
        .slopes = d->slopes,
        .sinks = d->sinks ? d->sinks + d->layout->layers[layer].first_head : NULL,
        .scale_log2 = s->scale_log2,
        .softcap = d->softcap,
        .n_kv_heads = ca_shape_of(d->layout, layer)->n_kv_heads,
        .group = s->group,
        .group_inverse = (65536 + (uint32_t)s->group - 1) / (uint32_t)s->group,
        .window = config->window,
        .n_sink_tokens = config->n_sink_tokens,
    };
}

cattn_status ca_device_attend(ca_device *d, int32_t layer, int32_t plan, const ca_plan_config *config,
                              const ca_cuda_pages *pages, const cattn_view *q, const cattn_view *out, float *lse,
                              ca_cuda_stream stream, cattn_error *error) {
    ca_cuda_attend_args args = attend_args(d, layer, plan, config);
    if (pages) args.pages = *pages;
    args.q = view_of(q);
    args.out = view_of(out);
    args.lse = lse;
    const char *failure = NULL;
    for (int l = 0; l < CA_N_LISTS && !failure; l++) {
        if (!(d->lists >> l & 1)) continue;
        const ca_device_kernel *kernel = ca_list_decodes(l) ? &shape_of(d, layer)->decode : &shape_of(d, layer)->prefill;
        args.items = (const ca_work_item *)array_on_device(d, plan, CA_IMAGE_ITEMS + l);
        args.parts = array_on_device(d, plan, CA_IMAGE_PARTS + l);
        args.pages.items = (const ca_work_item_pages *)array_on_device(d, plan, CA_IMAGE_PAGES + l);
        failure = d->runtime->launch(&d->runtime->kernels[kernel->id], kernel->blocks, &args, stream);
    }
    return failure ? ca_device_failed(d, failure, error) : CATTN_OK;
}
