/* A disk in memory: see disk.h. */
#include "disk.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/wait.h"

enum { DESCRIPTOR = 7 };

static int disk_open(void *ctx, const char *dir, const char *path) {
    const disk *d = ctx;
    (void)dir, (void)path;
    return d->open_error ? d->open_error : DESCRIPTOR;
}

static int disk_lock(void *ctx, int fd) {
    disk *d = ctx;
    (void)fd;
    if (d->lock_error) return d->lock_error;
    if (d->is_locked) return -EWOULDBLOCK;
    d->is_locked = true;
    return 0;
}

static int64_t disk_size(void *ctx, int fd) {
    const disk *d = ctx;
    (void)fd;
    return (int64_t)d->size;
}

static void resize(disk *d, uint64_t bytes) {
    uint8_t *resized = realloc(d->bytes, bytes ? bytes : 1);
    if (!resized) abort();
    if (bytes > d->size) memset(resized + d->size, 0, bytes - d->size);
    d->bytes = resized;
    d->size = bytes;
}

static int disk_resize(void *ctx, int fd, uint64_t bytes) {
    disk *d = ctx;
    (void)fd;
    pthread_mutex_lock(&d->mutex);
    resize(d, bytes);
    pthread_mutex_unlock(&d->mutex);
    return 0;
}

/* One more thread is in a call; the most at once are kept. */
static void enter(atomic_int *n, atomic_int *most) {
    const int now = atomic_fetch_add(n, 1) + 1;
    int before = atomic_load(most);
    while (before < now && !atomic_compare_exchange_weak(most, &before, now)) {
    }
}

/* What happens to a call that reads or writes *n bytes. Returns 0, with *n reduced, or the negative errno. */
static int begin_call(disk *d, const void *memory, size_t *n, uint64_t offset, int error) {
    if (((uintptr_t)memory | *n | offset) % CA_TIER_ALIGN != 0) return -EINVAL;
    const int call = atomic_fetch_add(&d->n_calls, 1);
    WAIT_UNTIL(!atomic_load(&d->is_held));
    spin(d->n_spins);
    if (d->call_seconds > 0) d->seconds += d->call_seconds;
    if (d->interrupts && call % 2 == 0) return -EINTR;
    if (error) return error;
    if (d->most > 0 && *n > d->most) *n = d->most;
    return 0;
}

static int64_t read_bytes(const disk *d, void *to, size_t n, uint64_t offset) {
    if (offset >= d->size) return 0;
    if (n > d->size - offset) n = d->size - offset;
    memcpy(to, d->bytes + offset, n);
    if (d->lies_at < n) ((uint8_t *)to)[d->lies_at] ^= 4;
    return (int64_t)n;
}

static int64_t disk_read(void *ctx, int fd, void *to, size_t n, uint64_t offset) {
    disk *d = ctx;
    (void)fd;
    enter(&d->n_reading, &d->most_reading);
    int64_t result = begin_call(d, to, &n, offset, d->read_error);
    if (result == 0) {
        pthread_mutex_lock(&d->mutex);
        result = read_bytes(d, to, n, offset);
        pthread_mutex_unlock(&d->mutex);
    }
    atomic_fetch_sub(&d->n_reading, 1);
    return result;
}

static int64_t write_bytes(disk *d, const void *from, size_t n, uint64_t offset) {
    if (offset < d->broken_at + d->n_broken && offset + n > d->broken_at) return -EIO;
    if (offset >= d->capacity) return -ENOSPC;
    if (n > d->capacity - offset) n = d->capacity - offset;
    d->n_writes++;
    if (offset + n > d->size) resize(d, offset + n);
    memcpy(d->bytes + offset, from, n);
    return (int64_t)n;
}

static int64_t disk_write(void *ctx, int fd, const void *from, size_t n, uint64_t offset) {
    disk *d = ctx;
    (void)fd;
    enter(&d->n_writing, &d->most_writing);
    int64_t result = begin_call(d, from, &n, offset, d->n_good_writes-- > 0 ? 0 : d->write_error);
    if (result == 0) {
        pthread_mutex_lock(&d->mutex);
        result = write_bytes(d, from, n, offset);
        pthread_mutex_unlock(&d->mutex);
    }
    atomic_fetch_sub(&d->n_writing, 1);
    return result;
}

static void disk_close(void *ctx, int fd) {
    disk *d = ctx;
    (void)fd;
    d->is_locked = false;
}

static double disk_seconds(void *ctx) {
    const disk *d = ctx;
    return d->seconds;
}

void disk_init(disk *d) {
    *d = (disk){.capacity = SIZE_MAX, .lies_at = SIZE_MAX, .seconds = 1000, .mutex = PTHREAD_MUTEX_INITIALIZER};
    d->files =
        (ca_tier_files){disk_open, disk_lock, disk_size, disk_read, disk_write, disk_resize, disk_close, disk_seconds, d};
}

void disk_free(disk *d) {
    free(d->bytes);
    *d = (disk){0};
}
