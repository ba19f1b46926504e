/* Notices clients that hang up. */
#include "watch.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* What is watched on a socket number. An event that was under way when the number changed owners has an old turn. */
typedef struct entry {
    void *owner; /* NULL: nobody */
    uint32_t turn;
} entry;

struct watch {
    void (*on_gone)(void *owner);
    int epoll, stop; /* stop: an event descriptor that ends the thread */
    pthread_t thread;
    pthread_mutex_t lock;
    entry *entries; /* [n_entries], by socket number */
    size_t n_entries;
};

static void *watch_run(void *arg) {
    watch *w = arg;
    for (;;) {
        struct epoll_event event;
        if (epoll_wait(w->epoll, &event, 1, -1) != 1) continue; /* a signal */
        const uint32_t fd = (uint32_t)event.data.u64, turn = (uint32_t)(event.data.u64 >> 32);
        if (fd == (uint32_t)w->stop) return NULL;
        pthread_mutex_lock(&w->lock);
        const entry *e = &w->entries[fd];
        if (e->owner && e->turn == turn) w->on_gone(e->owner);
        pthread_mutex_unlock(&w->lock);
    }
}

watch *watch_create(void (*on_gone)(void *owner)) {
    watch *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->on_gone = on_gone;
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

void watch_destroy(watch **watch_address) {
    watch *w = *watch_address;
    if (!w) return;
    *watch_address = NULL;
    eventfd_write(w->stop, 1);
    pthread_join(w->thread, NULL);
    close(w->epoll);
    close(w->stop);
    pthread_mutex_destroy(&w->lock);
    free(w->entries);
    free(w);
}

/* Entries for socket numbers up to fd. */
static bool make_room(watch *w, size_t fd) {
    if (fd < w->n_entries) return true;
    const size_t n = fd * 2 + 64;
    entry *grown = realloc(w->entries, n * sizeof *grown);
    if (!grown) return false;
    for (size_t i = w->n_entries; i < n; i++) grown[i] = (entry){0};
    w->entries = grown;
    w->n_entries = n;
    return true;
}

bool watch_add(watch *w, int fd, void *owner) {
    pthread_mutex_lock(&w->lock);
    bool ok = make_room(w, (size_t)fd);
    if (ok) {
        entry *e = &w->entries[fd];
        *e = (entry){owner, e->turn + 1};
        struct epoll_event event = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = (uint64_t)e->turn << 32 | (uint32_t)fd};
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
