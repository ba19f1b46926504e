/*
 * The tier on the system's files: who may open them, bytes that are wrong in them, and a process that is killed at any time
 * while it writes.
 */
#include "small_tier.h"
#include "tests/support/child.h"
#include "tests/support/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NAME "/00000000000000010000000000000002.kv"

static char dir[] = "/tmp/tier_XXXXXX", path[sizeof dir + sizeof FILE_NAME];

static int make_dir(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return -1;
    snprintf(path, sizeof path, "%s%s", dir, FILE_NAME);
    return 0;
}

static int remove_file(void **state) {
    (void)state;
    unlink(path);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    return rmdir(dir);
}

static ca_tier_config config_in(small_tier *s, const char *in) {
    ca_tier_config config = small_config(s, 8);
    config.dir = in;
    config.files = NULL;
    return config;
}

static void open_in_dir(small_tier *s) {
    const ca_tier_config config = config_in(s, dir);
    cattn_error error = {.message = ""};
    if (ca_tier_open(&s->tier, &config, &s->alloc, &error) != CATTN_OK) fail_msg("%s", error.message);
}

static void setup(small_tier *s) {
    memset(s, 0, sizeof *s);
    s->alloc = ca_alloc_default();
    open_in_dir(s);
}

static void teardown(small_tier *s) {
    ca_tier_close(&s->tier);
    assert_int_equal(s->alloc.bytes, 0);
}

static void refused(const char *in, const char *message) {
    static small_tier s;
    s.alloc = ca_alloc_default();
    const ca_tier_config config = config_in(&s, in);
    cattn_error error = {.message = ""};
    assert_int_equal(ca_tier_open(&s.tier, &config, &s.alloc, &error), CATTN_ERR_ARG);
    assert_null(s.tier);
    assert_int_equal(s.alloc.bytes, 0);
    if (!strstr(error.message, message)) fail_msg("%s", error.message);
}

static void kept_in_file(void **state) {
    (void)state;
    static small_tier s;
    setup(&s);
    for (int i = 0; i < 5; i++) small_put(&s, 1, i);
    ca_tier_close(&s.tier);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_true((st.st_mode & 0777) == 0600 && st.st_size == 5 * SMALL_CELL);
    open_in_dir(&s);
    for (int i = 0; i < 5; i++) assert_true(small_get(&s, 1, i));
    teardown(&s);
}

/* Where a file system refuses direct transfers, as all do of 100 bytes, they go through the page cache. */
static void not_direct(void **state) {
    (void)state;
    const ca_tier_files *f = &ca_tier_system_files;
    const int fd = f->open(NULL, dir, path);
    uint8_t written[100], got[100];
    for (int i = 0; i < 100; i++) written[i] = (uint8_t)i;
    assert_true(fd >= 0);
    assert_int_equal(f->write(NULL, fd, written, 100, 10), 100);
    assert_int_equal(f->size(NULL, fd), 110);
    f->close(NULL, fd);
    const int again = f->open(NULL, dir, path);
    assert_int_equal(f->read(NULL, again, got, 100, 10), 100);
    assert_memory_equal(got, written, 100);
    f->close(NULL, again);
    assert_int_equal(f->write(NULL, again, written, 100, 10), -EBADF);
}

static bool is_refused_to_another(void) {
    static small_tier other;
    other.alloc = ca_alloc_default();
    const ca_tier_config config = config_in(&other, dir);
    return ca_tier_open(&other.tier, &config, &other.alloc, NULL) == CATTN_ERR_ARG;
}

/* Another cache, in this process or another one, is refused while the tier is open; other fingerprints have other files. */
static void one_user(void **state) {
    (void)state;
    static small_tier s;
    setup(&s);
    refused(dir, "tier_dir is unusable: another cache or process uses the file of this model in /tmp/tier_");
    EXPECT_IN_CHILD(is_refused_to_another());

    ca_tier *tier;
    ca_tier_config config = config_in(&s, dir);
    config.fingerprint[1] = 3;
    assert_int_equal(ca_tier_open(&tier, &config, &s.alloc, NULL), CATTN_OK);
    assert_false(ca_tier_has(tier, small_key(&s, 1, 0)));
    ca_tier_close(&tier);
    char other_path[sizeof path];
    memcpy(other_path, path, sizeof path);
    other_path[strlen(other_path) - 4] = '3';
    assert_int_equal(unlink(other_path), 0);
    teardown(&s);
}

static void cannot_open(void **state) {
    (void)state;
    refused("/dev/null/x", "tier_dir is unusable: the file cannot be opened in /dev/null/x: Not a directory");
    refused("/tmp/there is/no such folder", "No such file or directory");
    static char too_long[5000];
    memset(too_long, 'x', sizeof too_long - 1);
    refused(too_long, "tier_dir");
    assert_int_equal(symlink("/tmp/elsewhere", path), 0);
    refused(dir, "Too many levels of symbolic links");
}

/* Any byte of the file that is wrong is found when its record is read, if not when the file is opened. */
static void flipped_bytes(void **state) {
    (void)state;
    static small_tier s;
    const off_t used = CA_RECORD_HEADER_BYTES + SMALL_PAYLOAD;
    for (off_t at = 0; at < SMALL_CELL; at += 97) {
        setup(&s);
        for (int i = 0; i < 3; i++)
            if (!small_has(&s, 1, i)) small_put(&s, 1, i);
        ca_tier_close(&s.tier);
        const int fd = open(path, O_RDWR);
        uint8_t byte;
        assert_int_equal(pread(fd, &byte, 1, SMALL_CELL + at), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, SMALL_CELL + at), 1);
        close(fd);
        open_in_dir(&s);
        if (at < CA_RECORD_HEADER_BYTES) assert_false(small_has(&s, 1, 1));
        assert_int_equal(small_get(&s, 1, 1), at >= used);
        assert_int_equal(small_stats(&s).n_refused, at >= CA_RECORD_HEADER_BYTES && at < used);
        assert_true(small_get(&s, 1, 0) && small_get(&s, 1, 2));
        teardown(&s);
        remove_file(NULL);
    }
}

/* A child that opens the tier and writes until it is killed. It writes a byte to `progress` when the first records are there.
 */
static void write_until_killed(int seed, int progress) {
    small_tier *s = calloc(1, sizeof *s);
    s->alloc = ca_alloc_default();
    ca_tier_config config = config_in(s, dir);
    config.no_thread = false;
    if (ca_tier_open(&s->tier, &config, &s->alloc, NULL) != CATTN_OK) _exit(1);
    for (int i = 0;; i++) {
        const int chunk = i % SMALL_CHUNKS;
        ca_tier_release(s->tier, chunk);
        small_write(s, seed * 7 + i / 3 % 5, i % 3, chunk);
        if (i % 16 == 0 && ca_tier_flush(s->tier, 60) && i == 16 && write(progress, "", 1) != 1) _exit(1);
    }
}

/* After a kill at any time, in every second round after the first records, the file opens, and what is read is right. */
static void killed(void **state) {
    (void)state;
    static small_tier s;
    srand(1);
    int n_right = 0;
    for (int round = 0; round < 40; round++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        const pid_t child = fork_child();
        if (child == 0) write_until_killed(round, ends[1]);
        close(ends[1]);
        char byte;
        if (round % 2) assert_int_equal(read(ends[0], &byte, 1), 1);
        spin(rand() % 10000000); /* another moment of the child */
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_true(WIFSIGNALED(end_of_child(child)));
        close(ends[0]);
        setup(&s);
        for (int chain = round * 7; chain < round * 7 + 5; chain++)
            for (int i = 0; i < 3; i++) n_right += small_get(&s, chain, i); /* which checks the K/V */
        teardown(&s);
    }
    assert_true(n_right > 40);
}

/* ---- A lock that is held for an instant ---- */

static int briefly_locked = -1;
static bool removes; /* whoever has the lock removes the file, as `chunkllama tier --remove` does */

int __real_nanosleep(const struct timespec *wait, struct timespec *left);
int __wrap_nanosleep(const struct timespec *wait, struct timespec *left);
int __wrap_nanosleep(const struct timespec *wait, struct timespec *left) {
    if (briefly_locked < 0) return __real_nanosleep(wait, left);
    if (removes) unlink(path);
    flock(briefly_locked, LOCK_UN);
    return 0;
}

/* Begin with a file that is locked until the tier waits for it. */
static void begin_locked(small_tier *s, bool is_removed) {
    removes = is_removed;
    briefly_locked = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(flock(briefly_locked, LOCK_EX), 0);
    setup(s);
    close(briefly_locked);
    briefly_locked = -1;
}

static void locked_for_an_instant(void **state) {
    (void)state;
    static small_tier s;
    begin_locked(&s, false);
    teardown(&s);
}

static void removed_meanwhile(void **state) {
    (void)state;
    static small_tier s;
    begin_locked(&s, true);
    const int fd = open(path, O_RDWR); /* the tier's file is there, and not the one that has no name any more */
    assert_true(fd >= 0);
    assert_int_not_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    close(fd);
    teardown(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(kept_in_file, remove_file),
        cmocka_unit_test_teardown(not_direct, remove_file),
        cmocka_unit_test_teardown(one_user, remove_file),
        cmocka_unit_test_teardown(cannot_open, remove_file),
        cmocka_unit_test_teardown(flipped_bytes, remove_file),
        cmocka_unit_test_teardown(killed, remove_file),
        cmocka_unit_test_teardown(locked_for_an_instant, remove_file),
        cmocka_unit_test_teardown(removed_meanwhile, remove_file),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
