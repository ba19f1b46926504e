/* Forks the starter, and is the starter: see grammar_starter.h. */
#include "grammar_starter.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chunkattn/base/clock.h"
#include "grammar_confine.h"
#include "grammar_wire.h"

/* What the engine requests of the starter, and the reply, which a fork's socket comes with. */
typedef struct request {
    bool forks; /* or ends the process `index` */
    int32_t index;
} request;

typedef struct reply {
    int32_t index;  /* of the new process; -1: none */
    int32_t status; /* of the ended one */
} reply;

/* ---- The starter's process ---- */

/* Bytes of a grammar's stack, of which it uses what it needs: its engine recurses along chains of definitions. */
static const size_t STACK = (size_t)256 << 20, GUARD = 1 << 16; /* at its end, which cannot be accessed */

enum { CLONE_FLAGS = CLONE_PIDFD | SIGCHLD };

typedef struct child {
    pid_t pid; /* 0: none */
    int handle;
} child;

/* The state of the starter. */
typedef struct state {
    int control;  /* the socket to the engine */
    pid_t engine; /* its process */
    int inner;    /* of the process that is being forked: its socket */
    pid_t own;
    char *stack; /* [STACK] each forked process has a copy */
    cl_grammar_library *library;
    int32_t n_vocab;
    cl_process_limits limits;
    child children[CL_STARTER_MAX];
} state;

/* The first function of a grammar's process. */
static int run_grammar(void *arg) {
    const state *s = arg;
    prctl(PR_SET_NAME, "grammar");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != s->own) _exit(0); /* the starter has ended before */
    cl_confine_inherited(s->inner);
    cl_confine_grammar(s->limits.memory_bytes);
    cl_grammar_serve(s->inner, s->library, s->n_vocab, &s->limits);
    _exit(0);
}

/* The process begins on a stack of its own, which no thread needs to be started for. */
static bool fork_child(state *s, child *c) {
    const pid_t pid = clone(run_grammar, s->stack + STACK, CLONE_FLAGS, s, &c->handle);
    if (pid > 0) c->pid = pid;
    return pid > 0;
}

static int32_t find_free(const state *s) {
    for (int32_t i = 0; i < CL_STARTER_MAX; i++)
        if (s->children[i].pid == 0) return i;
    return -1;
}

/* Send a reply, with a file unless it is -1. */
static bool send_reply(int control, const reply *r, int fd) {
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } ancillary = {.bytes = {0}};
    struct iovec bytes = {.iov_base = (void *)r, .iov_len = sizeof *r};
    struct msghdr m = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (fd >= 0) {
        m.msg_control = ancillary.bytes;
        m.msg_controllen = sizeof ancillary.bytes;
        struct cmsghdr *head = CMSG_FIRSTHDR(&m);
        *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
    }
    return sendmsg(control, &m, MSG_NOSIGNAL) == (ssize_t)sizeof *r;
}

static bool start_child(state *s) {
    int ends[2];
    reply r = {.index = find_free(s)};
    if (r.index < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return send_reply(s->control, &(reply){.index = -1}, -1);
    s->inner = ends[1];
    if (!fork_child(s, &s->children[r.index])) r.index = -1;
    const bool ok = send_reply(s->control, &r, r.index < 0 ? -1 : ends[0]);
    close(ends[0]);
    close(ends[1]);
    return ok;
}

static bool end_child(state *s, int32_t index) {
    reply r = {.index = index};
    child *c = index >= 0 && index < CL_STARTER_MAX ? &s->children[index] : NULL;
    if (!c || c->pid == 0) return false;
    syscall(SYS_pidfd_send_signal, c->handle, SIGKILL, NULL, 0);
    while (waitpid(c->pid, &r.status, 0) < 0 && errno == EINTR) {
    }
    close(c->handle);
    c->pid = 0;
    return send_reply(s->control, &r, -1);
}

/* GUARD bytes at the end of the stack cannot be accessed. False: memory is lacking. */
static bool map_stack(state *s) {
    s->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return s->stack != MAP_FAILED && mprotect(s->stack, GUARD, PROT_NONE) == 0;
}

/*
 * Wait for a request. False: the engine's process has ended. Processes that it has forked may have its end of the socket, so
 * that this is not closed with it. handle: of the engine's process; -1: the system has none.
 */
static bool wait_for_request(int control, int handle) {
    struct pollfd p[] = {{.fd = control, .events = POLLIN}, {.fd = handle, .events = POLLIN}};
    while (ppoll(p, 2, NULL, NULL) < 0 && errno == EINTR) {
    }
    return p[1].revents == 0;
}

/* Load the library, say how that ended, and then fork and end processes until the engine ends, or its end of the socket. */
static void run_starter(state *s, cl_grammar_open_fn *open, const char *path, const cl_tokenizer *tok) {
    cl_error error = {.code = CL_OK};
    request r;
    prctl(PR_SET_NAME, "grammars");
    if (s->control < 3) s->control = fcntl(s->control, F_DUPFD, 3); /* the program may have closed its standard files */
    cl_confine_inherited(s->control);
    s->own = getpid();
    const int handle = fcntl((int)syscall(SYS_pidfd_open, s->engine, 0), F_DUPFD, 3);
    cl_status status = map_stack(s) ? CL_OK : cl_fail(&error, CL_ERR_NOMEM, "no memory for grammars");
    if (status == CL_OK) status = open(path, tok, s->n_vocab, true, &s->library, &error);
    error.code = status;
    cl_confine_starter(CLONE_FLAGS);
    if (!cl_wire_write(s->control, &error, sizeof error) || status != CL_OK) return;
    while (wait_for_request(s->control, handle) && cl_wire_read(s->control, &r, sizeof r) &&
           (r.forks ? start_child(s) : end_child(s, r.index))) {
    }
}

/* ---- The engine's process ---- */

static const double LOAD_S = 300, REPLY_S = 60; /* beyond these, which no machine that works needs, the starter is given up */

struct cl_starter {
    int handle;            /* of the process, also after the program has waited for it; -1: none */
    int control;           /* the socket to it; -1: it has ended */
    pthread_mutex_t mutex; /* held from a request to its reply */
};

/*
 * End the starter. Processes that this one has forked may have the socket, too; so it is shut down, and not only closed. A
 * starter that hangs is killed, which a sandbox may forbid. Called with the mutex locked, or without other threads.
 */
static void give_up(cl_starter *s) {
    if (s->control < 0) return;
    shutdown(s->control, SHUT_RDWR);
    close(s->control);
    s->control = -1;
    syscall(SYS_pidfd_send_signal, s->handle, SIGKILL, NULL, 0);
}

static cl_status load(cl_starter *s, cl_error *error) {
    bool late;
    cl_error cause;
    if (!cl_wire_read_until(s->control, &cause, sizeof cause, clock_seconds() + LOAD_S, &late))
        return cl_fail(error, CL_ERR_NOMEM,
                       "the process that starts grammars has ended while it loaded grammar_library; memory may be lacking");
    if (cause.code != CL_OK && error) *error = cause;
    return cause.code;
}

cl_status cl_starter_create(cl_grammar_open_fn *open, const char *path, const cl_tokenizer *tok, int32_t n_vocab,
                            const cl_process_limits *limits, cl_starter **out, cl_error *error) {
    int ends[2];
    *out = NULL;
    cl_starter *s = calloc(1, sizeof *s);
    state *own = calloc(1, sizeof *own); /* the starter's, which is forked with it */
    if (!s || !own || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        free(s);
        free(own);
        return cl_fail(error, CL_ERR_NOMEM, "no memory or files for grammars");
    }
    *own = (state){.control = ends[1], .engine = getpid(), .n_vocab = n_vocab, .limits = *limits};
    const pid_t pid = fork();
    if (pid == 0) {
        run_starter(own, open, path, tok);
        _exit(0);
    }
    free(own);
    close(ends[1]);
    s->control = ends[0];
    s->handle = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    fcntl(s->control, F_SETFL, O_NONBLOCK);
    pthread_mutex_init(&s->mutex, NULL);
    const cl_status status =
        s->handle < 0 ? cl_fail(error, CL_ERR_NOMEM, "the process that starts grammars cannot be forked: %s", strerror(errno))
                      : load(s, error);
    if (status == CL_OK)
        *out = s;
    else
        cl_starter_free(&s);
    return status;
}

void cl_starter_free(cl_starter **sp) {
    cl_starter *s = sp ? *sp : NULL;
    siginfo_t ended;
    if (!s) return;
    give_up(s);
    while (s->handle >= 0 && waitid(P_PIDFD, (id_t)s->handle, &ended, WEXITED) != 0 && errno == EINTR) {
    }
    if (s->handle >= 0) close(s->handle);
    pthread_mutex_destroy(&s->mutex);
    free(s);
    *sp = NULL;
}

/* Wait for a reply, whatever deadline the thread has: the next one would read it as its own. */
static bool wait_for_reply(int control) {
    struct pollfd p = {.fd = control, .events = POLLIN};
    int n;
    while ((n = poll(&p, 1, (int)(1e3 * REPLY_S))) < 0 && errno == EINTR) {
    }
    return n > 0;
}

static bool receive_reply(int control, reply *r, int *fd) {
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(int))];
    } ancillary;
    struct iovec bytes = {.iov_base = r, .iov_len = sizeof *r};
    struct msghdr m = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = ancillary.bytes, .msg_controllen = sizeof ancillary.bytes};
    if (!wait_for_reply(control) || recvmsg(control, &m, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *r) return false;
    const struct cmsghdr *head = CMSG_FIRSTHDR(&m);
    if (head && head->cmsg_type == SCM_RIGHTS) memcpy(fd, CMSG_DATA(head), sizeof *fd);
    return true;
}

/* Pass a request to the starter, and wait for the reply. False: the starter has ended. */
static bool request_of(cl_starter *s, const request *r, reply *answer, int *fd) {
    pthread_mutex_lock(&s->mutex);
    const bool ok = s->control >= 0 && cl_wire_write(s->control, r, sizeof *r) && receive_reply(s->control, answer, fd);
    if (!ok) give_up(s);
    pthread_mutex_unlock(&s->mutex);
    return ok;
}

cl_status cl_starter_fail(cl_error *error) {
    return cl_fail(error, CL_ERR_NOMEM, "the process that starts grammars has ended; restart the server");
}

cl_status cl_starter_fork(cl_starter *s, cl_started *started, cl_error *error) {
    reply r;
    *started = (cl_started){.index = -1, .fd = -1};
    if (!request_of(s, &(request){.forks = true}, &r, &started->fd)) return cl_starter_fail(error);
    started->index = r.index;
    if (started->fd < 0 && r.index >= 0) request_of(s, &(request){.index = r.index}, &r, &started->fd); /* it has no socket */
    if (started->fd < 0)
        return cl_fail(error, CL_ERR_NOMEM, "no process or file is left for a grammar; send the request later");
    fcntl(started->fd, F_SETFL, O_NONBLOCK);
    return CL_OK;
}

int cl_starter_end(cl_starter *s, cl_started *started) {
    reply r = {.status = -1};
    int none = -1;
    if (started->fd < 0) return -1;
    const bool ok = request_of(s, &(request){.forks = false, .index = started->index}, &r, &none);
    close(started->fd);
    started->fd = -1;
    return ok ? r.status : -1;
}
