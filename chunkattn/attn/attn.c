/*
 * Running the kernels over a plan. The order of the items makes a step chunk-first, then sequence-first; the states of each row
 * are merged at the end.
 */
#include "attn.h"

#include <math.h>

#include "chunkattn/base/fp.h"
#include "prefetch.h"
#include "view.h"

struct ca_attn_worker {
    ca_attn_buffer states;      /* of the current chain, unless it is spread over tasks */
    ca_attn_buffer merging;     /* const void *[max_segments]: the states of the row that is being merged */
    void *queries;              /* packed, of the current block */
    void *scratch;              /* the kernel's */
    int32_t *n_seen, *n_hidden; /* [block_heads] of a tile's rows (ca_tile, ca_tile_options) */
    float *slopes, *distances;  /* [block_heads] of a tile's rows */
    float *rows;                /* of the caller's tensors, where they are not f32 */
};

/* ---- Workspace ---- */

static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

/* What a worker needs for the most demanding shape. */
typedef struct worker_sizes {
    size_t block_heads; /* query heads of a block */
    size_t queries;     /* bytes of their packed queries */
    size_t scratch;     /* bytes of the kernel's */
    size_t rows;        /* floats of ca_attn_rows */
} worker_sizes;

static size_t block_heads(const ca_attn_shape *s) { return (size_t)s->max_rows * (size_t)s->group; }

/* The largest number of KV heads of a task, under any plan. */
static int32_t max_task_heads(const ca_attn *a, const ca_attn_shape *s) {
    return !a->source ? 1 : s->n_kv_heads < CA_MOST_HEADS ? s->n_kv_heads : CA_MOST_HEADS;
}

static worker_sizes worker_sizes_of(const ca_attn *a) {
    worker_sizes n = {0};
    for (int32_t i = 0; i < a->layout->n_shapes; i++) {
        const ca_attn_shape *s = &a->shapes[i];
        const ca_layout *l = s->tiles;
        n.block_heads = max_size(n.block_heads, block_heads(s));
        n.queries = max_size(n.queries, (size_t)max_task_heads(a, s) * block_heads(s) * s->query_bytes);
        n.scratch = max_size(n.scratch, a->kernel->scratch_bytes(l->d_k, l->d_v, l->c));
        n.rows = max_size(n.rows, CA_VIEW_ROWS * (size_t)(l->d_k + l->d_v));
    }
    return n;
}

static float to_base_2(float x) {
    const double log2_e = 1.4426950408889634;
    return (float)((double)x * log2_e);
}

/* Copy x [n], converted, to *to, which the caller frees. x may be NULL; *to is unchanged then. */
static cattn_status copy_to_base_2(ca_alloc *alloc, const float *x, size_t n, float **to) {
    if (!x) return CATTN_OK;
    *to = ca_new(alloc, n, sizeof **to);
    for (size_t i = 0; *to && i < n; i++) (*to)[i] = to_base_2(x[i]);
    return *to ? CATTN_OK : CATTN_ERR_NOMEM;
}

static ca_attn_shape shape_for(const ca_kernel *kernel, const ca_shape *s) {
    const int32_t group = s->n_heads / s->n_kv_heads;
    return (ca_attn_shape){.n_heads = s->n_heads,
                           .n_kv_heads = s->n_kv_heads,
                           .group = group,
                           .max_rows = group < kernel->max_rows ? kernel->max_rows / group : 1,
                           .scale_log2 = to_base_2(s->scale),
                           .state_bytes = kernel->state_bytes(s->tiles.d_v),
                           .query_bytes = kernel->query_bytes(s->tiles.d_k),
                           .tiles = &s->tiles};
}

static cattn_status create_worker(ca_attn *a, ca_attn_worker *w) {
    const worker_sizes n = worker_sizes_of(a);
    w->queries = ca_new(a->alloc, 1, n.queries);
    w->scratch = ca_new(a->alloc, 1, n.scratch);
    w->n_seen = ca_new(a->alloc, n.block_heads, sizeof *w->n_seen);
    w->n_hidden = ca_new(a->alloc, n.block_heads, sizeof *w->n_hidden);
    w->slopes = ca_new(a->alloc, n.block_heads, sizeof *w->slopes);
    w->distances = ca_new(a->alloc, n.block_heads, sizeof *w->distances);
    w->rows = ca_new(a->alloc, n.rows, sizeof *w->rows);
    const bool all = w->queries && w->scratch && w->n_seen && w->n_hidden && w->slopes && w->distances && w->rows;
    return all ? CATTN_OK : CATTN_ERR_NOMEM;
}

static cattn_status create_parts(ca_attn *a, const ca_attn_options *options) {
    a->shapes = ca_new(a->alloc, (size_t)a->layout->n_shapes, sizeof *a->shapes);
    a->workers = ca_new_zero(a->alloc, (size_t)a->n_threads, sizeof *a->workers);
    if (!a->shapes || !a->workers) return CATTN_ERR_NOMEM;
    for (int32_t i = 0; i < a->layout->n_shapes; i++) a->shapes[i] = shape_for(a->kernel, &a->layout->shapes[i]);
    if (copy_to_base_2(a->alloc, options->alibi_slopes, (size_t)a->shapes->n_heads, &a->slopes) ||
        copy_to_base_2(a->alloc, options->sink_logits, (size_t)a->layout->n_heads, &a->sinks))
        return CATTN_ERR_NOMEM;
    cattn_status status = CATTN_OK;
    for (int32_t i = 0; i < a->n_threads && status == CATTN_OK; i++) status = create_worker(a, &a->workers[i]);
    return status;
}

cattn_status ca_attn_init(ca_attn *a, const ca_kernel *kernel, const ca_chunk_layout *layout, const ca_chunk_pool *pool,
                          const ca_tile_source *source, ca_alloc *alloc, const cattn_parallel *parallel, int32_t n_threads,
                          const ca_attn_options *options) {
    *a = (ca_attn){.kernel = kernel,
                   .layout = layout,
                   .pool = pool,
                   .source = source,
                   .alloc = alloc,
                   .parallel = *parallel,
                   .n_threads = n_threads,
                   .softcap = to_base_2(options->softcap)};
    const cattn_status status = create_parts(a, options);
    if (status) ca_attn_free(a);
    return status;
}

static void free_worker(const ca_attn *a, ca_attn_worker *w) {
    const worker_sizes n = worker_sizes_of(a);
    ca_delete(a->alloc, w->queries, 1, n.queries);
    ca_delete(a->alloc, w->scratch, 1, n.scratch);
    ca_delete(a->alloc, w->n_seen, n.block_heads, sizeof *w->n_seen);
    ca_delete(a->alloc, w->n_hidden, n.block_heads, sizeof *w->n_hidden);
    ca_delete(a->alloc, w->slopes, n.block_heads, sizeof *w->slopes);
    ca_delete(a->alloc, w->distances, n.block_heads, sizeof *w->distances);
    ca_delete(a->alloc, w->rows, n.rows, sizeof *w->rows);
}

void ca_attn_free(ca_attn *a) {
    if (a->workers) ca_attn_release(a);
    for (int32_t i = 0; a->workers && a->shapes && i < a->n_threads; i++) free_worker(a, &a->workers[i]);
    ca_delete(a->alloc, a->workers, (size_t)a->n_threads, sizeof *a->workers);
    if (a->shapes) ca_delete(a->alloc, a->slopes, (size_t)a->shapes->n_heads, sizeof *a->slopes);
    ca_delete(a->alloc, a->sinks, (size_t)a->layout->n_heads, sizeof *a->sinks);
    ca_delete(a->alloc, a->shapes, (size_t)a->layout->n_shapes, sizeof *a->shapes);
    a->workers = NULL;
    a->shapes = NULL;
    a->slopes = a->sinks = NULL;
}

/* The shape of the layers that a plan is for. */
static const ca_attn_shape *shape_of(const ca_attn *a, const ca_plan *plan) { return &a->shapes[plan->config.shape]; }

/* Bytes of the states of spread chains, which all workers share, and of another chain's for one KV head. */
static size_t shared_bytes(const ca_attn_shape *s, const ca_plan *plan) {
    return (size_t)plan->n_states * (size_t)s->n_heads * s->state_bytes;
}
static size_t head_bytes(const ca_attn_shape *s, const ca_plan *plan) {
    return (size_t)plan->n_chain_states * (size_t)s->group * s->state_bytes;
}

/* The largest number of KV heads of a task under a plan: the states of more would take too much memory. */
static int32_t max_plan_heads(const ca_attn *a, const ca_attn_shape *s, const ca_plan *plan) {
    enum { MOST_BYTES = 4 << 20 };
    int32_t heads = max_task_heads(a, s);
    while (heads > 1 && (size_t)heads * head_bytes(s, plan) > MOST_BYTES) heads--;
    return heads;
}

/* The largest that any of some plans needs, in bytes. */
typedef struct workspace_sizes {
    size_t shared, own, merging; /* bytes */
} workspace_sizes;

static workspace_sizes sizes_for(const ca_attn *a, const ca_plan *plans, size_t n_plans) {
    workspace_sizes n = {0};
    for (const ca_plan *plan = plans; plan < plans + n_plans; plan++) {
        n.shared = max_size(n.shared, shared_bytes(shape_of(a, plan), plan));
        n.own = max_size(n.own, (size_t)max_plan_heads(a, shape_of(a, plan), plan) * head_bytes(shape_of(a, plan), plan));
        n.merging = max_size(n.merging, (size_t)plan->max_segments * sizeof(const void *));
    }
    return n;
}

static size_t missing_bytes(const ca_attn_buffer *b, size_t size) { return size > b->size ? size - b->size : 0; }

static cattn_status reserve(const ca_attn *a, ca_attn_buffer *b, size_t size) {
    if (size <= b->size) return CATTN_OK;
    ca_delete(a->alloc, b->at, 1, b->size);
    b->at = ca_new(a->alloc, 1, size);
    b->size = b->at ? size : 0;
    return b->at ? CATTN_OK : CATTN_ERR_NOMEM;
}

static void release(const ca_attn *a, ca_attn_buffer *b) {
    ca_delete(a->alloc, b->at, 1, b->size);
    *b = (ca_attn_buffer){0};
}

static size_t missing_for(const ca_attn *a, workspace_sizes sizes) {
    size_t missing = missing_bytes(&a->states, sizes.shared);
    for (int32_t i = 0; i < a->n_threads; i++)
        missing += missing_bytes(&a->workers[i].states, sizes.own) + missing_bytes(&a->workers[i].merging, sizes.merging);
    return missing;
}

size_t ca_attn_missing(const ca_attn *a, const ca_plan *plans, size_t n_plans) {
    return missing_for(a, sizes_for(a, plans, n_plans));
}

size_t ca_attn_most_missing(const ca_attn *a, int64_t n_segments, int64_t n_rows) {
    const size_t segments = (size_t)n_segments, rows = (size_t)n_rows;
    const size_t spread = a->n_threads > 1 ? rows : 0; /* one thread spreads no chain */
    workspace_sizes most = {.merging = segments * sizeof(const void *)};
    for (int32_t i = 0; i < a->layout->n_shapes; i++) {
        const ca_attn_shape *s = &a->shapes[i];
        const size_t block = rows < (size_t)s->max_rows ? rows : (size_t)s->max_rows;
        most.shared = max_size(most.shared, segments * spread * (size_t)s->n_heads * s->state_bytes);
        most.own = max_size(most.own, segments * block * (size_t)s->group * s->state_bytes);
    }
    return missing_for(a, most);
}

cattn_status ca_attn_reserve(ca_attn *a, const ca_plan *plans, size_t n_plans) {
    const workspace_sizes sizes = sizes_for(a, plans, n_plans);
    if (reserve(a, &a->states, sizes.shared)) return CATTN_ERR_NOMEM;
    for (int32_t i = 0; i < a->n_threads; i++)
        if (reserve(a, &a->workers[i].states, sizes.own) || reserve(a, &a->workers[i].merging, sizes.merging))
            return CATTN_ERR_NOMEM;
    return CATTN_OK;
}

void ca_attn_release(ca_attn *a) {
    release(a, &a->states);
    for (int32_t i = 0; i < a->n_threads; i++) {
        release(a, &a->workers[i].states);
        release(a, &a->workers[i].merging);
    }
}

/* ---- A task: one KV head over some blocks, or a few neighbouring heads ---- */

/* The arguments of ca_attn_run, for its tasks. */
typedef struct call {
    const ca_attn *attn;
    const ca_attn_shape *shape; /* of the layer */
    const ca_plan *plan;
    int32_t layer;
    int32_t heads, groups; /* KV heads of a task, and the number of groups of them */
    const cattn_view *q, *out;
    float *lse;
} call;

/* The rows of one block that a task processes. */
typedef struct slice {
    const call *call;
    const ca_section *section;
    const ca_block *block;
    ca_attn_worker *worker;
    int32_t first_head, head_end; /* the KV heads of the task, which pass over each chunk in turn */
    int32_t head;                 /* of these, at hand */
    int32_t row_begin, row_end;   /* of the section */
} slice;

static char *state_at(const slice *p, const ca_block *block, int32_t row) {
    const ca_attn_shape *s = p->call->shape;
    const int64_t n_rows = block->row_end - block->row_begin, at = row - block->row_begin;
    if (!block->spread)
        return (char *)p->worker->states.at + (size_t)(p->head - p->first_head) * head_bytes(s, p->call->plan) +
               (size_t)((block->state + at) * s->group) * s->state_bytes;
    const int64_t i = (block->state * s->n_kv_heads + p->head * n_rows + at) * s->group;
    return (char *)p->call->attn->states.at + (size_t)i * s->state_bytes;
}

/* The g-th query head of a row in q or out. A row's heads are a few cache lines, far from those of other rows. */
static void *head_at(const slice *p, const cattn_view *view, int32_t row, int32_t g) {
    return ca_view_at(view, p->section->source.at[row], p->head * p->call->shape->group + g);
}

/* A row takes less time than a read from memory, so rows are prefetched some ahead. */
enum { ROWS_AHEAD = 4 };

CA_PREFETCH void prefetch_heads(const slice *p, const cattn_view *view, int32_t row, int32_t d) {
    if (row >= p->row_end) return;
    for (int32_t g = 0; g < p->call->shape->group; g++)
        ca_prefetch_bytes(head_at(p, view, row, g), (size_t)d * ca_type_size(view->type));
}

/* Pack the query heads of a row. */
static void pack_row(const slice *p, int32_t row, char *to) {
    const ca_kernel *kernel = p->call->attn->kernel;
    const ca_attn_shape *s = p->call->shape;
    const cattn_view *q = p->call->q;
    const int32_t step = ca_view_rows_at_once(q->type, s->group), d_k = s->tiles->d_k;
    for (int32_t g = 0; g < s->group; g += step) {
        const int32_t n = s->group - g < step ? s->group - g : step;
        const ca_f32_rows heads =
            ca_view_widen(kernel, q->type, head_at(p, q, row, g), q->head_stride, n, d_k, p->worker->rows);
        kernel->pack_query(heads.at, heads.stride, n, d_k, s->scale_log2, to + (size_t)g * s->query_bytes);
    }
}

/* The packed query heads of the first row of the slice. */
static char *queries_of(const slice *p) {
    const ca_attn_shape *s = p->call->shape;
    return (char *)p->worker->queries + (size_t)(p->head - p->first_head) * block_heads(s) * s->query_bytes;
}

static void pack_queries(const slice *p) {
    const ca_attn_shape *s = p->call->shape;
    for (slice at = *p; at.head < p->head_end; at.head++)
        for (int32_t r = p->row_begin; r < p->row_end; r++) {
            prefetch_heads(&at, p->call->q, r + ROWS_AHEAD, s->tiles->d_k);
            pack_row(&at, r, queries_of(&at) + (size_t)(r - p->row_begin) * (size_t)s->group * s->query_bytes);
        }
}

/* The K tile of an item's i-th chunk; the V tile follows it. */
static const char *tile_at(const slice *p, const ca_item *item, int32_t i) {
    const ca_attn *a = p->call->attn;
    return ca_chunk_tile(a->pool, p->section->chunks.at[item->chunk + i], ca_tile_of(a->layout, p->call->layer, p->head));
}

/* The open slot groups of an item's i-th chunk. */
static uint32_t open_at(const slice *p, const ca_item *item, int32_t i) {
    const ca_attn *a = p->call->attn;
    return a->source ? 0 : ca_chunk_open(a->pool, p->section->chunks.at[item->chunk + i]);
}

/* The slots of a chunk that a row sees, as in ca_tile and ca_tile_options. */
typedef struct visible {
    int32_t n_seen, n_hidden;
} visible;

/* How many slots of the chunk that begins at position `start` lie before a position. */
static int32_t slots_before(const slice *p, int64_t start, int64_t position) {
    const int64_t n = position - start, c = p->call->attn->layout->c;
    return (int32_t)(n < 0 ? 0 : n > c ? c : n);
}

static int32_t n_sink_slots(const slice *p, int64_t start) {
    return slots_before(p, start, p->call->plan->config.n_sink_tokens);
}

static visible visible_slots(const slice *p, int32_t row, int64_t start) {
    const int64_t end = p->section->position.at[row] + 1;
    const int32_t window = p->call->plan->config.window;
    visible s = {slots_before(p, start, end), window > 0 ? slots_before(p, start, end - window) : 0};
    if (s.n_hidden == 0) return s;
    const int32_t sink = n_sink_slots(p, start);
    if (s.n_hidden == s.n_seen) return (visible){sink, 0}; /* the window has left the chunk */
    if (s.n_hidden <= sink) s.n_hidden = 0;
    return s;
}

/*
 * Rows [row_begin, row_end) over the chunk that begins at position `start`. If partial, the worker's arrays say which slots
 * each row sees; else all rows see all.
 */
static void attend_rows(const slice *p, int64_t start, int32_t row_begin, int32_t row_end, bool partial, bool hides,
                        const char *k, uint32_t open, const char *next) {
    const ca_attn *a = p->call->attn;
    const ca_attn_shape *s = p->call->shape;
    const ca_layout *l = s->tiles;
    const ca_attn_worker *w = p->worker;
    for (int32_t r = row_begin, n = 0; a->slopes && r < row_end; r++)
        for (int32_t g = 0; g < s->group; g++, n++) {
            w->slopes[n] = a->slopes[p->head * s->group + g];
            w->distances[n] = (float)(start - p->section->position.at[r]);
        }
    const ca_tile_options options = {.softcap = a->softcap,
                                     .slopes = a->slopes ? w->slopes : NULL,
                                     .distances = w->distances,
                                     .n_hidden = hides ? w->n_hidden : NULL,
                                     .n_sink_slots = hides ? n_sink_slots(p, start) : 0};
    const size_t first = (size_t)(row_begin - p->row_begin) * (size_t)s->group;
    const ca_tile tile = {.d_k = l->d_k,
                          .d_v = l->d_v,
                          .c = l->c,
                          .n_rows = (row_end - row_begin) * s->group,
                          .q = queries_of(p) + first * s->query_bytes,
                          .state = state_at(p, p->block, row_begin),
                          .n_seen = partial ? w->n_seen : NULL,
                          .k = k,
                          .v = k + l->k_bytes,
                          .open = open,
                          .next_k = next,
                          .next_v = next ? next + l->k_bytes : NULL,
                          .scratch = w->scratch,
                          .options = hides || a->slopes || a->softcap > 0 ? &options : NULL};
    ca_kernel_attend(a->kernel, &tile);
}

static int32_t max32(int32_t a, int32_t b) { return a > b ? a : b; }
static int32_t min32(int32_t a, int32_t b) { return a < b ? a : b; }

/* How many leading slots of an item's i-th chunk at least one row of the slice sees. */
static int32_t most_seen(const slice *p, const ca_item *item, int32_t i) {
    const ca_chunk_layout *l = p->call->attn->layout;
    if (!item->partial) return l->c;
    int64_t last = 0;
    for (int32_t r = max32(item->row_begin, p->row_begin); r < min32(item->row_end, p->row_end); r++)
        if (p->section->position.at[r] > last) last = p->section->position.at[r];
    const int64_t seen = last + 1 - ((int64_t)(item->first_chunk + i) << l->log2_c);
    return (int32_t)(seen > l->c ? l->c : seen);
}

/* The worker's index. */
static int32_t worker_of(const slice *p) { return (int32_t)(p->worker - p->call->attn->workers); }

/* The K tile that the slice's rows pass over, packed if there is a source. */
static const char *fetch_tile(const slice *p, const ca_item *item, int32_t i) {
    const ca_tile_source *from = p->call->attn->source;
    if (!from) return tile_at(p, item, i);
    return from->pack(from->ctx, worker_of(p), p->head, p->section->chunks.at[item->chunk + i], most_seen(p, item, i));
}

/*
 * The slice's rows over an item's i-th chunk. If the item is partial, the rows' positions say what they see. Rows that see
 * nothing then separate the others into tiles, since a kernel would multiply V row by row for a tile that has one.
 */
static void attend_chunk(const slice *p, const ca_item *item, int32_t i, const char *next) {
    const ca_attn *a = p->call->attn;
    const int32_t group = p->call->shape->group;
    const int32_t row_begin = max32(item->row_begin, p->row_begin), row_end = min32(item->row_end, p->row_end);
    const int64_t start = (int64_t)(item->first_chunk + i) << a->layout->log2_c;
    const char *k = fetch_tile(p, item, i);
    if (!item->partial) {
        attend_rows(p, start, row_begin, row_end, false, false, k, 0, next);
        return;
    }
    const uint32_t open = open_at(p, item, i);
    for (int32_t r = row_begin; r < row_end; r++) {
        const int32_t first = r;
        int32_t n = 0;
        bool hides = false;
        for (; r < row_end; r++) {
            const visible sees = visible_slots(p, r, start);
            if (sees.n_seen == 0) break;
            hides = hides || sees.n_hidden > 0;
            for (int32_t g = 0; g < group; g++, n++) {
                p->worker->n_seen[n] = sees.n_seen;
                p->worker->n_hidden[n] = sees.n_hidden;
            }
        }
        if (r == first) continue;
        attend_rows(p, start, first, r, true, hides, k, open, next);
        next = NULL; /* the first tile prefetches it */
    }
}

/* The first item, from the i-th of the section on, that has rows of the slice; NULL if the block has no more. */
static const ca_item *find_item(const slice *p, int32_t i) {
    const ca_item *items = p->section->items.at;
    while (i < p->block->item_end && (items[i].row_begin >= p->row_end || items[i].row_end <= p->row_begin)) i++;
    return i < p->block->item_end ? &items[i] : NULL;
}

/*
 * Prepare for an item's i-th chunk, which comes next. Returns its tiles if the kernel should prefetch them, which it does
 * little by little. If at most a quarter of the slots are seen, they are prefetched here at once, and NULL is returned. With
 * more than that, whole tiles are faster: memory delivers scattered parts of K's lines more slowly than all of K in order.
 */
static const char *prepare_chunk(const slice *p, const ca_item *item, int32_t i) {
    const ca_layout *l = p->call->shape->tiles;
    const int32_t seen = most_seen(p, item, i);
    if (seen <= 0) return NULL; /* no row of the slice reaches this chunk */
    const ca_tile_source *from = p->call->attn->source;
    if (from) {
        from->announce(from->ctx, worker_of(p), p->head, p->section->chunks.at[item->chunk + i], seen);
        return NULL;
    }
    const char *k = tile_at(p, item, i);
    if (4 * seen > l->c) return k;
    ca_prefetch_slots(l, k, open_at(p, item, i), k + l->k_bytes, seen);
    return NULL;
}

/*
 * Attend the slice's rows of one item, its heads chunk by chunk in turn. `after` is the item that follows, of slice `next`;
 * NULL if nothing follows.
 */
static void attend_item(const slice *p, const ca_item *item, const slice *next, const ca_item *after) {
    for (int32_t i = 0; i < item->n_chunks; i++)
        for (slice at = *p; at.head < p->head_end; at.head++) {
            slice beside = at;
            beside.head++;
            const char *next_k = NULL;
            if (beside.head < p->head_end)
                next_k = prepare_chunk(&beside, item, i);
            else if (i + 1 < item->n_chunks)
                next_k = prepare_chunk(p, item, i + 1);
            else if (after)
                next_k = prepare_chunk(next, after, 0);
            attend_chunk(&at, item, i, next_k);
        }
}

/* Merge the states of one row's heads and write its result. */
static void finish_row(const slice *p, int32_t row) {
    const call *call = p->call;
    const ca_attn *a = call->attn;
    const ca_attn_shape *shape = call->shape;
    const ca_section *s = p->section;
    const int32_t *blocks = s->row_blocks.at + s->first_block.at[row];
    const int32_t n = s->first_block.at[row + 1] - s->first_block.at[row], d_v = shape->tiles->d_v;
    const float *sinks = a->sinks ? a->sinks + a->layout->layers[call->layer].first_head : NULL;
    const void **states = p->worker->merging.at;
    for (int32_t g = 0; g < shape->group; g++) {
        const int64_t q_head = p->head * shape->group + g;
        for (int32_t i = 0; i < n; i++) states[i] = state_at(p, &s->blocks.at[blocks[i]], row) + (size_t)g * shape->state_bytes;
        void *out = head_at(p, call->out, row, g);
        float *lse = call->lse ? call->lse + s->source.at[row] * (int64_t)shape->n_heads + q_head : NULL;
        a->kernel->merge(states, n, d_v, sinks ? sinks[q_head] : -INFINITY,
                         call->out->type == CATTN_F32 ? out : p->worker->rows, lse);
        if (call->out->type != CATTN_F32) a->kernel->narrow(call->out->type, p->worker->rows, d_v, out);
    }
}

/* Finish the rows whose last block is this one. */
static void finish_rows(const slice *p) {
    const ca_section *s = p->section;
    const int32_t block = (int32_t)(p->block - s->blocks.at);
    for (slice at = *p; at.head < p->head_end; at.head++)
        for (int32_t r = p->row_begin; r < p->row_end; r++)
            if (s->row_blocks.at[s->first_block.at[r + 1] - 1] == block) {
                prefetch_heads(&at, p->call->out, r + ROWS_AHEAD, p->call->shape->tiles->d_v);
                finish_row(&at, r);
            }
}

static void init_states(const slice *p) {
    const ca_attn_shape *s = p->call->shape;
    const int32_t n = (p->row_end - p->row_begin) * s->group;
    for (slice at = *p; at.head < p->head_end; at.head++)
        p->call->attn->kernel->init(state_at(&at, p->block, p->row_begin), n, s->tiles->d_v);
}

/* Attend the rows of a slice. `next` is the task's next slice, for prefetching; NULL if this is the last. */
static void attend_slice(const slice *p, const slice *next) {
    init_states(p);
    const ca_item *items = p->section->items.at, *item = find_item(p, p->block->item_begin);
    while (item) {
        const slice *of = p;
        const ca_item *after = find_item(p, (int32_t)(item - items) + 1), *following = after;
        if (!after && next) {
            of = next;
            following = find_item(next, next->block->item_begin);
        }
        attend_item(p, item, of, following);
        item = after;
    }
    if (!p->block->spread) finish_rows(p);
}

static const ca_plan_task *plan_task(const call *call, int32_t index) { return &call->plan->tasks.at[index / call->groups]; }

/* The slice of a block that task `index` processes: one group of KV heads of one of the plan's tasks. */
static slice slice_of(const call *call, int32_t index, int32_t worker, ca_block_at at) {
    const ca_plan_task *t = plan_task(call, index);
    const ca_section *s = call->plan->sections.at[at.section];
    const ca_block *b = &s->blocks.at[at.block];
    const int32_t head = index % call->groups * call->heads;
    return (slice){.call = call,
                   .section = s,
                   .block = b,
                   .worker = &call->attn->workers[worker],
                   .first_head = head,
                   .head_end = min32(head + call->heads, call->shape->n_kv_heads),
                   .head = head,
                   .row_begin = max32(t->row_begin, b->row_begin),
                   .row_end = min32(t->row_end, b->row_end)};
}

/* Whether two slices of a task have the same rows, as those of one chain mostly do. */
static bool same_rows(const slice *p, const slice *q) {
    return p->section == q->section && p->row_begin == q->row_begin && p->row_end == q->row_end;
}

static void attend_task(void *arg, int32_t index, int32_t worker) {
    const call *call = arg;
    const ca_plan_task *t = plan_task(call, index);
    const unsigned fp = ca_fp_enter();
    slice packed = {0}, p = slice_of(call, index, worker, t->begin);
    for (ca_block_at at = t->begin; !ca_block_same(at, t->end);) {
        at = ca_block_after(call->plan, at);
        const bool more = !ca_block_same(at, t->end);
        const slice next = more ? slice_of(call, index, worker, at) : p;
        if (p.row_begin < p.row_end) { /* else the slice's rows end before this segment */
            if (!same_rows(&p, &packed)) pack_queries(&p);
            packed = p;
            attend_slice(&p, more ? &next : NULL);
        }
        p = next;
    }
    if (call->attn->kernel->leave) call->attn->kernel->leave();
    ca_fp_leave(fp);
}

static void merge_task(void *arg, int32_t index, int32_t worker) {
    const call *call = arg;
    const unsigned fp = ca_fp_enter();
    const ca_plan_task *t = plan_task(call, index);
    for (ca_block_at at = t->begin; !ca_block_same(at, t->end); at = ca_block_after(call->plan, at)) {
        const slice p = slice_of(call, index, worker, at);
        if (p.block->spread) finish_rows(&p);
    }
    ca_fp_leave(fp);
}

float *ca_attn_rows(const ca_attn *a, int32_t worker) { return a->workers[worker].rows; }

/*
 * How many KV heads a task has: as many as lie together in memory, unless too few tasks would remain to keep all threads busy.
 */
static int32_t choose_heads(const ca_attn *a, const ca_attn_shape *shape, const ca_plan *plan) {
    enum { TASKS_PER_THREAD = 2 };
    const int32_t n = (int32_t)plan->tasks.n * shape->n_kv_heads;
    int32_t heads = a->source ? min32(max_plan_heads(a, shape, plan), a->source->heads_together) : 1;
    while (heads > 1 && n / heads < TASKS_PER_THREAD * a->n_threads) heads /= 2;
    return heads;
}

void ca_attn_run(const ca_attn *a, const ca_plan *plan, int32_t layer, const cattn_view *q, const cattn_view *out, float *lse) {
    const ca_attn_shape *shape = shape_of(a, plan);
    const int32_t heads = choose_heads(a, shape, plan), groups = (shape->n_kv_heads + heads - 1) / heads;
    const int32_t n = (int32_t)plan->tasks.n * groups;
    call call = {a, shape, plan, layer, heads, groups, q, out, lse};
    a->parallel.run(a->parallel.ctx, n, attend_task, &call);
    if (plan->n_states > 0) a->parallel.run(a->parallel.ctx, n, merge_task, &call);
}
