/* The acceptor's thread, and its table of open connections. */
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
    PHASE_UNUSED, /* its first request */
    PHASE_BUSY,   /* the end of a request */
    PHASE_IDLE,   /* its next request */
} phase;

/* A connection that the daemon serves, by its socket number. */
typedef struct connection {
    bool open;
    bool spare; /* it is beyond the limit */
    phase phase;
    bool hung_up;    /* the client has closed its sending half or everything */
    double deadline; /* clock_seconds() at which it ends; 0: none */
} connection;

/* A connection whose last answer was sent. What the client still sends is dropped until it hangs up. */
typedef struct lingering {
    int fd; /* -1: unused */
    double deadline;
} lingering;

struct acceptor {
    acceptor_config config;
    struct MHD_Daemon *daemons[ACCEPTOR_MAX_LISTENERS]; /* of each listener */
    char *refusal;                                      /* the whole HTTP answer to connections beyond the limit */
    int epoll;
    int stop;    /* an event descriptor that ends the thread */
    int reserve; /* a file that is closed to accept and close a connection when files are lacking; -1: not available */
    bool started;
    pthread_t thread;

    pthread_mutex_t lock; /* guards what follows */
    lingering lingering[N_LINGERING];
    size_t oldest;           /* index of the one that is replaced next */
    connection *connections; /* [n_entries], by socket number */
    size_t n_entries;
    int32_t n_open, n_spare; /* connections within the limit, and beyond it */
    bool drains;
};

/* ---- Events ---- */

/* What an event is about: the upper half of its data. The lower half is the socket, or the index of the listener. */
enum { EVENT_LISTENER, EVENT_STOP, EVENT_CONNECTION, EVENT_LINGERING };

static bool await_as(const acceptor *a, int kind, int number, int fd, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)kind << 32 | (uint32_t)number};
    return epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static bool await(const acceptor *a, int kind, int fd, uint32_t events) { return await_as(a, kind, fd, fd, events); }

/* ---- Connections whose last answer was sent ---- */

static void close_lingering(lingering *l) {
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
}

/*
 * Keep a connection open until its client has closed it: closing a socket that has unread data may destroy the answer on its
 * way. If there are too many of them, the oldest is closed. The caller holds the lock; fd is owned from now on.
 */
static void linger(acceptor *a, int fd) {
    lingering *l = &a->lingering[a->oldest];
    a->oldest = (a->oldest + 1) % N_LINGERING;
    close_lingering(l);
    *l = (lingering){fd, clock_seconds() + linger_s};
    if (!await(a, EVENT_LINGERING, fd, EPOLLIN)) close_lingering(l);
}

/* Drop what the client has sent; close the connection if it has ended. */
static void drain_lingering(acceptor *a, int fd) {
    char dropped[4096];
    pthread_mutex_lock(&a->lock);
    for (size_t i = 0; i < N_LINGERING; i++) {
        if (a->lingering[i].fd != fd) continue;
        const ssize_t n = recv(fd, dropped, sizeof dropped, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) close_lingering(&a->lingering[i]);
    }
    pthread_mutex_unlock(&a->lock);
}

/* Close the lingering connections whose time has passed. Returns whether some are left. */
static bool close_late_lingering(acceptor *a) {
    bool left = false;
    pthread_mutex_lock(&a->lock);
    const double now = clock_seconds();
    for (size_t i = 0; i < N_LINGERING; i++) {
        lingering *l = &a->lingering[i];
        if (l->fd >= 0 && l->deadline < now) close_lingering(l);
        left = left || l->fd >= 0;
    }
    pthread_mutex_unlock(&a->lock);
    return left;
}

/* ---- The table ---- */

/* The entry of an open connection; NULL: none. The caller holds the lock. */
static connection *find(acceptor *a, int fd) {
    return (size_t)fd < a->n_entries && a->connections[fd].open ? &a->connections[fd] : NULL;
}

/* Allocate entries for socket numbers up to fd. */
static bool allocate_entries(acceptor *a, size_t fd) {
    if (fd < a->n_entries) return true;
    const size_t n = fd * 2 + 64;
    connection *grown = realloc(a->connections, n * sizeof *grown);
    if (!grown) return false;
    for (size_t i = a->n_entries; i < n; i++) grown[i] = (connection){0};
    a->connections = grown;
    a->n_entries = n;
    return true;
}

/* Remove an entry; false: there is none. The caller holds the lock. */
static bool remove_entry(acceptor *a, int fd) {
    connection *c = find(a, fd);
    if (!c) return false;
    c->open = false;
    --*(c->spare ? &a->n_spare : &a->n_open);
    return true;
}

/*
 * Enter a new connection; false: there are too many, or memory is lacking. The socket number may still have an entry: if memory
 * is lacking, libmicrohttpd closes a connection without a callback.
 */
static bool enter(acceptor *a, int fd) {
    pthread_mutex_lock(&a->lock);
    remove_entry(a, fd);
    const bool spare = a->n_open >= a->config.max_connections;
    const bool ok = !(spare && a->n_spare >= a->config.max_spare) && allocate_entries(a, (size_t)fd);
    if (ok) {
        const double seconds = spare ? spare_s : a->drains ? unused_s : a->config.request_timeout_s;
        a->connections[fd] = (connection){.open = true, .spare = spare, .deadline = clock_seconds() + seconds};
        ++*(spare ? &a->n_spare : &a->n_open);
    }
    pthread_mutex_unlock(&a->lock);
    return ok;
}

void acceptor_connection_ends(acceptor *a, int fd) {
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

/* Let the connection end `seconds` from now, 0: without a limit. Spare ones keep their deadline. The caller holds the lock. */
static void set_deadline(connection *c, double seconds) {
    if (!c->spare) c->deadline = seconds > 0 ? clock_seconds() + seconds : 0;
}

void acceptor_request_begins(acceptor *a, int fd) {
    pthread_mutex_lock(&a->lock);
    connection *c = find(a, fd);
    if (c) {
        c->phase = PHASE_BUSY;
        set_deadline(c, a->config.request_timeout_s);
    }
    pthread_mutex_unlock(&a->lock);
}

void acceptor_request_complete(acceptor *a, int fd) {
    pthread_mutex_lock(&a->lock);
    connection *c = find(a, fd);
    if (c) set_deadline(c, 0);
    pthread_mutex_unlock(&a->lock);
}

void acceptor_request_ends(acceptor *a, int fd) {
    pthread_mutex_lock(&a->lock);
    connection *c = find(a, fd);
    if (c) {
        c->phase = PHASE_IDLE;
        set_deadline(c, a->drains ? at_once_s : a->config.idle_timeout_s);
    }
    pthread_mutex_unlock(&a->lock);
}

/* The thread looks at deadlines often enough to notice these. */
void acceptor_drain(acceptor *a) {
    pthread_mutex_lock(&a->lock);
    a->drains = true;
    for (size_t fd = 0; fd < a->n_entries; fd++) {
        connection *c = &a->connections[fd];
        if (c->open && c->phase != PHASE_BUSY) set_deadline(c, c->phase == PHASE_IDLE ? at_once_s : unused_s);
    }
    pthread_mutex_unlock(&a->lock);
}

bool acceptor_is_within(acceptor *a, int fd) {
    pthread_mutex_lock(&a->lock);
    connection *c = find(a, fd);
    if (c && c->spare && a->n_open < a->config.max_connections) {
        a->n_spare--;
        a->n_open++;
        c->spare = false;
        set_deadline(c, a->config.request_timeout_s);
    }
    const bool within = !c || !c->spare;
    pthread_mutex_unlock(&a->lock);
    return within;
}

void acceptor_body_arrives(acceptor *a, int fd, size_t size) {
    pthread_mutex_lock(&a->lock);
    connection *c = find(a, fd);
    if (c && !c->spare && c->deadline > 0) c->deadline += (double)size / ACCEPTOR_BODY_RATE;
    pthread_mutex_unlock(&a->lock);
}

static void note_hangup(acceptor *a, int fd) {
    pthread_mutex_lock(&a->lock);
    connection *c = find(a, fd);
    if (c) c->hung_up = true;
    pthread_mutex_unlock(&a->lock);
}

/*
 * End the connections that are due. shutdown() makes the daemon read again: it closes a connection whose both halves are shut
 * down, and one whose client hung up as soon as it has read everything. The latter may take several ticks, and changes nothing
 * for a request that is complete. The lock is held, so that no socket number is reused meanwhile.
 *
 * Returns the milliseconds until the next look; -1: no connection is open.
 */
static int end_due_connections(acceptor *a) {
    pthread_mutex_lock(&a->lock);
    const double now = clock_seconds();
    int next_ms = a->n_open + a->n_spare > 0 ? SLOW_TICK_MS : -1;
    for (size_t fd = 0; fd < a->n_entries; fd++) {
        const connection *c = &a->connections[fd];
        if (!c->open) continue;
        const bool late = c->deadline > 0 && c->deadline < now;
        if (!late && !c->hung_up) continue;
        shutdown((int)fd, late ? SHUT_RDWR : SHUT_RD);
        next_ms = TICK_MS;
    }
    pthread_mutex_unlock(&a->lock);
    return next_ms;
}

/* ---- Connections beyond the limit ---- */

const openai_error *acceptor_limit_error(const acceptor *a, openai_error *error) {
    openai_fail(error, NULL, "the server holds %d connections, which is its limit; send the request again later",
                a->config.max_connections);
    error->status = MHD_HTTP_SERVICE_UNAVAILABLE;
    error->type = "server_error";
    error->retry_after_s = 1;
    return error;
}

static char *make_refusal(const acceptor *a) {
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
static void refuse(acceptor *a, int fd, bool encrypted) {
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
static bool accept_and_close(acceptor *a, int listener) {
    struct sockaddr_storage address;
    socklen_t size;
    if (a->reserve >= 0) close(a->reserve);
    const int fd = accept_one(listener, &address, &size);
    if (fd >= 0) close(fd);
    a->reserve = open_reserve();
    return fd >= 0;
}

/* Pass a connection to the daemon, which closes it if it cannot serve it. */
static void serve(acceptor *a, struct MHD_Daemon *daemon, int fd, const struct sockaddr_storage *address, socklen_t size) {
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
static void accept_waiting(acceptor *a, size_t listener) {
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
static bool handle_events(acceptor *a, int timeout_ms) {
    struct epoll_event events[N_EVENTS];
    const int n = epoll_wait(a->epoll, events, N_EVENTS, timeout_ms);
    bool waiting[ACCEPTOR_MAX_LISTENERS] = {false}, stop = false;
    for (int i = 0; i < n; i++) {
        const int number = (int)(uint32_t)events[i].data.u64;
        switch (events[i].data.u64 >> 32) {
        case EVENT_LISTENER: waiting[number] = true; break;
        case EVENT_STOP: stop = true; break;
        case EVENT_CONNECTION: note_hangup(a, number); break;
        case EVENT_LINGERING: drain_lingering(a, number); break;
        }
    }
    for (size_t i = 0; i < ACCEPTOR_MAX_LISTENERS && !stop; i++)
        if (waiting[i]) accept_waiting(a, i);
    return !stop;
}

static void *run(void *arg) {
    acceptor *a = arg;
    for (int timeout_ms = -1; handle_events(a, timeout_ms);) {
        timeout_ms = end_due_connections(a);
        if (close_late_lingering(a)) timeout_ms = TICK_MS;
    }
    return NULL;
}

/* ---- Life ---- */

acceptor *acceptor_create(const acceptor_config *config) {
    acceptor *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    pthread_mutex_init(&a->lock, NULL);
    a->config = *config;
    for (size_t i = 0; i < N_LINGERING; i++) a->lingering[i].fd = -1;
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

bool acceptor_start(acceptor *a, struct MHD_Daemon *const daemons[ACCEPTOR_MAX_LISTENERS]) {
    memcpy(a->daemons, daemons, sizeof a->daemons);
    a->started = pthread_create(&a->thread, NULL, run, a) == 0;
    return a->started;
}

void acceptor_stop(acceptor *a) {
    if (!a || !a->started) return;
    eventfd_write(a->stop, 1);
    pthread_join(a->thread, NULL);
    a->started = false;
}

void acceptor_destroy(acceptor **address) {
    acceptor *a = address ? *address : NULL;
    if (!a) return;
    *address = NULL;
    acceptor_stop(a);
    for (size_t i = 0; i < N_LINGERING; i++) close_lingering(&a->lingering[i]);
    if (a->epoll >= 0) close(a->epoll);
    if (a->stop >= 0) close(a->stop);
    if (a->reserve >= 0) close(a->reserve);
    pthread_mutex_destroy(&a->lock);
    free(a->connections);
    free(a->refusal);
    free(a);
}
