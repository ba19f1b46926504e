/* Running a world's sequences: joins, appends, forks, truncations, leaves, and comparing results. */
#include "world_run.h"

#include <stdlib.h>
#include <string.h>

#include "chunkattn_inspect.h"

int world_failures;

/* ---- Results ---- */

void world_take_row(world_run *t, world_seq *s, int64_t position, int layer, const float *out, const float *lse) {
    const int n_heads = t->w->config.n_heads, n_out = n_heads * world_dim_v(t->w);
    float *want_out = s->out + ((int64_t)layer * s->n_tokens + position) * n_out;
    float *want_lse = s->lse + ((int64_t)layer * s->n_tokens + position) * n_heads;
    if (t->how->expected) {
        memcpy(want_out, out, (size_t)n_out * sizeof *out);
        memcpy(want_lse, lse, (size_t)n_heads * sizeof *lse);
        return;
    }
    t->rows_compared++;
    CHECK(world_same(want_out, out, n_out) && world_same(want_lse, lse, n_heads),
          "seed %llu, %s, level %s, sequence %d, position %lld, layer %d", (unsigned long long)t->w->seed, t->how->name,
          cattn_cache_level(t->cache), (int)(s - t->w->seqs), (long long)position, layer);
}

void world_new_results(world *w) {
    for (int i = 0; i < w->n_seqs; i++) {
        world_seq *s = &w->seqs[i];
        const size_t rows = (size_t)(w->config.n_layers * s->n_tokens) * (size_t)w->config.n_heads;
        s->out = malloc(rows * (size_t)world_dim_v(w) * sizeof *s->out);
        s->lse = malloc(rows * sizeof *s->lse);
    }
}

/* ---- Sequences ---- */

static void join(world_run *t, world_seq *s) {
    cattn_error error = {0};
    world_runner *x = &t->runners[t->n_runners++];
    *x = (world_runner){.is = s, .length = s->n_prompt};
    CHECK(cattn_seq_join(t->cache, s->tokens, s->n_prompt, NULL, &x->seq, NULL, &error) == CATTN_OK, "join: %s", error.message);
}

static void leave(world_run *t, int i) {
    CHECK(cattn_seq_leave(t->cache, &t->runners[i].seq, NULL) == CATTN_OK, "leave");
    t->runners[i] = t->runners[--t->n_runners];
}

static int64_t n_ready(const world_run *t, const world_runner *x) {
    cattn_seq_info info = {.struct_size = sizeof info};
    CHECK(cattn_seq_get_info(t->cache, x->seq, &info, NULL) == CATTN_OK, "info");
    return info.n_ready;
}

static void append(world_run *t, world_runner *x) {
    const int64_t left = x->is->n_tokens - x->length, most = t->rates->most_appended,
                  n = rng_chance(&t->r, t->rates->append_many) ? rng_range(&t->r, 1, left < most ? left : most) : 1;
    CHECK(cattn_seq_append(t->cache, x->seq, x->is->tokens + x->length, n, NULL) == CATTN_OK, "append");
    x->length += n;
}

/* Sometimes fork, truncate or remove a runner. */
static void disturb(world_run *t, int i) {
    world_runner *x = &t->runners[i];
    if (rng_chance(&t->r, t->rates->fork) && t->n_runners < WORLD_MAX_RUNNERS) {
        world_runner *fork = &t->runners[t->n_runners];
        *fork = *x;
        CHECK(cattn_seq_fork(t->cache, x->seq, 0, &fork->seq, NULL) == CATTN_OK, "fork");
        t->n_runners++;
    } else if (rng_chance(&t->r, t->rates->truncate) && x->length > 1) {
        x->length -= rng_range(&t->r, 1, x->length - 1 < 7 ? x->length - 1 : 7);
        CHECK(cattn_seq_truncate(t->cache, x->seq, x->length, NULL) == CATTN_OK, "truncate");
    } else if (rng_chance(&t->r, t->rates->leave)) {
        leave(t, i);
    }
}

/* Append to runners with a complete prompt, let complete runners leave, and disturb some. */
static void between_steps(world_run *t) {
    for (int i = t->n_runners - 1; i >= 0; i--) {
        world_runner *x = &t->runners[i];
        const bool ready = n_ready(t, x) == x->length;
        if (ready && x->length == x->is->n_tokens) {
            leave(t, i);
            continue;
        }
        if (ready) append(t, x);
        if (t->how->events) disturb(t, i);
    }
    if (t->how->events && t->rates->drop > 0 && rng_chance(&t->r, t->rates->drop))
        CHECK(cattn_cache_drop_retained(t->cache, NULL) == CATTN_OK, "drop");
}

/* ---- Runs ---- */

world_run world_run_of(world *w, const world_variant *how, const world_rates *rates) {
    return (world_run){
        .w = w, .how = how, .rates = rates, .r = {w->seed * 1000003 + (uint64_t)how->piece + (uint64_t)how->sharing}};
}

static void shuffle(world_run *t, int *order, int n) {
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0 && !t->how->one_by_one; i--) {
        const int j = (int)rng_range(&t->r, 0, i), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}

void world_run_all(world_run *t, void (*step)(void *ctx), void *ctx) {
    world *w = t->w;
    const world_variant *how = t->how;
    int order[WORLD_MAX_SEQS] = {0};
    shuffle(t, order, w->n_seqs);
    for (int joined = 0; joined < w->n_seqs || t->n_runners > 0;) {
        if (how->one_by_one ? t->n_runners == 0 : joined < w->n_seqs) do
                join(t, &w->seqs[order[joined++]]);
            while (!how->one_by_one && joined < w->n_seqs && rng_chance(&t->r, 2));
        if (t->n_runners > 0) step(ctx);
        between_steps(t);
    }
    if (how->one_by_one && how->sharing != CATTN_PRIVATE && how->retention == CATTN_RETAIN_LRU) {
        for (int i = 0; i < w->n_seqs; i++) join(t, &w->seqs[i]); /* warm */
        while (t->n_runners > 0) {
            step(ctx);
            between_steps(t);
        }
    }
}
