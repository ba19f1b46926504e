/* A tier on a disk in memory, without a thread: what is written is read, in what order, what is replaced, and what is refused.
 */
#include "small_tier.h"

#include <stdlib.h>

static void written_and_read(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 10);
    for (int i = 0; i < 5; i++) assert_true(small_write(&s, 1, i, i));
    assert_false(small_write(&s, 1, 0, 0)); /* it is queued */
    assert_false(small_has(&s, 1, 0));
    assert_true(ca_tier_flush(s.tier, 0));
    assert_false(small_write(&s, 1, 0, 9)); /* it is there */
    for (int i = 0; i < 5; i++) assert_true(small_has(&s, 1, i));
    assert_false(small_has(&s, 1, 5));
    assert_false(small_read(&s, 1, 5, 20, 0));

    for (int i = 0; i < 5; i++) assert_true(small_read(&s, 1, i, 10 + i, 100 + (uint64_t)i));
    assert_false(small_read(&s, 1, 0, 10, 0)); /* the chunk is queued */
    ca_tier_done done[8];
    assert_int_equal(ca_tier_poll(s.tier, done, 8), 0);
    while (ca_tier_work(s.tier)) {
    }
    assert_int_equal(ca_tier_poll(s.tier, done, 2), 2);
    assert_int_equal(ca_tier_poll(s.tier, done + 2, 6), 3);
    for (int i = 0; i < 5; i++) {
        assert_true(done[i].ok && done[i].chunk == 10 + i && done[i].ticket == 100 + (uint64_t)i);
        assert_true(small_holds(&s, 10 + i, 1, i));
    }
    assert_false(ca_tier_wait(s.tier, 10));
    const ca_tier_stats stats = small_stats(&s);
    assert_true(stats.n_cells == 10 && stats.n_records == 5 && stats.cell_bytes == SMALL_CELL);
    assert_true(stats.file_bytes == 5 * SMALL_CELL && s.disk.size == 5 * SMALL_CELL);
    assert_true(stats.n_writes == 5 && stats.n_reads == 5 && stats.n_queued_writes == 0 && stats.n_queued_reads == 0);
    assert_true(stats.n_write_errors + stats.n_read_errors + stats.n_refused + stats.n_replaced == 0);
    small_teardown(&s);
}

/* Domains, parents and tokens each make another key. */
static void keys(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 10);
    const ca_tier_key root = ca_tier_root(s.tier, 0), other = ca_tier_root(s.tier, 1);
    assert_false(ca_tier_key_equal(root, other));
    const ca_tier_key key = ca_tier_next(s.tier, root, small_tokens(1, 2));
    assert_true(ca_tier_key_equal(key, ca_tier_next(s.tier, root, small_tokens(1, 2))));
    assert_false(ca_tier_key_equal(key, ca_tier_next(s.tier, other, small_tokens(1, 2))));
    assert_false(ca_tier_key_equal(key, ca_tier_next(s.tier, root, small_tokens(1, 3))));
    assert_false(ca_tier_key_equal(key, ca_tier_next(s.tier, key, small_tokens(1, 2))));
    small_teardown(&s);
}

/* The last chunks of the path that was used longest ago are replaced first, never a parent before its children. */
static void replacement(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 6);
    for (int i = 0; i < 3; i++) small_put(&s, 1, i);
    for (int i = 0; i < 3; i++) small_put(&s, 2, i);
    ca_tier_touch(s.tier, small_key(&s, 1, 2));
    ca_tier_touch(s.tier, small_key(&s, 9, 0)); /* it is not there */
    small_put(&s, 3, 0);
    assert_true(small_has(&s, 2, 1) && !small_has(&s, 2, 2));
    small_put(&s, 3, 1);
    assert_true(small_has(&s, 2, 0) && !small_has(&s, 2, 1));
    small_put(&s, 4, 0);
    assert_false(small_has(&s, 2, 0));
    small_put(&s, 4, 1); /* now chain 1 is the oldest */
    assert_true(small_has(&s, 1, 1) && !small_has(&s, 1, 2));
    for (int i = 0; i < 2; i++) assert_true(small_get(&s, 1, i) && small_get(&s, 3, i) && small_get(&s, 4, i));
    assert_int_equal(small_stats(&s).n_replaced, 4);
    assert_int_equal(s.disk.size, 6 * SMALL_CELL);
    small_teardown(&s);
}

/* Of a path that is longer than the tier, the beginning stays; what its parent is missing for is not written. */
static void long_path(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 4);
    small_put(&s, 2, 0);
    for (int i = 0; i < 10; i++) assert_true(small_write(&s, 1, i, i));
    assert_true(ca_tier_flush(s.tier, 0));
    for (int i = 0; i < 4; i++) assert_true(small_get(&s, 1, i));
    assert_false(small_has(&s, 1, 4) || small_has(&s, 2, 0));
    ca_tier_stats stats = small_stats(&s);
    assert_true(stats.n_writes == 5 && stats.n_replaced == 1 && stats.n_dropped_writes == 6);
    assert_false(ca_tier_has(s.tier, ca_tier_root(s.tier, 0)));
    for (int i = 0; i < 20; i++) small_put(&s, 1, 4); /* no reason to pause */
    small_put(&s, 3, 0);
    assert_true(small_has(&s, 3, 0) && small_has(&s, 1, 2) && !small_has(&s, 1, 3));
    small_put(&s, 1, 3); /* a path that goes on is used, so the other one makes room */
    assert_true(small_has(&s, 1, 3) && !small_has(&s, 3, 0));
    small_teardown(&s);
}

/* Another process finds the records, in the order of the writes. */
static void opened_again(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 6);
    for (int i = 0; i < 3; i++) small_put(&s, 1, i);
    for (int i = 0; i < 3; i++) small_put(&s, 2, i);
    ca_tier_close(&s.tier);
    small_open(&s, 6);
    assert_int_equal(small_stats(&s).n_records, 6);
    for (int i = 0; i < 3; i++) assert_true(small_get(&s, 1, i) && small_get(&s, 2, i));
    small_put(&s, 3, 0);
    assert_true(small_has(&s, 1, 1) && !small_has(&s, 1, 2)); /* replaced by 3, 0 */
    ca_tier_close(&s.tier);
    small_open(&s, 6);
    small_put(&s, 3, 1);
    small_put(&s, 3, 2);
    small_put(&s, 4, 0); /* in place of all of chain 1 and the end of chain 2 */
    assert_true(!small_has(&s, 1, 0) && small_has(&s, 2, 1) && !small_has(&s, 2, 2));
    for (int i = 0; i < 3; i++) assert_true(small_get(&s, 3, i));
    small_teardown(&s);
}

/* A smaller tier cuts the file; a larger one goes on. A cell at the end that is not whole is no cell. */
static void other_sizes(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 6);
    for (int i = 0; i < 6; i++) small_put(&s, 1, i);
    ca_tier_close(&s.tier);
    small_open(&s, 4);
    assert_int_equal(s.disk.size, 4 * SMALL_CELL);
    assert_true(small_has(&s, 1, 3) && !small_has(&s, 1, 4));
    ca_tier_close(&s.tier);
    s.disk.size -= 100;
    small_open(&s, 10);
    assert_int_equal(s.disk.size, 3 * SMALL_CELL);
    assert_true(small_get(&s, 1, 2) && !small_has(&s, 1, 3));
    for (int i = 3; i < 10; i++) small_put(&s, 1, i);
    for (int i = 0; i < 10; i++) assert_true(small_get(&s, 1, i));
    ca_tier_close(&s.tier);

    ca_tier_config config = small_config(&s, 10);
    config.bytes = SMALL_CELL - 1;
    cattn_error error;
    assert_int_equal(ca_tier_open(&s.tier, &config, &s.alloc, &error), CATTN_ERR_ARG);
    assert_non_null(strstr(error.message, "tier_bytes is 12287"));
    assert_null(s.tier);
    small_teardown(&s);
}

/* A read comes before writes that were queued earlier. */
static void reads_first(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 40);
    small_put(&s, 1, 0);
    for (int i = 0; i < 20; i++) assert_true(small_write(&s, 2, i, 10 + i));
    assert_true(small_read(&s, 1, 0, 1, 0) && ca_tier_work(s.tier));
    ca_tier_done done;
    assert_int_equal(ca_tier_poll(s.tier, &done, 1), 1);
    assert_true(done.ok && small_holds(&s, 1, 1, 0));
    assert_int_equal(small_stats(&s).n_queued_writes, 20);
    small_teardown(&s);
}

/* What is released is neither written, read nor reported. */
static void released(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 6);
    ca_tier_release(s.tier, 50); /* it has nothing */
    assert_true(small_write(&s, 1, 0, 0) && small_write(&s, 2, 0, 1) && small_write(&s, 1, 1, 2));
    ca_tier_release(s.tier, 1);
    assert_true(ca_tier_flush(s.tier, 0));
    assert_true(small_has(&s, 1, 0) && small_has(&s, 1, 1) && !small_has(&s, 2, 0));
    assert_int_equal(small_stats(&s).n_dropped_writes, 1);
    small_put(&s, 1, 2);

    for (int i = 0; i < 3; i++) assert_true(small_read(&s, 1, i, 10 + i, (uint64_t)i));
    ca_tier_release(s.tier, 11); /* queued */
    while (ca_tier_work(s.tier)) {
    }
    ca_tier_release(s.tier, 10); /* it has ended */
    ca_tier_done done[3];
    assert_int_equal(ca_tier_poll(s.tier, done, 3), 1);
    assert_true(done[0].ok && done[0].ticket == 2 && small_holds(&s, 12, 1, 2));
    assert_true(small_untouched(&s, 11));
    assert_true(small_read(&s, 1, 1, 10, 7) && ca_tier_wait(s.tier, 0)); /* the chunk can be used again */
    small_teardown(&s);
}

/* Two chunks with the same tokens are written once. */
static void written_once(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 6);
    assert_true(small_write(&s, 1, 0, 0) && small_write(&s, 1, 0, 1));
    assert_true(ca_tier_flush(s.tier, 0));
    const ca_tier_stats stats = small_stats(&s);
    assert_true(stats.n_records == 1 && stats.n_writes == 1 && stats.n_dropped_writes == 0);
    small_teardown(&s);
}

/* A full queue refuses; requests leave room. */
static void full_queue(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 2);
    const ca_tier_key root = ca_tier_root(s.tier, 0);
    for (int i = 0; i < CA_TIER_MAX_QUEUED; i++) assert_true(ca_tier_write(s.tier, root, small_tokens(1, i), i));
    assert_false(ca_tier_write(s.tier, root, small_tokens(1, CA_TIER_MAX_QUEUED), CA_TIER_MAX_QUEUED));
    assert_int_equal(small_stats(&s).n_dropped_writes, 1);
    for (int i = 1; i < CA_TIER_MAX_QUEUED; i++) ca_tier_release(s.tier, i);
    assert_true(ca_tier_flush(s.tier, 0));
    for (int i = 0; i < CA_TIER_MAX_QUEUED; i++) assert_true(ca_tier_read(s.tier, root, small_tokens(1, 0), i, 0));
    assert_false(ca_tier_read(s.tier, root, small_tokens(1, 0), CA_TIER_MAX_QUEUED, 0));
    for (int i = 1; i < CA_TIER_MAX_QUEUED; i++) ca_tier_release(s.tier, i);
    assert_true(ca_tier_wait(s.tier, 0));
    small_teardown(&s);
}

/* An allocator that fails after n_left allocations. */
static void *scarce_alloc(void *ctx, size_t size, size_t align) {
    int *n_left = ctx;
    return (*n_left)-- > 0 ? aligned_alloc(align, (size + align - 1) / align * align) : NULL;
}

static void scarce_free(void *ctx, void *p, size_t size, size_t align) {
    (void)ctx, (void)size, (void)align;
    free(p);
}

static void no_memory(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 6);
    small_put(&s, 1, 0);
    ca_tier_close(&s.tier);
    int n_left = 0, n = 0;
    s.alloc = (ca_alloc){scarce_alloc, scarce_free, &n_left, 0};
    const ca_tier_config config = small_config(&s, 6);
    for (cattn_status status = CATTN_ERR_NOMEM; status != CATTN_OK; n++) {
        cattn_error error = {.message = ""};
        n_left = n;
        status = ca_tier_open(&s.tier, &config, &s.alloc, &error);
        assert_true(status == CATTN_OK || status == CATTN_ERR_NOMEM);
        assert_true((status == CATTN_OK) == (s.tier != NULL) && (status == CATTN_OK) == (error.message[0] == '\0'));
        if (!s.tier) assert_int_equal(s.alloc.bytes, 0);
    }
    assert_true(n > 5 && small_has(&s, 1, 0));
    for (n_left = 0, n = 0; !small_write(&s, 1, 1, 1); n_left = ++n) assert_true(n < 10);
    assert_true(n > 2 && ca_tier_flush(s.tier, 0) && small_has(&s, 1, 1));
    assert_int_equal(small_stats(&s).n_dropped_writes, n);
    small_teardown(&s);
}

/* The expected time covers the reads before the next one. */
static void expected_time(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 6);
    for (int i = 0; i < 3; i++) small_put(&s, 1, i);
    assert_true(ca_tier_read_seconds(s.tier) == 0);
    s.disk.call_seconds = 0.5;
    assert_true(small_get(&s, 1, 0));
    assert_true(ca_tier_read_seconds(s.tier) == 0.5);
    assert_true(small_read(&s, 1, 1, 1, 0) && small_read(&s, 1, 2, 2, 0));
    assert_true(ca_tier_read_seconds(s.tier) == 1.5);
    s.disk.call_seconds = 1.5;
    assert_true(ca_tier_work(s.tier));
    assert_true(ca_tier_read_seconds(s.tier) == 2 * 0.75);
    assert_true(small_stats(&s).read_seconds == 2);
    small_teardown(&s);
}

/* Closing finishes what is queued, but not for longer than its time. */
static void closed(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 20);
    for (int i = 0; i < 10; i++) assert_true(small_write(&s, 1, i, i));
    ca_tier_close(&s.tier);
    small_open(&s, 20);
    for (int i = 0; i < 10; i++) assert_true(small_get(&s, 1, i));
    for (int i = 0; i < 10; i++) assert_true(small_write(&s, 2, i, i));
    assert_true(small_read(&s, 1, 0, 30, 0));
    s.disk.call_seconds = 1;
    ca_tier_close(&s.tier);
    assert_true(small_untouched(&s, 30));
    small_open(&s, 20);
    assert_int_equal(small_stats(&s).n_records, 10 + CA_TIER_CLOSE_SECONDS);
    small_teardown(&s);
    ca_tier_close(&s.tier);
    ca_tier_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_read), cmocka_unit_test(keys),         cmocka_unit_test(replacement),
        cmocka_unit_test(long_path),        cmocka_unit_test(opened_again), cmocka_unit_test(other_sizes),
        cmocka_unit_test(reads_first),      cmocka_unit_test(released),     cmocka_unit_test(written_once),
        cmocka_unit_test(full_queue),       cmocka_unit_test(no_memory),    cmocka_unit_test(expected_time),
        cmocka_unit_test(closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
