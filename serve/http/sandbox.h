/*
 * A sandbox for the process: it gives up all rights that a server does not need, so that code that a defect might let a client
 * run can do little. The model's file is read in the sandbox, too.
 *
 *   1. sandbox_limit_files, before the process starts a thread: Landlock allows reading the model and a few system files.
 *   2. sandbox_limit_calls, once everything is open: seccomp allows all threads the system calls of a running server.
 *
 * Neither can be undone by the process. What is not allowed fails with EACCES after the first call, and with EPERM after the
 * second.
 */
#ifndef SERVE_HTTP_SANDBOX_H
#define SERVE_HTTP_SANDBOX_H

#include <stdbool.h>

#include "chunkllama/common/error.h"

/*
 * From now on the calling thread, and all threads and processes that it starts, can write and execute no file. They can read
 * those at `paths`, which ends with NULL: files, and folders with the targets of their links; and the system's CPU, library and
 * host name files. In the folder `tier`, which is created, they can also create and write files, and in the folder `files`,
 * which is created, remove them as well; NULL: there is none.
 *
 * CL_ERR_UNSUPPORTED: the system has no Landlock. CL_ERR_NOMEM.
 */
cl_status sandbox_limit_files(const char *const *paths, const char *tier, const char *files, cl_error *error);

/*
 * From now on no thread of the process can open a file, run a program, start a process or a thread, make a socket or a
 * connection, or make memory executable. The sockets that are open go on working, and those that listen accept connections.
 * files: threads may still open and remove files, where sandbox_limit_files allows it.
 *
 * CL_ERR_UNSUPPORTED: the system does not accept the filter.
 */
cl_status sandbox_limit_calls(bool files, cl_error *error);

#endif
