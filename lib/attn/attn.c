/* Running the kernels over a plan: chunk-first and sequence-first are the items' order, and each row's states merge at the end.
 */
#include "attn.h"

#include <math.h>

#include "base/fp.h"
#include "prefetch.h"

struct ca_attn_worker {
    void *states; /* of the chain at hand, unless it is spread over tasks */
    size_t states_size;
    void *queries; /* packed, of the block at hand */
    void *scratch; /* the kernel's */
    int32_t *n_seen;
    const void **merging; /* states of the row that is merged, one a segment */
    size_t n_merging;     /* room in it */
};

/* ---- Workspace ---- */

static size_t kernel_scratch(const ca_attn *a) {
    return a->kernel->scratch_bytes(a->layout->d_k, a->layout->d_v, a->layout->c);
}

/* Query heads in a block. */
static size_t block_heads(const ca_attn *a) { return (size_t)a->max_rows * (size_t)a->group; }

cattn_status ca_attn_init(ca_attn *a, const ca_kernel *kernel, const ca_layout *layout, const ca_chunk_pool *pool,
                          ca_alloc *alloc, const cattn_parallel *parallel, int32_t n_threads, int32_t group, float scale) {
    const double log2_e = 1.4426950408889634;
    *a = (ca_attn){.kernel = kernel,
                   .layout = layout,
                   .pool = pool,
                   .alloc = alloc,
                   .parallel = *parallel,
                   .n_threads = n_threads,
                   .group = group,
                   .max_rows = kernel->max_rows / group,
                   .scale_log2 = (float)((double)scale * log2_e),
                   .state_bytes = kernel->state_bytes(layout->d_v),
                   .query_bytes = kernel->query_bytes(layout->d_k)};
    a->workers = ca_new_zero(alloc, (size_t)n_threads, sizeof *a->workers);
    if (!a->workers) return CATTN_ERR_NOMEM;
    for (int32_t i = 0; i < n_threads; i++) {
        ca_attn_worker *w = &a->workers[i];
        w->queries = ca_new(alloc, block_heads(a), a->query_bytes);
        w->scratch = ca_new(alloc, 1, kernel_scratch(a));
        w->n_seen = ca_new(alloc, block_heads(a), sizeof *w->n_seen);
        if (!w->queries || !w->scratch || !w->n_seen) {
            ca_attn_free(a);
            return CATTN_ERR_NOMEM;
        }
    }
    return CATTN_OK;
}

void ca_attn_free(ca_attn *a) {
    for (int32_t i = 0; a->workers && i < a->n_threads; i++) {
        ca_attn_worker *w = &a->workers[i];
        ca_delete(a->alloc, w->queries, block_heads(a), a->query_bytes);
        ca_delete(a->alloc, w->scratch, 1, kernel_scratch(a));
        ca_delete(a->alloc, w->n_seen, block_heads(a), sizeof *w->n_seen);
        ca_delete(a->alloc, w->merging, w->n_merging, sizeof *w->merging);
        ca_delete(a->alloc, w->states, 1, w->states_size);
    }
    ca_delete(a->alloc, a->workers, (size_t)a->n_threads, sizeof *a->workers);
    ca_delete(a->alloc, a->states, 1, a->states_size);
    a->workers = NULL;
    a->states = NULL;
}

/* Bytes of the states that tasks leave to each other, and of those that each worker keeps for itself. */
static size_t shared_bytes(const ca_attn *a, const ca_plan *plan) {
    return (size_t)plan->n_states * (size_t)(a->layout->n_kv_heads * a->group) * a->state_bytes;
}
static size_t own_bytes(const ca_attn *a, const ca_plan *plan) {
    return (size_t)plan->n_chain_states * (size_t)a->group * a->state_bytes;
}

static size_t lacking(size_t need, size_t have) { return need > have ? need - have : 0; }

size_t ca_attn_missing(const ca_attn *a, const ca_plan *plan) {
    size_t missing = lacking(shared_bytes(a, plan), a->states_size);
    for (int32_t i = 0; i < a->n_threads; i++) missing += lacking(own_bytes(a, plan), a->workers[i].states_size);
    return missing;
}

/* Room for states, which need not be kept. */
static cattn_status reserve_states(const ca_attn *a, void **states, size_t *size, size_t need) {
    if (need <= *size) return CATTN_OK;
    ca_delete(a->alloc, *states, 1, *size);
    *states = ca_new(a->alloc, 1, need);
    *size = *states ? need : 0;
    return *states ? CATTN_OK : CATTN_ERR_NOMEM;
}

cattn_status ca_attn_reserve(ca_attn *a, const ca_plan *plan) {
    cattn_status status = reserve_states(a, &a->states, &a->states_size, shared_bytes(a, plan));
    for (int32_t i = 0; i < a->n_threads && status == CATTN_OK; i++) {
        ca_attn_worker *w = &a->workers[i];
        status = reserve_states(a, &w->states, &w->states_size, own_bytes(a, plan));
        if (ca_grow(a->alloc, (void **)&w->merging, &w->n_merging, (size_t)plan->max_segments, sizeof *w->merging))
            status = CATTN_ERR_NOMEM;
    }
    return status;
}

/* ---- A task: one K/V head over some blocks ---- */

typedef struct job {
    const ca_attn *attn;
    const ca_plan *plan;
    int32_t layer;
    const cattn_view *q, *out;
    float *lse;
} job;

/* What a task does in one block. */
typedef struct part {
    const job *job;
    const ca_section *section;
    const ca_block *block;
    ca_attn_worker *worker;
    int32_t head;
    int32_t row_begin, row_end; /* of the section */
} part;

static char *state_at(const part *p, const ca_block *block, int32_t row) {
    const ca_attn *a = p->job->attn;
    const int64_t n_rows = block->row_end - block->row_begin, at = row - block->row_begin;
    if (!block->spread) return (char *)p->worker->states + (size_t)((block->state + at) * a->group) * a->state_bytes;
    const int64_t i = (block->state * a->layout->n_kv_heads + p->head * n_rows + at) * a->group;
    return (char *)a->states + (size_t)i * a->state_bytes;
}

static void pack_queries(const part *p) {
    const ca_attn *a = p->job->attn;
    const cattn_view *q = p->job->q;
    for (int32_t r = p->row_begin; r < p->row_end; r++) {
        const float *from =
            (const float *)q->data + p->section->source.at[r] * q->row_stride + p->head * a->group * q->head_stride;
        char *to = (char *)p->worker->queries + (size_t)(r - p->row_begin) * (size_t)a->group * a->query_bytes;
        a->kernel->pack_query(from, q->head_stride, a->group, a->layout->d_k, a->scale_log2, to);
    }
}

static ca_piece piece_at(const part *p, const ca_plan_piece *piece) {
    const ca_layout *l = p->job->attn->layout;
    const char *chunk = ca_chunk_data(p->job->attn->pool, piece->chunk);
    const char *k = chunk + ca_layout_k(l, p->job->layer, p->head);
    return (ca_piece){k, k + l->k_bytes, piece->begin, piece->end};
}

/* Rows [row_begin, row_end) of the part over one absolute chunk; where partial, each as far as its position. */
static void attend_chunk(const part *p, int32_t chunk, int32_t row_begin, int32_t row_end, bool partial, const ca_piece *pieces,
                         int32_t n_pieces, const ca_piece *next) {
    const ca_attn *a = p->job->attn;
    const ca_layout *l = a->layout;
    const int64_t *pos = p->section->position.at;
    const int64_t start = (int64_t)chunk << l->log2_c;
    const int32_t *n_seen = NULL;
    if (partial) {
        while (row_begin < row_end && pos[row_begin] < start) row_begin++;
        while (row_begin < row_end && pos[row_end - 1] < start) row_end--;
        if (row_begin == row_end) return;
        int32_t n = 0;
        for (int32_t r = row_begin; r < row_end; r++) {
            const int64_t seen = pos[r] + 1 - start;
            for (int32_t g = 0; g < a->group; g++) p->worker->n_seen[n++] = (int32_t)(seen < 0 ? 0 : seen > l->c ? l->c : seen);
        }
        n_seen = p->worker->n_seen;
    }
    const size_t first = (size_t)(row_begin - p->row_begin) * (size_t)a->group;
    const ca_tile tile = {.d_k = l->d_k,
                          .d_v = l->d_v,
                          .c = l->c,
                          .n_rows = (row_end - row_begin) * a->group,
                          .q = (const char *)p->worker->queries + first * a->query_bytes,
                          .state = state_at(p, p->block, row_begin),
                          .n_seen = n_seen,
                          .pieces = pieces,
                          .n_pieces = n_pieces,
                          .next_k = next ? next->k : NULL,
                          .next_v = next ? next->v : NULL,
                          .scratch = p->worker->scratch};
    a->kernel->attend(&tile);
}

static int32_t max32(int32_t a, int32_t b) { return a > b ? a : b; }
static int32_t min32(int32_t a, int32_t b) { return a < b ? a : b; }

/* The part's first item from the i-th on that has rows of the part; NULL: none. */
static const ca_item *find_item(const part *p, int32_t i) {
    const ca_item *items = p->section->items.at;
    while (i < p->block->item_end && (items[i].row_begin >= p->row_end || items[i].row_end <= p->row_begin)) i++;
    return i < p->block->item_end ? &items[i] : NULL;
}

/* Leading slots of an item's first chunk that some row of the part sees. */
static int32_t most_seen(const part *p, const ca_item *item) {
    const ca_layout *l = p->job->attn->layout;
    if (!item->partial) return l->c;
    int64_t last = 0;
    for (int32_t r = max32(item->row_begin, p->row_begin); r < min32(item->row_end, p->row_end); r++)
        if (p->section->position.at[r] > last) last = p->section->position.at[r];
    const int64_t seen = last + 1 - ((int64_t)item->first_chunk << l->log2_c);
    return (int32_t)(seen > l->c ? l->c : seen);
}

/*
 * What comes after an item. A whole tile is left to the kernel, which asks for it little by little: true, and *tile is that
 * tile. The few slots of a last chunk, or the pieces of a gathered one, are asked for here at once.
 */
static bool prepare_item(const part *p, const ca_item *item, ca_piece *tile) {
    const ca_layout *l = p->job->attn->layout;
    const int32_t seen = most_seen(p, item);
    const ca_plan_piece *pieces = p->section->pieces.at + item->piece;
    if (item->n_pieces <= item->n_chunks && 2 * seen > l->c) {
        *tile = piece_at(p, pieces);
        return true;
    }
    const int32_t n = item->n_pieces > item->n_chunks ? item->n_pieces : 1;
    for (int32_t i = 0; i < n && pieces[i].begin < seen; i++) {
        const ca_piece piece = piece_at(p, &pieces[i]);
        ca_prefetch_slots(l, piece.k, piece.v, piece.begin, min32(piece.end, seen));
    }
    return false;
}

/* One item; `after` is of the part `next`, NULL: nothing follows. */
static void run_item(const part *p, const ca_item *item, const part *next, const ca_item *after) {
    const int32_t row_begin = max32(item->row_begin, p->row_begin), row_end = min32(item->row_end, p->row_end);
    const ca_plan_piece *from = p->section->pieces.at + item->piece;
    ca_piece pieces[CA_MAX_PIECES];
    const int32_t n_pieces = item->n_pieces > item->n_chunks ? item->n_pieces : 1;
    for (int32_t i = 0; i < n_pieces; i++) pieces[i] = piece_at(p, &from[i]);
    for (int32_t i = 0; i < item->n_chunks; i++) {
        ca_piece tile;
        bool whole = false;
        if (i + 1 < item->n_chunks) {
            tile = piece_at(p, &from[i + 1]);
            whole = true;
        } else if (after) {
            whole = prepare_item(next, after, &tile);
        }
        attend_chunk(p, item->first_chunk + i, row_begin, row_end, item->partial, pieces, n_pieces, whole ? &tile : NULL);
        if (whole) pieces[0] = tile;
    }
}

/* Merge the states of one row's heads and write its result. */
static void finish_row(const part *p, int32_t row) {
    const job *job = p->job;
    const ca_attn *a = job->attn;
    const ca_section *s = p->section;
    const int32_t *blocks = s->row_blocks.at + s->first_block.at[row];
    const int32_t n = s->first_block.at[row + 1] - s->first_block.at[row];
    const int64_t source = s->source.at[row];
    const void **states = p->worker->merging;
    for (int32_t g = 0; g < a->group; g++) {
        const int64_t q_head = p->head * a->group + g;
        for (int32_t i = 0; i < n; i++) states[i] = state_at(p, &s->blocks.at[blocks[i]], row) + (size_t)g * a->state_bytes;
        float *out = (float *)job->out->data + source * job->out->row_stride + q_head * job->out->head_stride;
        float *lse = job->lse ? job->lse + source * (a->layout->n_kv_heads * a->group) + q_head : NULL;
        a->kernel->merge(states, n, a->layout->d_v, -INFINITY, out, lse);
    }
}

/* Finish the rows of which the part's block is the last. */
static void finish_rows(const part *p) {
    const ca_section *s = p->section;
    const int32_t block = (int32_t)(p->block - s->blocks.at);
    for (int32_t r = p->row_begin; r < p->row_end; r++)
        if (s->row_blocks.at[s->first_block.at[r + 1] - 1] == block) finish_row(p, r);
}

/* Attend the rows of a part; `next` is what the task does after it, NULL: nothing. */
static void run_part(const part *p, const part *next) {
    const ca_attn *a = p->job->attn;
    a->kernel->init(state_at(p, p->block, p->row_begin), (p->row_end - p->row_begin) * a->group, a->layout->d_v);
    const ca_item *items = p->section->items.at, *item = find_item(p, p->block->item_begin);
    while (item) {
        const part *of = p;
        const ca_item *after = find_item(p, (int32_t)(item - items) + 1), *following = after;
        if (!after && next) {
            of = next;
            following = find_item(next, next->block->item_begin);
        }
        run_item(p, item, of, following);
        item = after;
    }
    if (!p->block->spread) finish_rows(p);
}

/* The part at a block of task `index`, which is one K/V head of one of the plan's tasks. */
static part part_of(const job *job, int32_t index, int32_t worker, ca_block_at at) {
    const int32_t n_heads = job->attn->layout->n_kv_heads;
    const ca_plan_task *t = &job->plan->tasks.at[index / n_heads];
    const ca_section *s = job->plan->sections.at[at.section];
    const ca_block *b = &s->blocks.at[at.block];
    return (part){.job = job,
                  .section = s,
                  .block = b,
                  .worker = &job->attn->workers[worker],
                  .head = index % n_heads,
                  .row_begin = max32(t->row_begin, b->row_begin),
                  .row_end = min32(t->row_end, b->row_end)};
}

/* Whether two parts of a task have the same rows, as those of a chain mostly do. */
static bool same_rows(const part *p, const part *q) {
    return p->section == q->section && p->row_begin == q->row_begin && p->row_end == q->row_end;
}

static void attend_task(void *arg, int32_t index, int32_t worker) {
    const job *job = arg;
    const unsigned fp = ca_fp_enter();
    const ca_plan_task *t = &job->plan->tasks.at[index / job->attn->layout->n_kv_heads];
    part p = part_of(job, index, worker, t->begin), packed = {0};
    for (ca_block_at at = t->begin; !ca_block_same(at, t->end);) {
        at = ca_block_after(job->plan, at);
        const bool more = !ca_block_same(at, t->end);
        const part next = more ? part_of(job, index, worker, at) : p;
        if (p.row_begin < p.row_end) { /* else the task's rows end before this segment */
            if (!same_rows(&p, &packed)) pack_queries(&p);
            packed = p;
            run_part(&p, more ? &next : NULL);
        }
        p = next;
    }
    ca_fp_leave(fp);
}

static void merge_task(void *arg, int32_t index, int32_t worker) {
    const job *job = arg;
    const unsigned fp = ca_fp_enter();
    const ca_plan_task *t = &job->plan->tasks.at[index / job->attn->layout->n_kv_heads];
    for (ca_block_at at = t->begin; !ca_block_same(at, t->end); at = ca_block_after(job->plan, at)) {
        const part p = part_of(job, index, worker, at);
        if (p.block->spread) finish_rows(&p);
    }
    ca_fp_leave(fp);
}

void ca_attn_run(const ca_attn *a, const ca_plan *plan, int32_t layer, const cattn_view *q, const cattn_view *out, float *lse) {
    job job = {a, plan, layer, q, out, lse};
    const int32_t n = (int32_t)plan->tasks.n * a->layout->n_kv_heads;
    a->parallel.run(a->parallel.ctx, n, attend_task, &job);
    if (plan->n_states > 0) a->parallel.run(a->parallel.ctx, n, merge_task, &job);
}
