/* The memory of the machine is found, and what the limits of control groups leave of it. */
#include "chunkattn/base/memory.h"

#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct file {
    const char *name, *text; /* NULL: a folder */
} file;

static const file files[] = {
    {"proc", NULL},
    {"proc/self", NULL},
    {"proc/meminfo", "MemTotal:    1000 kB\nMemFree:    1 kB\nMemAvailable:    800 kB\n"},
    {"proc/self/cgroup", "1:name=other:/x\n0::/outer/inner\n"},
    {"groups", NULL},
    {"groups/outer", NULL},
    {"groups/outer/memory.max", "500000\n"},
    {"groups/outer/memory.current", "450000\n"},
    {"groups/outer/memory.stat", "anon 1\nactive_file 30000\ninactive_file 20000\n"},
    {"groups/outer/inner", NULL},
    {"groups/outer/inner/memory.max", "600000\n"},
    {"groups/outer/inner/memory.current", "590000\n"},
    {"groups/outer/inner/memory.stat", "inactive_file 90000\n"},
    {"groups/memory", NULL},
    {"groups/memory/a", NULL},
    {"groups/memory/a/memory.limit_in_bytes", "9223372036854771712\n"},
    {"groups/memory/a/memory.usage_in_bytes", "80000\n"},
    {"groups/memory/a/memory.stat", "active_file 1\ntotal_active_file 10000\ntotal_inactive_file 5000\n"},
    {"groups/memory/a/memory.use_hierarchy", "1\n"},
    {"groups/memory/a/b", NULL},
    {"groups/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"},
    {"groups/memory/a/b/memory.usage_in_bytes", "50000\n"},
    {"groups/memory/a/b/memory.stat", "total_inactive_file 5000\n"},
    {"proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units     \n"
                         "Max data size             unlimited            unlimited            bytes     \n"
                         "Max address space         unlimited            unlimited            bytes     \n"},
    {"proc/self/status", "Name:\ttest\nVmPeak:\t      60 kB\nVmSize:\t      50 kB\nVmData:\t      20 kB\n"},
};
enum { N_FILES = sizeof files / sizeof *files };

static char folder[64];

static void path_of(const char *name, char path[128]) { snprintf(path, 128, "%s/%s", folder, name); }

static void put(const char *name, const char *text) {
    char path[128];
    path_of(name, path);
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    fclose(f);
}

static int set_up(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/memory_XXXXXX");
    if (!mkdtemp(folder)) return -1;
    for (int i = 0; i < N_FILES; i++) {
        char path[128];
        path_of(files[i].name, path);
        if (files[i].text)
            put(files[i].name, files[i].text);
        else
            assert_int_equal(mkdir(path, 0700), 0);
    }
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    for (int i = N_FILES; i-- > 0;) {
        char path[128];
        path_of(files[i].name, path);
        remove(path);
    }
    return rmdir(folder);
}

static ca_memory read_folder(void) {
    char proc[128], groups[128];
    path_of("proc", proc);
    path_of("groups", groups);
    return ca_memory_read(proc, groups);
}

static void the_narrowest_limit_counts(void **state) {
    (void)state;
    ca_memory m = read_folder();
    assert_int_equal(m.total, 500000);
    assert_int_equal(m.free, 100000); /* both groups leave as much: files do not count */
    put("groups/outer/memory.current", "999999\n");
    assert_int_equal(read_folder().free, 0);
    put("groups/outer/memory.max", "max\n");
    m = read_folder();
    assert_int_equal(m.total, 600000);
    assert_int_equal(m.free, 100000);
    put("groups/outer/inner/memory.max", "max\n");
    m = read_folder();
    assert_int_equal(m.total, 1000 * 1024);
    assert_int_equal(m.free, 800 * 1024);
}

static void groups_of_version_1_count(void **state) {
    (void)state;
    put("proc/self/cgroup", "5:cpu,memory,x:/a/b\n4:nomemory:/c\n0::/\n");
    ca_memory m = read_folder();
    assert_int_equal(m.total, 1000 * 1024);
    assert_int_equal(m.free, 800 * 1024);
    put("groups/memory/a/memory.limit_in_bytes", "100000\n");
    m = read_folder();
    assert_int_equal(m.total, 100000);
    assert_int_equal(m.free, 35000); /* files do not count */
    put("groups/memory/a/b/memory.limit_in_bytes", "70000\n");
    m = read_folder();
    assert_int_equal(m.total, 70000);
    assert_int_equal(m.free, 25000);
    put("groups/memory/a/b/memory.limit_in_bytes", "200000\n");
    put("groups/memory/a/memory.use_hierarchy", "0\n"); /* then the outer group does not count the inner one */
    assert_int_equal(read_folder().total, 200000);
    put("proc/self/cgroup", "4:memory:/elsewhere/that/this/container/does/not/see\n");
    put("groups/memory/memory.limit_in_bytes", "90000\n");
    assert_int_equal(read_folder().total, 90000);
    char path[128];
    path_of("groups/memory/memory.limit_in_bytes", path);
    assert_int_equal(remove(path), 0);
}

/* Of the process: what it has mapped counts. */
static void limits_of_the_process_count(void **state) {
    (void)state;
    put("proc/self/cgroup", "");
    assert_true(read_folder().space == UINT64_MAX);
    put("proc/self/limits", "Max data size             unlimited            unlimited            bytes     \n"
                            "Max address space         250000               999999               bytes     \n");
    ca_memory m = read_folder();
    assert_int_equal(m.total, 250000);
    assert_int_equal(m.space, 250000 - 50 * 1024);
    assert_int_equal(m.free, m.space);
    put("proc/self/limits", "Max data size             120000               unlimited            bytes     \n"
                            "Max address space         250000               999999               bytes     \n");
    m = read_folder();
    assert_int_equal(m.total, 120000);
    assert_int_equal(m.space, 120000 - 20 * 1024);
    assert_int_equal(m.free, m.space);
    put("proc/self/limits", "Max address space         50000                999999               bytes     \n");
    assert_int_equal(read_folder().free, 0);
    put("proc/self/limits", "Max address space         2000000              999999               bytes     \n");
    m = read_folder();
    assert_int_equal(m.free, 800 * 1024);
    assert_int_equal(m.space, 2000000 - 50 * 1024);
}

static void what_is_not_known_is_no_limit(void **state) {
    (void)state;
    const ca_memory m = ca_memory_read("/none", "/none");
    assert_true(m.total == UINT64_MAX && m.free == UINT64_MAX && m.space == UINT64_MAX);
}

static void this_machine_has_memory(void **state) {
    (void)state;
    const ca_memory m = ca_memory_read("/proc", "/sys/fs/cgroup");
    assert_in_range(m.total, 1 << 20, UINT64_MAX - 1);
    assert_in_range(m.free, 0, m.total); /* others may have all of it now */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_narrowest_limit_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(groups_of_version_1_count, set_up, tear_down),
        cmocka_unit_test_setup_teardown(limits_of_the_process_count, set_up, tear_down),
        cmocka_unit_test(what_is_not_known_is_no_limit),
        cmocka_unit_test(this_machine_has_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
