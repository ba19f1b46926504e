/* Restricts the process with Landlock and seccomp. */
#define _GNU_SOURCE /* O_PATH */
#include "sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Files ---- */

static const uint64_t read_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;

/* All kinds of access that Landlock knew in its first version, which is those that need a path. */
static const uint64_t all_access = 2 * LANDLOCK_ACCESS_FS_MAKE_SYM - 1;

/* Files of the system that are read while a server starts: by the C library, for host names, and for chunkattn/base/cpu.c. */
static const char *const system_paths[] = {
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/gai.conf",
    "/etc/localtime",
    "/proc/self",
    "/proc/cpuinfo",
    "/sys/devices/system",
    NULL,
};

/* What may be done with the file of the file tier, and with the folder that it is in. */
static const uint64_t tier_access =
    LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG;

/* What may be done in the folder of clients' files. */
static const uint64_t files_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR |
                                     LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
                                     LANDLOCK_ACCESS_FS_REMOVE_FILE;

/*
 * Allow reading a file, or something else with a folder and all entries below it. A path that cannot be opened needs no
 * permission.
 */
static bool allow_in(int rules, const char *path, uint64_t folder_access) {
    struct stat st;
    const int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) return true;
    bool ok = fstat(fd, &st) == 0;
    const uint64_t access = ok && S_ISDIR(st.st_mode) ? folder_access : LANDLOCK_ACCESS_FS_READ_FILE;
    const struct landlock_path_beneath_attr rule = {.allowed_access = access, .parent_fd = fd};
    ok = ok && syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
    close(fd);
    return ok;
}

static bool allow(int rules, const char *path) { return allow_in(rules, path, read_access); }

/* Allow reading the targets of a folder's links, which may be outside of it. */
static bool allow_entries(int rules, const char *folder) {
    DIR *entries = opendir(folder);
    if (!entries) return true; /* a file */
    bool ok = true;
    for (const struct dirent *e; ok && (e = readdir(entries));) {
        char path[4096];
        if (e->d_type != DT_LNK) continue;
        const int n = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        ok = n < (int)sizeof path && allow(rules, path);
    }
    closedir(entries);
    return ok;
}

/* Allow reading the model at `paths`, and the files that the C library needs. */
static bool allow_all(int rules, const char *const *paths) {
    bool ok = true;
    for (const char *const *path = system_paths; ok && *path; path++) ok = allow(rules, *path);
    for (; ok && *paths; paths++) ok = allow(rules, *paths) && allow_entries(rules, *paths);
    return ok;
}

/* Neither limit may be lifted by running a program that has more rights than the process. */
static bool give_up_privileges(void) { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0; }

static cl_status fail(const char *limit, cl_error *error) {
    return cl_fail(error, CL_ERR_UNSUPPORTED, "the sandbox cannot limit %s: %s; start without --sandbox", limit,
                   strerror(errno));
}

cl_status sandbox_limit_files(const char *const *paths, const char *tier, const char *files, cl_error *error) {
    const struct landlock_ruleset_attr handled = {.handled_access_fs = all_access};
    const int rules = (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    if (rules < 0) return fail("files, since this system has no Landlock", error);
    /* A rule needs a folder that exists. An error is reported when the folder is used. */
    if (tier) mkdir(tier, 0700);
    if (files) mkdir(files, 0700);
    const bool ok = allow_all(rules, paths) && (!tier || allow_in(rules, tier, tier_access)) &&
                    (!files || allow_in(rules, files, files_access)) && give_up_privileges() &&
                    syscall(SYS_landlock_restrict_self, rules, 0) == 0;
    const cl_status status = ok ? CL_OK : fail("files", error);
    close(rules);
    return status;
}

/* ---- System calls ---- */

/* What the threads of a running server call. A name that this kind of CPU does not have is left out. */
static const char *const calls[] = {
    /* connections */
    "accept4",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_wait",
    "fcntl",
    "getpeername",
    "getsockname",
    "getsockopt",
    "poll",
    "ppoll",
    "recvfrom",
    "recvmsg",
    "sendmsg",
    "sendto",
    "setsockopt",
    "shutdown",
    /* open files */
    "close",
    "fstat",
    "ftruncate",
    "lseek",
    "pread64",
    "pwrite64",
    "read",
    "readv",
    "write",
    "writev",
    /* memory */
    "brk",
    "madvise",
    "mremap",
    "munmap",
    /* threads, time and signals */
    "clock_gettime",
    "clock_nanosleep",
    "exit",
    "exit_group",
    "futex",
    "getpid",
    "getrandom",
    "getrusage",
    "gettid",
    "gettimeofday",
    "membarrier",
    "nanosleep",
    "restart_syscall",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "rt_sigtimedwait",
    "sched_getaffinity",
    "sched_yield",
    "sigaltstack",
    "tgkill",
    NULL,
};

/* What the threads for clients' files call as well; SQLite unlinks its log at the end. */
static const char *const file_calls[] = {"fdatasync", "fsync", "newfstatat", "openat", "unlink", "unlinkat", NULL};

/* Calls whose third argument says how memory may be used. */
static const char *const protecting_calls[] = {"mmap", "mprotect", NULL};

/* Allow the calls of a list, whose third argument must not contain `forbidden`. Returns 0, or a negative error number. */
static int allow_calls(scmp_filter_ctx filter, const char *const *names, uint64_t forbidden) {
    int failed = 0;
    for (; !failed && *names; names++) {
        const int number = seccomp_syscall_resolve_name(*names);
        if (number < 0) continue;
        failed = seccomp_rule_add(filter, SCMP_ACT_ALLOW, number, forbidden ? 1 : 0, SCMP_A2(SCMP_CMP_MASKED_EQ, forbidden, 0));
    }
    return failed;
}

cl_status sandbox_limit_calls(bool files, cl_error *error) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
    if (!filter) return cl_fail(error, CL_ERR_NOMEM, "no memory for the sandbox");
    int failed = seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1); /* all threads */
    if (!failed) failed = allow_calls(filter, calls, 0);
    if (!failed && files) failed = allow_calls(filter, file_calls, 0);
    if (!failed) failed = allow_calls(filter, protecting_calls, PROT_EXEC);
    if (!failed) failed = seccomp_load(filter);
    seccomp_release(filter);
    errno = -failed;
    return failed ? fail("system calls", error) : CL_OK;
}
