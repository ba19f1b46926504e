/*
 * Points at which a test can hold chunkllama: "step" (a step of the engine begins), "accept" (a connection is about to be
 * accepted), "recv" (bytes of a connection are about to be read), "parse" (a request is about to be parsed), "pread" (bytes of
 * a model are about to be read), "pwrite" (K/V are about to be written to the file tier), "fsync" (a file of a client is about
 * to be made durable) and "load" (a server may log its load). Three more hold no thread: at "clock" the clock stands still, so
 * that no limit of time is reached; at "second" it is a second ahead, and at "hour" an hour, so that limits up to there are.
 *
 * CHUNKLLAMA_HOLD names a folder. While it has a file with the name of a point, each thread that comes to the point creates the
 * file <point>.held beside it and waits until either of the two is gone. tests/holding.py has the other side.
 */
#define _GNU_SOURCE /* RTLD_NEXT */

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <chunkattn.h>

enum { MAX_PATH = 4096 };

/* Whether there is a file for the point, whose path this writes. */
static bool is_held(const char *point, char path[MAX_PATH]) {
    const char *folder = getenv("CHUNKLLAMA_HOLD");
    if (!folder) return false;
    snprintf(path, MAX_PATH, "%s/%s", folder, point);
    return access(path, F_OK) == 0;
}

static void pass(const char *point) {
    char path[MAX_PATH], held[MAX_PATH + 8];
    if (!is_held(point, path)) return;
    snprintf(held, sizeof held, "%s.held", path);
    const int fd = open(held, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    while (access(path, F_OK) == 0 && (fd < 0 || access(held, F_OK) == 0)) /* in the sandbox there is no second file */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
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

void __real_log_load(void *server);
void __wrap_log_load(void *server);
void __wrap_log_load(void *server) {
    pass("load");
    __real_log_load(server);
}

void *__real_openai_json_parse(const char *name, const char *text, size_t size, void *error);
void *__wrap_openai_json_parse(const char *name, const char *text, size_t size, void *error);
void *__wrap_openai_json_parse(const char *name, const char *text, size_t size, void *error) {
    pass("parse");
    return __real_openai_json_parse(name, text, size, error);
}

ssize_t __real_pwrite(int fd, const void *bytes, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t offset) {
    pass("pwrite");
    return __real_pwrite(fd, bytes, size, offset);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd) {
    pass("fsync");
    return __real_fsync(fd);
}

/* The server's recv, which its libraries call, too, receives by this one (serve/http/wire.h). */
ssize_t __real_recvfrom(int fd, void *bytes, size_t size, int flags, struct sockaddr *from, socklen_t *from_size);
ssize_t __wrap_recvfrom(int fd, void *bytes, size_t size, int flags, struct sockaddr *from, socklen_t *from_size);
ssize_t __wrap_recvfrom(int fd, void *bytes, size_t size, int flags, struct sockaddr *from, socklen_t *from_size) {
    pass("recv");
    return __real_recvfrom(fd, bytes, size, flags, from, from_size);
}

/* These take the place of the C library's, for shared libraries too. */
#define EXPORTED __attribute__((visibility("default")))

EXPORTED ssize_t pread(int fd, void *bytes, size_t size, off_t offset) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "pread");
    pass("pread");
    return real(fd, bytes, size, offset);
}

/* ---- The clock ---- */

enum { SECOND_NS = 1000000000 };

static int64_t system_ns(clockid_t clock) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    struct timespec t;
    real(clock, &t);
    return t.tv_sec * SECOND_NS + t.tv_nsec;
}

/* How far the monotonic clock is behind the system's because it stands still. */
static int64_t lag_ns(void) {
    static _Atomic int64_t stopped; /* when the clock stopped; 0: it runs */
    const int64_t now = system_ns(CLOCK_MONOTONIC);
    char path[MAX_PATH];
    int64_t at = 0;
    if (is_held("clock", path)) return atomic_compare_exchange_strong(&stopped, &at, now) ? 0 : now - at;
    atomic_store(&stopped, 0);
    return 0;
}

static int64_t lead_ns(void) {
    char path[MAX_PATH];
    return is_held("hour", path) ? (int64_t)3600 * SECOND_NS : is_held("second", path) ? SECOND_NS : 0;
}

/* The library for HTTP, which has limits of its own, reads the coarse clock. That is never ahead, as it must not go back. */
EXPORTED int clock_gettime(clockid_t clock, struct timespec *now) {
    int64_t ns = system_ns(clock);
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE) ns -= lag_ns();
    if (clock == CLOCK_MONOTONIC) ns += lead_ns();
    *now = (struct timespec){.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS};
    return 0;
}

/* Waits end by the system's clock; without this, one that repeats until the stopped clock has moved would spin. */
int __real_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    const int64_t ns = until->tv_sec * SECOND_NS + until->tv_nsec + lag_ns() - lead_ns();
    return __real_pthread_cond_timedwait(cond, mutex, &(struct timespec){.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS});
}
