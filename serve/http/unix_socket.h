/*
 * A Unix socket that a server listens on: a file through which programs of the same machine connect, as far as its mode allows.
 *
 * A socket whose server has ended without removing it is replaced; one of a server that runs is not. Two servers that start at
 * the same moment may both find a socket to be replaced; the later one then has the path.
 */
#ifndef SERVE_HTTP_UNIX_SOCKET_H
#define SERVE_HTTP_UNIX_SOCKET_H

#include <sys/types.h>

#include "chunkllama/common/error.h"

typedef struct unix_socket {
    int fd;           /* it listens; -1: not open */
    const char *path; /* borrowed */
    dev_t device;     /* with inode: the file, so that another one of its name stays */
    ino_t inode;
} unix_socket;

/*
 * Create the socket file, with this mode, and listen. Before the sandbox, which forbids it. Errors, after which fd is -1:
 * CL_ERR_ARG for a path that is too long; CL_ERR_FILE says why the path cannot be used, with a remedy.
 */
cl_status unix_socket_open(unix_socket *s, const char *path, mode_t mode, cl_error *error);

/* Remove the file, unless it belongs to another server now. One that may not be removed, as in the sandbox, stays. */
void unix_socket_remove(const unix_socket *s);

/* Remove the file, and stop to listen. One that is not open is ignored. */
void unix_socket_close(unix_socket *s);

#endif
