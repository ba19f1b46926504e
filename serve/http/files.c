/* Fits the number of connections to the limit of open files, which it raises. */
#include <dirent.h>
#include <sys/resource.h>

#include "acceptor.h"
#include "server_state.h"

enum {
    FILES_OF_THREAD = 2, /* of each thread of libmicrohttpd, and of its daemon */
    FILES_OF_LISTENER = 1,
    FILES_TO_SPARE = 8,      /* for other files that the program opens while the server runs */
    FILES_OF_GRAMMARS = 128, /* without them requests with a grammar are refused, and no others */
};

/* How many files the process has open. */
static int64_t count_open(void) {
    int64_t n = 0;
    DIR *list = opendir("/proc/self/fd");
    if (!list) return 64; /* without /proc: more than the program opens */
    while (readdir(list)) n++;
    closedir(list);
    return n - 3; /* ".", ".." and the list itself */
}

cl_status files_fit_connections(int32_t n_threads, int32_t n_daemons, int32_t more, int32_t *max_connections, cl_error *error) {
    const int64_t others = more + count_open() + ACCEPTOR_FILES + FILES_OF_LISTENER +
                           FILES_OF_THREAD * n_daemons * ((int64_t)n_threads + 1) + FILES_TO_SPARE;
    const rlim_t needed = (rlim_t)(others + *max_connections + acceptor_spare(*max_connections));
    const rlim_t wanted = needed + FILES_OF_GRAMMARS;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return CL_OK;
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
    if (limit.rlim_cur >= needed) return CL_OK;
    const int64_t least =
        others + n_threads + acceptor_spare(n_threads) + 1; /* by the last line, n_threads connections are left */
    if ((int64_t)limit.rlim_cur < least)
        return cl_fail(error, CL_ERR_LIMIT,
                       "the limit of open files is %lld; the server needs at least %lld: raise it (ulimit -n)",
                       (long long)limit.rlim_cur, (long long)least);
    const int32_t most = (int32_t)((int64_t)limit.rlim_cur - others);
    *max_connections = most - acceptor_spare(most);
    return CL_OK;
}
