/* Running the kernels over a plan: chunk-first and sequence-first are the items' order, and each row's states merge at the end.
 */
#include "attn.h"

#include "base/fp.h"

struct ca_attn_worker {
    void *queries; /* packed, of the block at hand */
    void *scratch; /* the kernel's */
    int32_t *n_seen;
    const void **states; /* of the row that is merged, one a segment */
    size_t n_states;     /* room in states */
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
        ca_delete(a->alloc, w->states, w->n_states, sizeof *w->states);
    }
    ca_delete(a->alloc, a->workers, (size_t)a->n_threads, sizeof *a->workers);
    ca_delete(a->alloc, a->states, 1, a->states_size);
    a->workers = NULL;
    a->states = NULL;
}

static size_t states_needed(const ca_attn *a, const ca_plan *plan) {
    return (size_t)plan->n_states * (size_t)(a->layout->n_kv_heads * a->group) * a->state_bytes;
}

size_t ca_attn_missing(const ca_attn *a, const ca_plan *plan) {
    const size_t need = states_needed(a, plan);
    return need > a->states_size ? need - a->states_size : 0;
}

cattn_status ca_attn_reserve(ca_attn *a, const ca_plan *plan) {
    const size_t need = states_needed(a, plan), n_states = (size_t)plan->max_segments;
    if (need > a->states_size) {
        ca_delete(a->alloc, a->states, 1, a->states_size);
        a->states = ca_new(a->alloc, 1, need);
        a->states_size = a->states ? need : 0;
        if (!a->states) return CATTN_ERR_NOMEM;
    }
    for (int32_t i = 0; i < a->n_threads; i++) {
        ca_attn_worker *w = &a->workers[i];
        if (ca_grow(a->alloc, (void **)&w->states, &w->n_states, n_states, sizeof *w->states)) return CATTN_ERR_NOMEM;
    }
    return CATTN_OK;
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

static char *state_at(const job *job, const ca_block *block, int32_t head, int32_t row) {
    const ca_attn *a = job->attn;
    const int64_t n_rows = block->row_end - block->row_begin;
    const int64_t i = (block->state * a->layout->n_kv_heads + head * n_rows + (row - block->row_begin)) * a->group;
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
                          .state = state_at(p->job, p->block, p->head, row_begin),
                          .n_seen = n_seen,
                          .pieces = pieces,
                          .n_pieces = n_pieces,
                          .next_k = next ? next->k : NULL,
                          .next_v = next ? next->v : NULL,
                          .scratch = p->worker->scratch};
    a->kernel->attend(&tile);
}

static void run_item(const part *p, const ca_item *item, const ca_item *after) {
    const int32_t row_begin = item->row_begin > p->row_begin ? item->row_begin : p->row_begin;
    const int32_t row_end = item->row_end < p->row_end ? item->row_end : p->row_end;
    if (row_begin >= row_end) return;
    const ca_plan_piece *from = p->section->pieces.at + item->piece;
    if (item->n_pieces > item->n_chunks) {
        ca_piece pieces[CA_MAX_PIECES];
        for (int32_t i = 0; i < item->n_pieces; i++) pieces[i] = piece_at(p, &from[i]);
        attend_chunk(p, item->first_chunk, row_begin, row_end, item->partial, pieces, item->n_pieces, NULL);
        return;
    }
    ca_piece piece = piece_at(p, from);
    for (int32_t i = 0; i < item->n_chunks; i++) {
        const ca_plan_piece *next = i + 1 < item->n_chunks ? &from[i + 1] : after ? p->section->pieces.at + after->piece : NULL;
        const ca_piece next_piece = next ? piece_at(p, next) : piece;
        attend_chunk(p, item->first_chunk + i, row_begin, row_end, item->partial, &piece, 1, next ? &next_piece : NULL);
        piece = next_piece;
    }
}

/* Merge the states of one row's heads and write its result. */
static void finish_row(const job *job, const ca_section *s, int32_t head, int32_t row, ca_attn_worker *w) {
    const ca_attn *a = job->attn;
    const int32_t *blocks = s->row_blocks.at + s->first_block.at[row];
    const int32_t n = s->first_block.at[row + 1] - s->first_block.at[row];
    const int64_t source = s->source.at[row];
    for (int32_t g = 0; g < a->group; g++) {
        const int64_t q_head = head * a->group + g;
        for (int32_t i = 0; i < n; i++)
            w->states[i] = state_at(job, &s->blocks.at[blocks[i]], head, row) + (size_t)g * a->state_bytes;
        float *out = (float *)job->out->data + source * job->out->row_stride + q_head * job->out->head_stride;
        float *lse = job->lse ? job->lse + source * (a->layout->n_kv_heads * a->group) + q_head : NULL;
        a->kernel->merge(w->states, n, a->layout->d_v, out, lse);
    }
}

static void run_block(const part *p) {
    const ca_attn *a = p->job->attn;
    pack_queries(p);
    a->kernel->init(state_at(p->job, p->block, p->head, p->row_begin), (p->row_end - p->row_begin) * a->group, a->layout->d_v);
    const ca_item *items = p->section->items.at;
    for (int32_t i = p->block->item_begin; i < p->block->item_end; i++)
        run_item(p, &items[i], i + 1 < p->block->item_end ? &items[i + 1] : NULL);
    if (p->block->final)
        for (int32_t r = p->row_begin; r < p->row_end; r++) finish_row(p->job, p->section, p->head, r, p->worker);
}

typedef void (*block_fn)(const part *p);

/* Task `index` is one K/V head of one of the plan's tasks. */
static void run_task(const job *job, int32_t index, int32_t worker, block_fn fn) {
    const unsigned fp = ca_fp_enter();
    const int32_t n_heads = job->attn->layout->n_kv_heads;
    const ca_plan_task *t = &job->plan->tasks.at[index / n_heads];
    for (int32_t i = t->begin; i < t->end; i++) {
        const ca_plan_block *b = &job->plan->order.at[i];
        const part p = {.job = job,
                        .section = b->section,
                        .block = b->block,
                        .worker = &job->attn->workers[worker],
                        .head = index % n_heads,
                        .row_begin = t->row_begin > b->block->row_begin ? t->row_begin : b->block->row_begin,
                        .row_end = t->row_end < b->block->row_end ? t->row_end : b->block->row_end};
        fn(&p);
    }
    ca_fp_leave(fp);
}

static void attend_task(void *arg, int32_t index, int32_t worker) { run_task(arg, index, worker, run_block); }

/* Rows with several blocks are finished with their last. */
static void merge_block(const part *p) {
    if (p->block->final) return;
    const ca_section *s = p->section;
    const int32_t block = (int32_t)(p->block - s->blocks.at);
    for (int32_t r = p->row_begin; r < p->row_end; r++)
        if (s->row_blocks.at[s->first_block.at[r + 1] - 1] == block) finish_row(p->job, s, p->head, r, p->worker);
}

static void merge_task(void *arg, int32_t index, int32_t worker) { run_task(arg, index, worker, merge_block); }

void ca_attn_run(const ca_attn *a, const ca_plan *plan, int32_t layer, const cattn_view *q, const cattn_view *out, float *lse) {
    job job = {a, plan, layer, q, out, lse};
    const int32_t n = (int32_t)plan->tasks.n * a->layout->n_kv_heads;
    a->parallel.run(a->parallel.ctx, n, attend_task, &job);
    if (plan->needs_merge) a->parallel.run(a->parallel.ctx, n, merge_task, &job);
}
