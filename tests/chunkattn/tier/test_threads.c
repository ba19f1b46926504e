/*
 * A tier with its I/O threads. Under TSan: chunks change as soon as they are released, polled or flushed, so that a copy at the
 * wrong time is a race.
 */
#include "small_tier.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#include "tests/support/sleeping.h"
#include "tests/support/wait.h"

/* Seconds that a wait for the tier may take: only a hang does. */
enum { MINUTES = 300 };

static void setup(small_tier *s, int n_cells) {
    memset(s, 0, sizeof *s);
    disk_init(&s->disk);
    s->alloc = ca_alloc_default();
    ca_tier_config config = small_config(s, n_cells);
    config.no_thread = false;
    assert_int_equal(ca_tier_open(&s->tier, &config, &s->alloc, NULL), CATTN_OK);
}

/* Random calls. What is read must be right; each read that is not released is reported once. */
static void random_calls(void **state) {
    (void)state;
    static small_tier s;
    for (int seed = 0; seed < 4; seed++) {
        srand((unsigned)seed);
        setup(&s, 20);
        s.disk.n_spins = seed % 2 ? 50000 : 0;
        struct {
            bool reads;
            int chain, i;
        } of_chunk[SMALL_CHUNKS] = {0};
        int n_reads = 0, n_ok = 0, n_chunks = seed < 2 ? 8 : SMALL_CHUNKS;
        for (int step = 0; step < 4000; step++) {
            const int chunk = rand() % n_chunks, chain = rand() % 6, i = rand() % 4;
            ca_tier_done done[4];
            switch (rand() % 8) {
            case 0:
            case 1:
            case 2:
                ca_tier_release(s.tier, chunk);
                n_reads -= of_chunk[chunk].reads;
                of_chunk[chunk].reads = false;
                small_write(&s, chain, i, chunk);
                break;
            case 3:
            case 4:
                ca_tier_release(s.tier, chunk);
                n_reads -= of_chunk[chunk].reads;
                of_chunk[chunk].reads = small_read(&s, chain, i, chunk, (uint64_t)chunk);
                of_chunk[chunk].chain = chain;
                of_chunk[chunk].i = i;
                n_reads += of_chunk[chunk].reads;
                break;
            case 5: ca_tier_touch(s.tier, small_key(&s, chain, i)); break;
            case 6:
                if (rand() % 2) assert_int_equal(ca_tier_wait(s.tier, 10), n_reads > 0);
                if (rand() % 8 == 0) ca_tier_flush(s.tier, 10);
                break;
            default:
                for (size_t n = ca_tier_poll(s.tier, done, 4); n > 0; n--) {
                    const int32_t at = done[n - 1].chunk;
                    assert_true(of_chunk[at].reads && done[n - 1].ticket == (uint64_t)at);
                    if (done[n - 1].ok)
                        assert_true(small_holds(&s, at, of_chunk[at].chain, of_chunk[at].i));
                    else
                        assert_true(small_untouched(&s, at));
                    n_ok += done[n - 1].ok;
                    of_chunk[at].reads = false;
                    n_reads--;
                }
            }
        }
        assert_true(n_ok > 50);
        ca_tier_close(&s.tier);
        small_teardown(&s);
    }
}

/* Wait until the disk has been called n times since the tier was opened. */
static void wait_for_calls(small_tier *s, int n) { WAIT_UNTIL(atomic_load(&s->disk.n_calls) >= n); }

/* Releasing waits neither for a slow disk nor for the queue, and waiting ends in time. */
static void slow_disk(void **state) {
    (void)state;
    static small_tier s;
    setup(&s, 20);
    atomic_store(&s.disk.is_held, true);
    for (int i = 0; i < 3; i++) assert_true(small_write(&s, 1, i, i));
    wait_for_calls(&s, 1);
    assert_false(ca_tier_flush(s.tier, 0.01));
    for (int i = 0; i < 3; i++) {
        ca_tier_release(s.tier, i);
        memset(s.kv[i], 1, SMALL_PAYLOAD);
    }
    assert_int_equal(small_stats(&s).n_writes, 0); /* it is still being written */
    atomic_store(&s.disk.is_held, false);
    assert_true(ca_tier_flush(s.tier, MINUTES));
    assert_int_equal(small_stats(&s).n_writes, 1); /* the others were dropped */
    atomic_store(&s.disk.is_held, true);
    assert_true(small_read(&s, 1, 0, 5, 0));
    wait_for_calls(&s, 2);
    assert_false(ca_tier_wait(s.tier, 0.01));
    s.disk.seconds += 5;
    ca_tier_release(s.tier, 5);
    assert_int_equal(small_stats(&s).n_queued_reads, 1); /* it is still being read */
    assert_true(small_read(&s, 1, 0, 5, 1));
    atomic_store(&s.disk.is_held, false);
    assert_true(ca_tier_wait(s.tier, MINUTES));
    ca_tier_done done[2];
    assert_int_equal(ca_tier_poll(s.tier, done, 2), 1);
    assert_true(done[0].ok && done[0].ticket == 1 && small_holds(&s, 5, 1, 0));
    assert_true(small_stats(&s).read_seconds == 5); /* the first one */
    small_teardown(&s);
}

/* Two reads are in progress at once, or a read and a write, but never two writes. Time in which two read counts once. */
static void two_at_once(void **state) {
    (void)state;
    static small_tier s;
    setup(&s, 40);
    for (int i = 0; i < 20; i++) small_put(&s, 1, i);
    assert_int_equal(s.disk.most_reading, 0);
    s.disk.n_spins = 50000;
    atomic_store(&s.disk.is_held, true);
    for (int i = 0; i < 20; i++) assert_true(small_read(&s, 1, i, i, (uint64_t)i));
    WAIT_UNTIL(atomic_load(&s.disk.n_reading) == 2);
    for (int i = 0; i < 20; i++) assert_true(small_write(&s, 2, i, 40 + i));
    s.disk.seconds += 5;
    atomic_store(&s.disk.is_held, false);
    for (int n = 0; n < 20;) {
        ca_tier_done done[20];
        assert_true(ca_tier_wait(s.tier, MINUTES));
        for (size_t k = ca_tier_poll(s.tier, done, 20); k > 0; k--, n++)
            assert_true(done[k - 1].ok && small_holds(&s, done[k - 1].chunk, 1, done[k - 1].chunk));
    }
    assert_true(small_stats(&s).read_seconds == 5);
    assert_true(ca_tier_flush(s.tier, MINUTES));
    for (int i = 0; i < 20; i++) assert_true(small_has(&s, 2, i));
    assert_true(s.disk.most_reading == 2 && s.disk.most_writing == 1);
    small_teardown(&s);
}

/* A record that is replaced while it is being read has no cell any more that the reader could free. */
static void replaced_while_it_is_read(void **state) {
    (void)state;
    static small_tier s;
    setup(&s, 1);
    small_put(&s, 1, 0);
    atomic_store(&s.disk.is_held, true);
    s.disk.lies_at = 5000;
    assert_true(small_read(&s, 1, 0, 1, 0));
    wait_for_calls(&s, 2);
    assert_true(small_write(&s, 2, 0, 2));
    wait_for_calls(&s, 3); /* the write has taken the cell */
    atomic_store(&s.disk.is_held, false);
    assert_true(ca_tier_wait(s.tier, MINUTES));
    ca_tier_done done;
    assert_true(ca_tier_poll(s.tier, &done, 1) == 1 && !done.ok && small_untouched(&s, 1));
    assert_true(ca_tier_flush(s.tier, MINUTES));
    const ca_tier_stats stats = small_stats(&s);
    assert_true(stats.n_replaced == 1 && stats.n_refused == 0 && stats.n_records == 1);
    s.disk.lies_at = SIZE_MAX;
    assert_true(small_get(&s, 2, 0));
    small_teardown(&s);
}

static void *release_when_closing(void *d) {
    WAIT_UNTIL(thread_sleeps(getpid())); /* the test, which waits for the tier's threads */
    atomic_store(&((disk *)d)->is_held, false);
    return NULL;
}

/* Closing writes what is queued. */
static void closed(void **state) {
    (void)state;
    static small_tier s;
    pthread_t releaser;
    setup(&s, 40); /* with a clock that stands still: closing has all the time that it needs */
    atomic_store(&s.disk.is_held, true);
    for (int i = 0; i < 30; i++) assert_true(small_write(&s, 1, i, i));
    assert_int_equal(pthread_create(&releaser, NULL, release_when_closing, &s.disk), 0);
    ca_tier_close(&s.tier);
    pthread_join(releaser, NULL);
    small_open(&s, 40);
    for (int i = 0; i < 30; i++) assert_true(small_get(&s, 1, i));
    small_teardown(&s);
}

static void *release_when_three_read(void *d) {
    WAIT_UNTIL(atomic_load(&((disk *)d)->n_reading) > 2);
    atomic_store(&((disk *)d)->is_held, false);
    return NULL;
}

/* Several threads read the headers of a file: all records are found, in the order of the writes, but for the damaged ones. */
static void opened_by_threads(void **state) {
    (void)state;
    enum { N = 200, DAMAGED = 7 };
    static small_tier s;
    pthread_t releaser;
    small_setup(&s, N);
    for (int i = 0; i < N; i++) small_put(&s, i, 0);
    ca_tier_close(&s.tier);
    for (int i = 0; i < N; i += DAMAGED) s.disk.bytes[(size_t)i * SMALL_CELL + 50] ^= 1;
    ca_tier_config config = small_config(&s, N);
    config.no_thread = false;
    atomic_store(&s.disk.is_held, true);
    assert_int_equal(pthread_create(&releaser, NULL, release_when_three_read, &s.disk), 0);
    assert_int_equal(ca_tier_open(&s.tier, &config, &s.alloc, NULL), CATTN_OK);
    pthread_join(releaser, NULL);
    int n_free = 0;
    for (int i = 0; i < N; i++) {
        assert_int_equal(small_has(&s, i, 0), i % DAMAGED != 0);
        n_free += i % DAMAGED == 0;
    }
    assert_int_equal(small_stats(&s).n_records, N - n_free);
    for (int i = 0; i < n_free + 3; i++) small_put(&s, N + i, 0);
    assert_int_equal(small_stats(&s).n_replaced, 3);
    for (int i = 1; i <= 4; i++) assert_int_equal(small_has(&s, i, 0), i == 4); /* those written first have been replaced */
    small_teardown(&s);
}

static int n_threads = INT_MAX; /* that can be started */

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *arg) {
    return n_threads-- <= 0 ? EAGAIN : __real_pthread_create(thread, attr, run, arg);
}

static void no_thread_to_start(void **state) {
    (void)state;
    static small_tier s;
    small_setup(&s, 4);
    ca_tier_close(&s.tier);
    ca_tier_config config = small_config(&s, 4);
    config.no_thread = false;
    for (int n = 0; n < 2; n++) {
        cattn_error error;
        n_threads = n;
        assert_int_equal(ca_tier_open(&s.tier, &config, &s.alloc, &error), CATTN_ERR_NOMEM);
        n_threads = INT_MAX;
        assert_null(s.tier);
        assert_non_null(strstr(error.message, "threads that read and write the tier cannot be started: Resource temporarily"));
    }
    small_open(&s, 4); /* the file is unlocked */
    small_teardown(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls),
        cmocka_unit_test(slow_disk),
        cmocka_unit_test(two_at_once),
        cmocka_unit_test(replaced_while_it_is_read),
        cmocka_unit_test(closed),
        cmocka_unit_test(opened_by_threads),
        cmocka_unit_test(no_thread_to_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
