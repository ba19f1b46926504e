/* Limits of resources, and filters of system calls: see grammar_confine.h. */
#include "grammar_confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { HAS_REPORTS = 1 }; /* of sanitizers, on standard error */
#else
enum { HAS_REPORTS = 0 };
#endif

/* ---- What is inherited ---- */

static bool is_for_program(int signal) {
    return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT || signal == SIGUSR1 ||
           signal == SIGUSR2 || signal == SIGPIPE;
}

/* Close the files from `first` to `last`. Linux before 5.9 lacks the call. */
static void close_files(unsigned first, unsigned last) {
    if (syscall(SYS_close_range, first, last, 0) == 0) return;
    const long n = sysconf(_SC_OPEN_MAX);
    for (long fd = first; fd <= (long)last && fd < n; fd++) close((int)fd);
}

void cl_confine_inherited(int fd) {
    sigset_t none;
    for (int i = 1; i < NSIG; i++) signal(i, is_for_program(i) ? SIG_IGN : SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (fd > 3) close_files(3, (unsigned)fd - 1);
    close_files((unsigned)fd + 1, ~0U);
}

/* Let a file lead to a pipe that nobody reads. */
static void disconnect_files(void) {
    int ends[2];
    if (pipe(ends) != 0) return;
    close(ends[0]);
    for (int fd = 0; fd < 3 - HAS_REPORTS; fd++) dup2(ends[1], fd);
    close(ends[1]);
}

/* ---- System calls ---- */

#if defined(__x86_64__)
enum { ARCH = AUDIT_ARCH_X86_64 };
#elif defined(__aarch64__)
enum { ARCH = AUDIT_ARCH_AARCH64 };
#else
enum { ARCH = 0 }; /* no filter */
#endif

/* A call that is allowed, or, for ENDS, ends the process by SIGSYS. */
typedef struct rule {
    int number;
    /* Any arguments; the first one is `value`; the third one has no PROT_EXEC. */
    enum { ANY, ENDS, FIRST_IS, NOT_EXECUTABLE } when;
    uint32_t value;
} rule;

/* Of both kinds of processes: memory, the socket, time, and the ways to end. abort() begins with tgkill. */
static const rule common[] = {
    {SYS_read, ANY, 0},          {SYS_write, ANY, 0},           {SYS_recvfrom, ANY, 0},
    {SYS_sendto, ANY, 0},        {SYS_mmap, NOT_EXECUTABLE, 0}, {SYS_mprotect, NOT_EXECUTABLE, 0},
    {SYS_munmap, ANY, 0},        {SYS_mremap, ANY, 0},          {SYS_madvise, ANY, 0},
    {SYS_brk, ANY, 0},           {SYS_futex, ANY, 0},           {SYS_getrandom, ANY, 0},
    {SYS_clock_gettime, ANY, 0}, {SYS_getrusage, ANY, 0},       {SYS_setitimer, ANY, 0},
    {SYS_getpid, ANY, 0},        {SYS_gettid, ANY, 0},          {SYS_sched_yield, ANY, 0},
    {SYS_rt_sigaction, ANY, 0},  {SYS_rt_sigprocmask, ANY, 0},  {SYS_rt_sigreturn, ANY, 0},
    {SYS_sigaltstack, ANY, 0},   {SYS_restart_syscall, ANY, 0}, {SYS_close, ANY, 0},
    {SYS_exit, ANY, 0},          {SYS_exit_group, ANY, 0},      {SYS_tgkill, ENDS, 0},
};

/* Of the starter as well, some of them for the processes that it forks, until they are confined themselves. */
static const rule of_starter[] = {
    {SYS_socketpair, ANY, 0},        {SYS_sendmsg, ANY, 0}, {SYS_wait4, ANY, 0},     {SYS_prctl, ANY, 0},
    {SYS_pidfd_send_signal, ANY, 0}, {SYS_seccomp, ANY, 0}, {SYS_prlimit64, ANY, 0}, {SYS_close_range, ANY, 0},
    {SYS_getppid, ANY, 0},           {SYS_ppoll, ANY, 0},
};

enum { MAX_INSTRUCTIONS = 256 };
typedef struct program {
    struct sock_filter code[MAX_INSTRUCTIONS];
    unsigned short n;
} program;

static void emit(program *p, uint16_t code, uint32_t k, uint8_t if_true, uint8_t if_false) {
    p->code[p->n++] = (struct sock_filter){code, if_true, if_false, k};
}

static void load(program *p, size_t offset) { emit(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0); }
static void answer(program *p, uint32_t action) { emit(p, BPF_RET | BPF_K, action, 0, 0); }
static void refuse(program *p) { answer(p, SECCOMP_RET_ERRNO | EPERM); }

/* The low halves of arguments, on machines of little endian. */
static size_t argument(int i) { return offsetof(struct seccomp_data, args) + 8 * (size_t)i; }

/* The instructions of one rule jump to the next one if the number is another. */
static void add_rule(program *p, const rule *r) {
    const bool looks = r->when == FIRST_IS || r->when == NOT_EXECUTABLE;
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)r->number, 0, looks ? 4 : 1);
    if (looks) load(p, argument(r->when == FIRST_IS ? 0 : 2));
    if (r->when == FIRST_IS) emit(p, BPF_JMP | BPF_JEQ | BPF_K, r->value, 1, 0);
    if (r->when == NOT_EXECUTABLE) emit(p, BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1);
    if (looks) refuse(p);
    answer(p, r->when == ENDS ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ALLOW);
}

static void begin(program *p) {
    load(p, offsetof(struct seccomp_data, arch));
    emit(p, BPF_JMP | BPF_JEQ | BPF_K, ARCH, 1, 0);
    refuse(p);
    load(p, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) add_rule(p, &common[i]);
}

static void install(program *p) {
    refuse(p);
    const struct sock_fprog filter = {.len = p->n, .filter = p->code};
    if (ARCH != 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter);
}

/* ---- Resources ---- */

static void set_limit(int resource, rlim_t soft, rlim_t hard) {
    setrlimit(resource, &(struct rlimit){.rlim_cur = soft, .rlim_max = hard});
}

/* Whether another page fits into a limit of the process's data. */
static bool fits(rlim_t limit, rlim_t hard) {
    set_limit(RLIMIT_DATA, limit, hard);
    void *page = mmap(NULL, 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return page != MAP_FAILED && munmap(page, 1) == 0;
}

/* Let the data grow by some bytes. Their size is found by trying, since a process in a sandbox cannot open its file in /proc.
 */
static void limit_growth(size_t bytes) {
    struct rlimit now;
    rlim_t low = 0, high = (rlim_t)1 << 48;
    if (getrlimit(RLIMIT_DATA, &now) != 0) return;
    if (high > now.rlim_max) high = now.rlim_max;
    while (high - low > 65536) {
        const rlim_t middle = low + (high - low) / 2;
        *(fits(middle, now.rlim_max) ? &high : &low) = middle;
    }
    if (high + bytes < now.rlim_cur) now.rlim_cur = high + bytes;
    set_limit(RLIMIT_DATA, now.rlim_cur, now.rlim_cur);
}

void cl_confine_time(double seconds) {
    const int64_t us = 1 + (int64_t)(1e6 * seconds);
    const struct itimerval limit = {.it_value = {.tv_sec = us / 1000000, .tv_usec = us % 1000000}};
    setitimer(ITIMER_PROF, &limit, NULL);
}

void cl_confine_starter(int clone_flags) {
    program p = {.n = 0};
    disconnect_files();
    set_limit(RLIMIT_CORE, 0, 0);
    begin(&p);
    for (size_t i = 0; i < sizeof of_starter / sizeof *of_starter; i++) add_rule(&p, &of_starter[i]);
    add_rule(&p, &(rule){SYS_clone, FIRST_IS, (uint32_t)clone_flags});
    install(&p);
}

void cl_confine_grammar(size_t bytes) {
    program p = {.n = 0};
    limit_growth(bytes);
    set_limit(RLIMIT_FSIZE, 0, 0);
    begin(&p);
    install(&p);
}
