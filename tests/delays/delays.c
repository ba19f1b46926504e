/*
 * A library to preload: it delays one in a thousand system calls and locks by up to 50 ms, so that threads and processes meet
 * each other in orders that a quiet machine does not show. Only chunkllama and the programs of tests are delayed, not what
 * starts them. scripts/prove_no_clocks.sh uses it.
 *
 * CATTN_DELAYS_SEED in the environment, by default 1, and the thread's number determine which calls are delayed.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ONE_IN = 1000, MOST_US = 50000 };

static bool is_delayed_program(void) {
    const char *name = program_invocation_short_name;
    const size_t n = strlen(name);
    return strncmp(name, "chunkllama", 10) == 0 || (n > 5 && strcmp(name + n - 5, "_test") == 0);
}

static void delay(void) {
    static atomic_uint n_threads;
    static _Thread_local uint64_t state;
    if (state == 0) {
        const char *seed = getenv("CATTN_DELAYS_SEED");
        state = ((seed ? strtoull(seed, NULL, 10) : 1) << 20) + atomic_fetch_add(&n_threads, 1) + 1;
    }
    state = state * 6364136223846793005u + 1442695040888963407u;
    if ((state >> 33) % ONE_IN != 0 || !is_delayed_program()) return;
    const int error = errno;
    nanosleep(&(struct timespec){.tv_nsec = 1000 * (long)((state >> 40) % MOST_US)}, NULL);
    errno = error;
}

/* Defines `name` so that it sometimes waits, and then does what the next library's does. */
#define DELAYED(type, name, parameters, ...)                                                                                   \
    __attribute__((visibility("default"))) type name parameters {                                                              \
        static type(*real) parameters;                                                                                         \
        if (!real) *(void **)&real = dlsym(RTLD_NEXT, #name);                                                                  \
        delay();                                                                                                               \
        return real(__VA_ARGS__);                                                                                              \
    }

DELAYED(ssize_t, read, (int fd, void *bytes, size_t n), fd, bytes, n)
DELAYED(ssize_t, write, (int fd, const void *bytes, size_t n), fd, bytes, n)
DELAYED(ssize_t, pread, (int fd, void *bytes, size_t n, off_t at), fd, bytes, n, at)
DELAYED(ssize_t, pwrite, (int fd, const void *bytes, size_t n, off_t at), fd, bytes, n, at)
DELAYED(ssize_t, recv, (int fd, void *bytes, size_t n, int flags), fd, bytes, n, flags)
DELAYED(ssize_t, send, (int fd, const void *bytes, size_t n, int flags), fd, bytes, n, flags)
DELAYED(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), fd, message, flags)
DELAYED(int, accept4, (int fd, struct sockaddr *address, socklen_t *n, int flags), fd, address, n, flags)
DELAYED(int, shutdown, (int fd, int how), fd, how)
DELAYED(int, close, (int fd), fd)
DELAYED(int, fsync, (int fd), fd)
DELAYED(int, poll, (struct pollfd * fds, nfds_t n, int timeout), fds, n, timeout)
DELAYED(int, epoll_wait, (int fd, struct epoll_event *events, int n, int timeout), fd, events, n, timeout)
DELAYED(int, pthread_mutex_lock, (pthread_mutex_t * mutex), mutex)
DELAYED(int, pthread_mutex_unlock, (pthread_mutex_t * mutex), mutex)
DELAYED(int, pthread_cond_signal, (pthread_cond_t * cond), cond)
DELAYED(int, pthread_cond_broadcast, (pthread_cond_t * cond), cond)
