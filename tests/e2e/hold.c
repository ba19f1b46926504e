/*
 * Points at which a test can hold chunkllama: "step" (a step of the engine begins), "accept" (a connection is about to be
 * accepted), "recv" (bytes of a connection are about to be read) and "pread" (bytes of a model are about to be read).
 *
 * CHUNKLLAMA_HOLD names a folder. While it has a file with the name of a point, each thread that comes to the point creates the
 * file <point>.held beside it and waits until the first file is gone. tests/holding.py has the other side.
 */
#define _GNU_SOURCE /* RTLD_NEXT */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <chunkattn.h>

static void pass(const char *point) {
    const char *folder = getenv("CHUNKLLAMA_HOLD");
    if (!folder) return;
    char path[4096], held[4096 + 8];
    snprintf(path, sizeof path, "%s/%s", folder, point);
    snprintf(held, sizeof held, "%s.held", path);
    if (access(path, F_OK) != 0) return;
    const int fd = open(held, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    while (access(path, F_OK) == 0) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

cattn_status __real_cattn_step_begin(cattn_cache *cache, cattn_entry *entries, int32_t n, int64_t row_limit,
                                     cattn_error *error);
cattn_status __wrap_cattn_step_begin(cattn_cache *cache, cattn_entry *entries, int32_t n, int64_t row_limit,
                                     cattn_error *error);
cattn_status __wrap_cattn_step_begin(cattn_cache *cache, cattn_entry *entries, int32_t n, int64_t row_limit,
                                     cattn_error *error) {
    pass("step");
    return __real_cattn_step_begin(cache, entries, n, row_limit, error);
}

int __real_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags) {
    pass("accept");
    return __real_accept4(fd, address, size, flags);
}

/* These take the place of the C library's, for shared libraries too. */
#define EXPORTED __attribute__((visibility("default")))

EXPORTED ssize_t recv(int fd, void *bytes, size_t size, int flags) {
    pass("recv");
    return recvfrom(fd, bytes, size, flags, NULL, NULL);
}

EXPORTED ssize_t pread(int fd, void *bytes, size_t size, off_t offset) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pread");
    pass("pread");
    return real(fd, bytes, size, offset);
}
