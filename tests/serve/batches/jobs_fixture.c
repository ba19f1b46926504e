/* Folders for tests, and wrapped calls of the disk. */
#include "jobs_fixture.h"

#include "tests/support/testing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* ---- The disk ---- */

static atomic_int calls_left = -1; /* before the first failure; < 0: none will come */
static atomic_int failures_left;
static atomic_bool failed;

static bool fails(void) {
    if (atomic_load(&failures_left) <= 0) return false;
    if (atomic_fetch_sub(&calls_left, 1) > 1) return false;
    atomic_fetch_sub(&failures_left, 1);
    atomic_store(&failed, true);
    errno = ENOSPC;
    return true;
}

void fail_disk(int n, int times) {
    atomic_store(&failed, false);
    atomic_store(&calls_left, n);
    atomic_store(&failures_left, times);
}

bool mend_disk(void) {
    atomic_store(&failures_left, 0);
    return atomic_load(&failed);
}

ssize_t __real_write(int fd, const void *data, size_t size);
ssize_t __wrap_write(int fd, const void *data, size_t size) {
    if (!fails()) return __real_write(fd, data, size);
    if (size > 1 && __real_write(fd, data, size / 2) < 0) return -1;
    errno = ENOSPC;
    return -1;
}
/* No test turns the power off, and a disk may take seconds for this. */
int __wrap_fsync(int fd) {
    (void)fd;
    return fails() ? -1 : 0;
}
int __real_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to) {
    return fails() ? -1 : __real_renameat(from_fd, from, to_fd, to);
}
int __real_ftruncate(int fd, off_t size);
int __wrap_ftruncate(int fd, off_t size) { return fails() ? -1 : __real_ftruncate(fd, size); }

/* ---- The folder ---- */

int set_up_folder(void **state) {
    char *path = strdup("/tmp/chunkllama-jobs-XXXXXX");
    *state = path;
    return mkdtemp(path) ? 0 : -1;
}

int tear_down_folder(void **state) {
    char command[200];
    snprintf(command, sizeof command, "rm -r '%s'", (char *)*state);
    const int status = system(command);
    free(*state);
    return status;
}

void empty_folder(const char *path) {
    DIR *list = opendir(path);
    assert_non_null(list);
    for (const struct dirent *e; (e = readdir(list));)
        if (e->d_name[0] != '.') assert_int_equal(unlinkat(dirfd(list), e->d_name, 0), 0);
    closedir(list);
}

int count_files(const char *path, const char *suffix) {
    DIR *list = opendir(path);
    assert_non_null(list);
    int n = 0;
    for (const struct dirent *e; (e = readdir(list));) {
        const size_t size = strlen(e->d_name), m = strlen(suffix);
        n += e->d_name[0] != '.' && size >= m && strcmp(e->d_name + size - m, suffix) == 0;
    }
    closedir(list);
    return n;
}

/* ---- The store ---- */

store *open_store(const char *path) {
    store *s;
    cl_error error;
    if (store_open(path, &s, &error) != CL_OK) fail_msg("%s", error.message);
    return s;
}

bool add_file(store *s, const store_owner *owner, const char *text, char *id, cl_error *error) {
    json_t *record = NULL;
    store_upload *u = store_upload_begin(s, 1 << 20);
    assert_non_null(u);
    const size_t half = strlen(text) / 2;
    store_upload_write(u, text, half);
    store_upload_write(u, text + half, strlen(text) - half);
    const bool ok = store_upload_end(u, owner, "in.jsonl", "batch", &record, error) == CL_OK;
    if (ok) snprintf(id, STORE_ID, "%s", store_id(record));
    json_decref(record);
    store_upload_free(&u);
    return ok;
}

char *read_file(store *s, const char *id) {
    const int fd = store_open_data(s, id);
    if (fd < 0) return NULL;
    const off_t size = lseek(fd, 0, SEEK_END);
    char *text = calloc(1, (size_t)size + 1);
    assert_int_equal(pread(fd, text, (size_t)size, 0), size);
    close(fd);
    return text;
}
