/* Reads and writes whole messages: see grammar_wire.h. */
#include "grammar_wire.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <sys/socket.h>

#include "chunkattn/base/clock.h"
#include "chunkllama/common/deadline.h"

enum { LOOK_MS = 50 }; /* between looks at the deadline of a thread, which another thread may end */

/* Wait until a socket is ready. False: it is late. */
static bool wait_for(int fd, short events, double until) {
    struct pollfd p = {.fd = fd, .events = events};
    double left;
    do {
        left = until - clock_seconds();
        if (poll(&p, 1, (int)fmin(ceil(1e3 * fmax(left, 0)), LOOK_MS)) > 0) return true;
    } while (left > 0 && !cl_deadline_passed());
    return false;
}

bool cl_wire_wait(int fd, double until) { return wait_for(fd, POLLIN, until); }

/* One call of recv or send, which is repeated while the socket would block. Returns the bytes, or 0. */
static size_t pass(int fd, char *bytes, size_t size, bool writes, double until, bool *late) {
    while (true) {
        const ssize_t n = writes ? send(fd, bytes, size, MSG_NOSIGNAL) : recv(fd, bytes, size, 0);
        if (n >= 0) return (size_t)n;
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return 0;
        *late = !wait_for(fd, writes ? POLLOUT : POLLIN, until);
        if (*late) return 0;
    }
}

static bool pass_all(int fd, char *bytes, size_t size, bool writes, double until, bool *late) {
    *late = false;
    while (size > 0) {
        const size_t n = pass(fd, bytes, size, writes, until, late);
        if (n == 0) return false;
        bytes += n;
        size -= n;
    }
    return true;
}

bool cl_wire_read_until(int fd, void *bytes, size_t size, double until, bool *late) {
    return pass_all(fd, bytes, size, false, until, late);
}

bool cl_wire_write_until(int fd, const void *bytes, size_t size, double until, bool *late) {
    return pass_all(fd, (char *)bytes, size, true, until, late);
}

bool cl_wire_read(int fd, void *bytes, size_t size) {
    bool late;
    return pass_all(fd, bytes, size, false, INFINITY, &late);
}

bool cl_wire_write(int fd, const void *bytes, size_t size) {
    bool late;
    return pass_all(fd, (char *)bytes, size, true, INFINITY, &late);
}
