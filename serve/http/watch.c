/* Notices clients that hang up, by waiting for their sockets' events on a thread of its own. */
#include "watch.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * The owner of a socket number. The system reuses numbers, so an event may arrive after its socket was closed and the number
 * has another owner; the event's version is then an old one.
 */
typedef struct watch_entry {
    void *owner; /* NULL: not watched */
    uint32_t version;
} watch_entry;

struct watch {
    void (*on_hangup)(void *owner);
    int epoll;
    int stop; /* an event descriptor that ends the thread */
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    watch_entry *entries; /* [n_entries], by socket number */
    size_t n_entries;
};

static void *watch_run(void *arg) {
    watch *w = arg;
    for (;;) {
        struct epoll_event event;
        if (epoll_wait(w->epoll, &event, 1, -1) != 1) continue; /* interrupted by a signal */
        const uint32_t fd = (uint32_t)event.data.u64, version = (uint32_t)(event.data.u64 >> 32);
        if (fd == (uint32_t)w->stop) return NULL;
        pthread_mutex_lock(&w->lock);
        const watch_entry *e = &w->entries[fd];
        if (e->owner && e->version == version) w->on_hangup(e->owner);
        pthread_mutex_unlock(&w->lock);
    }
}

watch *watch_create(void (*on_hangup)(void *owner)) {
    watch *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->on_hangup = on_hangup;
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->stop = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&w->lock, NULL);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)(uint32_t)w->stop};
    if (w->epoll >= 0 && w->stop >= 0 && epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->stop, &event) == 0 &&
        pthread_create(&w->thread, NULL, watch_run, w) == 0)
        return w;
    if (w->epoll >= 0) close(w->epoll);
    if (w->stop >= 0) close(w->stop);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return NULL;
}

void watch_destroy(watch **address) {
    watch *w = address ? *address : NULL;
    if (!w) return;
    *address = NULL;
    eventfd_write(w->stop, 1);
    pthread_join(w->thread, NULL);
    close(w->epoll);
    close(w->stop);
    pthread_mutex_destroy(&w->lock);
    free(w->entries);
    free(w);
}

/* Allocate entries for socket numbers up to fd. */
static bool allocate_entries(watch *w, size_t fd) {
    if (fd < w->n_entries) return true;
    const size_t n = fd * 2 + 64;
    watch_entry *grown = realloc(w->entries, n * sizeof *grown);
    if (!grown) return false;
    for (size_t i = w->n_entries; i < n; i++) grown[i] = (watch_entry){0};
    w->entries = grown;
    w->n_entries = n;
    return true;
}

bool watch_add(watch *w, int fd, void *owner) {
    pthread_mutex_lock(&w->lock);
    bool ok = allocate_entries(w, (size_t)fd);
    if (ok) {
        watch_entry *e = &w->entries[fd];
        *e = (watch_entry){owner, e->version + 1};
        struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = (uint64_t)e->version << 32 | (uint32_t)fd};
        ok = epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
        if (!ok) e->owner = NULL;
    }
    pthread_mutex_unlock(&w->lock);
    return ok;
}

void watch_remove(watch *w, int fd) {
    pthread_mutex_lock(&w->lock);
    if ((size_t)fd < w->n_entries && w->entries[fd].owner) {
        w->entries[fd].owner = NULL;
        epoll_ctl(w->epoll, EPOLL_CTL_DEL, fd, NULL);
    }
    pthread_mutex_unlock(&w->lock);
}
