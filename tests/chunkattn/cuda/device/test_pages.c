/*
 * Foreign pages on an emulated device: what is refused, that shared pages are read once, what a plan copies, sink logits,
 * graphs, and failures of every allocation. tests/chunkattn/exact has the results.
 */
#define CATTN_EXPERIMENTAL
#include <stdlib.h>
#include <string.h>

#include "chunkattn/base/half.h"
#include "chunkattn/cuda/emu/emu_runtime.h"
#include "chunkattn_cuda.h"
#include "device_testing.h"
#include "tests/support/failing_alloc.h"
#include "tests/support/rng.h"

enum {
    HEADS = 4,
    KV_HEADS = 2,
    DIM = 64,
    PAGE = 16,
    PAGES = 256,
    SEQS = 4,
    ROWS = SEQS * 40,
    TABLE = 48,
    LINE = KV_HEADS * DIM
};

static const cattn_cuda_config device_0 = {.device = 0}, device_1 = {.device = 1};

static cattn_pages_config config_of(void) {
    cattn_pages_config c;
    cattn_pages_config_init(&c);
    c.common.n_heads = HEADS, c.common.n_kv_heads = KV_HEADS, c.common.head_dim = DIM;
    c.page_size = PAGE, c.n_pages = PAGES, c.common.cuda = &device_0;
    return c;
}

static cattn_pages *create(const cattn_pages_config *config) {
    cattn_pages *pages = NULL;
    cattn_error error = {0};
    if (cattn_pages_create(config, &pages, &error)) fail_msg("%s", error.message);
    return pages;
}

/* ---- A batch on the device: sequences that share `common` pages, with pages of their own behind them ---- */

typedef struct bench {
    uint16_t *kv; /* [page][K, V][slot][head][DIM], random */
    float *q, *out, *lse;
    int32_t table[SEQS][TABLE], lengths[SEQS], row_begin[SEQS + 1];
    cattn_pages_batch batch;
    cattn_page_view k, v;
    cattn_view q_view, out_view;
} bench;

static bench *new_bench(int common, int length) {
    bench *b = calloc(1, sizeof *b);
    const size_t n_kv = (size_t)PAGES * 2 * PAGE * LINE, n_q = (size_t)ROWS * HEADS * DIM;
    rng r = {common + 17};
    b->kv = emu_alloc(n_kv * sizeof *b->kv, "pages");
    for (size_t i = 0; i < n_kv; i++) b->kv[i] = ca_bf16_from_f32(rng_float(&r));
    b->q = emu_alloc(n_q * sizeof *b->q, "q");
    for (size_t i = 0; i < n_q; i++) b->q[i] = rng_float(&r);
    b->out = emu_alloc(n_q * sizeof *b->out, "out");
    b->lse = emu_alloc((size_t)ROWS * HEADS * sizeof *b->lse, "lse");
    for (int s = 0; s < SEQS; s++) {
        for (int i = 0; i < TABLE; i++) b->table[s][i] = i < common ? PAGES - 1 - i : s * TABLE + i;
        b->lengths[s] = length;
    }
    b->batch = (cattn_pages_batch){
        .struct_size = sizeof b->batch, .n_seqs = SEQS, .page_ids = b->table[0], .page_stride = TABLE, .seq_lens = b->lengths};
    b->k = (cattn_page_view){b->kv, 2 * PAGE * LINE, LINE, DIM};
    b->v = (cattn_page_view){b->kv + PAGE * LINE, 2 * PAGE * LINE, LINE, DIM};
    b->q_view = (cattn_view){b->q, CATTN_F32, HEADS * DIM, DIM};
    b->out_view = (cattn_view){b->out, CATTN_F32, HEADS * DIM, DIM};
    return b;
}

static void free_bench(bench *b) {
    emu_finish();
    emu_free(b->kv);
    emu_free(b->q);
    emu_free(b->out);
    emu_free(b->lse);
    free(b);
}

static uint64_t plan(cattn_pages *pages, const bench *b) {
    cattn_error error = {0};
    uint64_t graph = 0;
    check(cattn_cuda_pages_plan(pages, &b->batch, NULL, &graph, &error), &error);
    return graph;
}

static void attend_layer(cattn_pages *pages, int layer, bench *b) {
    cattn_error error = {0};
    check(cattn_cuda_pages_attend(pages, layer, &b->k, &b->v, &b->q_view, &b->out_view, b->lse, NULL, &error), &error);
}

static void attend(cattn_pages *pages, bench *b) { attend_layer(pages, 0, b); }

/* ---- Refusals ---- */

static void refuse(void (*change)(cattn_pages_config *c), const char *text) {
    cattn_pages_config c = config_of();
    cattn_pages *pages = NULL;
    cattn_error error = {0};
    change(&c);
    expect(cattn_pages_create(&c, &pages, &error), CATTN_ERR_ARG, &error, text);
    assert_null(pages);
    assert_int_equal(emu_n_live(), 0);
}
static void type_f32(cattn_pages_config *c) { c->common.kv_type = CATTN_F32; }
static void heads_of_80(cattn_pages_config *c) { c->common.head_dim = 80; }
static void values_of_128(cattn_pages_config *c) { c->common.head_dim_v = 128; }
static void groups_of_17(cattn_pages_config *c) { c->common.n_kv_heads = 1, c->common.n_heads = 17; }
static void another_device(cattn_pages_config *c) { c->common.cuda = &device_1; }
static void pages_of_48(cattn_pages_config *c) { c->page_size = 48; }

static void what_a_device_lacks_is_refused(void **state) {
    (void)state;
    refuse(type_f32, "kv_type is CATTN_F32; on a CUDA device it must be CATTN_BF16 or CATTN_F16");
    refuse(heads_of_80, "head_dim is 80; on a CUDA device it must be 64, 96, 128 or 256");
    refuse(values_of_128, "head_dim_v is 128; on a CUDA device it must be head_dim, 64");
    refuse(groups_of_17, "at most 16 query heads");
    refuse(another_device, "must be from 0 to 0");
    refuse(pages_of_48, "page_size is 48");
}

static void calls_for_the_other_kind_of_handle_are_refused(void **state) {
    (void)state;
    cattn_pages_config config = config_of();
    cattn_pages *device = create(&config);
    config.common.cuda = NULL, config.common.n_threads = 1;
    cattn_pages *cpu = create(&config);
    cattn_error error = {0};
    expect(cattn_pages_plan(device, NULL, &error), CATTN_ERR_ARG, &error, "use cattn_cuda_pages_plan");
    expect(cattn_pages_attend(device, 0, NULL, NULL, NULL, NULL, NULL, &error), CATTN_ERR_ARG, &error,
           "use cattn_cuda_pages_attend");
    expect(cattn_cuda_pages_plan(cpu, NULL, NULL, NULL, &error), CATTN_ERR_ARG, &error, "use cattn_pages_plan");
    expect(cattn_cuda_pages_attend(cpu, 0, NULL, NULL, NULL, NULL, NULL, NULL, &error), CATTN_ERR_ARG, &error,
           "use cattn_pages_attend");
    assert_string_equal(cattn_pages_level(device), "cuda");
    cattn_pages_destroy(&cpu);
    cattn_pages_destroy(&device);
    assert_int_equal(emu_n_live(), 0);
}

static void wrong_batches_are_refused(void **state) {
    (void)state;
    cattn_pages_config config = config_of();
    config.page_size = 128, config.n_pages = 0;
    cattn_pages *pages = create(&config);
    cattn_error error = {0};
    int32_t ids[1] = {1 << 28}, length = 128;
    cattn_pages_batch batch = {
        .struct_size = sizeof batch, .n_seqs = 1, .page_ids = ids, .page_stride = 1 << 20, .seq_lens = &length};
    expect(cattn_cuda_pages_plan(pages, NULL, NULL, NULL, &error), CATTN_ERR_ARG, &error, "batch is NULL");
    expect(cattn_cuda_pages_plan(NULL, &batch, NULL, NULL, &error), CATTN_ERR_ARG, &error, "pages is NULL");
    expect(cattn_cuda_pages_plan(pages, &batch, NULL, NULL, &error), CATTN_ERR_ARG, &error, "it must be from 0 to 268435455");
    ids[0]--;
    check(cattn_cuda_pages_plan(pages, &batch, NULL, NULL, &error), &error);
    length = (1 << 25) + 1;
    expect(cattn_cuda_pages_plan(pages, &batch, NULL, NULL, &error), CATTN_ERR_ARG, &error, "it must be from 0 to 33554432");
    cattn_pages_destroy(&pages);
}

static void wrong_arguments_of_an_attend_are_named(void **state) {
    (void)state;
    const cattn_pages_config config = config_of();
    cattn_pages *pages = create(&config);
    bench *b = new_bench(4, 100);
    cattn_error error = {0};
    cattn_page_view bad = b->k;
    cattn_view bad_q = b->q_view;
#define ATTEND(layer, k, v, q, out) cattn_cuda_pages_attend(pages, layer, k, v, q, out, NULL, NULL, &error)
    expect(ATTEND(0, &b->k, &b->v, &b->q_view, &b->out_view), CATTN_ERR_STATE, &error, "call cattn_cuda_pages_plan first");
    plan(pages, b);
    expect(ATTEND(1, &b->k, &b->v, &b->q_view, &b->out_view), CATTN_ERR_ARG, &error, "layer is 1");
    expect(ATTEND(0, NULL, &b->v, &b->q_view, &b->out_view), CATTN_ERR_ARG, &error, "k is NULL");
    bad.token_stride = DIM - 1;
    expect(ATTEND(0, &b->k, &bad, &b->q_view, &b->out_view), CATTN_ERR_ARG, &error, "v->token_stride is 63");
    bad.token_stride = LINE + 4;
    expect(ATTEND(0, &b->k, &bad, &b->q_view, &b->out_view), CATTN_ERR_ARG, &error, "264 (token)");
    bad = b->k, bad.data = b->kv + 4;
    expect(ATTEND(0, &bad, &b->v, &b->q_view, &b->out_view), CATTN_ERR_ARG, &error, "k: data and its strides");
    bad_q.row_stride++;
    expect(ATTEND(0, &b->k, &b->v, &bad_q, &b->out_view), CATTN_ERR_ARG, &error, "q: data, row_stride");
    expect(ATTEND(0, &b->k, &b->v, &b->q_view, &bad_q), CATTN_ERR_ARG, &error, "out: data, row_stride");
    expect(ATTEND(0, &b->k, &b->v, &b->q_view, NULL), CATTN_ERR_ARG, &error, "out is NULL");
    bad_q = b->q_view, bad_q.type = CATTN_I8;
    expect(ATTEND(0, &b->k, &b->v, &bad_q, &b->out_view), CATTN_ERR_UNSUPPORTED, &error, "q->type");

    b->batch.n_seqs = 0; /* nothing is queued without rows */
    plan(pages, b);
    const uint64_t launches = emu_get_totals().launches;
    attend(pages, b);
    emu_finish();
    assert_int_equal(emu_get_totals().launches, launches);
    free_bench(b);
    cattn_pages_destroy(&pages);
}

/* ---- What is read and copied ---- */

/* Bytes of K and V that one attend reads. */
static uint64_t kv_bytes(const cattn_pages_config *config, int common, int length) {
    cattn_pages *pages = create(config);
    bench *b = new_bench(common, length);
    plan(pages, b);
    emu_finish();
    const uint64_t before = emu_get_totals().kv_bytes;
    attend(pages, b);
    emu_finish();
    const uint64_t after = emu_get_totals().kv_bytes;
    free_bench(b);
    cattn_pages_destroy(&pages);
    return after - before;
}

static void pages_are_read_once(void **state) {
    (void)state;
    enum { PAGE_BYTES = 2 * PAGE * LINE * 2 };
    cattn_pages_config config = config_of();
    /* 36 shared pages are nine chunks; each sequence has three of its own, of which the chunk's fourth does not exist. */
    assert_int_equal(kv_bytes(&config, 36, 39 * PAGE), (36 + SEQS * 3) * PAGE_BYTES);
    /* The tables part within the third chunk, of which each sequence reads the two pages that are shared. */
    assert_int_equal(kv_bytes(&config, 10, 13 * PAGE - 3), (8 + SEQS * 5) * PAGE_BYTES);
    config.common.sharing = CATTN_SHARED_STORAGE;
    assert_int_equal(kv_bytes(&config, 36, 39 * PAGE), SEQS * 39 * PAGE_BYTES);
    config.common.sharing = CATTN_PRIVATE;
    assert_int_equal(kv_bytes(&config, 36, 39 * PAGE), SEQS * 39 * PAGE_BYTES);
}

static void a_decode_step_copies_its_positions(void **state) {
    (void)state;
    const cattn_pages_config config = config_of();
    cattn_pages *pages = create(&config);
    bench *b = new_bench(8, 129);
    uint64_t graph = plan(pages, b);
    for (int step = 1; step < 30; step++) {
        emu_finish();
        const emu_totals before = emu_get_totals();
        for (int s = 0; s < SEQS; s++) b->lengths[s]++;
        assert_int_equal(plan(pages, b), graph);
        emu_finish();
        const uint64_t bytes = emu_get_totals().copied_bytes - before.copied_bytes;
        if (b->lengths[0] % PAGE == 1)
            assert_in_range(bytes, 4 * SEQS + 1, 20000);
        else
            assert_int_equal(bytes, 4 * SEQS);
    }
    free_bench(b);
    cattn_pages_destroy(&pages);
}

/* Layers have the same pages, and only the second one has sink logits. */
static void each_layer_has_its_sink_logits(void **state) {
    (void)state;
    enum { N = SEQS * HEADS };
    static const float sinks[2][HEADS] = {{-INFINITY, -INFINITY, -INFINITY, -INFINITY}, {0, -3, 5, -INFINITY}};
    static float out[N * DIM], lse[N];
    cattn_pages_config config = config_of();
    config.common.n_layers = 2;
    config.common.sink_logits = sinks[0];
    cattn_pages *pages = create(&config);
    bench *b = new_bench(8, 150);
    plan(pages, b);
    attend_layer(pages, 0, b);
    emu_finish();
    memcpy(out, b->out, sizeof out);
    memcpy(lse, b->lse, sizeof lse);
    attend_layer(pages, 1, b);
    emu_finish();
    for (int i = 0; i < N; i++)
        expect_sink(sinks[1][i % HEADS], (head_row){out + i * DIM, (double)lse[i]},
                    (head_row){b->out + i * DIM, (double)b->lse[i]}, DIM);
    free_bench(b);
    cattn_pages_destroy(&pages);
}

/* ---- Graphs ---- */

static void capture(cattn_pages *pages, bench *b, uint64_t graph) {
    emu_begin_capture();
    attend(pages, b);
    assert_true(emu_end_capture(graph) > 0 && emu_replay(graph, NULL));
}

/* Sequences grow by a token, or other ones take their place, now and then with several rows. */
static void change_batch(bench *b, rng *r) {
    for (int s = 0; s < SEQS; s++) b->lengths[s]++;
    b->batch.query_indptr = NULL;
    if (!rng_chance(r, 4)) return;
    const int64_t common = rng_range(r, 0, 20);
    b->batch.n_seqs = (int32_t)rng_range(r, 1, SEQS);
    if (rng_chance(r, 2)) b->batch.query_indptr = b->row_begin;
    for (int s = 0; s < SEQS; s++) {
        b->lengths[s] = (int32_t)rng_range(r, 40, 400);
        b->row_begin[s + 1] = b->row_begin[s] + (int32_t)rng_range(r, 0, 40);
        for (int i = 0; i < TABLE; i++) b->table[s][i] = i < common ? PAGES - 1 - i : s * TABLE + i;
    }
}

/* Whatever batches come between two of the same number, the launches of one are right for the other. */
static void batches_of_one_number_have_one_graph(void **state) {
    (void)state;
    enum { STEPS = 50 };
    static float want[STEPS][ROWS * HEADS * DIM];
    int n_replayed = 0, n_captured = 0;
    for (int replays = 0; replays < 2; replays++) {
        emu_set_streams(replays ? EMU_DEFERRED : EMU_IMMEDIATE, 7);
        emu_drop_graphs();
        const cattn_pages_config config = config_of();
        cattn_pages *pages = create(&config);
        bench *b = new_bench(10, 190);
        rng r = {1};
        for (int s = 0; s < STEPS; s++) {
            change_batch(b, &r);
            memset(b->out, 0xff, sizeof want[s]);
            const uint64_t graph = plan(pages, b);
            const bool known = replays && emu_replay(graph, NULL);
            if (!replays) attend(pages, b);
            if (replays && !known) capture(pages, b, graph);
            n_replayed += known;
            n_captured += replays && !known;
            emu_finish();
            if (!replays) memcpy(want[s], b->out, sizeof want[s]);
            assert_memory_equal(want[s], b->out, sizeof want[s]);
        }
        free_bench(b);
        cattn_pages_destroy(&pages);
    }
    assert_true(n_replayed > STEPS / 2 && n_captured > 3);
    emu_set_streams(EMU_IMMEDIATE, 1);
}

/* ---- Allocation failures ---- */

enum { FAILURE_STEPS = 3 };

enum { STEP_FLOATS = SEQS * HEADS * DIM }; /* of a step's output */

/* After a plan that failed, the previous one can be attended, whose output `want` is, or there is none. */
static void attend_previous(cattn_pages *pages, bench *b, const float *want) {
    cattn_error error = {0};
    memset(b->out, 0xff, STEP_FLOATS * sizeof *b->out);
    if (cattn_cuda_pages_attend(pages, 0, &b->k, &b->v, &b->q_view, &b->out_view, b->lse, NULL, &error)) {
        assert_int_equal(error.code, CATTN_ERR_STATE);
        return;
    }
    emu_finish();
    assert_non_null(want);
    assert_memory_equal(b->out, want, STEP_FLOATS * sizeof *want);
}

/* Steps that are repeated until they succeed, over tables of which the second step's are much longer. Whether one failed. */
static bool run_with_failures(const cattn_pages_config *config, float *out) {
    static const int lengths[FAILURE_STEPS] = {20, 700, 701};
    cattn_pages *pages;
    cattn_error error = {0};
    bool failed = false;
    while (cattn_pages_create(config, &pages, &error)) {
        assert_int_equal(error.code, CATTN_ERR_NOMEM);
        assert_int_equal(emu_n_live(), 0);
        failed = true;
    }
    bench *b = new_bench(1, 0);
    for (int step = 0; step < FAILURE_STEPS; step++) {
        for (int s = 0; s < SEQS; s++) b->lengths[s] = lengths[step];
        while (cattn_cuda_pages_plan(pages, &b->batch, NULL, NULL, &error)) {
            assert_int_equal(error.code, CATTN_ERR_NOMEM);
            attend_previous(pages, b, step > 0 ? out - STEP_FLOATS : NULL);
            failed = true;
        }
        attend(pages, b);
        emu_finish();
        memcpy(out, b->out, STEP_FLOATS * sizeof *out);
        out += STEP_FLOATS;
    }
    free_bench(b);
    cattn_pages_destroy(&pages);
    assert_int_equal(emu_n_live(), 0);
    return failed;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    static float want[FAILURE_STEPS * STEP_FLOATS], got[FAILURE_STEPS * STEP_FLOATS];
    cattn_pages_config config = config_of();
    float slopes[HEADS] = {0.5f, 0.25f, 0.125f, 0.0625f};
    config.common.alibi_slopes = slopes;
    failing host = {.times = 2}; /* a plan that lacks memory is tried a second time */
    int n_failed = 0;
    assert_false(run_with_failures(&config, want));
    for (int n = 0;; n++) { /* the device's memory and pinned memory */
        emu_fail_allocation(n);
        const bool failed = run_with_failures(&config, got);
        if (emu_fail_allocation(-1) >= 0) break; /* there are no more */
        n_failed += failed;
        assert_memory_equal(want, got, sizeof want);
    }
    config.common.allocator = (cattn_allocator){failing_alloc, failing_free, &host};
    for (int n = 0;; n++) { /* the host's */
        host.left = n;
        const bool failed = run_with_failures(&config, got);
        if (host.left >= 0) break;
        if (failed) n_failed++;
        assert_memory_equal(want, got, sizeof want);
    }
    assert_true(n_failed > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        DEVICE_TEST(what_a_device_lacks_is_refused),
        DEVICE_TEST(calls_for_the_other_kind_of_handle_are_refused),
        DEVICE_TEST(wrong_batches_are_refused),
        DEVICE_TEST(wrong_arguments_of_an_attend_are_named),
        DEVICE_TEST(pages_are_read_once),
        DEVICE_TEST(a_decode_step_copies_its_positions),
        DEVICE_TEST(each_layer_has_its_sink_logits),
        DEVICE_TEST(batches_of_one_number_have_one_graph),
        DEVICE_TEST(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
