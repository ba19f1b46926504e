/* Creates and removes the file of a Unix socket. */
#include "unix_socket.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server_state.h"

/* Why nobody can connect to the address, as errno says it; 0: a server accepts connections. */
static int connect_failure(const struct sockaddr_un *address) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int failure = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 ? 0 : errno;
    if (fd >= 0) close(fd);
    return failure;
}

/* Remove the socket of a server that has ended. */
static cl_status remove_stale(const struct sockaddr_un *address, cl_error *error) {
    struct stat st;
    if (lstat(address->sun_path, &st) != 0) return CL_OK;
    if (!S_ISSOCK(st.st_mode))
        return cl_fail(error, CL_ERR_FILE, "%s is there and is no socket; choose another path, or remove it",
                       address->sun_path);
    const int failure = connect_failure(address);
    if (failure == EACCES)
        return cl_fail(error, CL_ERR_FILE, "%s belongs to another user; choose another path, or let that user remove it",
                       address->sun_path);
    if (failure != ECONNREFUSED) /* also if the server's queue is full */
        return cl_fail(error, CL_ERR_FILE, "another server listens on %s; end that server, or choose another path",
                       address->sun_path);
    if (unlink(address->sun_path) == 0 || errno == ENOENT) return CL_OK;
    return cl_fail(error, CL_ERR_FILE, "%s was left by a server that has ended, and cannot be removed: %s; choose another path",
                   address->sun_path, strerror(errno));
}

/* Until listen(), nobody can connect, with any mode. */
static bool bind_and_listen(unix_socket *s, const struct sockaddr_un *address, mode_t mode) {
    struct stat st;
    if (bind(s->fd, (const struct sockaddr *)address, sizeof *address) != 0) return false;
    if (lstat(s->path, &st) == 0) {
        s->device = st.st_dev;
        s->inode = st.st_ino;
    }
    return chmod(s->path, mode) == 0 && listen(s->fd, LISTENER_BACKLOG) == 0;
}

cl_status unix_socket_open(unix_socket *s, const char *path, mode_t mode, cl_error *error) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t size = strlen(path), most = sizeof address.sun_path - 1;
    *s = (unix_socket){.fd = -1, .path = path};
    if (size == 0 || size > most)
        return cl_fail(error, CL_ERR_ARG, "the path has %zu bytes; it must have 1 to %zu", size, most);
    memcpy(address.sun_path, path, size);
    const cl_status status = remove_stale(&address, error);
    if (status != CL_OK) return status;
    s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->fd >= 0 && bind_and_listen(s, &address, mode)) return CL_OK;
    const int failure = errno;
    unix_socket_close(s);
    return cl_fail(error, CL_ERR_FILE, "cannot listen on %s: %s; name a file in a folder in which this user may create files",
                   path, strerror(failure));
}

void unix_socket_remove(const unix_socket *s) {
    struct stat st;
    if (s->inode && lstat(s->path, &st) == 0 && st.st_dev == s->device && st.st_ino == s->inode) unlink(s->path);
}

void unix_socket_close(unix_socket *s) {
    if (s->fd < 0) return;
    unix_socket_remove(s);
    close(s->fd);
    s->fd = -1;
}
