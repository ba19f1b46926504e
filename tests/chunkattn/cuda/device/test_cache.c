/*
 * A cache on an emulated device: what it refuses, how the device's sums are compared, what its memory is, streams, the order of
 * segments, offsets beyond 4 GB, sink logits, and that shared chunks are read once. tests/chunkattn/exact has the results, also
 * where allocations fail.
 */
#include <stdlib.h>
#include <string.h>

#include "chunkattn/api/cache_handle.h"
#include "chunkattn/base/half.h"
#include "chunkattn/cuda/device.h"
#include "chunkattn/cuda/emu/emu_runtime.h"
#include "chunkattn/cuda/products.h"
#include "small_cache.h"

static const cattn_cuda_config device_1 = {.device = 1};

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
    refuse(type_f32, "kv_type is CATTN_F32");
    refuse(type_i8, "kv_type is CATTN_I8; on a CUDA device it must be CATTN_BF16, CATTN_F16 or CATTN_E4M3");
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
        DEVICE_TEST(what_a_device_lacks_is_refused), DEVICE_TEST(calls_for_the_other_kind_of_cache_are_refused),
        DEVICE_TEST(sums_are_compared_once),         DEVICE_TEST(a_comparison_may_fail),
        DEVICE_TEST(sequences_may_not_be_too_long),  DEVICE_TEST(wrong_arguments_of_a_step_are_named),
        DEVICE_TEST(the_budget_is_of_device_memory), DEVICE_TEST(a_step_whose_workspace_is_too_large_is_refused),
        DEVICE_TEST(a_failed_copy_ends_all_steps),   DEVICE_TEST(a_step_without_structural_change_copies_positions),
        DEVICE_TEST(shared_chunks_are_read_once),    DEVICE_TEST(segments_are_summed_in_one_order),
        DEVICE_TEST(chunks_may_lie_far_apart),       DEVICE_TEST(each_layer_has_its_sink_logits),
        DEVICE_TEST(forks_are_copied_in_order),      DEVICE_TEST(copies_do_not_pile_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
