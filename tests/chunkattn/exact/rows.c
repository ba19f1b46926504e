/* The worlds of each test of exactness: see rows.h. */
#include "rows.h"

#include <stdio.h>
#include <string.h>

#include "chunkattn/attn/head_sizes.h"
#include "engine.h"

/* ---- Events ---- */

/* How often something happens before a step: with a probability of 1 / rate, for each of some sequences. 0: never. */
typedef int rates[EVENT_KINDS];

static const rates in_trees = {[EVENT_APPEND] = 20, [EVENT_FORK] = 40,    [EVENT_TRUNCATE] = 30, [EVENT_LEAVE] = 40,
                               [EVENT_JOIN] = 60,   [EVENT_RESERVE] = 60, [EVENT_PIN] = 60,      [EVENT_EXPORT] = 40,
                               [EVENT_IMPORT] = 40, [EVENT_LIMIT] = 3,    [EVENT_ABORT] = 6,     [EVENT_DROP] = 60};
static const rates behind_tiers = {[EVENT_APPEND] = 20, [EVENT_FORK] = 40, [EVENT_TRUNCATE] = 30, [EVENT_LEAVE] = 12,
                                   [EVENT_JOIN] = 60,   [EVENT_PIN] = 60,  [EVENT_EXPORT] = 60,   [EVENT_IMPORT] = 60,
                                   [EVENT_LIMIT] = 3,   [EVENT_ABORT] = 6, [EVENT_DROP] = 20,     [EVENT_READ_ERROR] = 30};
static const rates in_pages = {
    [EVENT_APPEND] = 8, [EVENT_FORK] = 10, [EVENT_TRUNCATE] = 12, [EVENT_LEAVE] = 20, [EVENT_JOIN] = 4};
static const rates on_devices = {[EVENT_APPEND] = 8, [EVENT_FORK] = 20, [EVENT_TRUNCATE] = 15, [EVENT_LEAVE] = 20,
                                 [EVENT_LIMIT] = 3,  [EVENT_ABORT] = 6, [EVENT_DROP] = 20,     [EVENT_STREAM] = 8};

/* The largest n of an event. Kinds before EVENT_LIMIT concern one of some sequences. */
static const int most_n[EVENT_KINDS] = {[EVENT_APPEND] = 9,  [EVENT_FORK] = 40,    [EVENT_TRUNCATE] = 9,
                                        [EVENT_JOIN] = 40,   [EVENT_RESERVE] = 64, [EVENT_PIN] = 40,
                                        [EVENT_EXPORT] = 40, [EVENT_LIMIT] = 60,   [EVENT_ABORT] = WORLD_MAX_LAYERS};

static void make_events(plan *p, rng *r, const rates *rate, int64_t n_steps) {
    for (int64_t at = 0; at < n_steps; at++)
        for (int kind = 0; kind < EVENT_KINDS; kind++)
            for (int64_t i = kind < EVENT_LIMIT ? p->n_seqs / 2 : 0; i >= 0; i--)
                if ((*rate)[kind] && rng_chance(r, (*rate)[kind]) && p->n_events < WORLD_MAX_EVENTS)
                    p->events[p->n_events++] = (plan_event){.round = p->n_rounds,
                                                            .at = at,
                                                            .kind = kind,
                                                            .who = rng_below(r, 64),
                                                            .n = rng_range(r, kind == EVENT_LIMIT, most_n[kind])};
}

/* ---- Rounds ---- */

/* A way to run a world, without its seed. */
typedef struct way {
    const plan_round is;
    const rates *rate; /* NULL: nothing happens meanwhile */
    int64_t most;      /* tokens of the worlds that are run so; 0: any */
} way;

enum { LRU = CATTN_RETAIN_LRU, NONE = CATTN_RETAIN_NONE, LEARNED = CATTN_RETAIN_LEARNED };
enum { SHARED = CATTN_SHARED, STORAGE = CATTN_SHARED_STORAGE, PRIVATE = CATTN_PRIVATE };

#define WAY(...)                                                                                                               \
    {                                                                                                                          \
        .is = { __VA_ARGS__, .times = 1 }                                                                                      \
    }
#define WAY_WITH(happens, ...)                                                                                                 \
    { .is = {__VA_ARGS__, .times = 1}, .rate = &(happens) }

static const way trees[] = {
    WAY(SHARED, LRU, 1, WHOLE),
    WAY(SHARED, LRU, 2, WHOLE, .one_by_one = true, .again = true),
    {.is = {SHARED, NONE, 2, 1, .times = 1}, .most = 400},
    WAY(SHARED, LRU, 1, 7),
    WAY_WITH(in_trees, SHARED, LRU, 2, 64),
    WAY_WITH(in_trees, SHARED, NONE, 2, 0),
    WAY_WITH(in_trees, STORAGE, LRU, 2, 0),
    WAY_WITH(in_trees, PRIVATE, LRU, 2, 64),
};
static const way tiers[] = {
    WAY(SHARED, LRU, 1, WHOLE, .evicts = 1),
    WAY(SHARED, LRU, 2, WHOLE, .one_by_one = true, .again = true, .evicts = 1),
    WAY_WITH(behind_tiers, SHARED, LEARNED, 1, 7, .evicts = 1),
    WAY_WITH(behind_tiers, STORAGE, LEARNED, 2, 0, .evicts = 1),
    WAY_WITH(behind_tiers, SHARED, LRU, 2, 64, .evicts = 1),
};
static const way paged[] = {
    WAY_WITH(in_pages, SHARED, .threads = 1),
    WAY_WITH(in_pages, STORAGE, .threads = 2),
    WAY_WITH(in_pages, PRIVATE, .threads = 1),
};
static const way groups[] = {WAY(SHARED, LRU, 2, 0)};
static const way views[] = {WAY(SHARED, LRU, 2, 17)};
static const way faults[] = {WAY_WITH(in_trees, SHARED, LRU, 1, 0)};
static const way devices[] = {
    WAY(SHARED, LRU, 1, WHOLE),
    WAY(SHARED, LRU, 1, WHOLE, .one_by_one = true, .again = true),
    {.is = {SHARED, LRU, 1, 7, .times = 1}, .most = 100}, /* long worlds are too slow with the smallest pieces */
    WAY_WITH(on_devices, SHARED, LRU, 1, 64),
    {.is = {SHARED, NONE, 1, 0, .times = 1}, .rate = &on_devices, .most = 300},
    WAY_WITH(on_devices, STORAGE, LRU, 1, 0),
    WAY_WITH(on_devices, PRIVATE, LRU, 1, 64),
};

static plan_round *add_round(plan *p, rng *r, const way *how, int64_t n_steps) {
    plan_round *to = &p->rounds[p->n_rounds];
    *to = how->is;
    to->own = rng_range(r, 1, 1 << 30);
    if (rng_chance(r, 3)) to->out_type = rng_below(r, CATTN_BF16 + 1);
    if (how->rate) make_events(p, r, how->rate, n_steps);
    p->n_rounds++;
    return to;
}

static void add_rounds(plan *p, rng *r, const way *ways, size_t n, int64_t longest) {
    for (size_t i = 0; i < n; i++)
        if (ways[i].most == 0 || longest <= ways[i].most) add_round(p, r, &ways[i], longest / 50 + 60);
}
#define ADD_ROUNDS(p, r, ways, longest) add_rounds((p), (r), (ways), sizeof(ways) / sizeof *(ways), (longest))

/* ---- Shapes ---- */

/* The two largest are rare. */
static int32_t make_head_size(rng *r) {
    return ca_head_sizes[rng_below(r, rng_chance(r, 4) ? CA_N_HEAD_SIZES : CA_N_HEAD_SIZES - 2)];
}

/*
 * Each option is on in a third of the worlds: windows shorter and longer than a chunk, in some layers only, with and without
 * sink tokens; caps below and above the scores; slopes that are gentle, or so steep that weights vanish within a chunk; sink
 * logits of all sizes.
 */
static void make_options(plan_shape *p, rng *r, int64_t longest) {
    if (rng_chance(r, 3)) {
        int64_t *windows[] = {&p->window0, &p->window1, &p->window2};
        for (int i = 0; i < p->n_layers; i++)
            *windows[i] = rng_chance(r, 3) ? 0 : rng_range(r, 1, rng_chance(r, 2) ? 20 : longest);
        p->n_sink_tokens = rng_chance(r, 2) ? 0 : rng_range(r, 1, rng_chance(r, 2) ? 4 : longest / 2);
        if (rng_chance(r, 12)) p->n_sink_tokens = INT32_MAX;
    }
    if (rng_chance(r, 6)) p->scale = rng_range(r, 10, 2000);
    if (rng_chance(r, 3)) p->softcap = rng_range(r, 30, 100) << rng_range(r, 0, 16);
    if (rng_chance(r, 3)) p->sinks = 100 + rng_range(r, -6, 14);
    const bool alike = !p->n_kv_heads1 && !p->group1 && !p->n_kv_heads2 && !p->group2; /* in their query heads */
    if (alike && rng_chance(r, 3)) p->slopes = 100 + rng_range(r, -8, rng_chance(r, 3) ? 10 : 0);
}

/* Types of q, k and v; of the output where a round is added. */
enum { N_TYPES = CATTN_BF16 + 1, N_MIXTURES = N_TYPES * N_TYPES * N_TYPES };

static void make_types(plan_shape *s, int64_t mixture) {
    s->q_type = mixture % N_TYPES;
    s->k_type = mixture / N_TYPES % N_TYPES;
    s->v_type = mixture / N_TYPES / N_TYPES;
}

/* Sequences, numbers and options, for a shape that is there. */
static void make_numbers(plan *p, rng *r, int64_t longest) {
    plan_shape *s = &p->shape;
    s->level = -1;
    s->values = rng_range(r, 1, 1 << 30);
    s->score_scale = rng_chance(r, 3) ? (rng_chance(r, 2) ? 60 : 2000) : rng_chance(r, 2) ? 8 : 1;
    s->value_kind = rng_range(r, 0, 2);
    s->gap = rng_chance(r, 2) ? 8 : 0; /* a device's strides are multiples of 16 bytes */
    s->heads_outer = rng_chance(r, 4);
    if (rng_chance(r, 3)) make_types(s, rng_below(r, N_MIXTURES));
    make_options(s, r, longest);
    plan_make_seqs(p, r, longest);
}

/* A layer that may differ from the first one, or have its K and V. */
static void make_layer(const plan_shape *s, rng *r, int32_t (*size)(rng *r), int64_t *kv_heads, int64_t *group, int64_t *dim,
                       int64_t *dim_v, int64_t *source) {
    if (rng_chance(r, 2)) *group = rng_range(r, 1, 4);
    if (rng_chance(r, 3)) {
        *source = 1;
        return;
    }
    if (rng_chance(r, 2)) *kv_heads = rng_range(r, 1, 3);
    if (!rng_chance(r, 2)) return;
    *dim = size(r);
    *dim_v = s->head_dim == s->head_dim_v ? *dim : size(r);
}

static void make_layers(plan_shape *s, rng *r, int32_t (*size)(rng *r)) {
    if (s->n_layers > 1 && rng_chance(r, 2))
        make_layer(s, r, size, &s->n_kv_heads1, &s->group1, &s->head_dim1, &s->head_dim_v1, &s->source1);
    if (s->n_layers > 2 && rng_chance(r, 2))
        make_layer(s, r, size, &s->n_kv_heads2, &s->group2, &s->head_dim2, &s->head_dim_v2, &s->source2);
}

/* Mostly small shapes, so that many worlds can be run; sometimes a large one of each kind. */
static void make_shape(plan_shape *s, rng *r) {
    static const int32_t wide_groups[] = {16, 17, 32, 71, 128};
    const bool wide = rng_chance(r, 12), many = !wide && rng_chance(r, 8); /* KV heads */
    s->n_layers = rng_chance(r, 4) ? rng_range(r, 2, WORLD_MAX_LAYERS) : 1;
    s->n_kv_heads = wide ? 1 : many ? 16 : rng_range(r, 1, 2);
    s->group = wide ? wide_groups[rng_below(r, 5)] : many ? 1 : rng_range(r, 1, 3);
    s->head_dim = wide || many || rng_chance(r, 2) ? 64 : make_head_size(r);
    s->head_dim_v = rng_chance(r, 4) ? make_head_size(r) : s->head_dim;
    make_layers(s, r, make_head_size);
    s->chunk_size = 16 << (rng_chance(r, 10) ? rng_range(r, 2, 4) : rng_range(r, 0, 1));
    s->kv_type = rng_range(r, CATTN_F32, CATTN_I8);
    s->check_tree = 8;
}

static int n_levels(void) {
    int n = 1; /* the reference is always there */
    while (cattn_level_name(n)) n++;
    return n;
}

/* Most worlds run at the highest level of this CPU, some at each lower one; -1: the highest. */
static int64_t choose_level(uint64_t seed) { return seed % 4 ? -1 : (int64_t)(seed / 4) % n_levels(); }

/* Shape and numbers of a world whose kernel level the seed chooses. Returns the length of the longest sequence. */
static int64_t make_of_level(plan *p, rng *r, uint64_t seed, bool is_long) {
    const int64_t level = is_long ? -1 : choose_level(seed), longest = is_long ? 2300 : level == 0 ? 40 : 72;
    make_shape(&p->shape, r);
    make_numbers(p, r, longest);
    p->shape.level = level; /* 0 is the slow reference */
    return longest;
}

/* ---- Rows ---- */

static void make_trees(plan *p, rng *r, uint64_t seed, bool is_long) {
    const int64_t longest = make_of_level(p, r, seed, is_long);
    p->shape.poison = seed % 16 == 0;
    ADD_ROUNDS(p, r, trees, longest);
}

/* The smaller tier replaces records. */
static void make_tiers(plan *p, rng *r, uint64_t seed, bool is_long) {
    const int64_t longest = is_long ? 2300 : 150;
    make_shape(&p->shape, r);
    make_numbers(p, r, longest);
    p->shape.tier_mb = seed % 5 == 0 ? 4 : 64;
    p->shape.tier_thread = seed % 3 == 0;
    ADD_ROUNDS(p, r, tiers, longest);
}

static void make_pages(plan *p, rng *r, uint64_t seed, bool is_long) {
    const int64_t level = is_long ? -1 : choose_level(seed);
    make_shape(&p->shape, r);
    const bool grouped = p->shape.group <= 3 && rng_chance(r, 4); /* KV heads in groups, of which the last is smaller */
    if (grouped) p->shape.n_kv_heads = rng_chance(r, 2) ? 5 : 9;
    make_numbers(p, r, is_long ? 2300 : level == 0 ? 100 : 150);
    p->shape.level = level;
    p->shape.kv_type = rng_below(r, CATTN_I8);
    p->shape.pages = 16 << (rng_chance(r, 2) ? 0 : rng_below(r, 4));
    p->shape.chunk_size = 64;
    for (size_t i = 0; i < sizeof paged / sizeof *paged; i++)
        add_round(p, r, &paged[i], is_long ? 6 : 25)->layout = rng_below(r, ENGINE_LAYOUTS);
}

/* Every level, K/V type and number of query heads for a KV head in turn. */
static void make_groups(plan *p, rng *r, uint64_t seed, bool is_long) {
    static const int32_t sizes[] = {1, 2, 7, 16, 17, 32, 71, 96, 97, 128};
    (void)is_long;
    p->shape = (plan_shape){.n_layers = 1, .n_kv_heads = 2, .group = sizes[seed % 10], .head_dim = 64, .head_dim_v = 64};
    p->shape.chunk_size = 16;
    p->shape.kv_type = (int64_t)(seed / 10 % 4);
    p->shape.level = (int64_t)(seed / 40) % n_levels();
    p->shape.values = rng_range(r, 1, 1 << 30);
    p->shape.score_scale = 3;
    for (int i = 0; i < 4; i++)
        p->seqs[p->n_seqs++] =
            (plan_seq){.n_tokens = 70 - i, .n_prompt = 68 - i, .of = i - 1, .n_common = 40, .own = rng_range(r, 1, 1 << 30)};
    ADD_ROUNDS(p, r, groups, 70);
}

/* Every level and mixture of tensors' types in turn, and strides that are not even aligned to a vector's elements. */
static void make_views(plan *p, rng *r, uint64_t seed, bool is_long) {
    const int64_t mixture = (int64_t)(seed % (N_MIXTURES * N_TYPES));
    (void)is_long;
    p->shape = (plan_shape){.n_layers = 1, .n_kv_heads = 2, .group = 11, .head_dim = 80, .head_dim_v = 64, .chunk_size = 16};
    p->shape.kv_type = mixture % 4;
    p->shape.level = (int64_t)(seed / (N_MIXTURES * N_TYPES)) % n_levels();
    p->shape.values = rng_range(r, 1, 1 << 30);
    p->shape.score_scale = 2;
    p->shape.value_kind = rng_range(r, 0, 2);
    p->shape.gap = rng_below(r, 3) * 5;
    p->shape.heads_outer = rng_chance(r, 2);
    make_types(&p->shape, mixture % N_MIXTURES);
    for (int i = 0; i < 2; i++)
        p->seqs[p->n_seqs++] =
            (plan_seq){.n_tokens = 42, .n_prompt = 39, .of = i - 1, .n_common = 20, .own = rng_range(r, 1, 1 << 30)};
    add_round(p, r, views, 0)->out_type = mixture / N_MIXTURES;
}

/* Small worlds in which everything happens that allocates. row->each chooses the allocations. */
static void make_faults(plan *p, rng *r, uint64_t seed, bool is_long) {
    (void)is_long;
    p->shape = (plan_shape){.n_layers = 2, .n_kv_heads = 2, .group = 2, .head_dim = 32, .head_dim_v = 32, .chunk_size = 16};
    p->shape.kv_type = (int64_t)(seed / 4 % 4);
    make_numbers(p, r, 60);
    p->shape.window1 = 24;
    if (seed % 2) p->shape.head_dim1 = p->shape.head_dim_v1 = 48;
    p->shape.check_tree = 1;
    if (seed % 5 == 4) {
        p->shape.pages = 16;
        p->shape.chunk_size = 64;
        p->shape.kv_type %= CATTN_I8;
        add_round(p, r, &paged[0], 10);
    } else {
        ADD_ROUNDS(p, r, faults, 60);
    }
    p->rounds[0].times = 1 + (int64_t)(seed % 4);
}

static int32_t make_device_size(rng *r) {
    static const int32_t sizes[] = {64, 64, 64, 64, 64, 64, 96, 128};
    return sizes[rng_below(r, 8)];
}

static void make_device_shape(plan_shape *s, rng *r) {
    static const int32_t sizes_of_groups[] = {1, 1, 2, 2, 3, 4, 8};
    s->n_layers = rng_chance(r, 4) ? 2 : 1;
    s->n_kv_heads = rng_range(r, 1, 2);
    s->group = rng_chance(r, 12) ? 16 : sizes_of_groups[rng_below(r, 7)];
    s->head_dim = s->head_dim_v = rng_chance(r, s->pages ? 8 : 40) ? 256 : make_device_size(r);
    make_layers(s, r, make_device_size);
    s->chunk_size = 64;
}

/* The emulation is slow, so long worlds have few sequences. Every third world of trees is long: each type has one. */
static void make_device_trees(plan *p, rng *r, uint64_t seed, bool is_long) {
    static const cattn_type types[] = {CATTN_BF16, CATTN_F16, CATTN_E4M3};
    const int64_t longest = is_long ? (seed / 3 % 3 == 2 ? 1100 : 600) : seed % 3 == 1 ? 200 : 90;
    make_device_shape(&p->shape, r);
    make_numbers(p, r, longest);
    p->shape.kv_type = types[seed / 3 % 3];
    const int64_t most = longest > 300 ? 2 : longest > 100 ? 5 : WORLD_MAX_SEQS;
    if (p->n_seqs > most) p->n_seqs = most;
    ADD_ROUNDS(p, r, devices, longest);
    for (int64_t i = 0; i < p->n_rounds; i++) {
        p->rounds[i].wgmma = (int64_t)(seed + (uint64_t)i) % 2;
        p->rounds[i].deferred = seed % 4 != 0;
    }
}

static void make_device_pages(plan *p, rng *r, uint64_t seed, bool is_long) {
    p->shape.pages = 16 << seed % 4;
    make_device_shape(&p->shape, r);
    make_numbers(p, r, is_long ? 700 : seed % 3 == 1 ? 200 : 90);
    p->shape.kv_type = rng_chance(r, 2) ? CATTN_BF16 : CATTN_F16;
    for (size_t i = 0; i < sizeof paged / sizeof *paged; i++) {
        if (i != CATTN_SHARED && rng_chance(r, 2)) continue; /* the emulation is slow */
        plan_round *to = add_round(p, r, &paged[i], is_long ? 4 : 8);
        to->layout = rng_below(r, ENGINE_LAYOUTS);
        to->deferred = seed % 4 != 0;
    }
}

/* Odd seeds: the device's memory; even ones: the host's. */
static void make_device_faults(plan *p, rng *r, uint64_t seed, bool is_long) {
    (void)is_long;
    p->shape = (plan_shape){.n_layers = 1, .n_kv_heads = 1, .group = 2, .head_dim = 64, .head_dim_v = 64, .chunk_size = 64};
    make_numbers(p, r, 90);
    p->shape.kv_type = CATTN_BF16;
    if (p->n_seqs > 3) p->n_seqs = 3;
    ADD_ROUNDS(p, r, faults, 60);
    p->rounds[0].deferred = true;
    p->rounds[0].times = 2; /* a step that lacks memory is tried a second time */
    p->rounds[0].fail_device = seed % 2;
}

static const row rows[] = {
    {"trees", make_trees, false, 40, {{COUNT_ROWS, 100}, {COUNT_IMPORTED, 10}}},
    {"tiers",
     make_tiers,
     false,
     40,
     {{COUNT_RESTORED, 200},
      {COUNT_WRITTEN, 10},
      {COUNT_PROMPT_ENDS, 1},
      {COUNT_REFUSED, 1},
      {COUNT_ERRORS, 1},
      {COUNT_WAITS, 1}}},
    {"pages", make_pages, false, 16, {{COUNT_ROWS, 100}, {COUNT_SHARED_RUNS, 80}}},
    {"groups", make_groups, false, 1, {{COUNT_ROWS, 1000}}},
    {"views", make_views, false, 1, {{COUNT_ROWS, 500}}},
    {"faults", make_faults, true, 1, {{COUNT_FAULTY, 100}, {COUNT_FAILED, 100}, {COUNT_IMPORTED, 1}}},
    {"device_trees", make_device_trees, false, 7, {{COUNT_ROWS, 100}, {COUNT_WGMMA, 1}}},
    {"device_pages", make_device_pages, false, 12, {{COUNT_ROWS, 1000}, {COUNT_KEPT, 1}, {COUNT_SHARED_RUNS, 10}}},
    {"device_faults", make_device_faults, true, 1, {{COUNT_FAULTY, 50}}},
};

const row *row_find(const char *name) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return NULL;
}

void row_make(const row *is, plan *p, uint64_t seed, bool is_long) {
    rng r = {seed};
    memset(p, 0, sizeof *p);
    is->make(p, &r, seed, is_long);
}

bool row_is_met(const row *is, int64_t n_worlds, const backend *b, const int64_t counts[N_COUNTS]) {
    bool is_met = true;
    for (size_t i = 0; i < sizeof is->cases / sizeof *is->cases && n_worlds >= is->many; i++) {
        const int64_t least = is->cases[i].least * n_worlds / 10, got = counts[is->cases[i].what];
        if (least == 0 || got >= least || (is->cases[i].what == COUNT_WGMMA && !b->counts_wgmma)) continue;
        printf("FAILED: too few cases: %lld %s, at least %lld\n", (long long)got, count_names[is->cases[i].what],
               (long long)least);
        is_met = false;
    }
    return is_met;
}
