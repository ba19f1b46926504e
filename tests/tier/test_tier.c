/* A tier on a disk in memory, without a thread: what is written is read, in what order, what is replaced, and what is refused.
 */
#include "small_tier.h"

#include <errno.h>

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
    assert_true(stats.n_slots == 10 && stats.n_records == 5 && stats.slot_bytes == SMALL_SLOT);
    assert_true(stats.file_bytes == 5 * SMALL_SLOT && s.disk.size == 5 * SMALL_SLOT);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_and_read),
        cmocka_unit_test(keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
