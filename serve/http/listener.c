/* Opens the TCP socket that the server listens on. */
#include "server_state.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static uint16_t bound_port(int fd) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0) return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

bool listener_is_local(int fd) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size) != 0) return false;
    if (address.ss_family == AF_INET) return ntohl(((struct sockaddr_in *)&address)->sin_addr.s_addr) >> 24 == 127;
    return address.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&address)->sin6_addr);
}

/* A socket that listens on the address, or -1 with errno set. */
static int try_address(const struct addrinfo *a) {
    const int on = 1, fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0) return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0 &&
        listen(fd, LISTENER_BACKLOG) == 0)
        return fd;
    const int failure = errno;
    close(fd);
    errno = failure;
    return -1;
}

cl_status listener_open(const char *host, uint16_t *port, int *fd, cl_error *error) {
    char service[8];
    struct addrinfo *list, hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    snprintf(service, sizeof service, "%u", *port);
    const int resolved = getaddrinfo(host, service, &hints, &list);
    if (resolved != 0)
        return cl_fail(error, CL_ERR_ARG, "cannot listen on host '%s': %s; use an address of this machine, such as 127.0.0.1",
                       host, gai_strerror(resolved));
    *fd = -1;
    for (const struct addrinfo *a = list; a && *fd < 0; a = a->ai_next) *fd = try_address(a);
    const int failure = errno;
    freeaddrinfo(list);
    if (*fd >= 0) {
        *port = bound_port(*fd);
        return CL_OK;
    }
    const char *fix = failure == EADDRINUSE ? "another program uses the port; end that program or choose another port"
                      : failure == EACCES   ? "ports below 1024 need root; choose a higher port"
                                            : "choose another host or port";
    return cl_fail(error, CL_ERR_FILE, "cannot listen on %s port %u: %s; %s", host, *port, strerror(failure), fix);
}
