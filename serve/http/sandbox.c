/* Restricts the process with Landlock and seccomp. */
#define _GNU_SOURCE /* O_PATH */
#include "sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ioprio.h>
#include <linux/landlock.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "chunkllama/file/model_file.h"

/* ---- Landlock ---- */

/* What later versions of Landlock added to linux/landlock.h of the oldest system that this is built on. */
#define ACCESS_FS_REFER            (1ULL << 13)
#define ACCESS_FS_TRUNCATE         (1ULL << 14)
#define ACCESS_FS_IOCTL_DEV        (1ULL << 15)
#define ACCESS_NET_BIND_TCP        (1ULL << 0)
#define ACCESS_NET_CONNECT_TCP     (1ULL << 1)
#define SCOPE_ABSTRACT_UNIX_SOCKET (1ULL << 0)
#define SCOPE_SIGNAL               (1ULL << 1)
#define RULE_NET_PORT              2

/* struct landlock_ruleset_attr and landlock_net_port_attr. */
typedef struct ruleset {
    uint64_t files, net, scope;
} ruleset;
typedef struct net_rule {
    uint64_t access, port;
} net_rule;

/* All kinds of access that Landlock knew in its first version. */
static const uint64_t first_access = 2 * LANDLOCK_ACCESS_FS_MAKE_SYM - 1;

/* What each version of Landlock can forbid besides what the one before it can. */
static const struct {
    int version;
    ruleset adds;
} landlock_versions[] = {
    {1, {.files = first_access}},        {2, {.files = ACCESS_FS_REFER}},
    {3, {.files = ACCESS_FS_TRUNCATE}},  {4, {.net = ACCESS_NET_BIND_TCP | ACCESS_NET_CONNECT_TCP}},
    {5, {.files = ACCESS_FS_IOCTL_DEV}}, {6, {.scope = SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL}},
};

int sandbox_landlock_version(void) {
    const long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    return version > 0 ? (int)version : 0;
}

/* All that a version of Landlock can forbid. */
static ruleset all_of(int version) {
    ruleset all = {0};
    for (size_t i = 0; i < sizeof landlock_versions / sizeof *landlock_versions; i++) {
        if (landlock_versions[i].version > version) break;
        all.files |= landlock_versions[i].adds.files;
        all.net |= landlock_versions[i].adds.net;
        all.scope |= landlock_versions[i].adds.scope;
    }
    return all;
}

static const uint64_t read_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;

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
static const uint64_t tier_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_WRITE_FILE |
                                    LANDLOCK_ACCESS_FS_MAKE_REG | ACCESS_FS_TRUNCATE;

/* What may be done in the folder of clients' files. What is damaged there is renamed, also if it is a pipe, a link or a folder.
 */
static const uint64_t files_access =
    LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_MAKE_REG |
    LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_SYM |
    LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_SOCK | ACCESS_FS_TRUNCATE;

/* The rules that are being made, and what they forbid where nothing is allowed. */
typedef struct landlock_rules {
    int fd;
    ruleset forbidden;
} landlock_rules;

/*
 * Allow reading a file, or something else with a folder and all entries below it. A path that cannot be opened needs no
 * permission.
 */
static bool allow_in(const landlock_rules *rules, const char *path, uint64_t folder_access) {
    struct stat st;
    const int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) return true;
    bool ok = fstat(fd, &st) == 0;
    const uint64_t access = ok && S_ISDIR(st.st_mode) ? folder_access : LANDLOCK_ACCESS_FS_READ_FILE;
    const struct landlock_path_beneath_attr rule = {.allowed_access = access & rules->forbidden.files, .parent_fd = fd};
    ok = ok && syscall(SYS_landlock_add_rule, rules->fd, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
    close(fd);
    return ok;
}

static bool allow(const landlock_rules *rules, const char *path) { return allow_in(rules, path, read_access); }

/* Allow reading the targets of a folder's links, which may be outside of it. */
static bool allow_entries(const landlock_rules *rules, const char *folder) {
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

/* Allow reading the other parts of a split model, if the path is one of them. */
static bool allow_parts(const landlock_rules *rules, const char *path) {
    int32_t own, n_parts = 0;
    if (!cl_model_file_part_of(path, &own, &n_parts)) return true;
    bool ok = true;
    for (int32_t part = 1; ok && part <= n_parts; part++) {
        char *other = cl_model_file_part_path(path, part);
        ok = other && allow(rules, other);
        free(other);
    }
    return ok;
}

/* Allow reading the files of `rights`, and those that the C library needs. */
static bool allow_reading(const landlock_rules *rules, const char *const *paths) {
    bool ok = true;
    for (const char *const *path = system_paths; ok && *path; path++) ok = allow(rules, *path);
    for (; ok && *paths; paths++) ok = allow(rules, *paths) && allow_entries(rules, *paths) && allow_parts(rules, *paths);
    return ok;
}

static bool allow_port(const landlock_rules *rules, int port) {
    const net_rule rule = {ACCESS_NET_BIND_TCP, (uint64_t)port};
    return port < 0 || !rules->forbidden.net || syscall(SYS_landlock_add_rule, rules->fd, RULE_NET_PORT, &rule, 0) == 0;
}

static bool allow_all(const landlock_rules *rules, const sandbox_rights *rights) {
    return allow_reading(rules, rights->paths) && (!rights->tier || allow_in(rules, rights->tier, tier_access)) &&
           (!rights->files || allow_in(rules, rights->files, files_access)) && allow_port(rules, rights->port);
}

/* Neither limit may be lifted by running a program that has more rights than the process. */
static bool give_up_privileges(void) { return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0; }

static cl_status fail(const char *limit, cl_error *error) {
    return cl_fail(error, CL_ERR_UNSUPPORTED, "the sandbox cannot limit %s: %s; start without --sandbox", limit,
                   strerror(errno));
}

static cl_status limit_paths(const sandbox_rights *rights, cl_error *error) {
    landlock_rules rules = {.forbidden = all_of(sandbox_landlock_version())};
    rules.fd = (int)syscall(SYS_landlock_create_ruleset, &rules.forbidden, sizeof rules.forbidden, 0);
    if (rules.fd < 0) return fail("files, since this system has no Landlock", error);
    /* A rule needs a folder that exists. An error is reported when the folder is used. */
    if (rights->tier) mkdir(rights->tier, 0700);
    if (rights->files) mkdir(rights->files, 0700);
    const bool ok = allow_all(&rules, rights) && give_up_privileges() && syscall(SYS_landlock_restrict_self, rules.fd, 0) == 0;
    const cl_status status = ok ? CL_OK : fail("files", error);
    close(rules.fd);
    return status;
}

/* ---- System calls ---- */

/* Calls by their names, with blanks between them; where `when` is set, only those with an argument that it describes. */
typedef struct call_rule {
    const char *names;
    bool conditional;
    struct scmp_arg_cmp when;
} call_rule;

#define CALLS(names)                                                                                                           \
    {                                                                                                                          \
        names, false, { 0 }                                                                                                    \
    }
/* Those whose argument `arg` has the bits `value` among those of the mask. */
#define CALLS_IF(names, arg, mask, value)                                                                                      \
    {                                                                                                                          \
        names, true, { arg, SCMP_CMP_MASKED_EQ, mask, value }                                                                  \
    }
#define CALLS_UNLESS(names, arg, value)                                                                                        \
    {                                                                                                                          \
        names, true, { arg, SCMP_CMP_NE, value, 0 }                                                                            \
    }
/* Of an argument of 32 bits the kernel ignores the upper half, which so must not hide a value. */
#define INT UINT32_MAX

/*
 * What no part of a server calls, from its start on: it would change files without opening them for writing, which Landlock
 * does not see, run a program from memory, reach into other processes or the terminal, use interfaces of the kernel that avoid
 * this filter, or change the machine, where the process has the rights for that. sched_setaffinity stays, by which threads are
 * bound to CPUs, although it can also move other processes of the user.
 */
static const call_rule denied[] = {
    CALLS("chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat"),
    CALLS("setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat file_setattr"),
    CALLS_IF("ioctl", 1, INT, 0x40086602), /* FS_IOC_SETFLAGS */
    CALLS_IF("ioctl", 1, INT, 0x401c5820), /* FS_IOC_FSSETXATTR */
    CALLS_IF("ioctl", 1, INT, TIOCSTI),
    CALLS_IF("ioctl", 1, INT, TIOCLINUX),
    CALLS("truncate openat2 open_by_handle_at"),
    CALLS_IF("open", 1, O_ACCMODE | O_TRUNC, O_TRUNC), /* it empties a file that it reads */
    CALLS_IF("openat", 2, O_ACCMODE | O_TRUNC, O_TRUNC),
    CALLS_IF("open", 1, O_ACCMODE, O_ACCMODE), /* for neither reading nor writing, so Landlock sees no right; O_TRUNC works */
    CALLS_IF("openat", 2, O_ACCMODE, O_ACCMODE),
    /* By these TCP makes connections that Landlock takes for something else. */
    CALLS_IF("sendto", 3, MSG_FASTOPEN, MSG_FASTOPEN),
    CALLS_IF("sendmsg", 2, MSG_FASTOPEN, MSG_FASTOPEN),
    CALLS_IF("sendmmsg", 3, MSG_FASTOPEN, MSG_FASTOPEN),
    CALLS_IF("socket", 2, INT, IPPROTO_MPTCP),
    CALLS_IF("socket", 0, INT, AF_SMC),
    CALLS("execve execveat"),
    CALLS("ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp move_pages migrate_pages"),
    CALLS_UNLESS("prlimit64 sched_setscheduler sched_setparam sched_setattr", 0, 0),
    CALLS_UNLESS("setpriority ioprio_set", 1, 0),
    CALLS_UNLESS("setpriority", 0, PRIO_PROCESS), /* not of all processes of a group or a user */
    CALLS_UNLESS("ioprio_set", 0, IOPRIO_WHO_PROCESS),
    CALLS("io_uring_setup io_uring_enter io_uring_register bpf perf_event_open userfaultfd"),
    CALLS("keyctl add_key request_key unshare setns chroot pivot_root mount umount2 move_mount open_tree fsopen fspick "
          "mount_setattr"),
    CALLS("reboot kexec_load kexec_file_load init_module finit_module delete_module settimeofday clock_settime "
          "clock_adjtime adjtimex sethostname setdomainname swapon swapoff acct quotactl syslog"),
};

/* Calls that are younger than the library of filters may be; all kinds of CPU have the same numbers of these. */
static const struct {
    const char *name;
    int number;
} young_calls[] = {{"fchmodat2", 452}, {"setxattrat", 463}, {"removexattrat", 466}, {"file_setattr", 469}};

/* What the threads of a running server call. */
static const call_rule allowed[] = {
    /* connections: none is made by sending. sendto names no address; that of sendmsg lies in memory, which no filter sees. */
    CALLS("accept4 epoll_ctl epoll_pwait epoll_wait getpeername getsockname getsockopt poll ppoll recvfrom recvmsg setsockopt "
          "shutdown"),
    CALLS_IF("sendto", 4, UINT64_MAX, 0),
    CALLS_IF("sendmsg", 2, MSG_FASTOPEN, 0),
    /* open files: the owner, who gets signals about one, cannot be changed */
    CALLS("close fstat ftruncate lseek pread64 pwrite64 read readv write writev"),
    CALLS_IF("fcntl", 1, INT, F_DUPFD),
    CALLS_IF("fcntl", 1, INT, F_DUPFD_CLOEXEC),
    CALLS_IF("fcntl", 1, INT, F_GETFD),
    CALLS_IF("fcntl", 1, INT, F_SETFD),
    CALLS_IF("fcntl", 1, INT, F_GETFL),
    CALLS_IF("fcntl", 1, INT, F_SETFL),
    CALLS_IF("fcntl", 1, INT, F_GETLK),
    CALLS_IF("fcntl", 1, INT, F_SETLK),
    CALLS_IF("fcntl", 1, INT, F_SETLKW),
    /* memory, never executable */
    CALLS("brk madvise mremap munmap"),
    CALLS_IF("mmap mprotect", 2, PROT_EXEC, 0),
    /* threads, time and signals */
    CALLS("clock_gettime clock_nanosleep exit exit_group futex getpid getrandom getrusage gettid gettimeofday membarrier "
          "nanosleep restart_syscall rseq rt_sigaction rt_sigprocmask rt_sigreturn rt_sigtimedwait sched_getaffinity "
          "sched_yield sigaltstack"),
};

/* What the threads for clients' files call as well; SQLite unlinks its log at the end. */
static const call_rule allowed_for_files[] = {CALLS("fdatasync fsync newfstatat openat unlink unlinkat")};

/* The number of a call [size]; negative: this kind of CPU does not have it. */
static int call_number(const char *name, size_t size) {
    char buf[32];
    snprintf(buf, sizeof buf, "%.*s", (int)size, name);
    for (size_t i = 0; i < sizeof young_calls / sizeof *young_calls; i++)
        if (strcmp(young_calls[i].name, buf) == 0) return young_calls[i].number;
    return seccomp_syscall_resolve_name(buf);
}

/* Add a rule for each name. Returns 0, or a negative error number. */
static int add_rule(scmp_filter_ctx filter, uint32_t action, const call_rule *rule) {
    int failed = 0;
    for (const char *name = rule->names; !failed && *name; name += strspn(name, " ")) {
        const size_t size = strcspn(name, " ");
        const int number = call_number(name, size);
        if (number >= 0) failed = seccomp_rule_add_array(filter, action, number, rule->conditional, &rule->when);
        name += size;
    }
    return failed;
}

static int add_rules(scmp_filter_ctx filter, uint32_t action, const call_rule *rules, size_t n) {
    int failed = 0;
    for (size_t i = 0; !failed && i < n; i++) failed = add_rule(filter, action, &rules[i]);
    return failed;
}

#define ADD_RULES(filter, action, rules) add_rules(filter, action, rules, sizeof(rules) / sizeof *(rules))

/* A filter for all threads that does `action` with the calls for which it gets no rules. NULL: memory is lacking. */
static scmp_filter_ctx filter_begin(uint32_t action) {
    scmp_filter_ctx filter = seccomp_init(action);
    if (filter && seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1) == 0) return filter;
    if (filter) seccomp_release(filter);
    return NULL;
}

/* Put a filter into force. failed: 0, or the negative error number of its rules. */
static cl_status filter_end(scmp_filter_ctx filter, int failed, cl_error *error) {
    if (!filter) return cl_fail(error, CL_ERR_NOMEM, "no memory for the sandbox");
    if (!failed) failed = seccomp_load(filter);
    seccomp_release(filter);
    errno = -failed;
    return failed ? fail("system calls", error) : CL_OK;
}

static cl_status limit_first_calls(cl_error *error) {
    scmp_filter_ctx filter = filter_begin(SCMP_ACT_ALLOW);
    return filter_end(filter, filter ? ADD_RULES(filter, SCMP_ACT_ERRNO(EPERM), denied) : 0, error);
}

cl_status sandbox_limit_files(const sandbox_rights *rights, cl_error *error) {
    const cl_status status = limit_paths(rights, error);
    return status == CL_OK ? limit_first_calls(error) : status;
}

/* A thread may signal others of the process, which is how the C library cancels one. */
static int allow_own_signals(scmp_filter_ctx filter) {
    const call_rule rule = CALLS_IF("tgkill", 0, INT, (uint32_t)getpid());
    return add_rule(filter, SCMP_ACT_ALLOW, &rule);
}

cl_status sandbox_limit_calls(bool files, cl_error *error) {
    scmp_filter_ctx filter = filter_begin(SCMP_ACT_ERRNO(EPERM));
    int failed = filter ? ADD_RULES(filter, SCMP_ACT_ALLOW, allowed) : 0;
    if (filter && !failed) failed = allow_own_signals(filter);
    if (filter && !failed && files) failed = ADD_RULES(filter, SCMP_ACT_ALLOW, allowed_for_files);
    return filter_end(filter, failed, error);
}
