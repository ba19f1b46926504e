/*
 * A sandbox for the process: it gives up all rights that a server does not need, so that code that a defect might let a client
 * run can do little. The model's file is read in the sandbox, too.
 *
 *   1. sandbox_limit_files, before the process starts a thread: Landlock allows reading the model and a few system files, and
 *      listening on one port. seccomp forbids what Landlock does not see.
 *   2. sandbox_limit_calls, once everything is open: seccomp allows all threads the system calls of a running server.
 *
 * Neither can be undone by the process. What is not allowed fails with EACCES or EPERM.
 */
#ifndef SERVE_HTTP_SANDBOX_H
#define SERVE_HTTP_SANDBOX_H

#include <stdbool.h>

#include "chunkllama/common/error.h"

/*
 * The version of Landlock that the kernel has; 0: none. From version 3 on (Linux 6.2) it knows truncate(2), from 4 on (6.7)
 * TCP, from 5 on (6.10) ioctl(2) on devices, and from 6 on (6.12) signals and abstract Unix sockets.
 */
int sandbox_landlock_version(void);

/* What a process in the sandbox may do with files and the network. Strings are borrowed for the call. */
typedef struct sandbox_rights {
    /* That may be read, up to a NULL: files, all parts of a split model, and folders with the targets of their links. */
    const char *const *paths;
    const char *tier;  /* a folder, which is created, for files that are created and written; NULL: none */
    const char *files; /* the same for files that are removed as well; NULL: none */
    int port;          /* of TCP on which it may listen; 0: any free one; -1: none */
} sandbox_rights;

/*
 * From now on the calling thread, and all threads and processes that it starts, can write, cut and execute no file, and change
 * no file's mode, owner, times or attributes, but for `rights`; and they can read only what these name and the system's CPU,
 * library and host name files. They cannot reach into other processes. As far as the kernel's version of Landlock goes, they
 * can make no TCP connection and listen on no other port, and send no signals to processes that they have not started.
 *
 * CL_ERR_UNSUPPORTED: the system has no Landlock, or does not accept the filter. CL_ERR_NOMEM.
 */
cl_status sandbox_limit_files(const sandbox_rights *rights, cl_error *error);

/*
 * From now on no thread of the process can open a file, run a program, start a process or a thread, make a socket or a
 * connection, signal another process, or make memory executable. The sockets that are open go on working, and those that listen
 * accept connections. files: threads may still open and remove files, where sandbox_limit_files allows it.
 *
 * CL_ERR_UNSUPPORTED: the system does not accept the filter. CL_ERR_NOMEM.
 */
cl_status sandbox_limit_calls(bool files, cl_error *error);

#endif
