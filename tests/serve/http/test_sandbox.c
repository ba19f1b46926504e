/* What a process in the sandbox can and cannot do. Each check runs in a child process, since a sandbox cannot be left. */
#define _GNU_SOURCE /* accept4 */
#include "tests/support/testing.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "serve/batches/store.h"
#include "serve/http/sandbox.h"
#include "tests/support/child.h"

/* Run a check in a child process; 0: it passed, otherwise the line of the first EXPECT that did not hold. */
static int in_child(int (*check)(void)) {
    const pid_t child = fork_child();
    if (child == 0) _exit(check());
    const int status = end_of_child(child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define EXPECT(condition)                                                                                                      \
    if (!(condition)) return __LINE__

#define EXPECT_FAILS(call, number)                                                                                             \
    errno = 0;                                                                                                                 \
    EXPECT((call) < 0 && errno == (number))

/* ---- Files ---- */

static char folder[] = "/tmp/chunkllama-sandbox-XXXXXX";
static char model[64], other[64], link_to_other[80], outside[64];

static void write_file(const char *path) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("text", f);
    fclose(f);
}

/* A folder with a file and a link to a file outside of it, and that file. */
static int make_files(void **state) {
    (void)state;
    if (!mkdtemp(folder)) return -1;
    snprintf(model, sizeof model, "%s/model", folder);
    snprintf(other, sizeof other, "%s.other", folder);
    snprintf(outside, sizeof outside, "%s.new", folder);
    snprintf(link_to_other, sizeof link_to_other, "%s/link", folder);
    write_file(model);
    write_file(other);
    return symlink(other, link_to_other);
}

static int remove_files(void **state) {
    (void)state;
    unlink(model);
    unlink(link_to_other);
    unlink(other);
    unlink(outside);
    for (int i = 1; i <= 3; i++) {
        char part[96];
        snprintf(part, sizeof part, "%s/m-0000%d-of-00002.gguf", folder, i);
        unlink(part);
    }
    char files[80];
    snprintf(files, sizeof files, "%s/files", folder);
    rmdir(files);
    return rmdir(folder);
}

static cl_status limit(const char *const *paths) {
    return sandbox_limit_files(&(sandbox_rights){.paths = paths, .port = -1}, NULL);
}

static int check_support(void) {
    const char *const paths[] = {model, NULL};
    return limit(paths) == CL_ERR_UNSUPPORTED;
}

static int check_model_only(void) {
    const char *const paths[] = {model, NULL};
    EXPECT(limit(paths) == CL_OK);
    EXPECT(open(model, O_RDONLY) >= 0);
    EXPECT(open("/proc/cpuinfo", O_RDONLY) >= 0);
    EXPECT_FAILS(open(other, O_RDONLY), EACCES);
    EXPECT_FAILS(open("/etc/passwd", O_RDONLY), EACCES);
    EXPECT_FAILS(open(model, O_WRONLY), EACCES);
    EXPECT_FAILS(open(outside, O_WRONLY | O_CREAT, 0600), EACCES);
    EXPECT_FAILS(unlink(model), EACCES);
    EXPECT_FAILS(mkdir(outside, 0700), EACCES);
    EXPECT_FAILS(execl("/bin/true", "true", (char *)NULL), EPERM);
    return 0;
}

static int check_folder_with_links(void) {
    const char *const paths[] = {folder, NULL};
    EXPECT(limit(paths) == CL_OK);
    EXPECT(open(model, O_RDONLY) >= 0);
    EXPECT(open(link_to_other, O_RDONLY) >= 0);
    EXPECT_FAILS(open("/etc/passwd", O_RDONLY), EACCES);
    return 0;
}

/* All parts of a split model can be read, whichever is named. */
static int check_parts(void) {
    char parts[3][96];
    for (int i = 0; i < 3; i++) {
        snprintf(parts[i], sizeof parts[i], "%s/m-0000%d-of-00002.gguf", folder, i + 1); /* the last one is no part */
        write_file(parts[i]);
    }
    const char *const paths[] = {parts[1], NULL};
    EXPECT(limit(paths) == CL_OK);
    EXPECT(open(parts[0], O_RDONLY) >= 0 && open(parts[1], O_RDONLY) >= 0);
    EXPECT_FAILS(open(parts[2], O_RDONLY), EACCES);
    EXPECT_FAILS(open(model, O_RDONLY), EACCES);
    return 0;
}

static int check_missing_model(void) {
    const char *const paths[] = {"/nowhere/model.gguf", NULL};
    EXPECT(limit(paths) == CL_OK);
    EXPECT_FAILS(open(model, O_RDONLY), EACCES);
    return 0;
}

/* Add a file to a store, read the list that has it, and remove it. */
static int use_store(batch_store *s) {
    openai_error error;
    openai_writer w = {0};
    char id[STORE_ID];
    int64_t size;
    batch_content c = content_begin(s);
    EXPECT(content_write(&c, "text", 4, &error));
    EXPECT(store_add_file(&c, &(store_owner){"default", 0}, "name", "batch", &w, &error));
    snprintf(id, sizeof id, "%s", c.id);
    content_end(&c);
    EXPECT(store_list(s, STORE_FILE, 0, &(store_query){.limit = 10}, &w, &error));
    writer_free(&w);
    const int fd = store_open_file(s, 0, id, &size, &error);
    EXPECT(fd >= 0 && size == 4 && close(fd) == 0);
    EXPECT(store_remove_file(s, 0, id, &error));
    return 0;
}

/* In the folder of clients' files the store works, also behind the second step, and nowhere else is anything written. */
static int check_files(void) {
    const char *const paths[] = {model, NULL};
    char files[80];
    cl_error error;
    batch_store *s;
    snprintf(files, sizeof files, "%s/files", folder);
    EXPECT(sandbox_limit_files(&(sandbox_rights){.paths = paths, .files = files, .port = -1}, NULL) == CL_OK);
    EXPECT(store_open(files, NULL, &s, &error) == CL_OK);
    const int at = open(files, O_RDONLY | O_DIRECTORY);
    EXPECT(at >= 0);
    for (int step = 0; step < 2; step++) {
        EXPECT(use_store(s) == 0);
        EXPECT_FAILS(openat(AT_FDCWD, other, O_RDWR), EACCES);
        EXPECT_FAILS(openat(AT_FDCWD, model, O_RDWR), EACCES);
        EXPECT_FAILS(unlinkat(AT_FDCWD, model, 0), EACCES);
        if (step == 0) EXPECT(sandbox_limit_calls(true, NULL) == CL_OK);
    }
    EXPECT_FAILS(socket(AF_INET, SOCK_STREAM, 0), EPERM);
    EXPECT_FAILS(mkdirat(at, "sub", 0700), EPERM);
    EXPECT_FAILS(mkfifoat(at, "pipe", 0600), EPERM);
    EXPECT_FAILS(symlinkat(other, at, "link"), EPERM);
    EXPECT_FAILS(renameat(at, "index.db", at, "other"), EPERM);
    store_close(&s);
    EXPECT_FAILS(openat(at, "index.db-wal", O_RDONLY), ENOENT);
    EXPECT(unlinkat(at, "index.db", 0) == 0);
    return 0;
}

static void only_the_models_files_can_be_read(void **state) {
    (void)state;
    if (in_child(check_support) != 0) skip(); /* the system has no Landlock */
    assert_int_equal(in_child(check_model_only), 0);
    assert_int_equal(in_child(check_folder_with_links), 0);
    assert_int_equal(in_child(check_parts), 0);
    assert_int_equal(in_child(check_missing_model), 0);
    assert_int_equal(in_child(check_files), 0);
}

/* ---- System calls ---- */

static int listen_on_loopback(struct sockaddr_in *address) {
    socklen_t size = sizeof *address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    *address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(fd, (struct sockaddr *)address, size) != 0 || listen(fd, 1) != 0) return -1;
    return getsockname(fd, (struct sockaddr *)address, &size) == 0 ? fd : -1;
}

static int check_nothing_is_opened(void) {
    struct sockaddr_in address;
    const int listener = listen_on_loopback(&address), client = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(listener >= 0 && client >= 0);
    EXPECT(sandbox_limit_calls(false, NULL) == CL_OK);
    EXPECT_FAILS(open("/proc/cpuinfo", O_RDONLY), EPERM);
    EXPECT_FAILS(syscall(SYS_openat, AT_FDCWD, "/proc/cpuinfo", O_RDONLY, 0), EPERM);
    EXPECT_FAILS(socket(AF_INET, SOCK_STREAM, 0), EPERM);
    EXPECT_FAILS(connect(client, (struct sockaddr *)&address, sizeof address), EPERM);
    EXPECT_FAILS(fork(), EPERM);
    EXPECT_FAILS(execl("/bin/true", "true", (char *)NULL), EPERM);
    EXPECT_FAILS(unlink(model), EPERM);
    EXPECT_FAILS(truncate(model, 0), EPERM);
    EXPECT_FAILS(kill(getppid(), 0), EPERM);
    return 0;
}

static int check_memory_is_not_executable(void) {
    void *before = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(before != MAP_FAILED && sandbox_limit_calls(false, NULL) == CL_OK);
    EXPECT_FAILS(mprotect(before, 4096, PROT_READ | PROT_EXEC), EPERM);
    errno = 0;
    EXPECT(mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EPERM);
    EXPECT(mprotect(before, 4096, PROT_READ) == 0);
    EXPECT(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    return 0;
}

static int check_connections_are_accepted(void) {
    struct sockaddr_in address;
    const int listener = listen_on_loopback(&address), client = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT(listener >= 0 && connect(client, (struct sockaddr *)&address, sizeof address) == 0);
    EXPECT(sandbox_limit_calls(false, NULL) == CL_OK);
    const int accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    char got = 0;
    EXPECT(accepted >= 0 && send(client, "x", 1, 0) == 1 && recv(accepted, &got, 1, 0) == 1 && got == 'x');
    return 0;
}

static int pipe_ends[2];
static int opening_failed; /* the error number; 0: it succeeded */

/* Wait for a byte, then try to open a file. */
static void *open_later(void *unused) {
    char go;
    if (read(pipe_ends[0], &go, 1) == 1) opening_failed = open("/proc/cpuinfo", O_RDONLY) < 0 ? errno : 0;
    return unused;
}

static int check_all_threads(void) {
    pthread_t other_thread;
    EXPECT(pipe(pipe_ends) == 0 && pthread_create(&other_thread, NULL, open_later, NULL) == 0);
    EXPECT(sandbox_limit_calls(false, NULL) == CL_OK);
    EXPECT(write(pipe_ends[1], "x", 1) == 1 && pthread_join(other_thread, NULL) == 0);
    EXPECT(opening_failed == EPERM);
    return 0;
}

static void a_running_server_opens_nothing(void **state) {
    (void)state;
    assert_int_equal(in_child(check_nothing_is_opened), 0);
    assert_int_equal(in_child(check_memory_is_not_executable), 0);
    assert_int_equal(in_child(check_connections_are_accepted), 0);
    assert_int_equal(in_child(check_all_threads), 0);
}

/* ---- Each promise ---- */

/* What the probes need, opened before the sandbox. */
static struct sockaddr_in address;
static int client, datagrams, read_only, program, spare_ports[2];

static int failure_of(long result) { return result < 0 ? errno : 0; }

static int listen_at(int fd, int port) {
    const struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    return failure_of(bind(fd, (const struct sockaddr *)&at, sizeof at));
}

static int try_truncate(void) { return failure_of(truncate(other, 0)); }
static int try_truncating_open(void) { return failure_of(open(other, O_RDONLY | O_TRUNC)); }
/* Access mode 3 is for ioctl alone: neither reading nor writing. */
static int try_truncating_open_for_ioctl(void) { return failure_of(open(other, O_ACCMODE | O_TRUNC)); }
static int try_open_for_ioctl(void) { return failure_of(open(model, O_ACCMODE)); }
static int try_openat2(void) { return failure_of(syscall(SYS_openat2, AT_FDCWD, model, &(uint64_t[3]){0}, 24)); }
static int try_chmod(void) { return failure_of(chmod(other, 0777)); }
static int try_fchmod(void) { return failure_of(fchmod(read_only, 0777)); }
static int try_fchmodat2(void) { return failure_of(syscall(452, AT_FDCWD, other, 0777, 0)); }
static int try_chown(void) { return failure_of(chown(other, getuid(), getgid())); }
static int try_utimes(void) { return failure_of(utimensat(AT_FDCWD, other, NULL, 0)); }
static int try_futimes(void) { return failure_of(futimens(read_only, NULL)); }
static int try_setxattr(void) { return failure_of(syscall(SYS_setxattr, other, "user.a", "b", 1, 0)); }
static int try_setxattrat(void) { return failure_of(syscall(463, AT_FDCWD, other, 0, "user.a", NULL, 16)); }
static int try_removexattrat(void) { return failure_of(syscall(466, AT_FDCWD, other, 0, "user.a")); }
static int try_file_flags(void) { return failure_of(ioctl(read_only, 0x40086602, &(long){0})); }
/* The kernel does not look at the upper half of a request. */
static int try_hidden_flags(void) { return failure_of(syscall(SYS_ioctl, read_only, 0xff40086602, &(long){0})); }
static int try_terminal_input(void) { return failure_of(ioctl(STDIN_FILENO, TIOCSTI, "a")); }
static int try_memory_program(void) { return failure_of(syscall(SYS_execveat, program, "", NULL, NULL, AT_EMPTY_PATH)); }
/* No process: for calls that the kernel itself may refuse with EPERM for any that there is. It finds other faults first, as it
 * does with a mount whose type is at an address without memory. */
enum { NOBODY = INT_MAX };
static int try_reading_memory(void) {
    char byte;
    struct iovec here = {&byte, 1}, there = {&byte, 1};
    return failure_of(syscall(SYS_process_vm_readv, NOBODY, &here, 1, &there, 1, 0));
}
static int try_ptrace(void) { return failure_of(syscall(SYS_ptrace, 16 /* PTRACE_ATTACH */, NOBODY, NULL, NULL)); }
static int try_foreign_limit(void) { return failure_of(prlimit(getppid(), RLIMIT_CORE, NULL, &(struct rlimit){0})); }
static int try_foreign_priority(void) { return failure_of(setpriority(PRIO_PROCESS, (id_t)getppid(), 1)); }
static void *end_at_once(void *unused) { return unused; }
static int try_thread(void) {
    pthread_t thread;
    const int failure = pthread_create(&thread, NULL, end_at_once, NULL);
    return failure ? failure : pthread_join(thread, NULL);
}
/* The group has no other process (check_promises). */
static int try_group_priority(void) { return failure_of(setpriority(PRIO_PGRP, 0, 19)); }
static int try_group_io_priority(void) { return failure_of(syscall(SYS_ioprio_set, 2 /* IOPRIO_WHO_PGRP */, 0, 0)); }
static int try_own_priority(void) { return failure_of(setpriority(PRIO_PROCESS, 0, 19)); }
static int try_uring(void) { return failure_of(syscall(SYS_io_uring_setup, 1, &(char[120]){0})); }
/* The kernel itself refuses it with EPERM, but to root: only a run of root's shows that the filter does. */
static int try_bpf(void) { return failure_of(syscall(SYS_bpf, 0, NULL, 0)); }
static int try_key(void) { return failure_of(syscall(SYS_add_key, "user", "a", "b", 1, -2)); }
static int try_clock(void) { return failure_of(syscall(SYS_clock_settime, CLOCK_REALTIME, NULL)); }
static int try_mount(void) { return failure_of(mount("none", folder, (const char *)1, 0, NULL)); }
static int try_kill(void) { return failure_of(kill(getppid(), 0)); }
static int try_tgkill(void) { return failure_of(syscall(SYS_tgkill, getppid(), getppid(), 0)); }
static int try_sigqueue(void) { return failure_of(sigqueue(getppid(), 0, (union sigval){0})); }
static int try_signal_by_file(void) { return failure_of(fcntl(datagrams, F_SETOWN, getppid())); }
static int try_signal_of_file(void) { return failure_of(fcntl(datagrams, F_SETSIG, SIGKILL)); }
static int try_own_signal(void) { return failure_of(syscall(SYS_tgkill, getpid(), gettid(), 0)); }
static int try_connect(void) { return failure_of(connect(client, (struct sockaddr *)&address, sizeof address)); }
static int try_other_port(void) { return listen_at(client, ntohs(address.sin_port)); }
static int try_own_port(void) { return listen_at(spare_ports[0], 0); }
static int try_sending_to(void) {
    return failure_of(sendto(datagrams, "a", 1, 0, (struct sockaddr *)&address, sizeof address));
}
static int send_message(int fd, int flags) {
    const struct msghdr message = {.msg_name = &address, .msg_namelen = sizeof address};
    return failure_of(sendmsg(fd, &message, flags | MSG_NOSIGNAL));
}
static int try_message_to(void) { return send_message(datagrams, 0); }
static int try_fast_open(void) { return send_message(client, MSG_FASTOPEN); }
static int try_link(void) { return failure_of(link(model, outside)); }
static int try_multipath(void) { return failure_of(socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP)); }
/* A name without a file, which no other process uses. */
static struct sockaddr_un abstract_name(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "%s", folder);
    return name;
}
static int try_abstract_socket(void) {
    const struct sockaddr_un name = abstract_name();
    return failure_of(connect(spare_ports[1], (const struct sockaddr *)&name, sizeof name));
}
static int try_reading(void) { return failure_of(read(read_only, &(char){0}, 1)); }
static int try_lock(void) { return failure_of(fcntl(read_only, F_GETLK, &(struct flock){.l_type = F_RDLCK})); }

/* What a call fails with after each step; 0: it succeeds. `since`: the version of Landlock that knows what the first step
 * forbids. */
static const struct {
    const char *name;
    int (*call)(void);
    int first, second, since;
} probes[] = {
    {"truncate", try_truncate, EPERM, EPERM, 0},
    {"open that truncates", try_truncating_open, EPERM, EPERM, 0},
    {"open that truncates, for ioctl", try_truncating_open_for_ioctl, EPERM, EPERM, 0},
    {"open for ioctl", try_open_for_ioctl, EPERM, EPERM, 0},
    {"openat2", try_openat2, EPERM, EPERM, 0},
    {"chmod", try_chmod, EPERM, EPERM, 0},
    {"fchmod", try_fchmod, EPERM, EPERM, 0},
    {"fchmodat2", try_fchmodat2, EPERM, EPERM, 0},
    {"chown", try_chown, EPERM, EPERM, 0},
    {"utimensat", try_utimes, EPERM, EPERM, 0},
    {"futimens", try_futimes, EPERM, EPERM, 0},
    {"setxattr", try_setxattr, EPERM, EPERM, 0},
    {"setxattrat", try_setxattrat, EPERM, EPERM, 0},
    {"removexattrat", try_removexattrat, EPERM, EPERM, 0},
    {"flags of a file", try_file_flags, EPERM, EPERM, 0},
    {"flags of a file, hidden", try_hidden_flags, EPERM, EPERM, 0},
    {"input of the terminal", try_terminal_input, EPERM, EPERM, 0},
    {"a program in memory", try_memory_program, EPERM, EPERM, 0},
    {"process_vm_readv", try_reading_memory, EPERM, EPERM, 0},
    {"ptrace", try_ptrace, EPERM, EPERM, 0},
    {"limits of another process", try_foreign_limit, EPERM, EPERM, 0},
    {"priority of another process", try_foreign_priority, EPERM, EPERM, 0},
    {"a thread", try_thread, 0, EPERM, 0},
    {"priority of a group", try_group_priority, EPERM, EPERM, 0},
    {"priority of a group for the disk", try_group_io_priority, EPERM, EPERM, 0},
    {"priority of itself", try_own_priority, 0, EPERM, 0},
    {"io_uring", try_uring, EPERM, EPERM, 0},
    {"bpf", try_bpf, EPERM, EPERM, 0},
    {"keys of the kernel", try_key, EPERM, EPERM, 0},
    {"the clock", try_clock, EPERM, EPERM, 0},
    {"mount", try_mount, EPERM, EPERM, 0},
    {"kill", try_kill, EPERM, EPERM, 6},
    {"tgkill", try_tgkill, EPERM, EPERM, 6},
    {"sigqueue", try_sigqueue, EPERM, EPERM, 6},
    {"signals by a file", try_signal_by_file, 0, EPERM, 0},
    {"the signal of a file", try_signal_of_file, 0, EPERM, 0},
    {"a signal to itself", try_own_signal, 0, 0, 0},
    {"connect", try_connect, EACCES, EPERM, 4},
    {"another port", try_other_port, EACCES, EPERM, 4},
    {"its own port", try_own_port, 0, EPERM, 0},
    {"sending to an address", try_sending_to, 0, EPERM, 0},
    {"sendmsg to an address", try_message_to, 0, 0, 0},
    {"TCP fast open", try_fast_open, EPERM, EPERM, 0},
    {"a link in another folder", try_link, EACCES, EPERM, 0},
    {"multipath TCP", try_multipath, EPERM, EPERM, 0},
    {"an abstract socket", try_abstract_socket, EPERM, EPERM, 6},
    {"reading an open file", try_reading, 0, 0, 0},
    {"looking at a lock", try_lock, 0, 0, 0},
};

static int probe_all(bool second) {
    int wrong = 0;
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++) {
        const int expected = second ? probes[i].second : probes[i].first, got = probes[i].call();
        if (got == expected || (!second && sandbox_landlock_version() < probes[i].since)) continue;
        fprintf(stderr, "step %d, %s: %s instead of %s\n", 1 + second, probes[i].name, strerror(got), strerror(expected));
        wrong = __LINE__;
    }
    return wrong;
}

static int check_promises(void) {
    const char *const paths[] = {model, NULL};
    const struct sockaddr_un name = abstract_name();
    const int abstract = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT(setpgid(0, 0) == 0);
    EXPECT(listen_on_loopback(&address) >= 0);
    EXPECT(bind(abstract, (const struct sockaddr *)&name, sizeof name) == 0 && listen(abstract, 1) == 0);
    client = socket(AF_INET, SOCK_STREAM, 0);
    datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    read_only = open(model, O_RDONLY);
    program = (int)syscall(SYS_memfd_create, "program", 0);
    spare_ports[0] = socket(AF_INET, SOCK_STREAM, 0);
    spare_ports[1] = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT(prlimit(0, RLIMIT_CORE, &(struct rlimit){0}, NULL) == 0);
    /* The socket of the abstract name belongs to nobody in the sandbox: its owner is a process outside of it. */
    EXPECT(sandbox_limit_files(&(sandbox_rights){.paths = paths, .port = 0}, NULL) == CL_OK);
    const int first = probe_all(false);
    EXPECT(sandbox_limit_calls(false, NULL) == CL_OK);
    return first ? first : probe_all(true);
}

static void every_promise_is_kept(void **state) {
    (void)state;
    if (in_child(check_support) != 0) skip();
    assert_int_equal(in_child(check_promises), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_models_files_can_be_read),
        cmocka_unit_test(a_running_server_opens_nothing),
        cmocka_unit_test(every_promise_is_kept),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
