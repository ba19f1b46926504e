/* The edges of a cache's calls: calls that overlap, processes that fork, handles of other caches, views, and what is left over.
 */
#include "tests/support/testing.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "cache.h"
#include "chunkattn/cache/tree_internal.h"
#include "chunkattn/tier/tier_internal.h"
#include "tests/support/child.h"
#include "tests/support/folder.h"
#include "tests/support/sleeping.h"
#include "tests/support/status.h"
#include "tests/support/thread_names.h"

enum { LAYERS = 2, HEADS = 4, KV_HEADS = 2, DIM = 32, MAX_ROWS = 256 };

static cattn_config small(void) {
    cattn_config c = small_config(LAYERS, HEADS, KV_HEADS, DIM, 16 << 20);
    c.kv_type = CATTN_F32;
    c.tier_fingerprint[0] = 1;
    return c;
}

static const int32_t *count_up(void) {
    static int32_t tokens[MAX_ROWS];
    for (int i = 0; i < MAX_ROWS; i++) tokens[i] = i;
    return tokens;
}

static cattn_seq join(cattn_cache *cache, int64_t n) {
    cattn_seq seq;
    cattn_error error = {.message = ""};
    if (cattn_seq_join(cache, count_up(), n, NULL, &seq, NULL, &error)) fail_msg("%s", error.message);
    return seq;
}

/* The number that is written as an element of K (kind 0) or V. */
static float element(int layer, int kind, int64_t position, int i) {
    return (float)(layer * 100000 + kind * 50000 + (int)position * 100 + i % 97) / 64;
}

/* A step that writes the rows of one sequence. */
static void compute(cattn_cache *cache, cattn_seq seq) {
    static float kv[2][MAX_ROWS * KV_HEADS * DIM];
    cattn_entry e = {.seq = seq, .max_rows = MAX_ROWS};
    const cattn_view k = {kv[0], CATTN_F32, KV_HEADS * DIM, DIM}, v = {kv[1], CATTN_F32, KV_HEADS * DIM, DIM};
    assert_int_equal(cattn_step_begin(cache, &e, 1, 0, NULL), CATTN_OK);
    for (int layer = 0; layer < LAYERS; layer++) {
        for (int kind = 0; kind < 2; kind++)
            for (int64_t r = 0; r < e.n_rows; r++)
                for (int i = 0; i < KV_HEADS * DIM; i++)
                    kv[kind][r * KV_HEADS * DIM + i] = element(layer, kind, e.first_pos + r, i);
        assert_int_equal(cattn_step_write(cache, layer, &k, &v, NULL), CATTN_OK);
    }
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
}

static int64_t n_ready(const cattn_cache *cache, cattn_seq seq) {
    cattn_seq_info info = {.struct_size = sizeof info};
    assert_int_equal(cattn_seq_get_info(cache, seq, &info, NULL), CATTN_OK);
    return info.n_ready;
}

/* ---- Calls that overlap ---- */

/* A running call refuses this one. */
#define REFUSES(call)                                                                                                          \
    do {                                                                                                                       \
        cattn_error error = {.message = ""};                                                                                   \
        expect(call, CATTN_ERR_STATE, &error, "cache is in use");                                                              \
    } while (0)

static int never_called(void *ctx, const void *bytes, size_t n) {
    (void)ctx, (void)bytes, (void)n;
    abort();
}

static int never_shown(void *ctx, const cattn_node_info *node) {
    (void)ctx, (void)node;
    abort();
}

static void calls_of_sequences_are_refused(cattn_cache *cache) {
    cattn_seq seq = 1, other;
    cattn_seq_info info = {.struct_size = sizeof info};
    REFUSES(cattn_seq_join(cache, count_up(), 4, NULL, &other, NULL, &error));
    REFUSES(cattn_seq_append(cache, seq, count_up(), 1, &error));
    REFUSES(cattn_seqs_append(cache, NULL, 0, NULL, &error));
    REFUSES(cattn_seq_truncate(cache, seq, 1, &error));
    REFUSES(cattn_seq_fork(cache, seq, 0, &other, &error));
    REFUSES(cattn_seq_recompute_last(cache, seq, &error));
    REFUSES(cattn_seq_reserve(cache, seq, 1, &error));
    REFUSES(cattn_seq_leave(cache, &seq, &error));
    REFUSES(cattn_seq_pin(cache, seq, 2, &other, &error));
    REFUSES(cattn_seq_export(cache, seq, 1, never_called, NULL, &error));
    REFUSES(cattn_seq_import(cache, count_up(), 4, NULL, &other, NULL, &error));
    REFUSES(cattn_seq_read(cache, seq, 0, 0, 0, NULL, NULL, &error));
    REFUSES(cattn_seq_get_info(cache, seq, &info, &error));
    assert_int_equal(seq, 1);
}

static void calls_of_steps_are_refused(cattn_cache *cache) {
    cattn_entry entry = {.seq = 1, .max_rows = 1};
    cattn_rows rows = {.struct_size = sizeof rows};
    REFUSES(cattn_step_begin(cache, &entry, 1, 0, &error));
    REFUSES(cattn_step_rows(cache, &rows, &error));
    REFUSES(cattn_step_write(cache, 0, NULL, NULL, &error));
    REFUSES(cattn_step_attend(cache, 0, NULL, NULL, NULL, &error));
    REFUSES(cattn_step_end(cache, &error));
    REFUSES(cattn_step_abort(cache, &error));
}

static void calls_of_caches_are_refused(cattn_cache *cache) {
    cattn_stats stats = {.struct_size = sizeof stats};
    cattn_explanation explanation = {.struct_size = sizeof explanation};
    cattn_join_result result;
    cattn_seq pin = 1;
    uint64_t cursor = 0;
    bool more, ended;
    REFUSES(cattn_cache_match(cache, count_up(), 4, NULL, &result, &error));
    REFUSES(cattn_cache_explain(cache, count_up(), 4, NULL, &explanation, &error));
    REFUSES(cattn_cache_walk(cache, NULL, &cursor, never_shown, NULL, &error));
    REFUSES(cattn_cache_unpin(cache, &pin, &error));
    REFUSES(cattn_cache_prefault(cache, 1, &more, &error));
    REFUSES(cattn_cache_drop_retained(cache, &error));
    REFUSES(cattn_cache_set_budget(cache, 1, &error));
    REFUSES(cattn_cache_wait(cache, 0, &ended, &error));
    assert_int_equal(cattn_cache_stats(cache, &stats), CATTN_ERR_STATE);
    assert_int_equal(cattn_cache_stats_fast(cache, &stats), CATTN_ERR_STATE);
    cattn_cache *same = cache;
    cattn_cache_destroy(&same);
    assert_ptr_equal(same, cache);
}

/* The calls of the thread that owns a cache: a call that runs refuses them all. */
static void every_call_is_refused(cattn_cache *cache) {
    calls_of_sequences_are_refused(cache);
    calls_of_steps_are_refused(cache);
    calls_of_caches_are_refused(cache);
}

static void *refuse_on_a_thread(void *cache) {
    every_call_is_refused(cache);
    return NULL;
}

typedef struct hook {
    cattn_cache *cache;
    int n_runs;
} hook;

/* A hook inside a call: on the thread of the call, and on another one, which the call waits for. */
static void run_hook(void *ctx, int32_t n_tasks, void (*fn)(void *arg, int32_t task, int32_t worker), void *arg) {
    hook *h = ctx;
    pthread_t thread;
    for (int32_t i = 0; i < n_tasks; i++) fn(arg, i, 0);
    every_call_is_refused(h->cache);
    assert_int_equal(pthread_create(&thread, NULL, refuse_on_a_thread, h->cache), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    h->n_runs++;
}

static int refuse_export(void *ctx, const void *bytes, size_t n) {
    (void)bytes, (void)n;
    every_call_is_refused(ctx);
    return 0;
}

static void calls_that_overlap_are_refused(void **state) {
    (void)state;
    static float q[MAX_ROWS * HEADS * DIM], out[MAX_ROWS * HEADS * DIM];
    const cattn_view q_view = {q, CATTN_F32, HEADS * DIM, DIM}, out_view = {out, CATTN_F32, HEADS * DIM, DIM};
    hook h = {0};
    cattn_config c = small();
    c.parallel = (cattn_parallel){run_hook, &h};
    cattn_cache *cache = h.cache = create(&c);
    cattn_entry e = {.seq = join(cache, 100), .max_rows = MAX_ROWS};
    assert_int_equal(cattn_step_begin(cache, &e, 1, 0, NULL), CATTN_OK);
    assert_true(write_zeros(cache));
    assert_int_equal(cattn_step_attend(cache, 0, &q_view, &out_view, NULL, NULL), CATTN_OK);
    assert_true(h.n_runs > 0);
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_export(cache, e.seq, 100, refuse_export, cache, NULL), CATTN_OK);
    assert_int_equal(n_ready(cache, e.seq), 100); /* no call is refused any more */
    cattn_cache_destroy(&cache);
    assert_null(cache);
}

/* ---- Processes ---- */

/* In a child: every call but destroy is refused, and the child may have a cache of its own. Returns whether that is so. */
static bool behaves_in_a_child(cattn_cache *cache, cattn_seq seq) {
    cattn_error error;
    cattn_stats stats = {.struct_size = sizeof stats};
    cattn_entry e = {.seq = seq, .max_rows = 1};
    if (cattn_seq_append(cache, seq, count_up(), 1, &error) != CATTN_ERR_STATE || !strstr(error.message, "fork(2)"))
        return false;
    if (cattn_step_begin(cache, &e, 1, 0, NULL) != CATTN_ERR_STATE || cattn_cache_stats(cache, &stats) != CATTN_ERR_STATE)
        return false;
    cattn_cache_destroy(&cache);
    cattn_config c = small();
    c.n_threads = 3;
    if (cache || cattn_cache_create(&c, &cache, NULL) != CATTN_OK) return false;
    if (cattn_seq_join(cache, count_up(), 100, NULL, &e.seq, NULL, NULL) != CATTN_OK) return false;
    e.max_rows = 100;
    const bool ok = cattn_step_begin(cache, &e, 1, 0, NULL) == CATTN_OK && write_zeros(cache) &&
                    cattn_step_end(cache, NULL) == CATTN_OK && e.n_rows == 100;
    cattn_cache_destroy(&cache);
    return ok && !cache;
}

static void a_forked_child_may_destroy(void **state) {
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* it does not follow the threads that a child starts */
#endif
    char dir[] = "/tmp/cattn_edges_XXXXXX";
    assert_non_null(mkdtemp(dir));
    for (int with_tier = 0; with_tier < 2; with_tier++) {
        cattn_config c = small();
        c.n_threads = 4;
        if (with_tier) c.tier_dir = dir, c.tier_bytes = 1 << 20;
        cattn_cache *cache = create(&c);
        const cattn_seq seq = join(cache, 100);
        compute(cache, seq);
        wait_for_threads("cattn-worker", 3);
        wait_for_threads("cattn-tier", with_tier ? CA_TIER_THREADS : 0);
        WAIT_UNTIL(others_sleep()); /* none has a lock that the child would inherit */
        EXPECT_IN_CHILD(behaves_in_a_child(cache, seq));
        assert_int_equal(cattn_seq_append(cache, seq, count_up(), 20, NULL), CATTN_OK); /* nothing has changed here */
        compute(cache, seq);
        assert_int_equal(n_ready(cache, seq), 120);
        cattn_cache_destroy(&cache);
    }
    assert_int_equal(remove_folder(dir), 0);
}

/* A child that was forked inside a call: the copy is in between, so only the pointer is cleared. */
static bool forgets(cattn_cache *cache) {
    cattn_cache_destroy(&cache);
    return !cache;
}

static int fork_inside(void *ctx, const void *bytes, size_t n) {
    (void)bytes, (void)n;
    EXPECT_IN_CHILD(forgets(ctx));
    return 1;
}

static void a_child_that_was_forked_inside_a_call_forgets(void **state) {
    (void)state;
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    const cattn_seq seq = join(cache, 20);
    compute(cache, seq);
    assert_int_equal(cattn_seq_export(cache, seq, 20, fork_inside, cache, NULL), CATTN_ERR_WRITE);
    cattn_cache_destroy(&cache);
}

/* ---- Threads ---- */

static void threads_have_names(void **state) {
    (void)state;
    char dir[] = "/tmp/cattn_edges_XXXXXX";
    assert_non_null(mkdtemp(dir));
    cattn_config c = small();
    c.n_threads = 2;
    c.tier_dir = dir, c.tier_bytes = 1 << 20;
    cattn_cache *cache = create(&c);
    wait_for_threads("cattn-worker", 1);
    wait_for_threads("cattn-tier", CA_TIER_THREADS);
    cattn_cache_destroy(&cache);
    assert_int_equal(remove_folder(dir), 0);
}

/* ---- Handles ---- */

static void a_handle_of_another_cache_is_refused_by_name(void **state) {
    (void)state;
    const cattn_config c = small();
    cattn_cache *a = create(&c), *b = create(&c);
    cattn_error error;
    const cattn_seq of_a = join(a, 5), of_b = join(b, 5);
    cattn_seq left = of_b;
    cattn_seq_info info = {.struct_size = sizeof info};
    cattn_entry entry = {.seq = of_a, .max_rows = 1};
    assert_int_not_equal(of_a, of_b);
    expect(cattn_seq_append(b, of_a, count_up(), 1, &error), CATTN_ERR_ARG, &error, "a sequence of another cache");
    expect(cattn_seq_get_info(b, of_a, &info, &error), CATTN_ERR_ARG, &error, "a sequence of another cache");
    expect(cattn_seq_leave(b, &(cattn_seq){of_a}, &error), CATTN_ERR_ARG, &error, "a sequence of another cache");
    expect(cattn_step_begin(b, &entry, 1, 0, &error), CATTN_ERR_ARG, &error, "entries[0].seq");
    assert_non_null(strstr(error.message, "a sequence of another cache"));
    assert_int_equal(cattn_seq_leave(b, &left, NULL), CATTN_OK);
    expect(cattn_seq_append(b, of_b, count_up(), 1, &error), CATTN_ERR_ARG, &error, "it has left");
    expect(cattn_seq_append(b, 0, count_up(), 1, &error), CATTN_ERR_ARG, &error, "no sequence");
    cattn_cache_destroy(&a);
    cattn_cache_destroy(&b);
}

/* The serials of a place in the table end: it is not used again, and no value comes twice. */
static void values_are_never_reused(void **state) {
    (void)state;
    enum { LAST = (1 << 24) - 1 };
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    cattn_error error;
    cattn_seq first = join(cache, 5), old = first;
    assert_int_equal(cattn_seq_leave(cache, &first, NULL), CATTN_OK);
    cache->tree->seqs[0].serial = LAST - 1;
    cattn_seq last = join(cache, 5), end = last;
    assert_int_equal(last & 0xffffff, old & 0xffffff); /* the place is used for the last time */
    assert_int_equal(cattn_seq_leave(cache, &last, NULL), CATTN_OK);
    for (int i = 0; i < 100; i++) {
        cattn_seq seq = join(cache, 5);
        assert_int_not_equal(seq & 0xffffff, end & 0xffffff);
        if (i % 2) assert_int_equal(cattn_seq_leave(cache, &seq, NULL), CATTN_OK);
    }
    expect(cattn_seq_append(cache, end, count_up(), 1, &error), CATTN_ERR_ARG, &error, "it has left");
    cattn_cache_destroy(&cache);
}

/* ---- Views ---- */

/* Views of an attend on one array: offsets in bytes, strides in elements, and a part of the message; NULL: it is accepted. */
typedef struct views {
    int64_t q, q_row, q_head, out, out_row, out_head, lse; /* lse -1: none */
    cattn_type q_type, out_type;
    const char *refused;
} views;

static void views_are_checked_byte_by_byte(void **state) {
    (void)state;
    enum { ROWS = 5, ROW = HEADS * DIM, BYTES = 64 << 10, FAR = BYTES / 2 };
    static const cattn_type F = CATTN_F32, B = CATTN_BF16;
    static _Alignas(64) char bytes[BYTES];
    const views cases[] = {
        {0, ROW, DIM, FAR, ROW, DIM, -1, F, F, NULL},
        {0, ROW, DIM, 0, ROW, DIM, -1, F, F, "out overlaps q"},
        {0, ROW, DIM, 4 * (ROWS * ROW - 1), ROW, DIM, -1, F, F, "out overlaps q"},
        {0, ROW, DIM, 4 * ROWS * ROW, ROW, DIM, -1, F, F, NULL},
        {0, 2 * ROW, DIM, 4 * ROW, 2 * ROW, DIM, -1, F, F, NULL}, /* halves of the rows of one tensor */
        {4 * ROW, 2 * ROW, DIM, 0, 2 * ROW, DIM, -1, F, F, NULL},
        {0, 2 * ROW, DIM, 4 * (ROW - 1), 2 * ROW, DIM, -1, F, F, "out overlaps q"},
        {0, ROW * 2, 2 * DIM, 4 * DIM, 2 * ROW, 2 * DIM, -1, F, F, NULL}, /* head by head */
        {0, ROW * 2, 2 * DIM, 4 * DIM - 4, 2 * ROW, 2 * DIM, -1, F, F, "out overlaps q"},
        {0, DIM, ROWS * DIM, 4 * ROWS * ROW, DIM, ROWS * DIM, -1, F, F, NULL}, /* heads outside */
        {0, 2 * DIM, 2 * ROWS * DIM, 4 * DIM, 2 * DIM, 2 * ROWS * DIM, -1, F, F, NULL},
        {0, 2 * DIM, 2 * ROWS * DIM, 4 * DIM, ROW, DIM, -1, F, F, "out overlaps q"},
        {0, 4 * ROW, DIM, 2 * 2 * ROW, 4 * ROW, DIM, -1, B, B, NULL},
        {0, 2 * ROW, DIM, 2 * ROW, ROW, DIM, -1, B, F, "out overlaps q"}, /* strides of other bytes */
        {FAR, ROW, DIM, 0, DIM, DIM, -1, F, F, "out overlaps itself"},
        {FAR, ROW, DIM, 0, 2 * DIM, DIM, -1, F, F, "out overlaps itself"},
        {FAR, DIM, DIM, 0, ROW, DIM, -1, F, F, NULL}, /* what is only read may */
        {2, ROW, DIM, FAR, ROW, DIM, -1, F, F, "q is at"},
        {0, ROW, DIM, FAR + 2, ROW, DIM, -1, F, F, "out is at"},
        {1, ROW, DIM, FAR, ROW, DIM, -1, B, F, "q is at"},
        {2, ROW, DIM, FAR + 2, ROW, DIM, -1, B, B, NULL},
        {0, ROW, DIM, FAR, ROW, DIM, 4 * ROWS * ROW, F, F, NULL},
        {0, ROW, DIM, FAR, ROW, DIM, 4 * ROWS * ROW + 2, F, F, "lse is at"},
        {0, ROW, DIM, FAR, ROW, DIM, FAR + 8, F, F, "lse overlaps out"},
        {0, ROW, DIM, FAR, ROW, DIM, FAR + 4 * ROWS * ROW - 4, F, F, "lse overlaps out"},
        {0, ROW, DIM, FAR, ROW, DIM, 8, F, F, "lse overlaps q"},
        {0, 2 * ROW, DIM, FAR, ROW, DIM, 4 * ROW, F, F, NULL}, /* between the rows of q */
    };
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    cattn_entry e = {.seq = join(cache, ROWS), .max_rows = ROWS};
    assert_int_equal(cattn_step_begin(cache, &e, 1, 0, NULL), CATTN_OK);
    assert_true(write_zeros(cache));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const views *v = &cases[i];
        const cattn_view q = {bytes + v->q, v->q_type, v->q_row, v->q_head},
                         out = {bytes + v->out, v->out_type, v->out_row, v->out_head};
        float *lse = v->lse < 0 ? NULL : (float *)(void *)(bytes + v->lse);
        cattn_error error = {.message = ""};
        const cattn_status status = cattn_step_attend(cache, 0, &q, &out, lse, &error);
        if (status != (v->refused ? CATTN_ERR_ARG : CATTN_OK) || (v->refused && !strstr(error.message, v->refused)))
            fail_msg("case %zu: %s %s", i, cattn_status_name(status), error.message);
    }
    const cattn_view odd = {bytes + 1, CATTN_F32, KV_HEADS * DIM, DIM}, even = {bytes, CATTN_F32, KV_HEADS * DIM, DIM};
    cattn_error error;
    expect(cattn_step_write(cache, 0, &odd, &even, &error), CATTN_ERR_ARG, &error, "k is at");
    expect(cattn_step_write(cache, 0, &even, &odd, &error), CATTN_ERR_ARG, &error, "v is at");
    cattn_cache_destroy(&cache);
}

/* A step without rows needs no views, has nothing to be written, and ends. */
static void without_rows_views_may_be_anything(void **state) {
    (void)state;
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    const cattn_seq seq = join(cache, 20);
    compute(cache, seq);
    cattn_entry e = {.seq = seq, .max_rows = 1};
    const cattn_view nothing = {0}, wild = {(void *)1, (cattn_type)77, -5, -5};
    assert_int_equal(cattn_step_begin(cache, &e, 1, 0, NULL), CATTN_OK);
    assert_int_equal(e.n_rows, 0);
    assert_int_equal(cattn_step_attend(cache, 0, NULL, NULL, NULL, NULL), CATTN_OK);
    assert_int_equal(cattn_step_write(cache, 0, NULL, NULL, NULL), CATTN_OK);
    assert_int_equal(cattn_step_write(cache, 0, &nothing, &wild, NULL), CATTN_OK);
    assert_int_equal(cattn_step_attend(cache, 1, &wild, &nothing, NULL, NULL), CATTN_OK);
    assert_int_equal(cattn_step_write(cache, LAYERS, NULL, NULL, NULL), CATTN_ERR_ARG);
    cattn_rows rows = {.struct_size = sizeof rows, .n_rows = 7};
    assert_int_equal(cattn_step_rows(cache, &rows, NULL), CATTN_OK);
    assert_int_equal(rows.n_rows, 0);
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
    cattn_cache_destroy(&cache);
}

/* ---- Rows ---- */

static void rows_say_what_a_step_computes(void **state) {
    (void)state;
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    cattn_error error;
    const int32_t other[] = {0, 1, 2, 3, 90, 91};
    cattn_entry e[3] = {{.seq = join(cache, 6), .max_rows = 4}, {.max_rows = 100}, {.seq = join(cache, 1), .max_rows = 5}};
    assert_int_equal(cattn_seq_join(cache, other, 6, NULL, &e[1].seq, NULL, NULL), CATTN_OK);
    int32_t tokens[16], entries[16];
    int64_t positions[16];
    bool is_last[16];
    cattn_rows rows = {sizeof rows, 16, 0, tokens, positions, entries, is_last};
    expect(cattn_step_rows(cache, &rows, &error), CATTN_ERR_STATE, &error, "no step is open");
    assert_int_equal(cattn_step_begin(cache, e, 3, 0, NULL), CATTN_OK);
    assert_int_equal(cattn_step_rows(cache, &rows, NULL), CATTN_OK);
    static const int32_t of_tokens[] = {0, 1, 2, 3, 90, 91, 0}, of_entries[] = {0, 0, 0, 0, 1, 1, 2};
    static const int64_t of_positions[] = {0, 1, 2, 3, 4, 5, 0};
    static const bool of_last[] = {false, false, false, false, false, true, true};
    assert_int_equal(rows.n_rows, 7);
    assert_memory_equal(tokens, of_tokens, sizeof of_tokens);
    assert_memory_equal(entries, of_entries, sizeof of_entries);
    assert_memory_equal(positions, of_positions, sizeof of_positions);
    assert_memory_equal(is_last, of_last, sizeof of_last);
    rows.capacity = 6;
    expect(cattn_step_rows(cache, &rows, &error), CATTN_ERR_ARG, &error, "the step has 7 rows");
    rows = (cattn_rows){.struct_size = sizeof rows, .capacity = 7, .positions = positions};
    assert_int_equal(cattn_step_rows(cache, &rows, NULL), CATTN_OK);
    expect(cattn_step_rows(cache, NULL, &error), CATTN_ERR_ARG, &error, "rows is NULL");
    cattn_cache_destroy(&cache);
}

/* The rows of a step of all n sequences, which ends. */
static void step_all(cattn_cache *cache, const cattn_seq *seqs, int n, int64_t *n_rows) {
    cattn_entry e[4];
    for (int i = 0; i < n; i++) e[i] = (cattn_entry){.seq = seqs[i], .max_rows = MAX_ROWS};
    assert_int_equal(cattn_step_begin(cache, e, n, 0, NULL), CATTN_OK);
    end_step(cache);
    for (int i = 0; i < n; i++) n_rows[i] = e[i].n_rows;
}

/* Each of the sequences with the same tokens gets a row for its last one, at every length. */
static void the_last_token_is_computed_once_more(void **state) {
    (void)state;
    for (int mode = CATTN_SHARED; mode <= CATTN_PRIVATE; mode++)
        for (int n = 1; n < 40; n++) {
            cattn_config c = small();
            c.sharing = (cattn_sharing)mode;
            cattn_cache *cache = create(&c);
            cattn_error error;
            cattn_seq seqs[3] = {join(cache, n)};
            int64_t n_rows[3];
            compute(cache, seqs[0]);
            for (int i = 1; i < 3; i++) assert_int_equal(cattn_seq_fork(cache, seqs[0], 0, &seqs[i], NULL), CATTN_OK);
            step_all(cache, seqs, 3, n_rows);
            assert_int_equal(n_rows[0] + n_rows[1] + n_rows[2], 0);
            if (n == 1) {
                expect(cattn_seq_recompute_last(cache, seqs[1], &error), CATTN_ERR_ARG, &error, "join with the token again");
                cattn_cache_destroy(&cache);
                continue;
            }
            for (int i = 0; i < 3; i++) assert_int_equal(cattn_seq_recompute_last(cache, seqs[i], NULL), CATTN_OK);
            assert_int_equal(cattn_seq_recompute_last(cache, seqs[0], NULL), CATTN_OK); /* it is to be computed already */
            step_all(cache, seqs, 3, n_rows);
            for (int i = 0; i < 3; i++) {
                int32_t tokens[40];
                assert_int_equal(n_rows[i], 1);
                tokens_of(cache, seqs[i], 0, n, tokens);
                assert_memory_equal(tokens, count_up(), (size_t)n * sizeof *tokens);
                assert_int_equal(cattn_seq_leave(cache, &seqs[i], NULL), CATTN_OK);
            }
            cattn_cache_destroy(&cache);
        }
}

/* ---- Appends ---- */

static void several_sequences_grow_at_once(void **state) {
    (void)state;
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    cattn_error error;
    int32_t n = 7, got[8];
    const cattn_seq a = join(cache, 3), b = join(cache, 4);
    const cattn_append both[] = {{a, count_up() + 10, 2, 0}, {b, count_up() + 20, 1, 0}, {a, count_up() + 30, 1, 0}};
    assert_int_equal(cattn_seqs_append(cache, both, 3, &n, NULL), CATTN_OK);
    assert_int_equal(n, 3);
    tokens_of(cache, a, 0, 6, got);
    assert_memory_equal(got, ((int32_t[]){0, 1, 2, 10, 11, 30}), sizeof(int32_t[6]));
    assert_int_equal(cattn_seqs_append(cache, NULL, 0, &n, NULL), CATTN_OK);
    /* A wrong argument anywhere changes nothing. */
    const cattn_append wrong[] = {{a, count_up(), 1, 0}, {b, count_up(), 0, 0}};
    expect(cattn_seqs_append(cache, wrong, 2, &n, &error), CATTN_ERR_ARG, &error, "n_tokens is 0");
    assert_int_equal(error.entry, 1);
    assert_int_equal(n, 0);
    const cattn_append foreign[] = {{a, count_up(), 1, 0}, {a + ((cattn_seq)1 << 24), count_up(), 1, 0}};
    expect(cattn_seqs_append(cache, foreign, 2, NULL, &error), CATTN_ERR_ARG, &error, "seq is");
    expect(cattn_seqs_append(cache, NULL, 1, NULL, &error), CATTN_ERR_ARG, &error, "appends is NULL");
    expect(cattn_seqs_append(cache, both, -1, NULL, &error), CATTN_ERR_ARG, &error, "n is -1");
    assert_int_equal(stats_of(cache).tokens_referenced, 6 + 5);
    /* Without budget for one, those before it are done. */
    const int64_t many = (int64_t)stats_of(cache).chunks_capacity * 16;
    int32_t *tokens = calloc((size_t)many, sizeof *tokens);
    const cattn_append large[] = {{b, tokens, 1, 0}, {a, tokens, many, 0}, {b, tokens, 1, 0}};
    expect(cattn_seqs_append(cache, large, 3, &n, &error), CATTN_ERR_BUDGET, &error, "chunks");
    assert_int_equal(error.entry, 1);
    assert_int_equal(n, 1);
    assert_int_equal(stats_of(cache).tokens_referenced, 6 + 6);
    free(tokens);
    cattn_cache_destroy(&cache);
}

/* ---- Reading ---- */

static void what_was_written_is_read(void **state) {
    (void)state;
    enum { N = 75, FIRST = 13, READ = 49, ROW = KV_HEADS * DIM };
    const cattn_config c = small(); /* tests/chunkattn/exact has other types */
    cattn_cache *cache = create(&c);
    cattn_error error;
    const cattn_seq seq = join(cache, N);
    static float k[READ * ROW], v[READ * ROW];
    const cattn_view k_view = {k, CATTN_F32, ROW, DIM}, v_view = {v, CATTN_F32, DIM, READ * DIM}; /* heads outside */
    expect(cattn_seq_read(cache, seq, 0, 0, 1, &k_view, NULL, &error), CATTN_ERR_ARG, &error, "the first 0, which are ready");
    compute(cache, seq);
    for (int layer = 0; layer < LAYERS; layer++) {
        assert_int_equal(cattn_seq_read(cache, seq, layer, FIRST, READ, &k_view, &v_view, NULL), CATTN_OK);
        for (int64_t r = 0; r < READ; r++)
            for (int i = 0; i < ROW; i++) {
                assert_true(k[r * ROW + i] == element(layer, 0, FIRST + r, i));
                assert_true(v[i / DIM * READ * DIM + r * DIM + i % DIM] == element(layer, 1, FIRST + r, i));
            }
    }
    assert_int_equal(cattn_seq_read(cache, seq, 0, N, 0, NULL, NULL, NULL), CATTN_OK);
    assert_int_equal(cattn_seq_read(cache, seq, 1, N - 1, 1, NULL, &v_view, NULL), CATTN_OK);
    expect(cattn_seq_read(cache, seq, LAYERS, 0, 1, &k_view, NULL, &error), CATTN_ERR_ARG, &error, "layer is 2");
    expect(cattn_seq_read(cache, seq, 0, -1, 1, &k_view, NULL, &error), CATTN_ERR_ARG, &error, "first_pos is -1");
    expect(cattn_seq_read(cache, seq, 0, N, 1, &k_view, NULL, &error), CATTN_ERR_ARG, &error, "n_tokens 1");
    expect(cattn_seq_read(cache, seq, 0, 1, INT64_MAX, &k_view, NULL, &error), CATTN_ERR_ARG, &error, "n_tokens");
    const cattn_view narrow = {k, CATTN_F32, DIM - 1, DIM};
    expect(cattn_seq_read(cache, seq, 0, 0, 2, &narrow, NULL, &error), CATTN_ERR_ARG, &error, "k->row_stride");
    cattn_entry e = {.seq = seq, .max_rows = 1};
    assert_int_equal(cattn_step_begin(cache, &e, 1, 0, NULL), CATTN_OK);
    expect(cattn_seq_read(cache, seq, 0, 0, 1, &k_view, NULL, &error), CATTN_ERR_STATE, &error, "a step is open");
    cattn_cache_destroy(&cache);
}

/* ---- The budget ---- */

typedef struct brim {
    int n_threads, n_tokens, budget_mb;
    int32_t window;
    int64_t least, most; /* sequences that join */
} brim;

/* A join of n tokens that no other sequence has; a refused one changes nothing. */
static cattn_status join_own(cattn_cache *cache, int64_t n, int own, cattn_seq *seq) {
    static int32_t tokens[2000];
    cattn_error error;
    for (int64_t i = 0; i < n; i++) tokens[i] = own * 100 + (int32_t)i;
    cattn_stats before = stats_of(cache);
    const cattn_status status = cattn_seq_join(cache, tokens, n, NULL, seq, NULL, &error);
    if (status == CATTN_OK) return status;
    expect(status, CATTN_ERR_BUDGET, &error, "join: ");
    const cattn_stats after = stats_of(cache);
    before.bytes_in_use = after.bytes_in_use, before.bytes_peak = after.bytes_peak; /* tables may have grown */
    assert_memory_equal(&before, &after, sizeof after);
    return status;
}

/* A caller that can do with smaller steps joins as long as there are chunks. */
static void none_is_left_if_none_is_wanted(cattn_cache *cache, int own, int64_t n_tokens) {
    static int32_t tokens[2000];
    const cattn_stats stats = stats_of(cache);
    const int64_t n_free = (int64_t)(stats.chunks_capacity - stats.chunks_live), n_chunks = (n_tokens + 63) / 64;
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.max_step_rows = -1;
    for (int64_t i = 0; i < n_tokens; i++) tokens[i] = own * 100 + (int32_t)i;
    cattn_seq seq;
    assert_int_equal(cattn_seq_join(cache, tokens, n_tokens, &options, &seq, NULL, NULL),
                     n_free >= n_chunks ? CATTN_OK : CATTN_ERR_BUDGET);
    if (seq != 0) assert_int_equal(cattn_seq_leave(cache, &seq, NULL), CATTN_OK);
    assert_int_equal(cattn_cache_drop_retained(cache, NULL), CATTN_OK);
}

/* Joins until the budget refuses: what has joined can be computed, in steps of as many rows as a join leaves room for. */
static void joins_leave_room_for_their_step(void **state) {
    (void)state;
    enum { MOST = 64, ROWS = 64 };
    static const brim cases[] = {{1, 40, 16, 0, 24, 31},   {4, 40, 16, 0, 24, 31},   {16, 40, 16, 0, 20, 31},
                                 {1, 1500, 122, 0, 9, 10}, {16, 1500, 122, 0, 8, 9}, {4, 1500, 122, 100, 8, 9}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        const brim *b = &cases[k];
        const int32_t windows[] = {b->window, 0, b->window, 0};
        cattn_entry batch[MOST] = {{0}};
        cattn_config c = small();
        c.n_layers = 4, c.n_heads = 32, c.n_kv_heads = 4, c.head_dim = 128, c.chunk_size = 64;
        c.kv_type = CATTN_BF16;
        c.windows = windows;
        c.n_threads = b->n_threads;
        c.budget_bytes = (uint64_t)b->budget_mb << 20;
        cattn_cache *cache = create(&c);
        cattn_error error;
        int n = 0;
        while (n < MOST && join_own(cache, b->n_tokens, n, &batch[n].seq) == CATTN_OK) batch[n++].max_rows = ROWS;
        assert_in_range(n, b->least, b->most);
        none_is_left_if_none_is_wanted(cache, n, b->n_tokens);
        for (int64_t limit = 1; limit <= ROWS && limit <= b->n_tokens; limit = limit < 16 ? 16 : limit + 24) {
            if (cattn_step_begin(cache, batch, n, limit, &error))
                fail_msg("case %zu, row_limit %d: %s", k, (int)limit, error.message);
            assert_int_equal(cattn_step_abort(cache, NULL), CATTN_OK);
        }
        for (int i = 0; i < n; i++) {
            assert_int_equal(cattn_step_begin(cache, &batch[i], 1, 0, NULL), CATTN_OK);
            assert_int_equal(batch[i].n_rows, b->n_tokens < ROWS ? b->n_tokens : ROWS);
            assert_int_equal(cattn_step_abort(cache, NULL), CATTN_OK);
        }
        cattn_cache_destroy(&cache);
    }
}

/* ---- Statistics ---- */

static void fast_statistics_are_the_same_but_for_superseded_chunks(void **state) {
    (void)state;
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    int32_t tokens[40];
    for (int k = 0; k < 3; k++) { /* they branch off within a chunk, in which none of them ends */
        for (int i = 0; i < 40; i++) tokens[i] = i < 20 ? i : 100 * k + i;
        cattn_seq seq;
        assert_int_equal(cattn_seq_join(cache, tokens, 40, NULL, &seq, NULL, NULL), CATTN_OK);
        compute(cache, seq);
        if (k == 0) assert_int_equal(cattn_seq_leave(cache, &seq, NULL), CATTN_OK);
    }
    cattn_stats all = stats_of(cache), fast = {.struct_size = sizeof fast};
    assert_int_equal(cattn_cache_stats_fast(cache, &fast), CATTN_OK);
    assert_true(all.chunks_superseded > 0);
    assert_int_equal(fast.chunks_superseded, 0);
    assert_int_equal(fast.chunks_live, all.chunks_live + all.chunks_superseded);
    assert_int_equal(fast.chunks_retained, all.chunks_retained - all.chunks_superseded);
    fast.chunks_live = all.chunks_live, fast.chunks_retained = all.chunks_retained;
    fast.chunks_superseded = all.chunks_superseded;
    assert_memory_equal(&fast, &all, sizeof all);
    assert_int_equal(cattn_cache_stats_fast(cache, NULL), CATTN_ERR_ARG);
    assert_int_equal(cattn_cache_stats_fast(NULL, &fast), CATTN_ERR_ARG);
    cattn_cache_destroy(&cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_overlap_are_refused),
        cmocka_unit_test(a_forked_child_may_destroy),
        cmocka_unit_test(a_child_that_was_forked_inside_a_call_forgets),
        cmocka_unit_test(threads_have_names),
        cmocka_unit_test(a_handle_of_another_cache_is_refused_by_name),
        cmocka_unit_test(values_are_never_reused),
        cmocka_unit_test(views_are_checked_byte_by_byte),
        cmocka_unit_test(without_rows_views_may_be_anything),
        cmocka_unit_test(rows_say_what_a_step_computes),
        cmocka_unit_test(the_last_token_is_computed_once_more),
        cmocka_unit_test(several_sequences_grow_at_once),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(joins_leave_room_for_their_step),
        cmocka_unit_test(fast_statistics_are_the_same_but_for_superseded_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
