/* The file tier through the public calls: configuration, restart, waiting, statistics, and two caches on one file. */
#include "tests/support/wait.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"
#include "tests/support/folder.h"
#include "tests/support/status.h"

enum { N = 150, RESTORED = (N - 1) / CHUNK * CHUNK, DIM = 32 };

static char dir[64];

static cattn_config small(void) {
    cattn_config c = small_config(2, 1, 1, DIM, 16 << 20);
    c.tier_dir = dir;
    c.tier_bytes = (uint64_t)8 << 20;
    c.tier_fingerprint[0] = 7;
    return c;
}

/* Tokens of a prompt whose first one is `first`. */
static const int32_t *prompt(int32_t first) {
    static int32_t tokens[N];
    for (int32_t i = 0; i < N; i++) tokens[i] = i == 0 ? first : i * 3;
    return tokens;
}

static cattn_seq join(cattn_cache *cache, const int32_t *tokens, int64_t *n_matched) {
    cattn_seq seq;
    cattn_join_result result;
    assert_int_equal(cattn_seq_join(cache, tokens, N, NULL, &seq, &result, NULL), CATTN_OK);
    if (n_matched) *n_matched = result.n_matched;
    return seq;
}

static cattn_seq_info info_of(const cattn_cache *cache, cattn_seq seq) {
    cattn_seq_info info = {.struct_size = sizeof info};
    assert_int_equal(cattn_seq_get_info(cache, seq, &info, NULL), CATTN_OK);
    return info;
}

/* One step of a sequence. Returns its rows. */
static int64_t step(cattn_cache *cache, cattn_seq seq) {
    static float rows[N * DIM], out[N * DIM];
    cattn_entry entry = {.seq = seq, .max_rows = N};
    assert_int_equal(cattn_step_begin(cache, &entry, 1, 0, NULL), CATTN_OK);
    for (int64_t i = 0; i < entry.n_rows * DIM; i++) rows[i] = (float)(entry.first_pos * DIM + i) / 1000;
    const cattn_view in = {rows, CATTN_F32, DIM, DIM}, to = {out, CATTN_F32, DIM, DIM};
    for (int32_t layer = 0; layer < 2 && entry.n_rows > 0; layer++) {
        assert_int_equal(cattn_step_write(cache, layer, &in, &in, NULL), CATTN_OK);
        assert_int_equal(cattn_step_attend(cache, layer, &in, &to, NULL, NULL), CATTN_OK);
    }
    assert_int_equal(cattn_step_end(cache, NULL), CATTN_OK);
    return entry.n_rows;
}

static bool wait_for_read(cattn_cache *cache, double seconds) {
    bool ended;
    assert_int_equal(cattn_cache_wait(cache, seconds, &ended, NULL), CATTN_OK);
    return ended;
}

static void run_prompt(cattn_cache *cache, const int32_t *tokens) {
    cattn_seq seq = join(cache, tokens, NULL);
    while (info_of(cache, seq).n_ready < N)
        if (step(cache, seq) == 0) wait_for_read(cache, 1);
    assert_int_equal(cattn_seq_leave(cache, &seq, NULL), CATTN_OK);
}

/* Why a prompt matches as far as it does. */
static cattn_explanation explain(const cattn_cache *cache, const int32_t *tokens) {
    cattn_explanation e = {.struct_size = sizeof e};
    assert_int_equal(cattn_cache_explain(cache, tokens, N, NULL, &e, NULL), CATTN_OK);
    return e;
}

static void config_is_checked(void **state) {
    (void)state;
    cattn_cache *cache;
    cattn_error error;
    cattn_config c = small();
    c.tier_bytes = 0;
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_ARG, &error, "tier_dir is set, but tier_bytes is not");
    c = small();
    c.tier_dir = NULL;
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_ARG, &error, "tier_bytes is set, but tier_dir is not");
    c = small();
    c.sharing = CATTN_PRIVATE;
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_ARG, &error,
           "tier_dir is set, but with this sharing nothing is retained");
    c = small();
    c.retention = CATTN_RETAIN_NONE;
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_ARG, &error, "with this retention nothing");
    c = small();
    c.tier_bytes = 5000;
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_ARG, &error, "tier_bytes is 5000");
    c = small();
    c.tier_dir = "/dev/null/no folder";
    expect(cattn_cache_create(&c, &cache, &error), CATTN_ERR_ARG, &error, "tier_dir");
}

static void tokens_come_back_after_a_restart(void **state) {
    (void)state;
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    run_prompt(cache, prompt(1));
    assert_false(wait_for_read(cache, 0)); /* no token is on the way */
    cattn_cache_destroy(&cache);

    cache = create(&c);
    assert_int_equal(stats_of(cache).tier_chunks, RESTORED / CHUNK);
    assert_int_equal(explain(cache, prompt(1)).n_in_tier, RESTORED);
    assert_int_equal(explain(cache, prompt(2)).n_in_tier, 0);
    int64_t n_matched;
    cattn_seq seq = join(cache, prompt(1), &n_matched);
    assert_int_equal(n_matched, RESTORED);
    assert_int_equal(stats_of(cache).n_seqs, 1);
    while (info_of(cache, seq).n_ready < RESTORED) {
        assert_int_equal(info_of(cache, seq).n_ready + info_of(cache, seq).n_coming, RESTORED);
        assert_true(wait_for_read(cache, 60));
    }
    assert_int_equal(step(cache, seq), N - RESTORED);
    const cattn_stats stats = stats_of(cache);
    assert_int_equal(stats.tokens_restored, RESTORED);
    assert_int_equal(stats.tokens_matched, 0); /* in the tree */
    assert_int_equal(stats.tier_reads, RESTORED / CHUNK);
    assert_int_equal(stats.tier_errors + stats.tier_refused, 0);
    assert_true(stats.tier_read_seconds > 0 && stats.tier_file_bytes > 0 && stats.tier_chunks_capacity > RESTORED / CHUNK);
    cattn_cache_destroy(&cache);
}

static void another_fingerprint_or_domain_finds_nothing(void **state) {
    (void)state;
    cattn_config c = small();
    cattn_cache *cache = create(&c);
    run_prompt(cache, prompt(1));
    cattn_cache_destroy(&cache);
    c.tier_fingerprint[1] = 1;
    cache = create(&c);
    int64_t n_matched;
    join(cache, prompt(1), &n_matched);
    assert_int_equal(n_matched, 0);
    cattn_cache_destroy(&cache);
    c.tier_fingerprint[1] = 0;
    c.softcap = 20; /* changes K and V of all layers but the first */
    cache = create(&c);
    join(cache, prompt(1), &n_matched);
    assert_int_equal(n_matched, 0);
    cattn_cache_destroy(&cache);
    c.softcap = 0;
    cache = create(&c);
    cattn_join_options options;
    cattn_join_options_init(&options);
    options.domain = 1;
    cattn_seq seq;
    cattn_join_result result;
    assert_int_equal(cattn_seq_join(cache, prompt(1), N, &options, &seq, &result, NULL), CATTN_OK);
    assert_int_equal(result.n_matched, 0);
    cattn_cache_destroy(&cache);
}

/* A sequence that is to stay out of the file tier finds nothing there, and leaves nothing, nor does its fork. */
static void a_sequence_without_the_tier(void **state) {
    (void)state;
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    cattn_join_options options;
    cattn_join_options_init(&options);
    cattn_seq seq, fork;
    cattn_join_result result;
    cattn_error error;
    options.flags = 2;
    expect(cattn_seq_join(cache, prompt(1), N, &options, &seq, &result, &error), CATTN_ERR_ARG, &error, "flags is 0x2");
    options.flags = CATTN_JOIN_NO_TIER;
    for (int written = 0; written < 2; written++) {
        assert_int_equal(cattn_seq_join(cache, prompt(1), N, &options, &seq, &result, NULL), CATTN_OK);
        assert_int_equal(result.n_matched, 0);
        assert_int_equal(step(cache, seq), N);
        assert_int_equal(cattn_seq_fork(cache, seq, 0, &fork, NULL), CATTN_OK);
        assert_int_equal(cattn_seq_leave(cache, &seq, NULL), CATTN_OK);
        assert_int_equal(cattn_seq_leave(cache, &fork, NULL), CATTN_OK);
        cattn_cache_destroy(&cache);
        cache = create(&c);
        assert_int_equal(stats_of(cache).tier_chunks, written * RESTORED / CHUNK);
        if (written) break;
        run_prompt(cache, prompt(1));
        cattn_cache_destroy(&cache);
        cache = create(&c);
    }
    cattn_cache_destroy(&cache);
}

static void a_pin_is_written_while_it_stays(void **state) {
    (void)state;
    const cattn_config c = small();
    cattn_cache *cache = create(&c);
    cattn_seq seq = join(cache, prompt(2), NULL), pin;
    while (info_of(cache, seq).n_ready < N)
        if (step(cache, seq) == 0) wait_for_read(cache, 1);
    const uint64_t n_before = stats_of(cache).tier_writes;
    assert_int_equal(cattn_seq_pin(cache, seq, 4 * CHUNK, &pin, NULL), CATTN_OK);
    WAIT_UNTIL(stats_of(cache).tier_queued == 0);
    assert_int_equal(stats_of(cache).tier_writes, n_before + 4);
    cattn_cache_destroy(&cache);
}

static void one_cache_at_a_time_has_the_file(void **state) {
    (void)state;
    const cattn_config c = small();
    cattn_cache *cache = create(&c), *second;
    cattn_error error;
    expect(cattn_cache_create(&c, &second, &error), CATTN_ERR_ARG, &error, "tier_dir");
    assert_null(second);
    cattn_cache_destroy(&cache);
    second = create(&c);
    cattn_cache_destroy(&second);
}

static void waiting_is_checked(void **state) {
    (void)state;
    cattn_config c = small();
    c.tier_dir = NULL;
    c.tier_bytes = 0;
    cattn_cache *cache = create(&c);
    assert_int_equal(cattn_cache_wait(NULL, 1, NULL, NULL), CATTN_ERR_ARG);
    cattn_error error;
    expect(cattn_cache_wait(cache, -1, NULL, &error), CATTN_ERR_ARG, &error, "seconds is -1");
    assert_false(wait_for_read(cache, 1));
    cattn_entry entry = {.seq = join(cache, prompt(1), NULL), .max_rows = 1};
    assert_int_equal(cattn_step_begin(cache, &entry, 1, 0, NULL), CATTN_OK);
    assert_int_equal(cattn_cache_wait(cache, 1, NULL, NULL), CATTN_ERR_STATE);
    cattn_cache_destroy(&cache);
}

static int make_dir(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/cattn_tier_XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state) {
    (void)state;
    return remove_folder(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(config_is_checked, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(tokens_come_back_after_a_restart, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(another_fingerprint_or_domain_finds_nothing, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_sequence_without_the_tier, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(a_pin_is_written_while_it_stays, make_dir, remove_dir),
        cmocka_unit_test_setup_teardown(one_cache_at_a_time_has_the_file, make_dir, remove_dir),
        cmocka_unit_test(waiting_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
