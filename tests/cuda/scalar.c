/* Executes the image of a plan as a device's kernels do, but one row and one chunk at a time. */
#include "scalar.h"

#include <math.h>
#include <stdlib.h>

#include "base/fp.h"

typedef struct run {
    const ca_image *image;
    const ca_attn *attn;
    int32_t layer;
    const cattn_view *q, *out;
    float *lse;
    char *states;          /* [n_heads][n_states][group] of the spread chains */
    char *chain_states;    /* [n_chain_states][group] of the other chains, one chain after the other */
    int32_t *n_finished;   /* [spread chains][n_heads] head tasks */
    void *query, *scratch; /* one packed query; the kernel's memory */
    const void **merging;  /* states of the row that is merged */
} run;

static const void *array_at(const ca_image *image, ca_image_array which) { return (const int32_t *)image + image->at[which]; }

/* The state of one query head of a row in a block. */
static char *state_at(const run *r, const ca_image_block *block, bool spread, int32_t head, int32_t row, int32_t g) {
    const int64_t at = block->state + row - block->row_begin;
    const int64_t i = spread ? (int64_t)head * r->image->n_states + at : at;
    return (spread ? r->states : r->chain_states) + (size_t)(i * r->attn->group + g) * r->attn->state_bytes;
}

static float *head_at(const run *r, const cattn_view *view, int32_t row, int32_t q_head) {
    const int32_t *source = array_at(r->image, CA_IMAGE_SOURCE);
    return (float *)view->data + source[row] * view->row_stride + q_head * view->head_stride;
}

static int32_t clamp_slots(const run *r, int64_t n) {
    const int64_t c = r->attn->layout->c;
    return (int32_t)(n < 0 ? 0 : n > c ? c : n);
}

/* One query head of a row over one chunk. */
static void attend_chunk(const run *r, const ca_image_item *item, int32_t i, int32_t head, int32_t row, int32_t g,
                         void *state) {
    const ca_attn *a = r->attn;
    const ca_layout *l = a->layout;
    const int32_t *chunks = array_at(r->image, CA_IMAGE_CHUNK), *position = array_at(r->image, CA_IMAGE_POSITION);
    const int64_t start = (int64_t)(item->first_chunk + i) * l->c, end = (int64_t)position[row] + 1;
    int32_t seen = l->c, hidden = 0;
    const int32_t n_sink = clamp_slots(r, r->image->n_sink_tokens - start);
    if (item->partial) {
        seen = clamp_slots(r, end - start);
        if (r->image->window > 0) hidden = clamp_slots(r, end - r->image->window - start);
        if (hidden > 0 && hidden == seen) { /* the window has left the chunk */
            seen = n_sink;
            hidden = 0;
        }
        if (hidden <= n_sink) hidden = 0;
    }
    if (seen == 0) return;
    const float distance = (float)(start - position[row]);
    const ca_tile_options options = {a->softcap, a->slopes ? &a->slopes[head * a->group + g] : NULL, &distance, &hidden,
                                     n_sink};
    const ca_chunk_id id = chunks[item->chunk + i];
    const char *k = ca_chunk_tile(a->pool, id, ca_layout_tile(l, r->layer, head));
    const ca_tile tile = {.d_k = l->d_k,
                          .d_v = l->d_v,
                          .c = l->c,
                          .n_rows = 1,
                          .q = r->query,
                          .state = state,
                          .n_seen = &seen,
                          .k = k,
                          .v = k + l->k_bytes,
                          .open = ca_chunk_open(a->pool, id),
                          .scratch = r->scratch,
                          .options = &options};
    a->kernel->attend(&tile);
}

static void attend_block(const run *r, const ca_image_block *block, const ca_image_task *task, int32_t head, int32_t row) {
    const ca_attn *a = r->attn;
    const ca_image_item *items = array_at(r->image, CA_IMAGE_ITEM);
    for (int32_t g = 0; g < a->group; g++) {
        char *state = state_at(r, block, task->chain >= 0, head, row, g);
        a->kernel->init(state, 1, a->layout->d_v);
        a->kernel->pack_query(head_at(r, r->q, row, head * a->group + g), r->q->head_stride, 1, a->layout->d_k, a->scale_log2,
                              r->query);
        for (const ca_image_item *item = items + block->item_begin; item < items + block->item_end; item++)
            for (int32_t i = 0; row >= item->row_begin && row < item->row_end && i < item->n_chunks; i++)
                attend_chunk(r, item, i, head, row, g, state);
    }
}

static void merge_row(const run *r, bool spread, int32_t head, int32_t row) {
    const ca_attn *a = r->attn;
    const ca_image_block *blocks = array_at(r->image, CA_IMAGE_BLOCK);
    const int32_t *begin = array_at(r->image, CA_IMAGE_MERGE_BEGIN), *merge = array_at(r->image, CA_IMAGE_MERGE);
    const int32_t *source = array_at(r->image, CA_IMAGE_SOURCE);
    const int64_t n_heads = (int64_t)r->image->n_heads * a->group;
    for (int32_t g = 0; g < a->group; g++) {
        const int32_t q_head = head * a->group + g, n = begin[row + 1] - begin[row];
        for (int32_t i = 0; i < n; i++) r->merging[i] = state_at(r, &blocks[merge[begin[row] + i]], spread, head, row, g);
        const float sink = a->sinks ? a->sinks[r->layer * n_heads + q_head] : -INFINITY;
        a->kernel->merge(r->merging, n, a->layout->d_v, sink, head_at(r, r->out, row, q_head),
                         r->lse + source[row] * n_heads + q_head);
    }
}

static int32_t max32(int32_t a, int32_t b) { return a > b ? a : b; }
static int32_t min32(int32_t a, int32_t b) { return a < b ? a : b; }

/* Count a finished head task of a spread chain; the last one merges the chain's rows. */
static void finish_spread(const run *r, int32_t chain, int32_t head) {
    const ca_image_chain *c = (const ca_image_chain *)array_at(r->image, CA_IMAGE_CHAIN) + chain;
    if (++r->n_finished[chain * r->image->n_heads + head] < c->n_tasks) return;
    for (int32_t row = c->row_begin; row < c->row_end; row++) merge_row(r, true, head, row);
}

static void run_head_task(const run *r, int32_t head_task) {
    const int32_t head = head_task % r->image->n_heads;
    const ca_image_task *task = (const ca_image_task *)array_at(r->image, CA_IMAGE_TASK) + head_task / r->image->n_heads;
    const ca_image_block *blocks = array_at(r->image, CA_IMAGE_BLOCK);
    const int32_t *begin = array_at(r->image, CA_IMAGE_MERGE_BEGIN), *merge = array_at(r->image, CA_IMAGE_MERGE);
    for (int32_t b = task->block_begin; b < task->block_end; b++)
        for (int32_t row = max32(blocks[b].row_begin, task->row_begin); row < min32(blocks[b].row_end, task->row_end); row++) {
            attend_block(r, &blocks[b], task, head, row);
            if (task->chain < 0 && merge[begin[row + 1] - 1] == b) merge_row(r, false, head, row);
        }
    if (task->chain >= 0) finish_spread(r, task->chain, head);
}

void scalar_run(const ca_image *image, const ca_attn *attn, int32_t layer, const cattn_view *q, const cattn_view *out,
                float *lse, rng *random) {
    const size_t heads = (size_t)image->n_heads, group = (size_t)attn->group;
    const int32_t n_queues = image->n[CA_IMAGE_QUEUE] - 1, *begin = array_at(image, CA_IMAGE_QUEUE);
    const int32_t *head_tasks = array_at(image, CA_IMAGE_HEAD_TASK);
    int32_t *at = malloc((size_t)n_queues * sizeof *at);
    run r = {.image = image,
             .attn = attn,
             .layer = layer,
             .q = q,
             .out = out,
             .lse = lse,
             .states = malloc(heads * (size_t)image->n_states * group * attn->state_bytes + 1),
             .chain_states = malloc((size_t)image->n_chain_states * group * attn->state_bytes + 1),
             .n_finished = calloc(heads * (size_t)image->n[CA_IMAGE_CHAIN] + 1, sizeof(int32_t)),
             .query = malloc(attn->query_bytes),
             .scratch = malloc(64),
             .merging = malloc((size_t)image->n[CA_IMAGE_BLOCK] * sizeof(void *) + 1)};
    for (int32_t i = 0; i < n_queues; i++) at[i] = begin[i];
    const unsigned fp = ca_fp_enter();
    for (int32_t left = image->n[CA_IMAGE_HEAD_TASK]; left > 0;) { /* a queue in its order, queues in any */
        const int32_t i = (int32_t)rng_range(random, 0, n_queues - 1);
        if (at[i] == begin[i + 1]) continue;
        run_head_task(&r, head_tasks[at[i]++]);
        left--;
    }
    ca_fp_leave(fp);
    free(at);
    free(r.states);
    free(r.chain_states);
    free(r.n_finished);
    free(r.query);
    free(r.scratch);
    free(r.merging);
}
