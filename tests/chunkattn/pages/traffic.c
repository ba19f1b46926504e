/* Random traffic of a small engine. */
#define CATTN_EXPERIMENTAL
#include "traffic.h"

cattn_pages_config traffic_config(const world *w, int32_t page_size, int64_t longest) {
    const int32_t n_pages = (TRAFFIC_MAX_RUNNING + 1) * (int32_t)((longest + page_size - 1) / page_size);
    return (cattn_pages_config){page_size, n_pages, w->config};
}

/* ---- Batches ---- */

static int32_t draw_rows(traffic *t, int32_t n_tokens) {
    if (rng_chance(&t->r, 2)) return 1;
    if (rng_chance(&t->r, 8)) return 0;
    const int32_t n = (int32_t)rng_range(&t->r, 1, rng_chance(&t->r, 3) || n_tokens < 5 ? n_tokens : 5);
    return t->most_rows > 0 && n > t->most_rows ? t->most_rows : n;
}

/* As a padded table, with arbitrary ids behind the last page, or as ids with an indptr. */
void traffic_make_batch(traffic *t, traffic_batch *b) {
    const int n = t->n_running;
    const bool padded = rng_chance(&t->r, 2), one_each = rng_chance(&t->r, 3), by_last = !padded && rng_chance(&t->r, 2);
    const int32_t stride = ENGINE_MAX_TABLE - (int32_t)rng_range(&t->r, 0, 3);
    *b = (traffic_batch){.is = {.struct_size = sizeof b->is, .n_seqs = n, .page_ids = b->ids}};
    for (int i = 0; i < n; i++) {
        const engine_seq *s = &t->running[i];
        int32_t *to = b->ids + (padded ? i * stride : b->page_indptr[i]);
        for (int32_t j = 0; j < (padded ? stride : s->n_pages); j++) to[j] = j < s->n_pages ? s->table[j] : -7;
        b->page_indptr[i + 1] = b->page_indptr[i] + s->n_pages;
        b->query_indptr[i + 1] = b->query_indptr[i] + (one_each ? 1 : draw_rows(t, s->n_tokens));
        b->lengths[i] = s->n_tokens;
        b->last_lens[i] = (s->n_tokens - 1) % t->e.page_size + 1;
    }
    if (padded) b->is.page_stride = stride;
    if (!padded) b->is.page_indptr = b->page_indptr;
    if (by_last) b->is.last_page_lens = b->last_lens;
    if (!by_last) b->is.seq_lens = b->lengths;
    if (!one_each) b->is.query_indptr = b->query_indptr;
}

int64_t traffic_position(const traffic *t, const traffic_batch *b, int i, int32_t row) {
    return t->running[i].n_tokens - (b->query_indptr[i + 1] - row);
}

/* ---- Between steps ---- */

static void swap(traffic *t, int i, int j) {
    const engine_seq x = t->running[i];
    t->running[i] = t->running[j];
    t->running[j] = x;
}

void traffic_change(traffic *t) {
    rng *r = &t->r;
    for (int i = t->n_running - 1; i >= 0; i--) {
        engine_seq *s = &t->running[i];
        const int32_t most = (int32_t)s->is->n_tokens;
        if (s->n_tokens == most ? rng_chance(r, 3) : rng_chance(r, 20)) {
            engine_leave(&t->e, s);
            swap(t, i, --t->n_running);
            continue;
        }
        if (rng_chance(r, 12)) {
            engine_resize(&t->e, s, (int32_t)rng_range(r, s->n_tokens > 20 ? s->n_tokens - 20 : 1, s->n_tokens), true);
        } else if (s->n_tokens < most) {
            const int32_t n = rng_chance(r, 8) ? (int32_t)rng_range(r, 1, most - s->n_tokens) : 1;
            engine_resize(&t->e, s, s->n_tokens + n, rng_chance(r, 2));
        }
        if (rng_chance(r, 10) && t->n_running < TRAFFIC_MAX_RUNNING)
            engine_fork(&t->e, &t->running[t->n_running++], &t->running[i]);
    }
    while (t->n_running < TRAFFIC_MAX_RUNNING && rng_chance(r, 2)) {
        const world_seq *is = &t->w.seqs[rng_below(r, t->w.n_seqs)];
        engine_join(&t->e, &t->running[t->n_running++], is, (int32_t)rng_range(r, 1, is->n_tokens));
    }
    if (rng_chance(r, 4))
        for (int i = t->n_running - 1; i > 0; i--) swap(t, i, rng_below(r, i + 1));
}
