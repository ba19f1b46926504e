/* The open step of a cache: claims, the place of each row's K/V, the plan and its workspace. */
#include "step.h"

#include "base/fp.h"
#include "error.h"
#include "lib/cache/section.h"

uint64_t ca_cache_bytes(cattn_cache *c) {
    const uint64_t bytes = c->alloc.bytes + ca_chunk_pool_bytes(c->pool);
    if (bytes > c->bytes_peak) c->bytes_peak = bytes;
    return bytes;
}

/* Room for n elements of an array that is filled from its start. */
#define ROOM_FOR(c, array, count) ((array)->n = 0, CA_ROOM(&(c)->plan, (array), (count)))

/* ---- Begin ---- */

/* Resolve the entries' sequences; each may occur once. */
static cattn_status find_entries(cattn_cache *c, const cattn_entry *entries, int32_t n, cattn_error *error) {
    ca_step *step = &c->step;
    for (int32_t i = 0; i < n; i++) {
        ca_seq *seq = ca_tree_find(c->tree, entries[i].seq);
        if (!seq)
            return ca_fail(error, CATTN_ERR_ARG, i, "entries[%d].seq is %llu, which is no running sequence of this cache", i,
                           (unsigned long long)entries[i].seq);
        if (seq->step_entry >= 0)
            return ca_fail(error, CATTN_ERR_ARG, i, "entries[%d].seq is the sequence of entry %d too; list it once", i,
                           seq->step_entry);
        if (entries[i].max_rows < 1)
            return ca_fail(error, CATTN_ERR_ARG, i, "entries[%d].max_rows is %lld; it must be at least 1", i,
                           (long long)entries[i].max_rows);
        seq->step_entry = i;
        step->entries.at[step->entries.n++] = (ca_plan_entry){.seq = seq};
    }
    return CATTN_OK;
}

/* Claim rows in the entries' order. Returns how many. */
static int64_t deal_rows(ca_step *step, cattn_entry *entries, int64_t row_limit) {
    int64_t n_rows = 0;
    for (size_t i = 0; i < step->entries.n; i++) {
        ca_plan_entry *e = &step->entries.at[i];
        int64_t most = entries[i].max_rows;
        if (row_limit > 0 && most > row_limit - n_rows) most = row_limit - n_rows;
        e->first_pos = ca_seq_n_claimed(e->seq);
        e->row = (int32_t)n_rows;
        e->n_rows = (int32_t)ca_seq_claim(e->seq, most);
        entries[i].first_pos = e->first_pos;
        entries[i].n_rows = e->n_rows;
        n_rows += e->n_rows;
    }
    return n_rows;
}

static void place_rows(cattn_cache *c) {
    ca_step *step = &c->step;
    for (size_t i = 0; i < step->entries.n; i++) {
        const ca_plan_entry *e = &step->entries.at[i];
        for (int64_t p = e->first_pos; p < e->first_pos + e->n_rows; p++)
            step->rows.at[step->rows.n++] = (ca_row){ca_seq_chunk(c->tree, e->seq, p), (int32_t)(p & (c->layout.c - 1))};
    }
}

static cattn_status reserve_workspace(cattn_cache *c, cattn_error *error) {
    const size_t missing = ca_attn_missing(&c->attn, &c->plan);
    const uint64_t after = ca_cache_bytes(c) + missing;
    if (missing > 0 && after > c->budget_bytes && !ca_tree_make_room(c->tree, (size_t)(after - c->budget_bytes)))
        return ca_fail(
            error, CATTN_ERR_BUDGET, -1,
            "the step's workspace needs %zu bytes more, and the budget of %llu bytes has no room beside the chunks that are "
            "used and promised; raise budget_bytes or lower row_limit",
            missing, (unsigned long long)c->budget_bytes);
    if (ca_attn_reserve(&c->attn, &c->plan)) return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the step's workspace");
    ca_cache_bytes(c);
    return CATTN_OK;
}

cattn_status ca_step_begin(cattn_cache *c, cattn_entry *entries, int32_t n_entries, int64_t row_limit, cattn_error *error) {
    ca_step *step = &c->step;
    if (ROOM_FOR(c, &step->entries, (size_t)n_entries))
        return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for %d entries", n_entries);
    cattn_status status = find_entries(c, entries, n_entries, error);
    if (status == CATTN_OK) {
        const int64_t n_rows = deal_rows(step, entries, row_limit);
        if (ROOM_FOR(c, &step->rows, (size_t)n_rows) || ca_plan_update(&c->plan, step->entries.at, n_entries))
            status = ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the plan of %lld rows", (long long)n_rows);
        else
            status = reserve_workspace(c, error);
    }
    if (status) {
        ca_step_close(c, false);
        return status;
    }
    place_rows(c);
    step->open = true;
    return CATTN_OK;
}

void ca_step_close(cattn_cache *c, bool ready) {
    ca_step *step = &c->step;
    for (size_t i = 0; i < step->entries.n; i++) {
        ca_seq *seq = step->entries.at[i].seq;
        if (ready)
            ca_seq_commit(seq);
        else
            ca_seq_unclaim(seq);
        seq->step_entry = -1;
    }
    step->entries.n = step->rows.n = 0;
    step->open = false;
}

void ca_step_free(cattn_cache *c) {
    CA_ARRAY_FREE(&c->alloc, &c->step.entries);
    CA_ARRAY_FREE(&c->alloc, &c->step.rows);
}

/* ---- Write ---- */

typedef struct write_job {
    const cattn_cache *cache;
    int32_t layer, rows_a_task;
    const cattn_view *k, *v;
} write_job;

static void write_rows(void *arg, int32_t task, int32_t worker) {
    (void)worker;
    const write_job *job = arg;
    const cattn_cache *c = job->cache;
    const ca_layout *l = &c->layout;
    const unsigned fp = ca_fp_enter();
    const int32_t n = (int32_t)c->step.rows.n, end = (task + 1) * job->rows_a_task;
    for (int32_t i = task * job->rows_a_task; i < n && i < end; i++) {
        const ca_row *row = &c->step.rows.at[i];
        char *chunk = ca_chunk_data(c->pool, row->chunk);
        const float *k = (const float *)job->k->data + i * job->k->row_stride;
        const float *v = (const float *)job->v->data + i * job->v->row_stride;
        for (int32_t h = 0; h < l->n_kv_heads; h++)
            ca_layout_write(l, chunk + ca_layout_k(l, job->layer, h), chunk + ca_layout_v(l, job->layer, h), row->slot,
                            k + h * job->k->head_stride, v + h * job->v->head_stride);
    }
    ca_fp_leave(fp);
}

void ca_step_write(cattn_cache *c, int32_t layer, const cattn_view *k, const cattn_view *v) {
    enum { NUMBERS_A_TASK = 16384 }; /* some ten microseconds: below that waking another thread costs more than it saves */
    const int32_t n = (int32_t)c->step.rows.n, numbers = c->layout.n_kv_heads * (c->layout.d_k + c->layout.d_v);
    write_job job = {c, layer, NUMBERS_A_TASK / numbers + 1, k, v};
    const int32_t tasks = (n + job.rows_a_task - 1) / job.rows_a_task;
    if (tasks > 1)
        c->parallel.run(c->parallel.ctx, tasks, write_rows, &job);
    else if (tasks == 1)
        write_rows(&job, 0, 0);
}
