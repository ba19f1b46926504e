/* A tier on a disk that fails: calls that are short or interrupted, a full disk, broken cells, wrong data, a dead disk. */
#include "small_tier.h"

#include <errno.h>

/* Calls that transfer less than all, or are interrupted, change nothing. */
static void short_and_interrupted(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 6);
    s.disk.most = CA_TIER_ALIGN;
    s.disk.interrupts = true;
    for (int i = 0; i < 3; i++) small_put(&s, 1, i);
    for (int i = 0; i < 3; i++) assert_true(small_get(&s, 1, i));
    ca_tier_close(&s.tier);
    small_open(&s, 6);
    for (int i = 0; i < 3; i++) assert_true(small_get(&s, 1, i));
    const ca_tier_stats stats = small_stats(&s);
    assert_true(s.disk.n_writes == 3 * 3 && stats.n_write_errors + stats.n_read_errors + stats.n_refused == 0);
    small_teardown(&s);
}

/* A record that cannot be read is removed, and its cell is free. */
static void read_errors(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 3);
    for (int i = 0; i < 3; i++) small_put(&s, 1, i);
    s.disk.read_error = -EIO;
    assert_true(small_has(&s, 1, 1));
    assert_false(small_get(&s, 1, 1));
    s.disk.read_error = 0;
    assert_false(small_has(&s, 1, 1));
    assert_true(small_has(&s, 1, 0) && small_has(&s, 1, 2));
    assert_int_equal(small_stats(&s).n_read_errors, 1);
    small_put(&s, 1, 1);
    for (int i = 0; i < 3; i++) assert_true(small_get(&s, 1, i));
    assert_int_equal(small_stats(&s).n_replaced, 0);

    s.disk.size = 2 * SMALL_CELL + CA_TIER_ALIGN; /* the last record ends too early */
    assert_false(small_get(&s, 1, 2));
    assert_int_equal(small_stats(&s).n_read_errors, 2);
    small_teardown(&s);
}

/* Any wrong bit is found. */
static void lies(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 3);
    int n_refused = 0;
    for (size_t at = 0; at < CA_RECORD_HEADER_BYTES + SMALL_PAYLOAD; at += 61, n_refused++) {
        small_put(&s, 1, 0);
        s.disk.lies_at = at;
        assert_false(small_get(&s, 1, 0));
        s.disk.lies_at = SIZE_MAX;
        assert_false(small_has(&s, 1, 0));
        assert_int_equal(small_stats(&s).n_refused, n_refused + 1);
    }
    assert_int_equal(s.disk.size, SMALL_CELL);

    /* Of two reads of one record, the second does not find it any more. */
    small_put(&s, 1, 0);
    assert_true(small_read(&s, 1, 0, 1, 0) && small_read(&s, 1, 0, 2, 1));
    s.disk.lies_at = 0;
    while (ca_tier_work(s.tier)) {
    }
    ca_tier_done done[2];
    assert_int_equal(ca_tier_poll(s.tier, done, 2), 2);
    assert_true(!done[0].ok && !done[1].ok);
    assert_int_equal(small_stats(&s).n_refused, n_refused + 1);
    small_teardown(&s);
}

/* A whole record in the wrong cell: a write that the disk reported and did not do. */
static void lost_write(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 1);
    small_put(&s, 1, 0);
    static uint8_t before[SMALL_CELL];
    memcpy(before, s.disk.bytes, SMALL_CELL);
    small_put(&s, 2, 0);
    memcpy(s.disk.bytes, before, SMALL_CELL);
    assert_true(small_has(&s, 2, 0));
    assert_false(small_get(&s, 2, 0));
    assert_int_equal(small_stats(&s).n_refused, 1);
    ca_tier_close(&s.tier);
    small_open(&s, 1);
    assert_true(small_get(&s, 1, 0));
    small_teardown(&s);
}

/* Where the disk is full, cells are reused; after a minute the file may grow again. */
static void full_disk(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 100);
    s.disk.capacity = 3 * SMALL_CELL + CA_TIER_ALIGN;
    for (int i = 0; i < 3; i++) small_put(&s, 1, i);
    small_put(&s, 2, 0);
    assert_int_equal(s.disk.size, 3 * SMALL_CELL);
    assert_true(!small_has(&s, 1, 2) && small_get(&s, 2, 0));
    ca_tier_stats stats = small_stats(&s);
    assert_true(stats.n_write_errors == 1 && stats.n_replaced == 1 && stats.n_records == 3);
    const int n_writes = s.disk.n_writes;
    small_put(&s, 2, 1);
    assert_int_equal(s.disk.n_writes, n_writes + 1); /* it was not even tried */
    s.disk.capacity = SIZE_MAX;
    s.disk.seconds += CA_TIER_PAUSE_SECONDS;
    small_put(&s, 2, 2);
    stats = small_stats(&s);
    assert_true(s.disk.size == 4 * SMALL_CELL && stats.n_records == 4 && stats.n_write_errors == 1);
    for (int i = 0; i < 3; i++) assert_true(small_get(&s, 2, i));
    small_teardown(&s);
}

/* A disk without room for one record: nothing is written, nothing fails. */
static void no_room_at_all(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 100);
    s.disk.capacity = CA_TIER_ALIGN;
    for (int i = 0; i < CA_TIER_MAX_ERRORS; i++) {
        small_put(&s, i, 0);
        assert_false(small_has(&s, i, 0));
    }
    assert_int_equal(s.disk.size, 0);
    assert_true(small_stats(&s).n_write_errors == 1 && small_stats(&s).n_dropped_writes == CA_TIER_MAX_ERRORS - 1);
    assert_false(small_write(&s, 99, 0, 0)); /* it pauses */
    s.disk.capacity = SIZE_MAX;
    s.disk.seconds += CA_TIER_PAUSE_SECONDS;
    small_put(&s, 1, 0);
    assert_true(small_get(&s, 1, 0));
    small_teardown(&s);
}

/* One broken cell costs one write. */
static void broken_cell(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 3);
    s.disk.broken_at = 1 * SMALL_CELL + 9000;
    s.disk.n_broken = 10;
    for (int i = 0; i < 10; i++) small_put(&s, i, 0);
    const ca_tier_stats stats = small_stats(&s);
    assert_true(stats.n_write_errors == 1 && stats.n_writes == 9 && stats.n_records == 2);
    assert_true(small_get(&s, 9, 0) && small_get(&s, 8, 0));
    small_teardown(&s);
}

/* A dead disk is not written to all the time; when it lives again, it has all its cells. */
static void dead_disk(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 3);
    small_put(&s, 1, 0);
    s.disk.write_error = -EIO;
    for (int i = 1; i <= CA_TIER_MAX_ERRORS; i++) small_put(&s, 10 + i, 0);
    assert_true(small_stats(&s).n_write_errors == 3); /* then there were no cells */
    for (int round = 0; round < 3; round++) {
        assert_false(small_write(&s, 50, 0, 0));
        s.disk.seconds += CA_TIER_PAUSE_SECONDS;
        for (int i = 1; i <= CA_TIER_MAX_ERRORS; i++) small_put(&s, 10 + i, 0);
    }
    assert_int_equal(small_stats(&s).n_write_errors, 4 * 3);
    s.disk.write_error = 0;
    s.disk.seconds += CA_TIER_PAUSE_SECONDS;
    for (int i = 0; i < 3; i++) small_put(&s, 2, i);
    for (int i = 0; i < 3; i++) assert_true(small_get(&s, 2, i));
    small_teardown(&s);
}

/* Errors with successful writes between them are no reason to pause; what is queued when the pause begins is dropped. */
static void errors_in_a_row(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 1000);
    for (int i = 0; i < 40; i++) {
        s.disk.write_error = i % 10 == 9 ? 0 : -EIO;
        small_put(&s, i, 0);
    }
    assert_true(small_stats(&s).n_write_errors == 36 && small_stats(&s).n_writes == 4);
    s.disk.write_error = -EIO;
    for (int i = 0; i < CA_TIER_MAX_ERRORS + 5; i++) assert_true(small_write(&s, 100 + i, 0, i));
    assert_true(ca_tier_flush(s.tier, 0));
    const ca_tier_stats stats = small_stats(&s);
    assert_true(stats.n_write_errors == 36 + CA_TIER_MAX_ERRORS && stats.n_dropped_writes == 5);
    small_teardown(&s);
}

static void cannot_open(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 3);
    ca_tier *second = NULL;
    const ca_tier_config config = small_config(&s, 3);
    cattn_error error;
    assert_int_equal(ca_tier_open(&second, &config, &s.alloc, &error), CATTN_ERR_ARG);
    assert_non_null(strstr(error.message, "tier_dir is unusable: another cache or process uses"));
    ca_tier_close(&s.tier);
    s.disk.lock_error = -ENOLCK;
    assert_int_equal(ca_tier_open(&s.tier, &config, &s.alloc, &error), CATTN_ERR_ARG);
    assert_non_null(strstr(error.message, "cannot be locked in anywhere: No locks available"));
    s.disk.lock_error = 0;
    s.disk.open_error = -EACCES;
    assert_int_equal(ca_tier_open(&s.tier, &config, &s.alloc, &error), CATTN_ERR_ARG);
    assert_non_null(strstr(error.message, "cannot be opened in anywhere: Permission denied"));
    assert_null(s.tier);
    small_teardown(&s);
}

/* Headers that cannot be read when the tier is opened are free cells. */
static void cannot_scan(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 3);
    for (int i = 0; i < 3; i++) small_put(&s, 1, i);
    ca_tier_close(&s.tier);
    s.disk.read_error = -EIO;
    small_open(&s, 3);
    s.disk.read_error = 0;
    assert_true(small_stats(&s).n_records == 0 && s.disk.size == 3 * SMALL_CELL);
    for (int i = 0; i < 3; i++) small_put(&s, 2, i);
    assert_int_equal(small_stats(&s).n_replaced, 0);
    small_teardown(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_and_interrupted),
        cmocka_unit_test(read_errors),
        cmocka_unit_test(lies),
        cmocka_unit_test(lost_write),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(no_room_at_all),
        cmocka_unit_test(broken_cell),
        cmocka_unit_test(dead_disk),
        cmocka_unit_test(errors_in_a_row),
        cmocka_unit_test(cannot_open),
        cmocka_unit_test(cannot_scan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
