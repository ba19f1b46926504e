/* Reads files into a range of addresses that is reserved for them, as far as their bytes are needed. */
#include "file_bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* How much is fetched at least, so that a header is read in few calls. A multiple of every page size. */
enum { FETCH_BYTES = 1 << 20 };

/* Read n bytes from `at` on. False: not all of them are there, and errno is 0, or they cannot be read. */
static bool read_all(int fd, size_t at, size_t n, unsigned char *to) {
    while (n > 0) {
        const ssize_t got = pread(fd, to, n, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = 0;
        if (got <= 0) return false;
        to += got;
        at += (size_t)got;
        n -= (size_t)got;
    }
    return true;
}

/* Whether a file holds the few lines that Git LFS keeps in the place of a large file. */
static bool is_pointer(int fd, off_t size) {
    static const char begin[] = "version https://git-lfs.github.com/";
    enum { N = sizeof begin - 1, MOST_BYTES = 1024 };
    unsigned char bytes[N];
    return size > N && size < MOST_BYTES && read_all(fd, 0, N, bytes) && memcmp(bytes, begin, N) == 0;
}

static cl_status examine(const char *path, int fd, cl_file_bytes *file, cl_error *error) {
    struct stat st;
    if (fstat(fd, &st) != 0) return cl_fail(error, CL_ERR_FILE, "%s: cannot be examined: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode)) return cl_fail(error, CL_ERR_FILE, "%s: not a regular file, which it must be", path);
    if (st.st_size == 0) return cl_fail(error, CL_ERR_FORMAT, "%s: the file is empty", path);
    if (is_pointer(fd, st.st_size))
        return cl_fail(error, CL_ERR_FORMAT,
                       "%s: it is a pointer of Git LFS, not the file itself; fetch that with 'git lfs pull'", path);
    /* Addresses alone: memory is added as bytes are fetched. */
    void *data = mmap(NULL, (size_t)st.st_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
        return cl_fail(
            error, CL_ERR_NOMEM,
            "%s: not enough memory for its %lld bytes; raise the process's limit (ulimit -v), or use a smaller model", path,
            (long long)st.st_size);
    *file = (cl_file_bytes){.data = data, .size = (size_t)st.st_size, .on_disk = true, .fd = fd, .modified = st.st_mtim};
    return CL_OK;
}

cl_status cl_file_bytes_open(const char *path, cl_file_bytes *file, cl_error *error) {
    *file = (cl_file_bytes){0};
    /* Without O_NONBLOCK a pipe would be waited for, until somebody writes to it. */
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return cl_fail(error, CL_ERR_FILE, "%s: cannot be opened: %s", path, strerror(errno));
    const cl_status status = examine(path, fd, file, error);
    if (status != CL_OK) close(fd);
    return status;
}

void cl_file_bytes_release(cl_file_bytes *file) {
    if (file->on_disk && file->fd >= 0) close(file->fd);
    file->fd = -1;
}

void cl_file_bytes_close(cl_file_bytes *file) {
    cl_file_bytes_release(file);
    if (file->on_disk) munmap((void *)file->data, file->size);
    *file = (cl_file_bytes){0};
}

cl_status cl_file_bytes_fetch(cl_file_bytes *file, size_t end, cl_error *error) {
    if (!file->on_disk || end <= file->n_fetched) return CL_OK;
    size_t to = (end + FETCH_BYTES - 1) / FETCH_BYTES * FETCH_BYTES;
    if (to > file->size) to = file->size;
    unsigned char *at = (unsigned char *)file->data + file->n_fetched; /* n_fetched is a multiple of FETCH_BYTES here */
    if (mprotect(at, to - file->n_fetched, PROT_READ | PROT_WRITE) != 0)
        return cl_fail(error, CL_ERR_NOMEM, "no memory for %zu bytes of the file", to - file->n_fetched);
    if (read_all(file->fd, file->n_fetched, to - file->n_fetched, at)) {
        file->n_fetched = to;
        return CL_OK;
    }
    if (errno != 0)
        return cl_fail(error, CL_ERR_FILE, "bytes %zu to %zu of %zu cannot be read: %s", file->n_fetched, to, file->size,
                       strerror(errno));
    return cl_fail(error, CL_ERR_FILE,
                   "bytes %zu to %zu of %zu cannot be read any more; was the file truncated while it was read?",
                   file->n_fetched, to, file->size);
}

bool cl_file_bytes_copy(const cl_file_bytes *file, const void *from, size_t n, void *to) {
    const size_t at = (size_t)((const unsigned char *)from - file->data);
    if (file->on_disk) return read_all(file->fd, at, n, to);
    memcpy(to, from, n);
    return true;
}

bool cl_file_bytes_unchanged(const cl_file_bytes *file) {
    struct stat st;
    return !file->on_disk || (fstat(file->fd, &st) == 0 && (size_t)st.st_size == file->size &&
                              st.st_mtim.tv_sec == file->modified.tv_sec && st.st_mtim.tv_nsec == file->modified.tv_nsec);
}
