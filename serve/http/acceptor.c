/* The acceptor's thread, and its table of open connections. docs/design.md says which fault needs each part of it. */
#define _GNU_SOURCE /* accept4, asprintf */
#include "acceptor.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "chunkattn/base/clock.h"

enum {
    N_LINGERING = ACCEPTOR_FILES - 3,
    N_EVENTS = 64,      /* of one call of epoll_wait */
    TICK_MS = 50,       /* between two looks at connections that are to end */
    SLOW_TICK_MS = 500, /* between two looks at deadlines */
};

/* How long a client may take to read its last answer before its connection is closed. */
static const double linger_s = 1;

/* How long a spare connection may be open, and, while the acceptor drains, one that has sent no request yet. */
static const double spare_s = 2, unused_s = 1;
static const double at_once_s = 1e-6; /* 0 would mean no limit */

/* What a connection waits for. */
typedef enum phase {
    PHASE_CLOSED,    /* nothing: there is none */
    PHASE_UNUSED,    /* its first request */
    PHASE_ARRIVING,  /* the rest of a request */
    PHASE_ANSWERED,  /* an answer, which may take any time */
    PHASE_IDLE,      /* its next request */
    PHASE_LINGERING, /* the client's end, after the last answer; later bytes from it are dropped. The acceptor owns the socket
                      */
} phase;

/* A connection, by its socket number. The daemon serves it unless it lingers. */
typedef struct connection {
    phase phase;
    bool spare;      /* it is beyond the limit */
    bool hung_up;    /* the client has closed its sending half or everything */
    double deadline; /* clock_seconds() at which it ends; 0: none */
    void *owner;     /* that acceptor_watch has set; NULL: none */
} connection;

struct http_acceptor {
    acceptor_config config;
    struct MHD_Daemon *daemons[ACCEPTOR_MAX_LISTENERS]; /* of each listener */
    char *refusal;                                      /* the whole HTTP answer to connections beyond the limit */
    int epoll;
    int stop;    /* an event descriptor that ends the thread */
    int reserve; /* a file that is closed to accept and close a connection when files are lacking; -1: not available */
    bool started;
    pthread_t thread;

    pthread_mutex_t lock;    /* guards the fields below */
    connection *connections; /* [n_entries], by socket number */
    size_t n_entries;
    int32_t n_open, n_spare, n_lingering; /* connections that are served within the limit and beyond it, and that linger */
    bool drains;
};

/* ---- Events ---- */

/* What an event is about: the upper half of its data. The lower half is the socket, or the index of the listener. */
enum { EVENT_LISTENER, EVENT_STOP, EVENT_CONNECTION };

static bool await_as(const http_acceptor *a, int kind, int number, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)kind << 32 | (uint32_t)number};
    return epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static bool await(const http_acceptor *a, int kind, int fd, uint32_t events) { return await_as(a, kind, fd, fd, events); }

/* ---- The table ---- */

/* The entry of an open connection; NULL: none. The caller holds the lock. */
static connection *find(http_acceptor *a, int fd) {
    return (size_t)fd < a->n_entries && a->connections[fd].phase != PHASE_CLOSED ? &a->connections[fd] : NULL;
}

/* The same, after acquiring the lock, which the caller releases in any case. */
static connection *lock_and_find(http_acceptor *a, int fd) {
    pthread_mutex_lock(&a->lock);
    return find(a, fd);
}

/* Allocate entries for socket numbers up to fd. */
static bool allocate_entries(http_acceptor *a, size_t fd) {
    if (fd < a->n_entries) return true;
    const size_t n = fd * 2 + 64;
    connection *grown = realloc(a->connections, n * sizeof *grown);
    if (!grown) return false;
    for (size_t i = a->n_entries; i < n; i++) grown[i] = (connection){0};
    a->connections = grown;
    a->n_entries = n;
    return true;
}

/* Which connections are counted with one. */
static int32_t *count_of(http_acceptor *a, const connection *c) {
    return c->phase == PHASE_LINGERING ? &a->n_lingering : c->spare ? &a->n_spare : &a->n_open;
}

/* Enter a connection; false: memory is lacking. The caller holds the lock. */
static bool add_entry(http_acceptor *a, int fd, connection c) {
    if (!allocate_entries(a, (size_t)fd)) return false;
    a->connections[fd] = c;
    ++*count_of(a, &c);
    return true;
}

/* Remove an entry; false: there is none. The caller holds the lock. */
static bool remove_entry(http_acceptor *a, int fd) {
    connection *c = find(a, fd);
    if (!c) return false;
    --*count_of(a, c);
    c->phase = PHASE_CLOSED;
    return true;
}

/* The seconds for which a connection within the limit may be in a phase; 0: without a limit. The caller holds the lock. */
static double seconds_of(const http_acceptor *a, phase p) {
    switch (p) {
    case PHASE_UNUSED: return a->drains ? unused_s : a->config.request_timeout_s;
    case PHASE_ARRIVING: return a->config.request_timeout_s;
    case PHASE_IDLE: return a->drains ? at_once_s : a->config.idle_timeout_s;
    default: return 0;
    }
}

/* Spare connections keep their deadline. The caller holds the lock. */
static void set_phase(const http_acceptor *a, connection *c, phase p) {
    const double seconds = seconds_of(a, p);
    c->phase = p;
    if (!c->spare) c->deadline = seconds > 0 ? clock_seconds() + seconds : 0;
}

int32_t acceptor_n_connections(http_acceptor *a) {
    pthread_mutex_lock(&a->lock);
    const int32_t n = a->n_open + a->n_spare;
    pthread_mutex_unlock(&a->lock);
    return n;
}

/*
 * Enter a new connection; false: there are too many, or memory is lacking. The socket number may still have an entry: if memory
 * is lacking, libmicrohttpd closes a connection without a callback.
 */
static bool enter(http_acceptor *a, int fd) {
    pthread_mutex_lock(&a->lock);
    remove_entry(a, fd);
    const bool spare = a->n_open >= a->config.max_connections, full = spare && a->n_spare >= a->config.max_spare;
    const double seconds = spare ? spare_s : seconds_of(a, PHASE_UNUSED);
    const connection c = {.phase = PHASE_UNUSED, .spare = spare, .deadline = clock_seconds() + seconds};
    const bool ok = !full && add_entry(a, fd, c);
    pthread_mutex_unlock(&a->lock);
    return ok;
}

/* ---- Connections whose last answer was sent. The caller holds the lock ---- */

/*
 * The daemon may not have closed its socket of the connection yet, and until then epoll would go on reporting events of the
 * copy, by a number that a new connection may have.
 */
static void close_lingering(http_acceptor *a, int fd) {
    remove_entry(a, fd);
    epoll_ctl(a->epoll, EPOLL_CTL_DEL, fd, NULL);
    close(fd);
}

static void close_oldest_lingering(http_acceptor *a) {
    int oldest = -1;
    for (int fd = 0; fd < (int)a->n_entries; fd++) {
        const connection *c = &a->connections[fd];
        if (c->phase == PHASE_LINGERING && (oldest < 0 || c->deadline < a->connections[oldest].deadline)) oldest = fd;
    }
    close_lingering(a, oldest);
}

/*
 * Keep a connection open until its client has closed it: closing a socket that has unread data may destroy the answer on its
 * way. fd is owned from now on.
 */
static void linger(http_acceptor *a, int fd) {
    const connection c = {.phase = PHASE_LINGERING, .deadline = clock_seconds() + linger_s};
    if (a->n_lingering == N_LINGERING) close_oldest_lingering(a);
    if (!add_entry(a, fd, c))
        close(fd);
    else if (!await(a, EVENT_CONNECTION, fd, EPOLLIN))
        close_lingering(a, fd);
}

/* Drop the client's bytes; close the connection if it has ended. */
static void drain_lingering(http_acceptor *a, int fd) {
    char dropped[4096];
    const ssize_t n = recv(fd, dropped, sizeof dropped, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) close_lingering(a, fd);
}

/* ---- What the daemon reports ---- */

void acceptor_connection_ends(http_acceptor *a, int fd) {
    char unread;
    pthread_mutex_lock(&a->lock);
    if (remove_entry(a, fd)) {
        epoll_ctl(a->epoll, EPOLL_CTL_DEL, fd, NULL);
        /* The caller closes the socket; a copy of it lingers unless the client has closed the connection. */
        const bool ended = recv(fd, &unread, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
        const int copy = ended ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (copy >= 0) linger(a, copy);
    }
    pthread_mutex_unlock(&a->lock);
}

static void enter_phase(http_acceptor *a, int fd, phase p) {
    connection *c = lock_and_find(a, fd);
    if (c) set_phase(a, c, p);
    pthread_mutex_unlock(&a->lock);
}

void acceptor_request_begins(http_acceptor *a, int fd) { enter_phase(a, fd, PHASE_ARRIVING); }

void acceptor_request_complete(http_acceptor *a, int fd) { enter_phase(a, fd, PHASE_ANSWERED); }

void acceptor_request_ends(http_acceptor *a, int fd) { enter_phase(a, fd, PHASE_IDLE); }

/* The thread looks at deadlines often enough to notice these. */
void acceptor_drain(http_acceptor *a) {
    pthread_mutex_lock(&a->lock);
    a->drains = true;
    for (size_t fd = 0; fd < a->n_entries; fd++) {
        connection *c = &a->connections[fd];
        if (c->phase == PHASE_UNUSED || c->phase == PHASE_IDLE) set_phase(a, c, c->phase);
    }
    pthread_mutex_unlock(&a->lock);
}

bool acceptor_is_within(http_acceptor *a, int fd) {
    connection *c = lock_and_find(a, fd);
    if (c && c->spare && a->n_open < a->config.max_connections) {
        a->n_spare--;
        a->n_open++;
        c->spare = false;
        set_phase(a, c, PHASE_ARRIVING);
    }
    const bool within = !c || !c->spare;
    pthread_mutex_unlock(&a->lock);
    return within;
}

void acceptor_body_arrives(http_acceptor *a, int fd, size_t size) {
    connection *c = lock_and_find(a, fd);
    if (c && !c->spare && c->phase == PHASE_ARRIVING) c->deadline += (double)size / ACCEPTOR_BODY_RATE;
    pthread_mutex_unlock(&a->lock);
}

void acceptor_watch(http_acceptor *a, int fd, void *owner) {
    connection *c = lock_and_find(a, fd);
    if (c) c->owner = owner;
    if (c && owner && c->hung_up) a->config.on_hangup(owner);
    pthread_mutex_unlock(&a->lock);
}

/* ---- Ends of connections, on the acceptor's thread ---- */

static void note_hangup(http_acceptor *a, connection *c) {
    c->hung_up = true;
    if (c->owner) a->config.on_hangup(c->owner);
}

static void handle_connection(http_acceptor *a, int fd) {
    connection *c = lock_and_find(a, fd);
    if (c) c->phase == PHASE_LINGERING ? drain_lingering(a, fd) : note_hangup(a, c);
    pthread_mutex_unlock(&a->lock);
}

/*
 * End a connection that is due. shutdown() makes the daemon read again: it closes a connection whose both halves are shut down,
 * and one whose client hung up as soon as it has read everything. The latter may take several ticks, and changes nothing for a
 * request that is complete.
 */
static void end_connection(http_acceptor *a, int fd, bool late) {
    if (a->connections[fd].phase == PHASE_LINGERING)
        close_lingering(a, fd);
    else
        shutdown(fd, late ? SHUT_RDWR : SHUT_RD);
}

/*
 * End the connections that are due. The lock is held, so that no socket number is reused meanwhile. Returns the milliseconds
 * until the next look; -1: no connection is open.
 */
static int end_due_connections(http_acceptor *a) {
    pthread_mutex_lock(&a->lock);
    const double now = clock_seconds();
    bool soon = false;
    for (size_t fd = 0; fd < a->n_entries; fd++) {
        const connection *c = &a->connections[fd];
        const bool late = c->deadline > 0 && c->deadline < now;
        if (c->phase == PHASE_CLOSED || (!late && !c->hung_up)) continue;
        end_connection(a, (int)fd, late);
        soon = true;
    }
    soon = soon || a->n_lingering > 0;
    const bool open = a->n_open + a->n_spare > 0;
    pthread_mutex_unlock(&a->lock);
    return soon ? TICK_MS : open ? SLOW_TICK_MS : -1;
}

/* ---- Connections beyond the limit ---- */

const openai_error *acceptor_limit_error(const http_acceptor *a, openai_error *error) {
    openai_fail(error, NULL, "the server holds %d connections, which is its limit; send the request again later",
                a->config.max_connections);
    return openai_unavailable(error, 1);
}

static char *make_refusal(const http_acceptor *a) {
    const acceptor_config *c = &a->config;
    openai_error error;
    openai_writer w = {0};
    openai_write_error_body(&w, NULL, acceptor_limit_error(a, &error));
    char *body = writer_end(&w, NULL), *text = NULL;
    const int n = body ? asprintf(&text,
                                  "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n%s%s%s"
                                  "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                                  c->cors_origin ? "Access-Control-Allow-Origin: " : "", c->cors_origin ? c->cors_origin : "",
                                  c->cors_origin ? "\r\n" : "", strlen(body), body)
                       : -1;
    free(body);
    return n < 0 ? NULL : text;
}

/* Refuse a connection with an answer, if it can be written at once. */
static void refuse(http_acceptor *a, int fd, bool encrypted) {
    if (!encrypted) send(fd, a->refusal, strlen(a->refusal), MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    pthread_mutex_lock(&a->lock);
    linger(a, fd);
    pthread_mutex_unlock(&a->lock);
    if (a->config.on_refused) a->config.on_refused(a->config.ctx);
}

/* ---- Accepting ---- */

static int accept_one(int listener, struct sockaddr_storage *address, socklen_t *size) {
    *size = sizeof *address;
    return accept4(listener, (struct sockaddr *)address, size, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

static int open_reserve(void) { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

/* Close a connection that cannot be accepted because files or memory are lacking. False if that fails, too. */
static bool accept_and_close(http_acceptor *a, int listener) {
    struct sockaddr_storage address;
    socklen_t size;
    if (a->reserve >= 0) close(a->reserve);
    const int fd = accept_one(listener, &address, &size);
    if (fd >= 0) close(fd);
    a->reserve = open_reserve();
    return fd >= 0;
}

/* Pass a connection to the daemon, which closes it if it cannot serve it. */
static void serve(http_acceptor *a, struct MHD_Daemon *daemon, int fd, const struct sockaddr_storage *address, socklen_t size) {
    const bool ok = await(a, EVENT_CONNECTION, fd, EPOLLRDHUP | EPOLLONESHOT);
    if (ok && MHD_add_connection(daemon, fd, (const struct sockaddr *)address, size)) return;
    if (!ok) close(fd);
    pthread_mutex_lock(&a->lock);
    remove_entry(a, fd);
    pthread_mutex_unlock(&a->lock);
}

/* Whether accept4 failed because of this process or machine, and not because of the client. */
static bool is_lacking(int failure) {
    return failure == EMFILE || failure == ENFILE || failure == ENOMEM || failure == ENOBUFS;
}

/*
 * Accept the connections that wait at a listener, at most N_EVENTS of them. If that is impossible, the thread sleeps for a
 * tick: epoll would report the same connections again at once, so the thread would spin.
 */
static void accept_waiting(http_acceptor *a, size_t listener) {
    const acceptor_listener *l = &a->config.listeners[listener];
    for (int i = 0; i < N_EVENTS; i++) {
        struct sockaddr_storage address;
        socklen_t size;
        const int fd = accept_one(l->fd, &address, &size);
        if (fd >= 0 && enter(a, fd)) {
            serve(a, a->daemons[listener], fd, &address, size);
        } else if (fd >= 0) {
            refuse(a, fd, l->encrypted);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != ECONNABORTED && !(is_lacking(errno) && accept_and_close(a, l->fd))) {
            nanosleep(&(struct timespec){.tv_nsec = TICK_MS * 1000000L}, NULL);
            return;
        }
    }
}

/* ---- The thread ---- */

/*
 * Wait for events and handle them; false: stop. Connections are accepted after all other events, so that no event of a closed
 * socket can be mistaken for one of a new connection with the same number.
 */
static bool handle_events(http_acceptor *a, int timeout_ms) {
    struct epoll_event events[N_EVENTS];
    const int n = epoll_wait(a->epoll, events, N_EVENTS, timeout_ms);
    bool waiting[ACCEPTOR_MAX_LISTENERS] = {false}, stop = false;
    for (int i = 0; i < n; i++) {
        const int number = (int)(uint32_t)events[i].data.u64;
        switch (events[i].data.u64 >> 32) {
        case EVENT_LISTENER: waiting[number] = true; break;
        case EVENT_STOP: stop = true; break;
        case EVENT_CONNECTION: handle_connection(a, number); break;
        }
    }
    for (size_t i = 0; i < ACCEPTOR_MAX_LISTENERS && !stop; i++)
        if (waiting[i]) accept_waiting(a, i);
    return !stop;
}

static void *run(void *arg) {
    http_acceptor *a = arg;
    for (int timeout_ms = -1; handle_events(a, timeout_ms);) timeout_ms = end_due_connections(a);
    return NULL;
}

/* ---- Life ---- */

http_acceptor *acceptor_create(const acceptor_config *config) {
    http_acceptor *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    pthread_mutex_init(&a->lock, NULL);
    a->config = *config;
    a->refusal = make_refusal(a);
    a->epoll = epoll_create1(EPOLL_CLOEXEC);
    a->stop = eventfd(0, EFD_CLOEXEC);
    a->reserve = open_reserve();
    bool ok = a->refusal && a->epoll >= 0 && a->stop >= 0 && await(a, EVENT_STOP, a->stop, EPOLLIN);
    for (int i = 0; ok && i < config->n_listeners; i++) ok = await_as(a, EVENT_LISTENER, i, config->listeners[i].fd, EPOLLIN);
    if (ok) return a;
    acceptor_destroy(&a);
    return NULL;
}

bool acceptor_start(http_acceptor *a, struct MHD_Daemon *const daemons[ACCEPTOR_MAX_LISTENERS]) {
    memcpy(a->daemons, daemons, sizeof a->daemons);
    a->started = pthread_create(&a->thread, NULL, run, a) == 0;
    return a->started;
}

void acceptor_stop(http_acceptor *a) {
    if (!a || !a->started) return;
    eventfd_write(a->stop, 1);
    pthread_join(a->thread, NULL);
    a->started = false;
}

void acceptor_destroy(http_acceptor **address) {
    http_acceptor *a = address ? *address : NULL;
    if (!a) return;
    *address = NULL;
    acceptor_stop(a);
    while (a->n_lingering > 0) close_oldest_lingering(a);
    if (a->epoll >= 0) close(a->epoll);
    if (a->stop >= 0) close(a->stop);
    if (a->reserve >= 0) close(a->reserve);
    pthread_mutex_destroy(&a->lock);
    free(a->connections);
    free(a->refusal);
    free(a);
}
