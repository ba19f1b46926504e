/* Opening, locking, and whole reads and writes: see file.h. */
#define _GNU_SOURCE /* O_DIRECT */
#include "file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chunkattn/base/clock.h"
#include "chunkattn/base/fail.h"

/* ---- The system's calls ---- */

static int system_open(void *ctx, const char *dir, const char *path) {
    (void)ctx;
    if (mkdir(dir, 0700) != 0 && errno != EEXIST) return -errno;
    const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(path, flags | O_DIRECT, 0600);
    if (fd < 0 && errno == EINVAL) fd = open(path, flags, 0600); /* the file system has no direct I/O */
    return fd < 0 ? -errno : fd;
}

/*
 * A program that lists the files of a folder locks each for an instant, to see whether it is used. So there are some tries. It
 * may also have removed the file.
 */
static int system_lock(void *ctx, int fd) {
    static const struct timespec pause = {.tv_nsec = 5000000};
    struct stat st;
    (void)ctx;
    for (int n_tries = 20; flock(fd, LOCK_EX | LOCK_NB) != 0; nanosleep(&pause, NULL))
        if (errno != EWOULDBLOCK || --n_tries == 0) return -errno;
    return fstat(fd, &st) == 0 && st.st_nlink == 0 ? -ENOENT : 0;
}

static int64_t system_size(void *ctx, int fd) {
    (void)ctx;
    struct stat st;
    return fstat(fd, &st) != 0 ? -errno : st.st_size;
}

/* After EINVAL: whether the call was refused because it was direct, and is to be repeated as it would be without. */
static bool leave_direct(int fd) {
    const int flags = errno == EINVAL ? fcntl(fd, F_GETFL) : 0;
    return flags > 0 && (flags & O_DIRECT) && fcntl(fd, F_SETFL, flags & ~O_DIRECT) == 0;
}

static int64_t system_read(void *ctx, int fd, void *to, size_t n, uint64_t offset) {
    (void)ctx;
    ssize_t done = pread(fd, to, n, (off_t)offset);
    if (done < 0 && leave_direct(fd)) done = pread(fd, to, n, (off_t)offset);
    return done < 0 ? -errno : done;
}

static int64_t system_write(void *ctx, int fd, const void *from, size_t n, uint64_t offset) {
    (void)ctx;
    ssize_t done = pwrite(fd, from, n, (off_t)offset);
    if (done < 0 && leave_direct(fd)) done = pwrite(fd, from, n, (off_t)offset);
    return done < 0 ? -errno : done;
}

static int system_resize(void *ctx, int fd, uint64_t bytes) {
    (void)ctx;
    return ftruncate(fd, (off_t)bytes) != 0 ? -errno : 0;
}

static void system_close(void *ctx, int fd) {
    (void)ctx;
    close(fd);
}

static double system_seconds(void *ctx) {
    (void)ctx;
    return clock_seconds();
}

const ca_tier_files ca_tier_system_files = {
    .open = system_open,
    .lock = system_lock,
    .size = system_size,
    .read = system_read,
    .write = system_write,
    .resize = system_resize,
    .close = system_close,
    .seconds = system_seconds,
};

/* ---- The file ---- */

static cattn_status refuse(const char *dir, const char *what, int64_t result, cattn_error *error) {
    return ca_fail(error, CATTN_ERR_ARG, -1, "tier_dir is unusable: %s in %s: %s", what, dir, strerror((int)-result));
}

/* Open and lock the file, or another one if it was removed in between. */
static cattn_status open_locked(ca_tier_file *file, const char *dir, const char *path, cattn_error *error) {
    const ca_tier_files *f = file->files;
    int result;
    do {
        ca_tier_file_close(file);
        file->fd = f->open(f->ctx, dir, path);
        result = file->fd < 0 ? 0 : f->lock(f->ctx, file->fd);
    } while (result == -ENOENT);
    if (file->fd < 0)
        return ca_fail(error, CATTN_ERR_ARG, -1,
                       "tier_dir is unusable: the file cannot be opened in %.80s: %s; name a directory that may be written, "
                       "and whose parent exists",
                       dir, strerror(-file->fd));
    if (result == -EWOULDBLOCK)
        return ca_fail(error, CATTN_ERR_ARG, -1,
                       "tier_dir is unusable: another cache or process uses the file of this model in %s; stop it or name "
                       "another directory",
                       dir);
    return result < 0 ? refuse(dir, "the file cannot be locked", result, error) : CATTN_OK;
}

/* Cut the file to whole cells. */
static cattn_status cut(ca_tier_file *file, const char *dir, cattn_error *error) {
    const ca_tier_files *f = file->files;
    const int64_t size = f->size(f->ctx, file->fd);
    if (size < 0) return refuse(dir, "the file's size cannot be read", size, error);
    const uint64_t whole = (uint64_t)size / file->cell_bytes;
    file->n_grown = whole < (uint64_t)file->n_cells ? (int32_t)whole : file->n_cells;
    if ((uint64_t)size == file->cell_bytes * (uint64_t)file->n_grown) return CATTN_OK;
    const int result = f->resize(f->ctx, file->fd, file->cell_bytes * (uint64_t)file->n_grown);
    return result < 0 ? refuse(dir, "the file cannot be cut", result, error) : CATTN_OK;
}

cattn_status ca_tier_file_open(ca_tier_file *file, const ca_tier_files *files, const char *dir, const uint64_t fingerprint[2],
                               size_t cell_bytes, int32_t n_cells, cattn_error *error) {
    assert(cell_bytes > 0 && n_cells > 0);
    *file = (ca_tier_file){.files = files, .fd = -1, .cell_bytes = cell_bytes, .n_cells = n_cells};
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%016" PRIx64 "%016" PRIx64 ".kv", dir, fingerprint[0], fingerprint[1]);
    if (n < 0 || (size_t)n >= sizeof path)
        return ca_fail(error, CATTN_ERR_ARG, -1, "tier_dir has too many bytes; the path of its file may have %d", PATH_MAX - 1);
    cattn_status status = open_locked(file, dir, path, error);
    if (status == CATTN_OK) status = cut(file, dir, error);
    if (status != CATTN_OK) ca_tier_file_close(file);
    return status;
}

void ca_tier_file_close(ca_tier_file *file) {
    if (file->fd >= 0) file->files->close(file->files->ctx, file->fd);
    file->fd = -1;
}

static uint64_t offset_of(const ca_tier_file *file, int32_t cell) {
    assert(cell >= 0 && cell < file->n_cells);
    return (uint64_t)cell * file->cell_bytes;
}

int ca_tier_file_read(const ca_tier_file *file, int32_t cell, void *to, size_t n) {
    const ca_tier_files *f = file->files;
    const uint64_t offset = offset_of(file, cell);
    for (size_t done = 0; done < n;) {
        const int64_t more = f->read(f->ctx, file->fd, (char *)to + done, n - done, offset + done);
        if (more == -EINTR) continue;
        if (more < 0) return (int)more;
        /* Where a file ends within a block, as after a lost write, the rest has no place from which it could be read. */
        if (more == 0 || ((uint64_t)more < n - done && (uint64_t)more % CA_TIER_ALIGN != 0)) return -ENODATA;
        assert((uint64_t)more <= n - done);
        done += (size_t)more;
    }
    return 0;
}

int ca_tier_file_write(const ca_tier_file *file, int32_t cell, const void *from, size_t n) {
    const ca_tier_files *f = file->files;
    const uint64_t offset = offset_of(file, cell);
    for (size_t done = 0; done < n;) {
        const int64_t more = f->write(f->ctx, file->fd, (const char *)from + done, n - done, offset + done);
        if (more == -EINTR) continue;
        if (more < 0) return (int)more;
        if (more == 0) return -EIO;
        assert((uint64_t)more <= n - done);
        done += (size_t)more;
    }
    return 0;
}

void ca_tier_file_cut(const ca_tier_file *file) {
    const ca_tier_files *f = file->files;
    f->resize(f->ctx, file->fd, (uint64_t)file->n_grown * file->cell_bytes);
}
