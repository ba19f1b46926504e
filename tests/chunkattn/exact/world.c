/* Making a random world for exactness tests: sequences with common prefixes, and their q, k and v. */
#include "world.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/attn/head_sizes.h"

int32_t world_dim_v(const world *w) { return w->config.head_dim_v ? w->config.head_dim_v : w->config.head_dim; }

static void make_tokens(world *w, rng *r, world_seq *s, int index, int64_t longest) {
    s->n_tokens = rng_range(r, 1, longest);
    if (rng_chance(r, 3)) s->n_tokens = longest - rng_range(r, 0, longest / 4); /* long ones share long prefixes */
    s->n_prompt = rng_chance(r, 2) ? s->n_tokens : rng_range(r, s->n_tokens > 40 ? s->n_tokens - 40 : 1, s->n_tokens);
    s->tokens = malloc((size_t)s->n_tokens * sizeof *s->tokens);
    s->path = malloc((size_t)s->n_tokens * sizeof *s->path);
    int64_t common = 0;
    if (index > 0 && !rng_chance(r, 5)) {
        const world_seq *other = &w->seqs[rng_range(r, 0, index - 1)];
        const int64_t most = other->n_tokens < s->n_tokens ? other->n_tokens : s->n_tokens;
        common = rng_chance(r, 2) ? most - rng_range(r, 0, most < 20 ? most : 20) : rng_range(r, 0, most);
        memcpy(s->tokens, other->tokens, (size_t)common * sizeof *s->tokens);
    }
    for (int64_t i = common; i < s->n_tokens; i++) s->tokens[i] = (int32_t)rng_range(r, 0, 2);
    uint64_t h = w->seed * 31 + 7;
    for (int64_t i = 0; i < s->n_tokens; i++) {
        rng step = {h + (uint64_t)s->tokens[i]};
        s->path[i] = h = rng_next(&step);
    }
}

static float value(const world *w, rng *r, bool infinite) {
    const float x = rng_float(r);
    if (infinite && rng_chance(r, 4)) return x < 0 ? -INFINITY : INFINITY;
    if (w->value_kind != 1) return x;
    const int kind = (int)rng_range(r, 0, 3);
    return kind == 0 ? 0.0f : kind == 1 ? x * 0x1p-120f : kind == 2 ? x * 0x1p-20f : x;
}

static void fill_row(const world *w, const world_seq *s, int64_t position, int layer, float *row) {
    const cattn_config *c = &w->config;
    rng r = {s->path[position] + (uint64_t)layer * 0x1234567};
    const bool infinite = w->value_kind == 2 && rng_chance(&r, 50);
    /* A common direction makes scores grow and shrink along a sequence instead of only scattering. */
    const float drift = rng_float(&r) * 0.5f;
    for (int i = 0; i < c->n_heads * c->head_dim; i++) *row++ = rng_float(&r) + 0.25f;
    for (int i = 0; i < c->n_kv_heads * c->head_dim; i++) *row++ = (rng_float(&r) + drift) * w->score_scale;
    for (int i = 0; i < c->n_kv_heads * world_dim_v(w); i++) *row++ = value(w, &r, infinite);
}

static size_t row_size(const world *w) {
    return (size_t)((w->config.n_heads + w->config.n_kv_heads) * w->config.head_dim + w->config.n_kv_heads * world_dim_v(w));
}

const float *world_row(const world *w, const world_seq *s, int64_t position, int layer) {
    return s->rows + (size_t)(position * w->config.n_layers + layer) * row_size(w);
}

static void make_rows(const world *w, world_seq *s) {
    s->rows = malloc((size_t)(s->n_tokens * w->config.n_layers) * row_size(w) * sizeof *s->rows);
    for (int64_t p = 0; p < s->n_tokens; p++)
        for (int layer = 0; layer < w->config.n_layers; layer++)
            fill_row(w, s, p, layer, s->rows + (size_t)(p * w->config.n_layers + layer) * row_size(w));
}

/*
 * Each option is on in a third of the worlds: windows shorter and longer than a chunk, in some layers only, with and without
 * sink tokens; caps below and above the scores; slopes that are gentle, or so steep that weights vanish within a chunk; sink
 * logits of all sizes.
 */
static void make_options(world *w, rng *r, int64_t longest) {
    cattn_config *c = &w->config;
    if (rng_chance(r, 3)) {
        for (int i = 0; i < c->n_layers; i++)
            w->windows[i] = rng_chance(r, 3) ? 0 : (int32_t)rng_range(r, 1, rng_chance(r, 2) ? 20 : longest);
        c->windows = w->windows;
        c->n_sink_tokens = rng_chance(r, 2) ? 0 : (int32_t)rng_range(r, 1, rng_chance(r, 2) ? 4 : longest / 2);
    }
    if (rng_chance(r, 3)) c->softcap = ldexpf(1 + rng_float(r) / 2, (int)rng_range(r, -4, 12));
    const int size = (int)rng_range(r, -6, 14);
    if (rng_chance(r, 3)) {
        for (int i = 0; i < c->n_layers * c->n_heads; i++)
            w->sink_logits[i] = rng_chance(r, 6) ? -INFINITY : ldexpf(rng_float(r), size);
        c->sink_logits = w->sink_logits;
    }
    const bool steep = rng_chance(r, 3);
    if (rng_chance(r, 3)) {
        for (int i = 0; i < c->n_heads; i++) w->alibi_slopes[i] = ldexpf(rng_float(r), (int)rng_range(r, -8, steep ? 10 : 0));
        c->alibi_slopes = w->alibi_slopes;
    }
}

/* The two largest are rare. */
static int32_t make_head_size(rng *r) {
    return ca_head_sizes[rng_below(r, rng_chance(r, 4) ? CA_N_HEAD_SIZES : CA_N_HEAD_SIZES - 2)];
}

void world_make(world *w, uint64_t seed, int64_t longest) { world_make_shaped(w, seed, longest, NULL); }

void world_make_shaped(world *w, uint64_t seed, int64_t longest, void (*reshape)(cattn_config *config, rng *r)) {
    static const int32_t wide_groups[] = {16, 17, 32, 71, 128};
    rng r = {seed};
    *w = (world){.seed = seed};
    cattn_config_init(&w->config);
    w->config.n_layers = rng_chance(&r, 4) ? (int32_t)rng_range(&r, 2, WORLD_MAX_LAYERS) : 1;
    /* Mostly small shapes, so that many worlds can be run; sometimes a large one of each kind. */
    const bool wide = rng_chance(&r, 12);
    const bool many = !wide && rng_chance(&r, 8); /* KV heads */
    w->config.n_kv_heads = wide ? 1 : many ? 16 : (int32_t)rng_range(&r, 1, 2);
    w->config.n_heads = w->config.n_kv_heads * (wide ? wide_groups[rng_below(&r, 5)] : many ? 1 : (int32_t)rng_range(&r, 1, 3));
    w->config.head_dim = wide || many || rng_chance(&r, 2) ? 64 : make_head_size(&r);
    w->config.head_dim_v = rng_chance(&r, 4) ? make_head_size(&r) : 0;
    w->config.chunk_size = 16 << (rng_chance(&r, 10) ? rng_range(&r, 2, 4) : rng_range(&r, 0, 1));
    w->config.kv_type = (cattn_type)rng_range(&r, CATTN_F32, CATTN_I8);
    if (reshape) reshape(&w->config, &r);
    w->score_scale = rng_chance(&r, 3) ? (rng_chance(&r, 2) ? 60.0f : 2000.0f) : rng_chance(&r, 2) ? 8.0f : 1.0f;
    make_options(w, &r, longest);
    w->value_kind = (int)rng_range(&r, 0, 2);
    w->n_seqs = (int)rng_range(&r, 2, WORLD_MAX_SEQS);
    for (int i = 0; i < w->n_seqs; i++) {
        make_tokens(w, &r, &w->seqs[i], i, longest);
        make_rows(w, &w->seqs[i]);
    }
}

bool world_same(const float *a, const float *b, int n) {
    if (!memcmp(a, b, (size_t)n * sizeof *a)) return true;
    for (int i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) && !(isnan(a[i]) && isnan(b[i]))) return false;
    return true;
}

void world_free(world *w) {
    for (int i = 0; i < w->n_seqs; i++) {
        world_seq *s = &w->seqs[i];
        free(s->tokens);
        free(s->path);
        free(s->rows);
        free(s->out);
        free(s->lse);
    }
}

void world_parse_options(int argc, char **argv, world_options *o) {
    static const struct option options[] = {{"worlds", 1, 0, 'w'}, {"long", 1, 0, 'l'}, {"seed", 1, 0, 's'}, {0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'w')
            o->n_worlds = strtoll(optarg, NULL, 10);
        else if (c == 'l')
            o->n_long = strtoll(optarg, NULL, 10);
        else if (c == 's')
            o->seed = strtoull(optarg, NULL, 10);
        else
            exit(2);
    }
}
