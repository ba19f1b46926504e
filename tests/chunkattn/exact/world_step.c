/* One step of a world's run on a cache of the CPU: see world_step.h. */
#include "world_step.h"

#include <stdlib.h>
#include <string.h>

static void room(world_cpu_run *x, int64_t n_rows) {
    if (n_rows <= x->rows_capacity) return;
    const cattn_config *c = &x->t.w->config;
    x->rows_capacity = n_rows;
    x->q = realloc(x->q, (size_t)(n_rows * c->n_heads * c->head_dim) * sizeof(float));
    x->k = realloc(x->k, (size_t)(n_rows * c->n_kv_heads * c->head_dim) * sizeof(float));
    x->v = realloc(x->v, (size_t)(n_rows * c->n_kv_heads * world_dim_v(x->t.w)) * sizeof(float));
    x->out = realloc(x->out, (size_t)(n_rows * c->n_heads * world_dim_v(x->t.w)) * sizeof(float));
    x->lse = realloc(x->lse, (size_t)(n_rows * c->n_heads) * sizeof(float));
}

void world_cpu_step(void *ctx) {
    world_cpu_run *x = ctx;
    world_run *t = &x->t;
    const cattn_config *c = &t->w->config;
    cattn_entry entries[WORLD_MAX_RUNNERS];
    const world_runner *running[WORLD_MAX_RUNNERS];
    int n = 0;
    if (x->before) x->before(x);
    const int shift = (int)rng_range(&t->r, 0, t->n_runners - 1);
    for (int i = 0; i < t->n_runners; i++) {
        running[n] = &t->runners[(i + shift) % t->n_runners];
        entries[n] =
            (cattn_entry){.seq = running[n]->seq, .max_rows = t->how->piece ? t->how->piece : rng_range(&t->r, 1, 100)};
        n++;
    }
    const int64_t limit = t->how->events && rng_chance(&t->r, 3) ? rng_range(&t->r, 1, 60) : 0;
    cattn_error error = {0};
    const cattn_status status = cattn_step_begin(t->cache, entries, n, limit, &error);
    CHECK(status == CATTN_OK, "begin: %s", error.message);
    if (status) exit(1);
    int64_t n_rows = 0;
    for (int i = 0; i < n; i++) n_rows += entries[i].n_rows;
    x->n_rows = n_rows;
    room(x, n_rows);
    const int nq = c->n_heads * c->head_dim, nk = c->n_kv_heads * c->head_dim, nv = c->n_kv_heads * world_dim_v(t->w);
    const int no = c->n_heads * world_dim_v(t->w);
    const cattn_view q = {x->q, CATTN_F32, nq, c->head_dim}, k = {x->k, CATTN_F32, nk, c->head_dim};
    const cattn_view v = {x->v, CATTN_F32, nv, world_dim_v(t->w)}, out = {x->out, CATTN_F32, no, world_dim_v(t->w)};
    const bool aborts = t->how->events && rng_chance(&t->r, 6);
    const int n_layers = n_rows == 0 ? 0 : aborts ? (int)rng_range(&t->r, 0, c->n_layers) : c->n_layers;
    for (int layer = 0; layer < n_layers; layer++) {
        int64_t row = 0;
        for (int i = 0; i < n; i++)
            for (int64_t p = 0; p < entries[i].n_rows; p++, row++) {
                const float *from = world_row(t->w, running[i]->is, entries[i].first_pos + p, layer);
                memcpy(x->q + row * nq, from, (size_t)nq * sizeof *from);
                memcpy(x->k + row * nk, from + nq, (size_t)nk * sizeof *from);
                memcpy(x->v + row * nv, from + nq + nk, (size_t)nv * sizeof *from);
            }
        CHECK(cattn_step_write(t->cache, layer, &k, &v, NULL) == CATTN_OK, "write");
        CHECK(cattn_step_attend(t->cache, layer, &q, &out, x->lse, NULL) == CATTN_OK, "attend");
        row = 0;
        for (int i = 0; i < n; i++)
            for (int64_t p = 0; p < entries[i].n_rows; p++, row++)
                world_take_row(t, running[i]->is, entries[i].first_pos + p, layer, x->out + row * no,
                               x->lse + row * c->n_heads);
    }
    if (aborts)
        CHECK(cattn_step_abort(t->cache, NULL) == CATTN_OK, "abort");
    else
        CHECK(cattn_step_end(t->cache, NULL) == CATTN_OK, "end");
}

void world_cpu_free(world_cpu_run *x) {
    free(x->q);
    free(x->k);
    free(x->v);
    free(x->out);
    free(x->lse);
}
