/* Sends the messages of sd_notify(3). */
#include "service_manager.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* More than the time in which the program ends itself, for a machine that is busy. */
static const double margin_s = 15;

/* Connect to a socket in the file system, or to one in Linux' abstract namespace, "@" before its name. -1: see errno. */
static int connect_to(const char *name) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t length = strlen(name);
    const struct timeval patience = {.tv_sec = 1};
    if ((name[0] != '/' && name[0] != '@') || length >= sizeof address.sun_path) {
        errno = EINVAL;
        return -1;
    }
    memcpy(address.sun_path, name, length);
    if (name[0] == '@') address.sun_path[0] = 0;
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return -1;
    /* The name's length counts for abstract names, which need no zero at the end. */
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (name[0] == '/'));
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
        connect(fd, (const struct sockaddr *)&address, size) == 0)
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

void service_manager_open(service_manager *m) {
    const char *name = getenv("NOTIFY_SOCKET");
    *m = (service_manager){.socket = -1};
    if (!name || !*name) return;
    m->socket = connect_to(name);
    if (m->socket < 0) m->error = errno;
}

static void report(const service_manager *m, const char *message) {
    if (m->socket < 0) return;
    const ssize_t sent = send(m->socket, message, strlen(message), MSG_NOSIGNAL);
    (void)sent; /* see the contract */
}

void service_manager_loading(const service_manager *m) { report(m, "STATUS=Loading the model"); }

void service_manager_ready(const service_manager *m) { report(m, "READY=1\nSTATUS=Serving requests"); }

void service_manager_reloading(const service_manager *m) {
    char message[128];
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t); /* by which the manager knows to which of its signals this is the answer */
    snprintf(message, sizeof message, "RELOADING=1\nMONOTONIC_USEC=%lld\nSTATUS=Reading files again",
             1000000LL * t.tv_sec + t.tv_nsec / 1000);
    report(m, message);
}

void service_manager_stopping(const service_manager *m, int32_t n_requests, double seconds) {
    char message[128];
    snprintf(message, sizeof message, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%lld\nSTATUS=Waiting for requests to end: %d",
             (long long)(1e6 * (seconds + margin_s)), (int)n_requests);
    report(m, message);
}

void service_manager_close(service_manager *m) {
    if (m->socket >= 0) close(m->socket);
    m->socket = -1;
}
