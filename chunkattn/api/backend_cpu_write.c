/* Writing the K and V of a step's rows into their chunks on the CPU, for one layer at a time. */
#include "backend_cpu.h"
#include "chunkattn/attn/view.h"
#include "chunkattn/base/fp.h"
#include "step.h"

/* The arguments of ca_cpu_write, for its tasks. */
typedef struct write_call {
    const cattn_cache *cache;
    int32_t layer;
    const ca_shape *shape;  /* of the layer */
    int32_t heads_per_task; /* KV heads */
    bool prepares;          /* this call executes the commands before the rows */
    const cattn_view *k, *v;
} write_call;

/* Set what the kernel prefetches: the place of a row. */
static void set_next(const write_call *call, ca_write *w, int32_t row, int32_t head) {
    const ca_row *to = &call->cache->step.rows.at[row];
    const char *k_tile = ca_chunk_tile(call->cache->pool, to->chunk, ca_tile_of(&call->cache->layout, call->layer, head));
    w->next_k = k_tile;
    w->next_v = k_tile + call->shape->tiles.k_bytes;
    w->next_slot = to->slot;
    w->next_open = ca_chunk_open(call->cache->pool, to->chunk);
}

/* Rows that one call of the kernel may write, of n that follow one another. */
static int32_t rows_at_once(const write_call *call, int32_t n) {
    return ca_view_rows_at_once(call->k->type != CATTN_F32 ? call->k->type : call->v->type, n);
}

/* n rows from `row` on, which go to consecutive slots of one chunk. *next is what this thread writes after them. */
static void write_rows(const write_call *call, int32_t row, int32_t n, int32_t head, float *room, const ca_write *next) {
    const cattn_cache *c = call->cache;
    const ca_layout *l = &call->shape->tiles;
    const ca_row *to = &c->step.rows.at[row];
    char *k_tile = ca_chunk_tile(c->pool, to->chunk, ca_tile_of(&c->layout, call->layer, head));
    ca_write w = *next;
    w.d_k = l->d_k;
    w.d_v = l->d_v;
    w.c = l->c;
    w.open = ca_chunk_open(c->pool, to->chunk);
    w.k_tile = k_tile;
    w.v_tile = k_tile + l->k_bytes;
    const int32_t step = rows_at_once(call, n);
    for (int32_t i = 0; i < n; i += step) {
        w.slot = to->slot + i;
        w.n = n - i < step ? n - i : step;
        const ca_f32_rows k = ca_view_widen(c->compute.attn.kernel, call->k->type, ca_view_at(call->k, row + i, head),
                                            call->k->row_stride, w.n, l->d_k, room);
        const ca_f32_rows v = ca_view_widen(c->compute.attn.kernel, call->v->type, ca_view_at(call->v, row + i, head),
                                            call->v->row_stride, w.n, l->d_v, room + CA_VIEW_ROWS * (ptrdiff_t)l->d_k);
        w.k = k.at;
        w.v = v.at;
        w.k_stride = k.stride;
        w.v_stride = v.stride;
        c->compute.attn.kernel->write(&w);
        w.next_k = w.next_v = NULL; /* the first call has prefetched it */
    }
}

/*
 * Write all rows for some KV heads, so that no two threads write to one tile. Rows of consecutive slots go together, in their
 * order, so that k and v are read in theirs.
 */
static void write_heads(void *arg, int32_t task, int32_t worker) {
    const write_call *call = arg;
    const cattn_cache *c = call->cache;
    float *room = ca_attn_rows(&c->compute.attn, worker);
    const unsigned fp = ca_fp_enter();
    const int32_t first = task * call->heads_per_task, left = call->shape->n_kv_heads - first, n_rows = (int32_t)c->step.rows.n;
    const int32_t end = first + (left < call->heads_per_task ? left : call->heads_per_task);
    for (int32_t h = first; call->prepares && h < end; h++) ca_cpu_execute(c, call->layer, h, &c->step.before);
    for (int32_t row = 0, n; row < n_rows; row += n) {
        n = ca_step_run_length(&c->step, row);
        for (int32_t h = first; h < end; h++) {
            ca_write next = {0};
            if (h + 1 < end)
                set_next(call, &next, row, h + 1);
            else if (row + n < n_rows)
                set_next(call, &next, row + n, first);
            write_rows(call, row, n, h, room, &next);
        }
    }
    for (int32_t h = first; h < end; h++) ca_cpu_execute(c, call->layer, h, &c->step.after);
    ca_fp_leave(fp);
}

/* On several threads if there are enough numbers. */
cattn_status ca_cpu_write(cattn_cache *c, int32_t layer, const cattn_view *k, const cattn_view *v, void *stream,
                          cattn_error *error) {
    (void)stream, (void)error;
    enum { NUMBERS_PER_TASK = 4000 }; /* about 8 us; for less, waking another thread costs more than it saves */
    const ca_shape *s = ca_shape_of(&c->layout, layer);
    const int64_t n_rows = (int64_t)c->step.rows.n, numbers = n_rows * (s->tiles.d_k + s->tiles.d_v);
    const int64_t heads = NUMBERS_PER_TASK / numbers + 1;
    const int32_t heads_per_task = heads < s->n_kv_heads ? (int32_t)heads : s->n_kv_heads;
    write_call call = {c, layer, s, heads_per_task, !c->step.prepared.at[layer], k, v};
    c->step.prepared.at[layer] = true;
    const int32_t tasks = (s->n_kv_heads + heads_per_task - 1) / heads_per_task;
    if (tasks > 1)
        c->compute.parallel.run(c->compute.parallel.ctx, tasks, write_heads, &call);
    else
        write_heads(&call, 0, 0);
    return CATTN_OK;
}
