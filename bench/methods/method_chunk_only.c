/*
 * One phase instead of the library's two: every chunk is a task of its own, shared or not, with a partial result for each row.
 *
 * The results are merged either after all chunks (chunk_only), or immediately into the row's sum under a spin lock
 * (chunk_only_locked), the alternative that the paper names. Both follow the library's plan and use its kernels.
 */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/fp.h"
#include "library_internals.h"
#include "method.h"

enum { MAX_UNITS_A_ROW = 4096, MAX_TILE_ROWS = 96 /* of any kernel */ };

/* One chunk and the rows that pass over it together. */
typedef struct unit {
    const ca_section *section;
    int32_t row_begin, row_end; /* of the section */
    int32_t first_row;          /* row_begin among the rows of all sections */
    int64_t chunk;              /* absolute */
    ca_chunk_id id;
    bool partial;
    int64_t state; /* place of its first row among all units' */
} unit;

/* The sum so far of a row and query head: out is divided by weight at the end; weight * 2^max is the sum of the softmax. */
typedef struct row_sum {
    atomic_flag lock;
    float max, weight;
} row_sum;

typedef struct chunk_only {
    method base;
    method *inner; /* has the cache and its open step */
    const ca_attn *attn;
    const ca_plan *plan;
    ca_pool *pool;
    bool locked;
    int32_t n_rows, n_heads;
    CA_ARRAY(unit) units;
    int64_t n_states;
    char *queries, *states, *scratch; /* [head][row][group]; [state][head][group]; of each worker */
    size_t scratch_bytes;
    int32_t *first_unit;           /* [n_rows + 1] where a row's units begin in row_units */
    int32_t *row_units;            /* units by row, chunks ascending */
    const ca_section **section_of; /* [n_rows] */
    int32_t *row_of;               /* [n_rows] in the section */
    row_sum *sums;                 /* [n_rows][query heads] */
    float *sum_out;                /* [n_rows][query heads][d_v] */
    int32_t layer;
    const float *q;
    float *out;
} chunk_only;

/* ---- The units of a plan ---- */

static void *checked(void *p) {
    if (!p) {
        fputs("cattn-bench: no memory\n", stderr);
        abort();
    }
    return p;
}

static void add_unit(chunk_only *m, const unit *u) {
    if (m->units.n == m->units.capacity) {
        m->units.capacity = m->units.capacity ? 2 * m->units.capacity : 256;
        m->units.at = checked(realloc(m->units.at, m->units.capacity * sizeof *u));
    }
    m->units.at[m->units.n] = *u;
    m->units.at[m->units.n++].state = m->n_states;
    m->n_states += u->row_end - u->row_begin;
}

static void add_item(chunk_only *m, const ca_section *s, int32_t first_row, const ca_item *item) {
    for (int32_t i = 0; i < item->n_chunks; i++)
        add_unit(m, &(unit){.section = s,
                            .row_begin = item->row_begin,
                            .row_end = item->row_end,
                            .first_row = first_row + item->row_begin,
                            .chunk = item->first_chunk + i,
                            .id = s->chunks.at[item->chunk + i],
                            .partial = item->partial});
}

static void collect_units(chunk_only *m) {
    for (size_t i = 0; i < m->plan->sections.n; i++) {
        const ca_section *s = m->plan->sections.at[i];
        for (size_t k = 0; k < s->items.n; k++) add_item(m, s, m->n_rows, &s->items.at[k]);
        m->n_rows += s->n_rows;
    }
}

static char *state_at(const chunk_only *m, const unit *u, int32_t head, int32_t row) {
    const int64_t n = u->row_end - u->row_begin;
    const int64_t i = (u->state * m->n_heads + head * n + (row - u->row_begin)) * m->attn->group;
    return m->states + (size_t)i * m->attn->state_bytes;
}

static char *query_at(const chunk_only *m, int32_t head, int32_t row) {
    return m->queries + ((size_t)head * (size_t)m->n_rows + (size_t)row) * (size_t)m->attn->group * m->attn->query_bytes;
}

/* The section of row r of all sections, and its index there. */
static void locate_rows(chunk_only *m) {
    int32_t r = 0;
    m->section_of = checked(calloc((size_t)m->n_rows, sizeof *m->section_of));
    m->row_of = checked(calloc((size_t)m->n_rows, sizeof *m->row_of));
    for (size_t i = 0; i < m->plan->sections.n; i++)
        for (int32_t k = 0; k < m->plan->sections.at[i]->n_rows; k++, r++) {
            m->section_of[r] = m->plan->sections.at[i];
            m->row_of[r] = k;
        }
}

/* List the units of each row, in the order of their chunks, as they were collected. False if a row has too many. */
static bool link_rows(chunk_only *m) {
    int32_t *first = m->first_unit = checked(calloc((size_t)m->n_rows + 1, sizeof *first));
    int32_t *next = checked(calloc((size_t)m->n_rows, sizeof *next)); /* where a row's next unit goes */
    m->row_units = checked(calloc((size_t)m->n_states, sizeof *m->row_units));
    for (size_t i = 0; i < m->units.n; i++) {
        const unit *u = &m->units.at[i];
        for (int32_t r = 0; r < u->row_end - u->row_begin; r++) first[u->first_row + r + 1]++;
    }
    bool ok = true;
    for (int32_t r = 0; r < m->n_rows; r++) {
        ok = ok && first[r + 1] <= MAX_UNITS_A_ROW;
        first[r + 1] += next[r] = first[r];
    }
    for (size_t i = 0; i < m->units.n; i++) {
        const unit *u = &m->units.at[i];
        for (int32_t r = u->first_row; r < u->first_row + u->row_end - u->row_begin; r++) m->row_units[next[r]++] = (int32_t)i;
    }
    free(next);
    return ok;
}

/* ---- A step ---- */

static void pack_row(void *arg, int32_t task, int32_t worker) {
    (void)worker;
    const chunk_only *m = arg;
    const ca_attn *a = m->attn;
    const int32_t head = task % m->n_heads, row = task / m->n_heads, n_heads = m->n_heads * a->group;
    const int64_t source = m->section_of[row]->source.at[m->row_of[row]];
    const float *from = m->q + (source * n_heads + head * a->group) * a->layout->d_k;
    a->kernel->pack_query(from, a->layout->d_k, a->group, a->layout->d_k, a->scale_log2, query_at(m, head, row));
}

/* The K tile of a unit's chunk; the V tile is behind it. */
static const char *tile_at(const chunk_only *m, const unit *u, int32_t head) {
    return ca_chunk_tile(m->attn->pool, u->id, ca_layout_tile(m->attn->layout, m->layer, head));
}

/* (o, m, n) of the paper's attn_reduce: a state's normalised result joins the row's sum. */
static void add_to_sum(const chunk_only *m, row_sum *sum, float *sum_out, const float *out, float lse) {
    while (atomic_flag_test_and_set_explicit(&sum->lock, memory_order_acquire)) {
    }
    const float max = fmaxf(sum->max, lse), mine = exp2f(lse - max), theirs = exp2f(sum->max - max);
    for (int i = 0; i < m->attn->layout->d_v; i++) sum_out[i] = mine * out[i] + theirs * sum_out[i];
    sum->weight = mine + theirs * sum->weight;
    sum->max = max;
    atomic_flag_clear_explicit(&sum->lock, memory_order_release);
}

static void merge_at_once(const chunk_only *m, const unit *u, int32_t head, int32_t row) {
    const ca_attn *a = m->attn;
    const int32_t group = a->group, d = a->layout->d_v;
    float out[256], lse;
    for (int32_t g = 0; g < group; g++) {
        const void *state = state_at(m, u, head, row) + (size_t)g * a->state_bytes;
        a->kernel->merge(&state, 1, d, -INFINITY, out, &lse);
        if (lse == -INFINITY) continue; /* saw nothing */
        const size_t at =
            (size_t)(u->first_row + row - u->row_begin) * (size_t)(m->n_heads * group) + (size_t)(head * group + g);
        add_to_sum(m, &m->sums[at], m->sum_out + at * (size_t)d, out, lse);
    }
}

static void attend_unit(void *arg, int32_t task, int32_t worker) {
    const chunk_only *m = arg;
    const ca_attn *a = m->attn;
    const ca_layout *l = a->layout;
    const int32_t n_units = (int32_t)m->units.n, head = task / n_units, index = task % n_units;
    const unit *u = &m->units.at[index];
    const int32_t n_rows = u->row_end - u->row_begin, ahead = index + ca_pool_size(m->pool);
    char *scratch = m->scratch + (size_t)worker * m->scratch_bytes;
    const char *k = tile_at(m, u, head);
    int32_t n_seen[MAX_TILE_ROWS];
    for (int32_t i = 0; u->partial && i < n_rows * a->group; i++) {
        const int64_t seen = u->section->position.at[u->row_begin + i / a->group] + 1 - (u->chunk << l->log2_c);
        n_seen[i] = (int32_t)(seen < 0 ? 0 : seen > l->c ? l->c : seen);
    }
    ca_tile tile = {.d_k = l->d_k,
                    .d_v = l->d_v,
                    .c = l->c,
                    .n_rows = n_rows * a->group,
                    .q = query_at(m, head, u->first_row),
                    .state = state_at(m, u, head, u->row_begin),
                    .n_seen = u->partial ? n_seen : NULL,
                    .k = k,
                    .v = k + l->k_bytes,
                    .open = ca_chunk_open(a->pool, u->id),
                    .scratch = scratch};
    if (ahead < n_units) { /* about the unit that this worker takes next */
        tile.next_k = tile_at(m, &m->units.at[ahead], head);
        tile.next_v = (const char *)tile.next_k + l->k_bytes;
    }
    const unsigned fp = ca_fp_enter();
    a->kernel->init(tile.state, tile.n_rows, l->d_v);
    a->kernel->attend(&tile);
    for (int32_t r = u->row_begin; m->locked && r < u->row_end; r++) merge_at_once(m, u, head, r);
    ca_fp_leave(fp);
}

/* Write one row and KV head's results, and clear its sums for the next step. */
static void finish_row(void *arg, int32_t task, int32_t worker) {
    (void)worker;
    const chunk_only *m = arg;
    const ca_attn *a = m->attn;
    const int32_t head = task % m->n_heads, row = task / m->n_heads, d = a->layout->d_v, n_heads = m->n_heads * a->group;
    const int64_t source = m->section_of[row]->source.at[m->row_of[row]];
    const unsigned fp = ca_fp_enter();
    for (int32_t g = 0; g < a->group; g++) {
        float *out = m->out + (source * n_heads + head * a->group + g) * d;
        if (m->locked) {
            const size_t at = (size_t)row * (size_t)n_heads + (size_t)(head * a->group + g);
            for (int32_t i = 0; i < d; i++) out[i] = m->sum_out[at * (size_t)d + (size_t)i] / m->sums[at].weight;
            m->sums[at].max = -INFINITY;
            m->sums[at].weight = 0;
            memset(m->sum_out + at * (size_t)d, 0, (size_t)d * sizeof(float));
        } else {
            const void *states[MAX_UNITS_A_ROW];
            const int32_t *units = m->row_units + m->first_unit[row], n = m->first_unit[row + 1] - m->first_unit[row];
            for (int32_t i = 0; i < n; i++) {
                const unit *u = &m->units.at[units[i]];
                states[i] = state_at(m, u, head, u->row_begin + row - u->first_row) + (size_t)g * a->state_bytes;
            }
            a->kernel->merge(states, n, d, -INFINITY, out, NULL);
        }
    }
    ca_fp_leave(fp);
}

static void attend(method *base, int32_t layer, const float *q, float *out) {
    chunk_only *m = (chunk_only *)base;
    m->layer = layer;
    m->q = q;
    m->out = out;
    ca_pool_run(m->pool, m->n_rows * m->n_heads, pack_row, m);
    ca_pool_run(m->pool, (int32_t)m->units.n * m->n_heads, attend_unit, m);
    ca_pool_run(m->pool, m->n_rows * m->n_heads, finish_row, m);
}

/* ---- From beginning to end ---- */

static void destroy(method *base) {
    chunk_only *m = (chunk_only *)base;
    m->inner->destroy(m->inner);
    free(m->units.at);
    free(m->queries);
    free(m->states);
    free(m->scratch);
    free(m->first_unit);
    free(m->row_units);
    free((void *)m->section_of);
    free(m->row_of);
    free(m->sums);
    free(m->sum_out);
    free(m);
}

static void allocate(chunk_only *m) {
    const ca_attn *a = m->attn;
    const size_t n_heads = (size_t)m->n_heads * (size_t)a->group, n_sums = (size_t)m->n_rows * n_heads;
    const size_t huge = (size_t)2 << 20, states = (size_t)m->n_states * n_heads * a->state_bytes;
    m->scratch_bytes = a->kernel->scratch_bytes(a->layout->d_k, a->layout->d_v, a->layout->c);
    m->queries = checked(aligned_alloc(64, n_sums * a->query_bytes));
    m->states = checked(aligned_alloc(huge, (states + huge - 1) / huge * huge));
    m->scratch = checked(aligned_alloc(64, (size_t)ca_pool_size(m->pool) * m->scratch_bytes));
    if (!m->locked) return;
    m->sums = checked(calloc(n_sums, sizeof *m->sums));
    m->sum_out = checked(calloc(n_sums * (size_t)a->layout->d_v, sizeof(float)));
    for (size_t i = 0; i < n_sums; i++) m->sums[i] = (row_sum){.lock = ATOMIC_FLAG_INIT, .max = -INFINITY};
}

method *method_create_chunk_only(method_id id, const shape *s, ca_pool *pool) {
    chunk_only *m = calloc(1, sizeof *m);
    method *inner = m ? method_create_cached(METHOD_CHUNK, s, pool) : NULL;
    if (!inner) {
        free(m);
        return NULL;
    }
    const cattn_cache *cache = method_cache(inner);
    *m = (chunk_only){.inner = inner, .attn = &cache->compute.attn, .plan = &cache->plans.at[0], .pool = pool};
    m->base = (method){.name = method_name(id), .level = inner->level, .n_layers = inner->n_layers, .attend = attend};
    m->base.destroy = destroy;
    m->locked = id == METHOD_CHUNK_ONLY_LOCKED;
    m->n_heads = s->kv_heads;
    collect_units(m);
    locate_rows(m);
    allocate(m);
    if (link_rows(m)) return &m->base;
    fprintf(stderr, "%s: a context has more than %d chunks\n", m->base.name, MAX_UNITS_A_ROW);
    destroy(&m->base);
    return NULL;
}
