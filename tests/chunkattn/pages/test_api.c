/* The public calls for foreign pages: errors and their messages, what a refused call leaves, and the views of known layouts. */
#define CATTN_EXPERIMENTAL
#include "tests/support/testing.h"

#include <string.h>

#include "chunkattn_cuda.h"
#include "tests/support/child.h"
#include "tests/support/sleeping.h"
#include "tests/support/thread_names.h"

enum { D = 64, HEADS = 2, KV_HEADS = 2, C = 16, N_PAGES = 8 };

static uint16_t kv[2 * N_PAGES * C * KV_HEADS * D];
static float q[64 * HEADS * D], out[64 * HEADS * D];

static cattn_pages_config good_config(void) {
    cattn_pages_config c;
    cattn_pages_config_init(&c);
    c.common.n_heads = HEADS, c.common.n_kv_heads = KV_HEADS, c.common.head_dim = D, c.n_pages = N_PAGES,
    c.common.n_threads = 1;
    return c;
}

static cattn_pages *create(const cattn_pages_config *config) {
    cattn_pages *pages = NULL;
    cattn_error error = {0};
    if (cattn_pages_create(config, &pages, &error)) fail_msg("%s", error.message);
    return pages;
}

#define REFUSES_CONFIG(field, value, status, words)                                                                            \
    do {                                                                                                                       \
        cattn_pages_config c = good_config();                                                                                  \
        cattn_pages *pages = (cattn_pages *)&c;                                                                                \
        cattn_error error = {0};                                                                                               \
        c.field = value;                                                                                                       \
        assert_int_equal(cattn_pages_create(&c, &pages, &error), status);                                                      \
        assert_null(pages);                                                                                                    \
        if (!strstr(error.message, words)) fail_msg("%s", error.message);                                                      \
    } while (0)

static void test_config(void **state) {
    (void)state;
    static const float bad_slopes[HEADS] = {1e7f, 0};
    static const cattn_cuda_config wrong_device = {.device = -2}, first_device = {.device = 0};
    REFUSES_CONFIG(page_size, 48, CATTN_ERR_ARG, "page_size is 48");
    REFUSES_CONFIG(page_size, 256, CATTN_ERR_ARG, "page_size is 256");
    REFUSES_CONFIG(n_pages, -1, CATTN_ERR_ARG, "n_pages is -1");
    REFUSES_CONFIG(common.kv_type, CATTN_I8, CATTN_ERR_ARG, "kv_type is CATTN_I8");
    REFUSES_CONFIG(common.head_dim, 63, CATTN_ERR_ARG, "head_dim is 63");
    REFUSES_CONFIG(common.n_heads, 3, CATTN_ERR_ARG, "n_heads is 3");
    REFUSES_CONFIG(common.n_layers, 0, CATTN_ERR_ARG, "n_layers is 0");
    REFUSES_CONFIG(common.alibi_slopes, bad_slopes, CATTN_ERR_ARG, "alibi_slopes[0]");
    REFUSES_CONFIG(common.cuda, &wrong_device, CATTN_ERR_ARG, "cuda->device is -2");
    REFUSES_CONFIG(common.cuda, &first_device, CATTN_ERR_UNSUPPORTED, "CUDA is not linked");
    REFUSES_CONFIG(common.level, "none", CATTN_ERR_ARG, "level is \"none\"");
    REFUSES_CONFIG(common.struct_size, 3, CATTN_ERR_ARG, "struct_size");
    cattn_pages *pages = NULL;
    assert_int_equal(cattn_pages_create(NULL, &pages, NULL), CATTN_ERR_ARG);
    cattn_pages_destroy(NULL);
    cattn_pages_destroy(&pages);
    assert_null(cattn_pages_level(NULL));
}

/* ---- Batches ---- */

static const int32_t ids[] = {0, 1, 2, 3, 0, 1, 4, 5}, lengths[] = {50, 64};

static cattn_pages_batch good_batch(void) {
    return (cattn_pages_batch){
        .struct_size = sizeof(cattn_pages_batch), .n_seqs = 2, .page_ids = ids, .page_stride = 4, .seq_lens = lengths};
}

static cattn_pages_info info_of(const cattn_pages *pages) {
    cattn_pages_info info = {.struct_size = sizeof info};
    assert_int_equal(cattn_pages_get_info(pages, &info), CATTN_OK);
    return info;
}

static void refuse(cattn_pages *pages, const cattn_pages_batch *batch, int32_t entry, const char *words) {
    cattn_error error = {0};
    const cattn_pages_info before = info_of(pages);
    assert_int_equal(cattn_pages_plan(pages, batch, &error), CATTN_ERR_ARG);
    assert_int_equal(error.entry, entry);
    if (!strstr(error.message, words)) fail_msg("%s", error.message);
    const cattn_pages_info after = info_of(pages);
    assert_memory_equal(&before, &after, sizeof before);
}

#define REFUSES_BATCH(field, value, entry, words)                                                                              \
    do {                                                                                                                       \
        cattn_pages_batch b = good_batch();                                                                                    \
        b.field = value;                                                                                                       \
        refuse(pages, &b, entry, words);                                                                                       \
    } while (0)

static void test_batches(void **state) {
    (void)state;
    static const int32_t negative[] = {0, 1, 2, 3, 0, -1, 4, 5}, beyond[] = {0, 1, 2, N_PAGES, 0, 1, 4, 5};
    static const int32_t too_long[] = {50, 65}, below_zero[] = {-1, 64}, too_few[] = {50, 3};
    static const int32_t descends[] = {0, 4, 2}, many_rows[] = {0, 1, 66}, indptr[] = {0, 4, 8}, short_indptr[] = {0, 4, 7};
    static const int32_t from_below[] = {-1, 1, 2}, last[] = {2, 16}, bad_last[] = {2, 17};
    const cattn_pages_config config = good_config();
    cattn_pages *pages = create(&config);
    cattn_error error = {0};
    const cattn_pages_batch good = good_batch();
    assert_int_equal(info_of(pages).pages_referenced, 0);
    if (cattn_pages_plan(pages, &good, &error)) fail_msg("%s", error.message);
    const cattn_pages_info info = info_of(pages);
    assert_int_equal(info.n_rows, 2);
    assert_int_equal(info.pages_referenced, 8);
    assert_int_equal(info.pages_read, 6);
    assert_int_equal(info.shared_runs, 1);
    assert_int_equal(info.shared_pages, 2);

    REFUSES_BATCH(page_ids, negative, 1, "page 1 of sequence 1 has the id -1");
    REFUSES_BATCH(page_ids, beyond, 0, "page 3 of sequence 0 has the id 8");
    REFUSES_BATCH(page_ids, NULL, -1, "page_ids is NULL");
    REFUSES_BATCH(seq_lens, too_long, 1, "sequence 1 has 65 tokens, but its table has 4 pages");
    REFUSES_BATCH(seq_lens, below_zero, 0, "sequence 0 has -1 tokens");
    REFUSES_BATCH(seq_lens, NULL, -1, "seq_lens is NULL");
    REFUSES_BATCH(last_page_lens, last, -1, "both seq_lens and last_page_lens");
    REFUSES_BATCH(query_indptr, descends, 1, "query_indptr goes from 4 to 2");
    REFUSES_BATCH(query_indptr, from_below, 0, "query_indptr goes from -1");
    REFUSES_BATCH(query_indptr, many_rows, 1, "sequence 1 has 65 rows but 64 tokens");
    REFUSES_BATCH(page_indptr, descends, 1, "page_indptr goes from 4 to 2");
    REFUSES_BATCH(page_indptr, short_indptr, 1, "its table has 3 pages");
    REFUSES_BATCH(n_seqs, -1, -1, "n_seqs is -1");
    REFUSES_BATCH(page_stride, -1, -1, "page_stride is -1");
    REFUSES_BATCH(struct_size, 1, -1, "struct_size");
    cattn_pages_batch b = good_batch();
    b.seq_lens = NULL, b.last_page_lens = last;
    refuse(pages, &b, -1, "page_indptr is NULL");
    b.page_indptr = indptr, b.last_page_lens = bad_last;
    refuse(pages, &b, 1, "last_page_lens[1] is 17");
    assert_int_equal(cattn_pages_plan(pages, NULL, NULL), CATTN_ERR_ARG);
    assert_int_equal(cattn_pages_plan(NULL, &good, NULL), CATTN_ERR_ARG);

    /* The same sequences as ids with an indptr and the lengths of last pages. */
    b.last_page_lens = last;
    assert_int_equal(cattn_pages_plan(pages, &b, NULL), CATTN_OK);
    assert_int_equal(info_of(pages).n_kept, 1);
    /* A sequence of length three has one page, however long its table is. */
    b = good_batch();
    b.seq_lens = too_few;
    assert_int_equal(cattn_pages_plan(pages, &b, NULL), CATTN_OK);
    assert_int_equal(info_of(pages).pages_referenced, 5);
    cattn_pages_destroy(&pages);
}

/* ---- Attending ---- */

static cattn_view view_of(float *data) { return (cattn_view){data, CATTN_F32, HEADS * D, D}; }

static void test_attend(void **state) {
    (void)state;
    const cattn_pages_config config = good_config();
    cattn_pages *pages = create(&config);
    const cattn_view q_view = view_of(q), out_view = view_of(out);
    cattn_page_view k, v, bad;
    cattn_error error = {0};
    assert_int_equal(cattn_pages_views(pages, 0, CATTN_PAGES_VLLM, kv, N_PAGES, &k, &v, &error), CATTN_OK);
    assert_int_equal(cattn_pages_attend(pages, 0, &k, &v, &q_view, &out_view, NULL, &error), CATTN_ERR_STATE);
    assert_non_null(strstr(error.message, "cattn_pages_plan"));

    const cattn_pages_batch batch = good_batch();
    assert_int_equal(cattn_pages_plan(pages, &batch, &error), CATTN_OK);
    assert_int_equal(cattn_pages_attend(pages, 0, &k, &v, &q_view, &out_view, NULL, &error), CATTN_OK);
    assert_int_equal(cattn_pages_attend(pages, 1, &k, &v, &q_view, &out_view, NULL, &error), CATTN_ERR_ARG);
    assert_non_null(strstr(error.message, "layer is 1"));
    bad = k, bad.token_stride = D - 1;
    assert_int_equal(cattn_pages_attend(pages, 0, &bad, &v, &q_view, &out_view, NULL, &error), CATTN_ERR_ARG);
    assert_non_null(strstr(error.message, "k->token_stride is 63"));
    bad = v, bad.head_stride = 0;
    assert_int_equal(cattn_pages_attend(pages, 0, &k, &bad, &q_view, &out_view, NULL, &error), CATTN_ERR_ARG);
    assert_non_null(strstr(error.message, "v->head_stride is 0"));
    assert_int_equal(cattn_pages_attend(pages, 0, NULL, &v, &q_view, &out_view, NULL, &error), CATTN_ERR_ARG);
    assert_int_equal(cattn_pages_attend(pages, 0, &k, &v, NULL, &out_view, NULL, &error), CATTN_ERR_ARG);
    assert_int_equal(cattn_pages_attend(NULL, 0, &k, &v, &q_view, &out_view, NULL, &error), CATTN_ERR_ARG);

    /* Nothing is written without rows. */
    cattn_pages_batch empty = good_batch();
    empty.n_seqs = 0;
    assert_int_equal(cattn_pages_plan(pages, &empty, &error), CATTN_OK);
    out[0] = 7;
    assert_int_equal(cattn_pages_attend(pages, 0, &k, &v, &q_view, &out_view, NULL, &error), CATTN_OK);
    assert_true(out[0] == 7);
    assert_int_equal(info_of(pages).pages_referenced, 0);
    cattn_pages_destroy(&pages);
}

/* The address of an element in each layout. */
static void test_views(void **state) {
    (void)state;
    cattn_pages_config config = good_config();
    cattn_pages *pages = create(&config);
    enum { P = 3, T = 5, H = 1, I = 7 };
    static const struct {
        cattn_page_layout layout;
        int64_t k, v;
    } cases[] = {
        {CATTN_PAGES_VLLM, ((P * C + T) * KV_HEADS + H) * D + I, (((N_PAGES + P) * C + T) * KV_HEADS + H) * D + I},
        {CATTN_PAGES_NHD, ((2 * P * C + T) * KV_HEADS + H) * D + I, (((2 * P + 1) * C + T) * KV_HEADS + H) * D + I},
        {CATTN_PAGES_HND, ((2 * P * KV_HEADS + H) * C + T) * D + I, (((2 * P + 1) * KV_HEADS + H) * C + T) * D + I},
        {CATTN_PAGES_VLLM_HND, ((P * KV_HEADS + H) * C + T) * D + I, (((N_PAGES + P) * KV_HEADS + H) * C + T) * D + I},
    };
    cattn_page_view k, v;
    cattn_error error = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(cattn_pages_views(pages, 0, cases[i].layout, kv, N_PAGES, &k, &v, &error), CATTN_OK);
        const int64_t at = P * k.page_stride + T * k.token_stride + H * k.head_stride + I;
        assert_ptr_equal((const uint16_t *)k.data + at, kv + cases[i].k);
        assert_ptr_equal((const uint16_t *)v.data + at, kv + cases[i].v);
    }
    assert_int_equal(cattn_pages_views(pages, 0, (cattn_page_layout)4, kv, N_PAGES, &k, &v, &error), CATTN_ERR_ARG);
    assert_int_equal(cattn_pages_views(pages, 0, CATTN_PAGES_NHD, kv, 0, &k, &v, &error), CATTN_ERR_ARG);
    assert_int_equal(cattn_pages_views(pages, 0, CATTN_PAGES_NHD, NULL, N_PAGES, &k, &v, &error), CATTN_ERR_ARG);
    cattn_pages_destroy(&pages);
    config.common.head_dim_v = 128;
    pages = create(&config);
    assert_int_equal(cattn_pages_views(pages, 0, CATTN_PAGES_NHD, kv, N_PAGES, &k, &v, &error), CATTN_ERR_ARG);
    assert_non_null(strstr(error.message, "fill the views by hand"));
    cattn_pages_destroy(&pages);
}

/* ---- Calls that overlap, and processes ---- */

static cattn_pages *running;
static int n_refused;

/* A hook of the caller's, inside a call. */
static void run_hook(void *ctx, int32_t n_tasks, void (*fn)(void *arg, int32_t task, int32_t worker), void *arg) {
    (void)ctx;
    cattn_pages_info info = {.struct_size = sizeof info};
    cattn_pages *same = running;
    cattn_error error = {.message = ""};
    const cattn_pages_batch batch = good_batch();
    for (int32_t i = 0; i < n_tasks; i++) fn(arg, i, 0);
    assert_int_equal(cattn_pages_get_info(running, &info), CATTN_ERR_STATE);
    assert_int_equal(cattn_pages_plan(running, &batch, NULL), CATTN_ERR_STATE);
    assert_int_equal(cattn_pages_attend(running, 0, NULL, NULL, NULL, NULL, NULL, &error), CATTN_ERR_STATE);
    assert_non_null(strstr(error.message, "pages is in use"));
    cattn_pages_destroy(&same);
    assert_ptr_equal(same, running);
    n_refused++;
}

static bool behaves_in_a_child(cattn_pages *pages) {
    const cattn_pages_batch batch = good_batch();
    cattn_error error = {0};
    if (cattn_pages_plan(pages, &batch, &error) != CATTN_ERR_STATE || !strstr(error.message, "fork(2)")) return false;
    cattn_pages_destroy(&pages);
    return !pages;
}

static void test_guard(void **state) {
    (void)state;
    cattn_pages_config config = good_config();
    const cattn_pages_batch batch = good_batch();
    const cattn_view q_view = {q, CATTN_F32, HEADS * D, D}, out_view = {out, CATTN_F32, HEADS * D, D};
    cattn_page_view k, v;
    cattn_error error = {0};
    config.common.parallel.run = run_hook;
    running = create(&config);
    assert_int_equal(cattn_pages_plan(running, &batch, NULL), CATTN_OK);
    assert_int_equal(cattn_pages_views(running, 0, CATTN_PAGES_VLLM, kv, N_PAGES, &k, &v, NULL), CATTN_OK);
    assert_int_equal(cattn_pages_attend(running, 0, &k, &v, &q_view, &q_view, NULL, &error), CATTN_ERR_ARG);
    assert_non_null(strstr(error.message, "out overlaps q"));
    assert_int_equal(cattn_pages_attend(running, 0, &k, &v, &q_view, &out_view, NULL, &error), CATTN_OK);
    assert_true(n_refused > 0);
    cattn_pages_destroy(&running);
    assert_null(running);
    config.common.parallel.run = NULL;
    config.common.n_threads = 3;
    cattn_pages *pages = create(&config);
    wait_for_threads("cattn-worker", 2);
    WAIT_UNTIL(others_sleep()); /* none has a lock that the child would inherit */
    EXPECT_IN_CHILD(behaves_in_a_child(pages));
    assert_int_equal(cattn_pages_plan(pages, &batch, NULL), CATTN_OK);
    cattn_pages_destroy(&pages);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config), cmocka_unit_test(test_batches), cmocka_unit_test(test_attend),
        cmocka_unit_test(test_views),  cmocka_unit_test(test_guard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
