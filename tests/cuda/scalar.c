/* The image of a plan executed as a device's kernels do it, but one row and one chunk at a time. */
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
    char *states;      /* [n_heads][n_states][group] of the chains in pieces */
    char *own;         /* [n_own_states][group] */
    int32_t *arrivals; /* [chains][n_heads] */
    void *query, *scratch;
    const void **merging;
} run;

static const void *array_at(const ca_image *image, ca_image_array which) { return (const int32_t *)image + image->at[which]; }

/* The state of one query head of a row in a unit. */
static char *state_at(const run *r, const ca_image_unit *unit, bool in_pieces, int32_t head, int32_t row, int32_t g) {
    const int64_t at = unit->state + row - unit->row_begin;
    const int64_t i = in_pieces ? ((int64_t)head * r->image->n_states + at) : at;
    return (in_pieces ? r->states : r->own) + (size_t)(i * r->attn->group + g) * r->attn->state_bytes;
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
static void attend_chunk(const run *r, const ca_image_run *items, int32_t i, int32_t head, int32_t row, int32_t g,
                         void *state) {
    const ca_attn *a = r->attn;
    const ca_layout *l = a->layout;
    const int32_t *chunks = array_at(r->image, CA_IMAGE_CHUNK), *position = array_at(r->image, CA_IMAGE_POSITION);
    const int64_t start = (int64_t)(items->first_chunk + i) * l->c, end = (int64_t)position[row] + 1;
    int32_t seen = l->c, hidden = 0;
    const int32_t kept = clamp_slots(r, r->image->n_kept - start);
    if (items->partial) {
        seen = clamp_slots(r, end - start);
        if (r->image->window > 0) hidden = clamp_slots(r, end - r->image->window - start);
        if (hidden > 0 && hidden == seen) { /* the window is behind the chunk */
            seen = kept;
            hidden = 0;
        }
        if (hidden <= kept) hidden = 0;
    }
    if (seen == 0) return;
    const float distance = (float)(start - position[row]);
    const ca_tile_options options = {a->softcap, a->slopes ? &a->slopes[head * a->group + g] : NULL, &distance, &hidden, kept};
    const ca_chunk_id id = chunks[items->chunk + i];
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

static void attend_unit(const run *r, const ca_image_unit *unit, const ca_image_task *task, int32_t head, int32_t row) {
    const ca_attn *a = r->attn;
    const ca_image_run *runs = array_at(r->image, CA_IMAGE_RUN);
    for (int32_t g = 0; g < a->group; g++) {
        char *state = state_at(r, unit, task->chain >= 0, head, row, g);
        a->kernel->init(state, 1, a->layout->d_v);
        a->kernel->pack_query(head_at(r, r->q, row, head * a->group + g), r->q->head_stride, 1, a->layout->d_k, a->scale_log2,
                              r->query);
        for (const ca_image_run *items = runs + unit->run_begin; items < runs + unit->run_end; items++)
            for (int32_t i = 0; row >= items->row_begin && row < items->row_end && i < items->n_chunks; i++)
                attend_chunk(r, items, i, head, row, g, state);
    }
}

static void merge_row(const run *r, bool in_pieces, int32_t head, int32_t row) {
    const ca_attn *a = r->attn;
    const ca_image_unit *units = array_at(r->image, CA_IMAGE_UNIT);
    const int32_t *begin = array_at(r->image, CA_IMAGE_MERGE_BEGIN), *merge = array_at(r->image, CA_IMAGE_MERGE);
    const int32_t *source = array_at(r->image, CA_IMAGE_SOURCE);
    const int64_t n_heads = (int64_t)r->image->n_heads * a->group;
    for (int32_t g = 0; g < a->group; g++) {
        const int32_t q_head = head * a->group + g, n = begin[row + 1] - begin[row];
        for (int32_t i = 0; i < n; i++) r->merging[i] = state_at(r, &units[merge[begin[row] + i]], in_pieces, head, row, g);
        const float sink = a->sinks ? a->sinks[r->layer * n_heads + q_head] : -INFINITY;
        a->kernel->merge(r->merging, n, a->layout->d_v, sink, head_at(r, r->out, row, q_head),
                         r->lse + source[row] * n_heads + q_head);
    }
}

static int32_t max32(int32_t a, int32_t b) { return a > b ? a : b; }
static int32_t min32(int32_t a, int32_t b) { return a < b ? a : b; }

/* Merge rows of a piece's chain if all its other pieces have been there. */
static void arrive(const run *r, int32_t chain, int32_t head) {
    const ca_image_chain *c = (const ca_image_chain *)array_at(r->image, CA_IMAGE_CHAIN) + chain;
    if (++r->arrivals[chain * r->image->n_heads + head] < c->n_tasks) return;
    for (int32_t row = c->row_begin; row < c->row_end; row++) merge_row(r, true, head, row);
}

static void do_job(const run *r, int32_t job) {
    const int32_t head = job % r->image->n_heads;
    const ca_image_task *task = (const ca_image_task *)array_at(r->image, CA_IMAGE_TASK) + job / r->image->n_heads;
    const ca_image_unit *units = array_at(r->image, CA_IMAGE_UNIT);
    const int32_t *begin = array_at(r->image, CA_IMAGE_MERGE_BEGIN), *merge = array_at(r->image, CA_IMAGE_MERGE);
    for (int32_t u = task->unit_begin; u < task->unit_end; u++)
        for (int32_t row = max32(units[u].row_begin, task->row_begin); row < min32(units[u].row_end, task->row_end); row++) {
            attend_unit(r, &units[u], task, head, row);
            if (task->chain < 0 && merge[begin[row + 1] - 1] == u) merge_row(r, false, head, row);
        }
    if (task->chain >= 0) arrive(r, task->chain, head);
}

void scalar_run(const ca_image *image, const ca_attn *attn, int32_t layer, const cattn_view *q, const cattn_view *out,
                float *lse, rng *random) {
    const size_t heads = (size_t)image->n_heads, group = (size_t)attn->group;
    const int32_t n_parts = image->n[CA_IMAGE_PART] - 1, *begin = array_at(image, CA_IMAGE_PART);
    const int32_t *jobs = array_at(image, CA_IMAGE_JOB);
    int32_t *at = malloc((size_t)n_parts * sizeof *at);
    run r = {.image = image,
             .attn = attn,
             .layer = layer,
             .q = q,
             .out = out,
             .lse = lse,
             .states = malloc(heads * (size_t)image->n_states * group * attn->state_bytes + 1),
             .own = malloc((size_t)image->n_own_states * group * attn->state_bytes + 1),
             .arrivals = calloc(heads * (size_t)image->n[CA_IMAGE_CHAIN] + 1, sizeof(int32_t)),
             .query = malloc(attn->query_bytes),
             .scratch = malloc(64),
             .merging = malloc((size_t)image->n[CA_IMAGE_UNIT] * sizeof(void *) + 1)};
    for (int32_t p = 0; p < n_parts; p++) at[p] = begin[p];
    const unsigned fp = ca_fp_enter();
    for (int32_t left = image->n[CA_IMAGE_JOB]; left > 0;) { /* jobs of a part in order, parts as it comes */
        const int32_t p = (int32_t)rng_range(random, 0, n_parts - 1);
        if (at[p] == begin[p + 1]) continue;
        do_job(&r, jobs[at[p]++]);
        left--;
    }
    ca_fp_leave(fp);
    free(at);
    free(r.states);
    free(r.own);
    free(r.arrivals);
    free(r.query);
    free(r.scratch);
    free(r.merging);
}
