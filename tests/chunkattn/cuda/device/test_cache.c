/*
 * A cache on an emulated device: what it refuses, how the device's sums are compared, what its memory is, streams, graphs, the
 * order of segments, offsets beyond 4 GB, sink logits, and that shared chunks are read once. tests/chunkattn/exact has the
 * results, also where allocations fail.
 */
#define CATTN_EXPERIMENTAL
#include <stdlib.h>
#include <string.h>

#include "chunkattn/api/cache_handle.h"
#include "chunkattn/base/half.h"
#include "chunkattn/cuda/device.h"
#include "chunkattn/cuda/products.h"
#include "chunkattn_cuda.h"
#include "emu_testing.h"
#include "tests/support/rng.h"

enum { HEADS = 4, KV_HEADS = 2, DIM = 64, LAYERS = 2, MAX_ROWS = 1200 };

static const cattn_cuda_config device_0 = {.device = 0}, device_1 = {.device = 1};

static cattn_config config_of(uint64_t megabytes) {
    cattn_config c;
    cattn_config_init(&c);
    c.n_layers = LAYERS;
    c.n_heads = HEADS;
    c.n_kv_heads = KV_HEADS;
    c.head_dim = DIM;
    c.budget_bytes = megabytes << 20;
    c.cuda = &device_0;
    return c;
}

static cattn_cache *create(const cattn_config *config) {
    cattn_cache *cache;
    cattn_error error = {0};
    if (cattn_cache_create(config, &cache, &error)) fail_msg("%s", error.message);
    return cache;
}

/* ---- Sequences of made-up tokens, whose rows follow from token and position ---- */

static cattn_seq join(cattn_cache *cache, int n_shared, int n_own, int which) {
    int32_t tokens[MAX_ROWS];
    for (int i = 0; i < n_shared + n_own; i++) tokens[i] = i < n_shared ? i : 1000 * (which + 1) + i;
    cattn_seq seq;
    cattn_error error = {0};
    check(cattn_seq_join(cache, tokens, n_shared + n_own, NULL, &seq, NULL, &error), &error);
    return seq;
}

static void append(cattn_cache *cache, cattn_seq seq, int32_t token) {
    assert_int_equal(cattn_seq_append(cache, seq, &token, 1, NULL), CATTN_OK);
}

/* The tensors of a step on the device. */
typedef struct tensors {
    float *q, *k, *v, *out, *lse;
} tensors;

static tensors new_tensors(void) {
    return (tensors){
        emu_alloc(sizeof(float) * MAX_ROWS * HEADS * DIM, "q"), emu_alloc(sizeof(float) * MAX_ROWS * KV_HEADS * DIM, "k"),
        emu_alloc(sizeof(float) * MAX_ROWS * KV_HEADS * DIM, "v"), emu_alloc(sizeof(float) * MAX_ROWS * HEADS * DIM, "out"),
        emu_alloc(sizeof(float) * MAX_ROWS * HEADS, "lse")};
}

static void free_tensors(tensors *t) {
    emu_finish();
    float *all[] = {t->q, t->k, t->v, t->out, t->lse};
    for (int i = 0; i < 5; i++) emu_free(all[i]);
}

static void fill(float *to, int n, uint64_t seed) {
    rng r = {seed};
    for (int i = 0; i < n; i++) to[i] = rng_float(&r);
}

static void fill_tensors(const cattn_cache *cache, tensors *t, const cattn_entry *entries, int n) {
    int row = 0;
    emu_finish();
    memset(t->out, 0xff, sizeof(float) * MAX_ROWS * HEADS * DIM); /* NaN: no result of an earlier step counts */
    memset(t->lse, 0xff, sizeof(float) * MAX_ROWS * HEADS);
    for (int i = 0; i < n; i++)
        for (int64_t p = entries[i].first_pos; p < entries[i].first_pos + entries[i].n_rows; p++, row++) {
            int32_t token;
            ca_seq_tokens(ca_tree_find(cache->tree, entries[i].seq), p, 1, &token);
            const uint64_t seed = (uint64_t)token * 5000 + (uint64_t)p * 3;
            fill(t->q + row * HEADS * DIM, HEADS * DIM, seed);
            fill(t->k + row * KV_HEADS * DIM, KV_HEADS * DIM, seed + 1);
            fill(t->v + row * KV_HEADS * DIM, KV_HEADS * DIM, seed + 2);
        }
}

static const cattn_view K_VIEW = {NULL, CATTN_F32, KV_HEADS *DIM, DIM}, Q_VIEW = {NULL, CATTN_F32, HEADS *DIM, DIM};

static cattn_view view_of(cattn_view view, void *data) {
    view.data = data;
    return view;
}

static void write_layer(cattn_cache *cache, int layer, tensors *t) {
    const cattn_view k = view_of(K_VIEW, t->k), v = view_of(K_VIEW, t->v);
    cattn_error error = {0};
    check(cattn_cuda_step_write(cache, layer, &k, &v, NULL, &error), &error);
}

static void run_layer(cattn_cache *cache, int layer, tensors *t) {
    const cattn_view q = view_of(Q_VIEW, t->q), out = view_of(Q_VIEW, t->out);
    cattn_error error = {0};
    write_layer(cache, layer, t);
    check(cattn_cuda_step_attend(cache, layer, &q, &out, t->lse, NULL, &error), &error);
}

/* Run all layers of the open step, which have the same input. */
static void run_layers(cattn_cache *cache, tensors *t) {
    for (int layer = 0; layer < LAYERS; layer++) run_layer(cache, layer, t);
}

static uint64_t step(cattn_cache *cache, tensors *t, cattn_entry *entries, int n) {
    cattn_error error = {0};
    uint64_t graph = 0;
    check(cattn_cuda_step_begin(cache, entries, n, 0, NULL, &graph, &error), &error);
    fill_tensors(cache, t, entries, n);
    run_layers(cache, t);
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
    return graph;
}

/* A step that writes K and V and attends to nothing: attention of long prompts takes most of the emulation's time. */
static void write_prompt(cattn_cache *cache, tensors *t, cattn_entry *entry) {
    cattn_error error = {0};
    check(cattn_cuda_step_begin(cache, entry, 1, 0, NULL, NULL, &error), &error);
    fill_tensors(cache, t, entry, 1);
    for (int layer = 0; layer < LAYERS; layer++) write_layer(cache, layer, t);
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
}

/* ---- Refusals ---- */

static void refuse(void (*change)(cattn_config *c), const char *text) {
    cattn_config c = config_of(8);
    cattn_cache *cache = NULL;
    cattn_error error = {0};
    change(&c);
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_ARG, &error, text);
    assert_null(cache);
}
static void type_f32(cattn_config *c) { c->kv_type = CATTN_F32; }
static void type_i8(cattn_config *c) { c->kv_type = CATTN_I8; }
static void type_5(cattn_config *c) { c->kv_type = (cattn_type)5; }
static void chunks_of_32(cattn_config *c) { c->chunk_size = 32; }
static void heads_of_80(cattn_config *c) { c->head_dim = 80; }
static void values_of_128(cattn_config *c) { c->head_dim_v = 128; }
static void groups_of_17(cattn_config *c) { c->n_kv_heads = 1, c->n_heads = 17; }
static void another_device(cattn_config *c) { c->cuda = &device_1; }

static void what_a_device_lacks_is_refused(void **state) {
    (void)state;
    refuse(type_f32, "kv_type is 0");
    refuse(type_i8, "kv_type is 3; on a CUDA device it must be CATTN_BF16, CATTN_F16 or CATTN_E4M3");
    refuse(type_5, "kv_type is 5; it must be from 0 to 4");
    refuse(chunks_of_32, "chunk_size is 32; on a CUDA device it must be 64");
    refuse(heads_of_80, "head_dim is 80; on a CUDA device it must be 64, 96, 128 or 256");
    refuse(values_of_128, "head_dim_v is 128");
    refuse(groups_of_17, "at most 16 query heads");
    refuse(another_device, "must be from 0 to 0");
    cattn_config c = config_of(8);
    c.budget_bytes = 1000;
    cattn_cache *cache;
    cattn_error error = {0};
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_BUDGET, &error, "does not hold one chunk");
    c = config_of(8);
    c.tier_dir = "/nowhere", c.tier_bytes = 1 << 20;
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_UNSUPPORTED, &error, "has no file tier; leave it NULL");
    assert_int_equal(emu_n_live(), 0);
}

/* A kind of device is checked when the first cache is created on it. spoiled: the way whose sums differ; -1: none. */
static void check_kind(bool wgmma, int spoiled, bool works, bool prefills_by_wgmma) {
    cattn_config config = config_of(8);
    cattn_cache *cache;
    cattn_error error = {0};
    emu_set_wgmma(wgmma);
    emu_set_unknown_sums(spoiled);
    for (int i = 0; i < 2; i++) {
        const uint64_t launches = emu_get_totals().launches;
        if (works) {
            cache = create(&config);
            assert_int_equal(cache->compute.device->info.wgmma, prefills_by_wgmma);
            cattn_cache_destroy(&cache);
        } else {
            expect(cattn_cache_create(&config, &cache, &error), CATTN_ERR_UNSUPPORTED, &error, "sums of products depend on");
        }
        assert_int_equal(emu_get_totals().launches - launches, i == 0 ? 2 : 0);
        assert_int_equal(emu_n_live(), 0);
    }
    emu_set_wgmma(false);
}

static void sums_are_compared_once(void **state) {
    (void)state;
    check_kind(false, -1, true, false);
    check_kind(false, CA_PRODUCT_ROWS_AS_B, false, false);
    check_kind(true, -1, true, true);
    check_kind(true, CA_PRODUCT_BY_WGMMA + 5, true, false);
}

/* Whatever fails while sums are compared, nothing is left, and the next cache compares them. */
static void a_comparison_may_fail(void **state) {
    (void)state;
    cattn_config config = config_of(8);
    cattn_cache *cache;
    emu_set_unknown_sums(-1);
    for (int n = 0; n < 2; n++) {
        cattn_error error = {0};
        emu_fail_allocation(n);
        expect(cattn_cache_create(&config, &cache, &error), CATTN_ERR_NOMEM, &error, "to compare sums in");
        assert_int_equal(emu_n_live(), 0);
    }
    const uint64_t launches = emu_get_totals().launches;
    cache = create(&config);
    assert_int_equal(emu_get_totals().launches - launches, 2);
    cattn_cache_destroy(&cache);
}

static void calls_for_the_other_kind_of_cache_are_refused(void **state) {
    (void)state;
    cattn_config config = config_of(8);
    cattn_cache *device = create(&config);
    config.cuda = NULL;
    config.n_threads = 1;
    cattn_cache *cpu = create(&config);
    cattn_error error = {0};
    cattn_entry entry = {.max_rows = 1};
    expect(cattn_step_begin(device, &entry, 1, 0, &error), CATTN_ERR_ARG, &error, "use cattn_cuda_step_begin");
    expect(cattn_step_write(device, 0, NULL, NULL, &error), CATTN_ERR_ARG, &error, "use cattn_cuda_step_write");
    expect(cattn_step_attend(device, 0, NULL, NULL, NULL, &error), CATTN_ERR_ARG, &error, "use cattn_cuda_step_attend");
    expect(cattn_cuda_step_begin(cpu, &entry, 1, 0, NULL, NULL, &error), CATTN_ERR_ARG, &error,
           "the cache is on the CPU; use cattn_step_begin of chunkattn.h, or set cuda");
    expect(cattn_cuda_step_write(cpu, 0, NULL, NULL, NULL, &error), CATTN_ERR_ARG, &error, "use cattn_step_write");
    expect(cattn_cuda_step_attend(cpu, 0, NULL, NULL, NULL, NULL, &error), CATTN_ERR_ARG, &error, "use cattn_step_attend");
    expect(cattn_seq_export(device, 1, 1, NULL, NULL, &error), CATTN_ERR_UNSUPPORTED, &error, "neither exports nor imports");
    expect(cattn_seq_import(device, "", 1, NULL, &entry.seq, NULL, &error), CATTN_ERR_UNSUPPORTED, &error, "neither exports");
    expect(cattn_seq_read(device, 1, 0, 0, 1, NULL, NULL, &error), CATTN_ERR_UNSUPPORTED, &error, "the host does not read");
    expect(cattn_cache_set_budget(device, 1 << 20, &error), CATTN_ERR_UNSUPPORTED, &error,
           "K and V are on CUDA device 0, whose memory does not shrink; create another cache");
    assert_int_equal(cattn_cache_export_bytes(device, 100), 0);
    assert_string_equal(cattn_cache_level(device), "cuda");
    bool more = true;
    assert_int_equal(cattn_cache_prefault(device, 100, &more, NULL), CATTN_OK);
    assert_false(more);
    cattn_cache_destroy(&cpu);
    cattn_cache_destroy(&device);
    assert_int_equal(emu_n_live(), 0);
}

static void sequences_may_not_be_too_long(void **state) {
    (void)state;
    const cattn_config config = config_of(8);
    cattn_cache *cache = create(&config);
    const int32_t token = 1;
    cattn_seq seq;
    cattn_error error = {0};
    expect(cattn_seq_join(cache, &token, (1 << 25) + 1, NULL, &seq, NULL, &error), CATTN_ERR_ARG, &error, "at most 33554432");
    seq = join(cache, 1, 0, 0);
    static int32_t tokens[1 << 25];
    expect(cattn_seq_append(cache, seq, tokens, 1 << 25, &error), CATTN_ERR_ARG, &error, "would have 33554433 tokens");
    cattn_cache_destroy(&cache);
}

static void wrong_arguments_of_a_step_are_named(void **state) {
    (void)state;
    const cattn_config config = config_of(8);
    cattn_cache *cache = create(&config);
    cattn_error error = {0};
    tensors t = new_tensors();
    cattn_entry entry = {.seq = 99, .max_rows = 1};
    const cattn_view k = view_of(K_VIEW, t.k), q = view_of(Q_VIEW, t.q), out = view_of(Q_VIEW, t.out);
    cattn_view bad = k;
    expect(cattn_cuda_step_write(cache, 0, &k, &k, NULL, &error), CATTN_ERR_STATE, &error, "no step is open");
    expect(cattn_cuda_step_begin(cache, &entry, 1, 0, NULL, NULL, &error), CATTN_ERR_ARG, &error, "entries[0].seq is 99");
    entry.seq = join(cache, 70, 0, 0);
    entry.max_rows = 100;
    check(cattn_cuda_step_begin(cache, &entry, 1, 0, NULL, NULL, &error), &error);
    expect(cattn_cuda_step_write(cache, LAYERS, &k, &k, NULL, &error), CATTN_ERR_ARG, &error, "layer is 2");
    expect(cattn_cuda_step_write(cache, 0, &k, NULL, NULL, &error), CATTN_ERR_ARG, &error, "v is NULL");
    bad.type = CATTN_I8;
    expect(cattn_cuda_step_write(cache, 0, &bad, &k, NULL, &error), CATTN_ERR_UNSUPPORTED, &error, "k->type");
    bad = k;
    bad.row_stride++;
    expect(cattn_cuda_step_write(cache, 0, &k, &bad, NULL, &error), CATTN_ERR_ARG, &error, "v: data, row_stride");
    bad = q;
    bad.data = (char *)q.data + 4;
    expect(cattn_cuda_step_attend(cache, 0, &bad, &out, NULL, NULL, &error), CATTN_ERR_ARG, &error, "multiples of 16 bytes");
    assert_int_equal(cattn_step_abort(cache, NULL), CATTN_OK);
    free_tensors(&t);
    cattn_cache_destroy(&cache);
}

/* ---- Memory ---- */

static uint64_t chunk_bytes(const cattn_config *config) {
    cattn_cache *cache = create(config);
    cattn_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(cattn_cache_stats(cache, &stats), CATTN_OK);
    cattn_cache_destroy(&cache);
    return stats.chunk_bytes;
}

static void the_budget_is_of_device_memory(void **state) {
    (void)state;
    const cattn_config config = config_of(4);
    cattn_cache *cache = create(&config);
    cattn_stats stats = {.struct_size = sizeof stats};
    cattn_error error = {0};
    tensors t = new_tensors();
    assert_int_equal(cattn_cache_stats(cache, &stats), CATTN_OK);
    const uint64_t chunk = (uint64_t)LAYERS * KV_HEADS * 2 * 64 * DIM * 2;
    assert_int_equal(stats.chunk_bytes, chunk);
    cattn_config bytes = config;
    bytes.kv_type = CATTN_E4M3;
    assert_int_equal(chunk_bytes(&bytes), chunk / DIM * (DIM + 4) / 2);
    assert_in_range(stats.chunks_capacity, 14 * ((4 << 20) / 16) / chunk, 15 * ((4 << 20) / 16) / chunk);
    cattn_entry entry = {.seq = join(cache, 600, 0, 0), .max_rows = 200};
    step(cache, &t, &entry, 1);
    assert_int_equal(cattn_cache_stats(cache, &stats), CATTN_OK);
    assert_int_equal(stats.chunks_live, 10);
    assert_in_range(stats.bytes_in_use, 10 * chunk, 4 << 20);
    int32_t tokens[64 * 64] = {0};
    cattn_seq seq;
    expect(cattn_seq_join(cache, tokens, 64 * 64, NULL, &seq, NULL, &error), CATTN_ERR_BUDGET, &error, "join: needs 64 chunks");
    assert_int_equal(cattn_seq_leave(cache, &entry.seq, NULL), CATTN_OK);
    assert_int_equal(cattn_cache_drop_retained(cache, NULL), CATTN_OK);
    assert_int_equal(cattn_cache_stats(cache, &stats), CATTN_OK);
    assert_int_equal(stats.chunks_retained, 0);
    free_tensors(&t);
    cattn_cache_destroy(&cache);
    assert_int_equal(emu_n_live(), 0);
}

static void a_step_whose_workspace_is_too_large_is_refused(void **state) {
    (void)state;
    cattn_config config = config_of(1);
    config.n_layers = 1;
    cattn_cache *cache = create(&config);
    cattn_error error = {0};
    cattn_entry entry = {.seq = join(cache, 1000, 0, 0), .max_rows = 1000}; /* states of two segments */
    expect(cattn_cuda_step_begin(cache, &entry, 1, 0, NULL, NULL, &error), CATTN_ERR_BUDGET, &error,
           "the step's workspace on the device");
    check(cattn_cuda_step_begin(cache, &entry, 1, 100, NULL, NULL, &error), &error);
    assert_int_equal(cattn_step_abort(cache, NULL), CATTN_OK);
    cattn_cache_destroy(&cache);
    assert_int_equal(emu_n_live(), 0);
}

/* ---- Failures of the runtime ---- */

/* The device's copy of the plan lacks what was not copied, so no later step may run. */
static void a_failed_copy_ends_all_steps(void **state) {
    (void)state;
    const cattn_config config = config_of(8);
    for (int n = 0; n < 3; n++) {
        cattn_cache *cache = create(&config);
        cattn_error error = {0};
        cattn_entry entry = {.seq = join(cache, 70, 0, 0), .max_rows = 100};
        emu_fail_copy(n);
        for (int i = 0; i < 2; i++)
            expect(cattn_cuda_step_begin(cache, &entry, 1, 0, NULL, NULL, &error), CATTN_ERR_STATE, &error,
                   "destroy the cache");
        cattn_cache_destroy(&cache);
        assert_int_equal(emu_n_live(), 0);
    }
}

/* ---- Graphs ---- */

/* A cache with four sequences that have been prefilled, and one row of each. */
static cattn_cache *start_decoding(tensors *t, cattn_entry *entries) {
    const cattn_config config = config_of(8);
    cattn_cache *cache = create(&config);
    for (int i = 0; i < 4; i++) entries[i] = (cattn_entry){.seq = join(cache, 100, 5, i), .max_rows = 200};
    step(cache, t, entries, 4);
    for (int i = 0; i < 4; i++) entries[i].max_rows = 1;
    return cache;
}

/* Capture all layers of the open step as its graph, and queue it. */
static void capture(cattn_cache *cache, tensors *t, uint64_t graph) {
    emu_begin_capture();
    run_layers(cache, t);
    assert_true(emu_end_capture(graph) >= 2 * LAYERS && emu_replay(graph, NULL));
}

/* Sequences that join, decode and leave at random, behind parts of one prompt. */
typedef struct traffic_kind {
    int n_steps;
    int most, prompt;          /* sequences at once, tokens of the prompt */
    int one_joins, one_leaves; /* in so many steps */
} traffic_kind;

enum { TRAFFIC_STEPS = 30, TRAFFIC_SEQS = 20, TRAFFIC_ROWS = 25 };

typedef struct traffic {
    traffic_kind is;
    rng r;
    cattn_cache *cache;
    cattn_entry entries[TRAFFIC_SEQS];
    int n, n_joined;
    int n_tokens; /* appended so far */
} traffic;

static void add_sequence(traffic *w) {
    const int n_shared = (int)rng_range(&w->r, 0, rng_chance(&w->r, 4) ? w->is.prompt : w->is.prompt / 4);
    const int n_own = (int)rng_range(&w->r, 1, TRAFFIC_ROWS);
    w->entries[w->n++] = (cattn_entry){.seq = join(w->cache, n_shared, n_own, ++w->n_joined), .max_rows = TRAFFIC_ROWS};
}

static void change_sequences(traffic *w) {
    for (int i = 0; i < w->n; i++) append(w->cache, w->entries[i].seq, 7000 + ++w->n_tokens);
    if (w->n > 1 && rng_chance(&w->r, w->is.one_leaves)) {
        cattn_entry *leaves = &w->entries[rng_range(&w->r, 1, w->n - 1)];
        assert_int_equal(cattn_seq_leave(w->cache, &leaves->seq, NULL), CATTN_OK);
        *leaves = w->entries[--w->n];
    }
    if (w->n < w->is.most && rng_chance(&w->r, w->is.one_joins)) add_sequence(w);
}

/* The prompt is written in pieces, so that the device's memory grows with the traffic. */
static void start_traffic(traffic *w, const traffic_kind *is, tensors *t) {
    const cattn_config config = config_of(24);
    *w = (traffic){.is = *is, .r = {3}, .cache = create(&config), .n = 1};
    w->entries[0] = (cattn_entry){.seq = join(w->cache, is->prompt, 1, 0), .max_rows = TRAFFIC_ROWS};
    for (int i = 0; i <= is->prompt / TRAFFIC_ROWS; i++) write_prompt(w->cache, t, w->entries);
}

/* Whatever else happens between two steps of the same number, the launches of one are right for the other. */
static void replay_traffic(const traffic_kind *is, int *n_replayed, int *n_captured) {
    float *want[TRAFFIC_STEPS];
    tensors t = new_tensors();
    for (int replays = 0; replays < 2; replays++) {
        traffic w;
        emu_set_streams(replays ? EMU_DEFERRED : EMU_IMMEDIATE, 5);
        emu_drop_graphs();
        start_traffic(&w, is, &t);
        for (int s = 0; s < is->n_steps; s++) {
            cattn_error error = {0};
            uint64_t graph;
            change_sequences(&w);
            check(cattn_cuda_step_begin(w.cache, w.entries, w.n, 0, NULL, &graph, &error), &error);
            fill_tensors(w.cache, &t, w.entries, w.n);
            const bool known = replays && emu_replay(graph, NULL);
            if (!replays) run_layers(w.cache, &t);
            if (replays && !known) capture(w.cache, &t, graph);
            *n_replayed += known;
            *n_captured += replays && !known;
            assert_int_equal(cattn_step_end(w.cache, NULL), CATTN_OK);
            emu_finish();
            size_t bytes = 0;
            for (int i = 0; i < w.n; i++) bytes += (size_t)w.entries[i].n_rows * HEADS * DIM * sizeof(float);
            if (!replays) memcpy(want[s] = malloc(bytes), t.out, bytes);
            if (!replays) continue;
            assert_memory_equal(want[s], t.out, bytes);
            free(want[s]);
        }
        cattn_cache_destroy(&w.cache);
    }
    free_tensors(&t);
    emu_set_streams(EMU_IMMEDIATE, 1);
}

static void steps_of_one_number_have_one_graph(void **state) {
    (void)state;
    /* The second kind grows without states, whose memory would move at the same time as the arrays of a plan within theirs. */
    static const traffic_kind kinds[] = {{30, 5, 1100, 4, 8}, {24, TRAFFIC_SEQS, 10, 1, 1000}};
    int n_replayed = 0, n_captured = 0;
    for (int i = 0; i < 2; i++) replay_traffic(&kinds[i], &n_replayed, &n_captured);
    assert_true(n_replayed > 20 && n_captured > 8);
}

/* A prefill step between decode steps has another number and leaves that of the decode steps alone. */
static void prefill_leaves_the_graphs_of_decode_steps_valid(void **state) {
    (void)state;
    cattn_entry entries[5];
    tensors t = new_tensors();
    cattn_cache *cache = start_decoding(&t, entries);
    for (int i = 0; i < 4; i++) append(cache, entries[i].seq, 7000 + i);
    const uint64_t before = step(cache, &t, entries, 4);
    for (int i = 0; i < 4; i++) append(cache, entries[i].seq, 7010 + i);
    entries[4] = (cattn_entry){.seq = join(cache, 50, 30, 9), .max_rows = 200};
    assert_true(step(cache, &t, entries, 5) != before);
    assert_int_equal(cattn_seq_leave(cache, &entries[4].seq, NULL), CATTN_OK);
    for (int i = 0; i < 4; i++) append(cache, entries[i].seq, 7020 + i);
    assert_true(step(cache, &t, entries, 4) == before);
    free_tensors(&t);
    cattn_cache_destroy(&cache);
}

/* ---- What moves ---- */

static void a_step_without_structural_change_copies_positions(void **state) {
    (void)state;
    cattn_entry entries[4];
    tensors t = new_tensors();
    cattn_cache *cache = start_decoding(&t, entries);
    for (int s = 0; s < 6; s++) {
        for (int i = 0; i < 4; i++) append(cache, entries[i].seq, 7000 + 10 * s + i);
        const emu_totals before = emu_get_totals();
        step(cache, &t, entries, 4);
        const emu_totals after = emu_get_totals();
        if (s == 0) continue; /* the first step after prefill */
        assert_int_equal(after.copies - before.copies, 1);
        assert_int_equal(after.copied_bytes - before.copied_bytes, 4 * sizeof(int32_t));
    }
    free_tensors(&t);
    cattn_cache_destroy(&cache);
}

/* Bytes of K and V that a decode step of four sequences reads. */
static uint64_t kv_bytes(cattn_type type, cattn_sharing sharing, int n_shared, int n_own) {
    cattn_config config = config_of(8);
    config.kv_type = type;
    config.sharing = sharing;
    cattn_cache *cache = create(&config);
    cattn_entry entries[4];
    tensors t = new_tensors();
    for (int i = 0; i < 4; i++) {
        entries[i] = (cattn_entry){.seq = join(cache, n_shared, n_own, i), .max_rows = 1000};
        write_prompt(cache, &t, &entries[i]);
    }
    for (int i = 0; i < 4; i++) {
        append(cache, entries[i].seq, 7000 + i);
        entries[i].max_rows = 1;
    }
    const emu_totals before = emu_get_totals();
    step(cache, &t, entries, 4);
    const emu_totals after = emu_get_totals();
    free_tensors(&t);
    cattn_cache_destroy(&cache);
    return after.kv_bytes - before.kv_bytes;
}

static void shared_chunks_are_read_once(void **state) {
    (void)state;
    static const cattn_type types[] = {CATTN_BF16, CATTN_E4M3};
    static const uint64_t token_bytes[] = {DIM * 2, DIM + 4}; /* of K, and of V */
    for (int i = 0; i < 2; i++) {
        const cattn_type t = types[i];
        const uint64_t chunk = (uint64_t)LAYERS * KV_HEADS * 2 * 64 * token_bytes[i];
        assert_int_equal(kv_bytes(t, CATTN_SHARED, 576, 10), (9 + 4) * chunk); /* they part at the beginning of a chunk */
        assert_int_equal(kv_bytes(t, CATTN_SHARED, 400, 30), (6 + 4) * chunk); /* within a segment: sums are carried */
        assert_int_equal(kv_bytes(t, CATTN_SHARED_STORAGE, 400, 30), 4 * 7 * chunk);
        /* No worse where nothing is shared. */
        assert_int_equal(kv_bytes(t, CATTN_SHARED, 0, 430), kv_bytes(t, CATTN_PRIVATE, 0, 430));
    }
}

/* ---- Sums of several segments ---- */

/* Prefill folds segments one onto the other, in several thread blocks at once; decode steps merge them from a list. */
static void segments_are_summed_in_one_order(void **state) {
    (void)state;
    enum { BEFORE = 1030, ROWS = 130, EVERY = 26, ROW = HEADS * DIM };
    static float want[ROWS * ROW];
    const cattn_config config = config_of(24);
    tensors t = new_tensors();
    for (uint64_t processors = 1; processors <= 3; processors++) {
        emu_set_streams(EMU_IMMEDIATE, processors + 2); /* which sets their number */
        for (int decodes = 0; decodes < 2; decodes++) {
            cattn_cache *cache = create(&config);
            cattn_entry entry = {.seq = join(cache, BEFORE + ROWS, 0, 0), .max_rows = BEFORE};
            write_prompt(cache, &t, &entry);
            entry.max_rows = ROWS;
            if (!decodes) {
                step(cache, &t, &entry, 1);
                memcpy(want, t.out, sizeof want);
            }
            for (int row = EVERY - 1; decodes && row < ROWS; row += EVERY) {
                entry.max_rows = EVERY - 1;
                write_prompt(cache, &t, &entry);
                entry.max_rows = 1;
                step(cache, &t, &entry, 1);
                assert_memory_equal(want + row * ROW, t.out, ROW * sizeof *want);
            }
            cattn_cache_destroy(&cache);
        }
    }
    free_tensors(&t);
    emu_set_streams(EMU_IMMEDIATE, 1);
}

/* ---- Large devices ---- */

/* Prefill three sequences together that part within a chunk, decode them, and return the outputs in a layer. */
static void run_in_layer(cattn_cache *cache, int layer, tensors *t, float *out) {
    cattn_entry entries[3];
    size_t n_out = 0;
    for (int i = 0; i < 3; i++) entries[i] = (cattn_entry){.seq = join(cache, 70, 80, i), .max_rows = 200};
    for (int s = 0; s < 3; s++) {
        cattn_error error = {0};
        check(cattn_cuda_step_begin(cache, entries, 3, 0, NULL, NULL, &error), &error);
        fill_tensors(cache, t, entries, 3);
        run_layer(cache, layer, t);
        assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
        const size_t n = (size_t)(entries[0].n_rows + entries[1].n_rows + entries[2].n_rows) * HEADS * DIM;
        memcpy(out + n_out, t->out, n * sizeof *out);
        n_out += n;
        for (int i = 0; i < 3; i++) append(cache, entries[i].seq, 7000 + i);
    }
    cattn_cache_destroy(&cache);
}

/* Chunks behind the first 4 GB: no offset into K and V has 32 bits. */
static void compare_far_apart(cattn_type type, bool by_wgmma) {
    enum { FAR_LAYERS = 4096, FILLED = 1152, N_OUT = (70 + 3 * (80 + 2)) * HEADS * DIM };
    static float near[N_OUT], far[N_OUT];
    emu_set_wgmma(by_wgmma);
    cattn_config config = config_of(8);
    config.kv_type = type;
    tensors t = new_tensors();
    const uint64_t chunk = chunk_bytes(&config) / LAYERS * FAR_LAYERS;
    run_in_layer(create(&config), LAYERS - 1, &t, near);
    config.n_layers = FAR_LAYERS;
    config.budget_bytes = UINT64_C(12) << 30;
    cattn_cache *cache = create(&config);
    for (uint64_t n = 0; n * FILLED / 64 * chunk <= UINT32_MAX; n++) join(cache, 0, FILLED, 100 + (int)n); /* never computed */
    run_in_layer(cache, FAR_LAYERS - 1, &t, far);
    assert_memory_equal(near, far, sizeof near);
    free_tensors(&t);
}

static void chunks_may_lie_far_apart(void **state) {
    (void)state;
    compare_far_apart(CATTN_E4M3, false);
    for (int by_wgmma = 1; by_wgmma >= 0; by_wgmma--) compare_far_apart(CATTN_BF16, by_wgmma);
}

/* ---- Sink logits ---- */

/* Layers have the same input, and only the last one has sink logits. */
static void each_layer_has_its_sink_logits(void **state) {
    (void)state;
    enum { N = 70 };
    static const float sinks[LAYERS][HEADS] = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, {0, -3, 5, -INFINITY}};
    static float out[LAYERS][N * HEADS * DIM], lse[LAYERS][N * HEADS];
    cattn_config config = config_of(24);
    config.sink_logits = sinks[0];
    tensors t = new_tensors();
    cattn_cache *cache = create(&config);
    cattn_entry entry = {.seq = join(cache, 0, N, 0), .max_rows = N};
    cattn_error error = {0};
    check(cattn_cuda_step_begin(cache, &entry, 1, 0, NULL, NULL, &error), &error);
    fill_tensors(cache, &t, &entry, 1);
    for (int layer = 0; layer < LAYERS; layer++) {
        run_layer(cache, layer, &t);
        emu_finish();
        memcpy(out[layer], t.out, sizeof out[layer]);
        memcpy(lse[layer], t.lse, sizeof lse[layer]);
    }
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
    for (int i = 0; i < N * HEADS; i++)
        expect_sink(sinks[1][i % HEADS], (head_row){out[0] + i * DIM, (double)lse[0][i]},
                    (head_row){out[1] + i * DIM, (double)lse[1][i]}, DIM);
    free_tensors(&t);
    cattn_cache_destroy(&cache);
}

/* ---- Streams ---- */

/* Copies of private forks wait for the next step, which queues them behind the work of the one before. */
static void forks_are_copied_in_order(void **state) {
    (void)state;
    cattn_config config = config_of(24);
    config.sharing = CATTN_PRIVATE;
    float want[HEADS * DIM];
    tensors t = new_tensors();
    emu_set_streams(EMU_DEFERRED, 11);
    cattn_cache *cache = create(&config);
    cattn_entry entries[16] = {{.seq = join(cache, 1000, 0, 0), .max_rows = 1000}};
    write_prompt(cache, &t, entries);
    for (int i = 1; i < 8; i++) assert_int_equal(cattn_seq_fork(cache, entries[0].seq, 0, &entries[i].seq, NULL), CATTN_OK);
    for (int i = 0; i < 8; i++) {
        append(cache, entries[i].seq, 7000);
        entries[i].max_rows = 1;
    }
    step(cache, &t, entries, 8);
    emu_finish();
    memcpy(want, t.out, sizeof want);
    for (int i = 1; i < 8; i++) assert_memory_equal(want, t.out + i * HEADS * DIM, sizeof want);
    free_tensors(&t);
    cattn_cache_destroy(&cache);
    emu_set_streams(EMU_IMMEDIATE, 1);
    assert_int_equal(emu_n_live(), 0);
}

/* Forks that are copied and leave again, without a step. */
static void copies_do_not_pile_up(void **state) {
    (void)state;
    cattn_config config = config_of(8);
    config.sharing = CATTN_PRIVATE;
    cattn_cache *cache = create(&config);
    cattn_stats stats = {.struct_size = sizeof stats};
    cattn_error error = {0};
    tensors t = new_tensors();
    cattn_entry entry = {.seq = join(cache, 1000, 0, 0), .max_rows = 1000};
    write_prompt(cache, &t, &entry);
    assert_int_equal(cattn_cache_stats(cache, &stats), CATTN_OK);
    int n_forks = 0;
    cattn_seq fork;
    while (cattn_seq_fork(cache, entry.seq, 0, &fork, &error) == CATTN_OK) {
        assert_int_equal(cattn_seq_leave(cache, &fork, NULL), CATTN_OK);
        n_forks++;
    }
    assert_int_equal(n_forks, (stats.chunks_capacity + CA_KV_PENDING) / 16);
    expect(cattn_seq_fork(cache, entry.seq, 0, &fork, &error), CATTN_ERR_STATE, &error, "run a step first");
    append(cache, entry.seq, 7000);
    entry.max_rows = 1;
    step(cache, &t, &entry, 1);
    assert_int_equal(cattn_seq_fork(cache, entry.seq, 0, &fork, NULL), CATTN_OK);
    free_tensors(&t);
    cattn_cache_destroy(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        EMU_TEST(what_a_device_lacks_is_refused),
        EMU_TEST(calls_for_the_other_kind_of_cache_are_refused),
        EMU_TEST(sums_are_compared_once),
        EMU_TEST(a_comparison_may_fail),
        EMU_TEST(sequences_may_not_be_too_long),
        EMU_TEST(wrong_arguments_of_a_step_are_named),
        EMU_TEST(the_budget_is_of_device_memory),
        EMU_TEST(a_step_whose_workspace_is_too_large_is_refused),
        EMU_TEST(a_failed_copy_ends_all_steps),
        EMU_TEST(steps_of_one_number_have_one_graph),
        EMU_TEST(prefill_leaves_the_graphs_of_decode_steps_valid),
        EMU_TEST(a_step_without_structural_change_copies_positions),
        EMU_TEST(shared_chunks_are_read_once),
        EMU_TEST(segments_are_summed_in_one_order),
        EMU_TEST(chunks_may_lie_far_apart),
        EMU_TEST(each_layer_has_its_sink_logits),
        EMU_TEST(forks_are_copied_in_order),
        EMU_TEST(copies_do_not_pile_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
