/* The records of a world's plan, and what it says of sequences: tokens, and their q, k and v. */
#include "world.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/half.h"

static const plan_records records[] = {
    {"shape",
     "pages level=-1 kv_type chunk_size=16 n_layers=1 n_kv_heads=1 group=1 head_dim=64 head_dim_v=64 "
     "n_kv_heads1 group1 head_dim1 head_dim_v1 source1 n_kv_heads2 group2 head_dim2 head_dim_v2 source2 window0 window1 "
     "window2 "
     "n_sink_tokens scale softcap sinks slopes values score_scale=1 value_kind q_type k_type v_type gap heads_outer poison "
     "tier_mb tier_thread check_tree",
     sizeof(plan_shape), offsetof(plan, shape), PLAN_ONE, 1},
    {"seq", "n_tokens=1 n_prompt=1 of:seq=-1 n_common own domain at whole marked n_marked mark", sizeof(plan_seq),
     offsetof(plan, seqs), offsetof(plan, n_seqs), WORLD_MAX_SEQS},
    {"round",
     "sharing retention threads=1 piece one_by_one again out_type own evicts layout deferred wgmma fail times=1 "
     "fail_device",
     sizeof(plan_round), offsetof(plan, rounds), offsetof(plan, n_rounds), WORLD_MAX_ROUNDS},
    {"event", "round:round=-1 at kind who n", sizeof(plan_event), offsetof(plan, events), offsetof(plan, n_events),
     WORLD_MAX_EVENTS},
};
const plan_kind world_plan_kind = {sizeof(plan), records, sizeof records / sizeof *records};

/* ---- Sequences ---- */

/* Some sequences have extra hashes: those of the one whose tokens they have, or others. */
static void make_extras(const plan *p, rng *r, plan_seq *s) {
    const plan_seq *other = s->of >= 0 ? &p->seqs[s->of] : NULL;
    if (other && rng_chance(r, 2)) {
        s->whole = other->whole, s->mark = other->mark, s->marked = other->marked, s->n_marked = other->n_marked;
        return;
    }
    if (rng_chance(r, 8)) s->whole = rng_range(r, 1, 2);
    if (!rng_chance(r, 4)) return;
    s->marked = rng_range(r, 0, s->n_tokens - 1);
    s->n_marked = rng_range(r, 1, 40);
    s->mark = rng_range(r, 1, 2);
}

static plan_seq make_seq(const plan *p, rng *r, int64_t longest) {
    plan_seq s = {.n_tokens = rng_range(r, 1, longest), .of = -1, .own = rng_range(r, 1, 1 << 30)};
    if (rng_chance(r, 3)) s.n_tokens = longest - rng_range(r, 0, longest / 4); /* long ones share long prefixes */
    s.n_prompt = rng_chance(r, 2) ? s.n_tokens : rng_range(r, s.n_tokens > 40 ? s.n_tokens - 40 : 1, s.n_tokens);
    const int64_t n_whole = s.n_prompt / p->shape.chunk_size * p->shape.chunk_size;
    if (n_whole > 0 && rng_chance(r, 3)) s.n_prompt = n_whole; /* it ends with a chunk */
    s.domain = rng_chance(r, 8);
    s.at = rng_range(r, 0, WORLD_MAX_SEQS);
    if (p->n_seqs > 0 && !rng_chance(r, 5)) {
        s.of = rng_range(r, 0, p->n_seqs - 1);
        const int64_t other = p->seqs[s.of].n_tokens, most = other < s.n_tokens ? other : s.n_tokens;
        s.n_common = rng_chance(r, 2) ? most - rng_range(r, 0, most < 20 ? most : 20) : rng_range(r, 0, most);
    }
    make_extras(p, r, &s);
    return s;
}

void plan_make_seqs(plan *p, rng *r, int64_t longest) {
    for (int64_t n = rng_range(r, 2, WORLD_MAX_SEQS); p->n_seqs < n; p->n_seqs++) p->seqs[p->n_seqs] = make_seq(p, r, longest);
}

static void make_tokens(world *w, int index) {
    const plan_seq *is = &w->plan->seqs[index];
    world_seq *s = &w->seqs[index];
    rng r = {(uint64_t)is->own};
    s->n_tokens = is->n_tokens;
    s->domain = (uint32_t)is->domain;
    s->n_prompt = is->n_prompt < is->n_tokens ? is->n_prompt : is->n_tokens;
    s->tokens = malloc((size_t)s->n_tokens * sizeof *s->tokens);
    s->path = malloc((size_t)s->n_tokens * sizeof *s->path);
    s->marks = calloc((size_t)s->n_tokens, sizeof *s->marks);
    s->whole = (uint64_t)is->whole;
    for (int64_t i = is->marked; i < is->marked + is->n_marked && i < is->n_tokens; i++) s->marks[i] = (uint64_t)is->mark;
    const world_seq *other = is->of >= 0 && is->of < index ? &w->seqs[is->of] : s;
    uint64_t h = (uint64_t)w->plan->shape.values * 31 + 7 + s->whole * 1000;
    for (int64_t i = 0; i < s->n_tokens; i++) {
        const int32_t next = rng_below(&r, 3);
        s->tokens[i] = other != s && i < is->n_common && i < other->n_tokens ? other->tokens[i] : next;
        rng step = {h + (uint64_t)s->tokens[i] + s->marks[i] * 100};
        s->path[i] = h = rng_next(&step);
    }
}

/* ---- Rows ---- */

ca_heads world_heads(const world *w, int layer) { return ca_heads_of(&w->config, layer); }

float world_rounded(int64_t type, float x) {
    if (type == CATTN_F16) return ca_f32_from_f16(ca_f16_from_f32(x));
    return type == CATTN_BF16 ? ca_f32_from_bf16(ca_bf16_from_f32(x)) : x;
}

static float value(const plan_shape *p, rng *r, bool infinite) {
    const float x = rng_float(r);
    if (infinite && rng_chance(r, 4)) return x < 0 ? -INFINITY : INFINITY;
    if (p->value_kind != 1) return x;
    const int kind = (int)rng_range(r, 0, 3);
    return kind == 0 ? 0.0f : kind == 1 ? x * 0x1p-120f : kind == 2 ? x * 0x1p-20f : x;
}

static void fill_row(const world *w, const world_seq *s, int64_t position, int layer, float *row) {
    const ca_heads h = world_heads(w, layer);
    const plan_shape *p = &w->plan->shape;
    rng r = {s->path[position] + (uint64_t)layer * 0x1234567};
    const bool infinite = p->value_kind == 2 && rng_chance(&r, 50);
    /* A common direction makes scores grow and shrink along a sequence instead of only scattering. */
    const float drift = rng_float(&r) * 0.5f;
    for (int i = 0; i < h.n_heads * h.d_k; i++) *row++ = world_rounded(p->q_type, rng_float(&r) + 0.25f);
    for (int i = 0; i < h.n_kv_heads * h.d_k; i++)
        *row++ = world_rounded(p->k_type, (rng_float(&r) + drift) * (float)p->score_scale);
    for (int i = 0; i < h.n_kv_heads * h.d_v; i++) *row++ = world_rounded(p->v_type, value(p, &r, infinite));
}

/* Floats of a row of q, k and v, of outputs and of lse, in the layers before one. */
typedef struct sizes {
    size_t row, out, lse;
} sizes;

static sizes sizes_before(const world *w, int layer) {
    sizes n = {0};
    for (int i = 0; i < layer; i++) {
        const ca_heads h = world_heads(w, i);
        n.row += (size_t)((h.n_heads + h.n_kv_heads) * h.d_k + h.n_kv_heads * h.d_v);
        n.out += (size_t)(h.n_heads * h.d_v);
        n.lse += (size_t)h.n_heads;
    }
    return n;
}

static float *row_at(const world *w, const world_seq *s, int64_t position, int layer) {
    return s->rows + (size_t)position * sizes_before(w, w->config.n_layers).row + sizes_before(w, layer).row;
}

/* A layer that has another one's K and V has the rows of that. */
world_input world_row(const world *w, const world_seq *s, int64_t position, int layer) {
    const int source = w->config.kv_source ? w->config.kv_source[layer] : layer;
    const ca_heads of = world_heads(w, source);
    const float *k = row_at(w, s, position, source) + of.n_heads * of.d_k;
    return (world_input){row_at(w, s, position, layer), k, k + of.n_kv_heads * of.d_k};
}

float *world_out(const world *w, const world_seq *s, int64_t position, int layer) {
    const ca_heads h = world_heads(w, layer);
    return s->out + (size_t)s->n_tokens * sizes_before(w, layer).out + position * h.n_heads * h.d_v;
}

float *world_lse(const world *w, const world_seq *s, int64_t position, int layer) {
    return s->lse + (size_t)s->n_tokens * sizes_before(w, layer).lse + position * world_heads(w, layer).n_heads;
}

static void make_rows(const world *w, world_seq *s) {
    const sizes all = sizes_before(w, w->config.n_layers);
    const size_t n = (size_t)s->n_tokens * sizeof(float);
    s->rows = malloc(n * all.row);
    s->out = malloc(n * all.out);
    s->lse = malloc(n * all.lse);
    for (int64_t p = 0; p < s->n_tokens; p++)
        for (int layer = 0; layer < w->config.n_layers; layer++) fill_row(w, s, p, layer, row_at(w, s, p, layer));
}

/* ---- Worlds ---- */

static void make_config(world *w) {
    const plan_shape *p = &w->plan->shape;
    cattn_config *c = &w->config;
    cattn_config_init(c);
    c->n_layers = (int32_t)p->n_layers;
    c->n_kv_heads = (int32_t)p->n_kv_heads;
    c->n_heads = (int32_t)(p->n_kv_heads * p->group);
    c->head_dim = (int32_t)p->head_dim;
    c->head_dim_v = (int32_t)p->head_dim_v;
    c->chunk_size = (int32_t)p->chunk_size;
    c->kv_type = (cattn_type)p->kv_type;
    c->scale = (float)p->scale / 1000;
    c->budget_bytes = (uint64_t)256 << 20;
    int level = 0;
    while (cattn_level_name(level + 1) && level != p->level) level++;
    c->level = cattn_level_name(level);
}

/* What a later layer has, or what the first one has. */
static int32_t own_or(int64_t own, int32_t first) { return own ? (int32_t)own : first; }

static void make_layers(world *w) {
    const plan_shape *p = &w->plan->shape;
    cattn_config *c = &w->config;
    const int64_t kv_heads[] = {0, p->n_kv_heads1, p->n_kv_heads2}, groups[] = {0, p->group1, p->group2},
                  dims[] = {0, p->head_dim1, p->head_dim2}, dims_v[] = {0, p->head_dim_v1, p->head_dim_v2},
                  sources[] = {0, p->source1, p->source2};
    for (int32_t i = 0; i < WORLD_MAX_LAYERS; i++) {
        w->n_kv_heads[i] = own_or(kv_heads[i], c->n_kv_heads);
        w->n_heads[i] = w->n_kv_heads[i] * own_or(groups[i], c->n_heads / c->n_kv_heads);
        w->head_dim[i] = own_or(dims[i], c->head_dim);
        w->head_dim_v[i] = own_or(dims_v[i], c->head_dim_v);
        w->source[i] = own_or(sources[i], i + 1) - 1;
        if (w->n_kv_heads[i] != c->n_kv_heads) c->layer_n_kv_heads = w->n_kv_heads;
        if (w->n_heads[i] != c->n_heads) c->layer_n_heads = w->n_heads;
        if (w->head_dim[i] != c->head_dim) c->layer_head_dim = w->head_dim;
        if (w->head_dim_v[i] != c->head_dim_v) c->layer_head_dim_v = w->head_dim_v;
        if (w->source[i] != i) c->kv_source = w->source;
    }
}

static void make_options(world *w) {
    const plan_shape *p = &w->plan->shape;
    cattn_config *c = &w->config;
    rng r = {(uint64_t)p->values};
    const int32_t windows[WORLD_MAX_LAYERS] = {(int32_t)p->window0, (int32_t)p->window1, (int32_t)p->window2};
    memcpy(w->windows, windows, sizeof windows);
    if (windows[0] || windows[1] || windows[2]) c->windows = w->windows;
    c->n_sink_tokens = (int32_t)p->n_sink_tokens;
    c->softcap = (float)p->softcap / 1000;
    for (size_t i = 0; i < sizes_before(w, c->n_layers).lse; i++)
        w->sink_logits[i] = rng_chance(&r, 6) ? -INFINITY : ldexpf(rng_float(&r), (int)p->sinks - 100);
    for (int i = 0; i < c->n_heads; i++) w->alibi_slopes[i] = ldexpf(rng_float(&r), (int)p->slopes - 100);
    if (p->sinks) c->sink_logits = w->sink_logits;
    if (p->slopes) c->alibi_slopes = w->alibi_slopes;
}

void world_make(world *w, const plan *p) {
    *w = (world){.plan = p, .n_seqs = (int)p->n_seqs};
    make_config(w);
    make_layers(w);
    make_options(w);
    for (int i = 0; i < w->n_seqs; i++) {
        make_tokens(w, i);
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
        free(s->marks);
        free(s->rows);
        free(s->out);
        free(s->lse);
    }
}
