/* The simulated disk: see sim_disk.h. */
#include "sim_disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "faults.h"
#include "io_thread.h"
#include "tests/support/rng.h"

enum { MAX_BYTES = 8 << 20, BLOCK = 512, DESCRIPTOR = 7 };

/* A write that the disk has accepted and not carried out. */
typedef struct transfer {
    const uint8_t *from; /* NULL: there is none */
    size_t n;
    uint64_t offset;
} transfer;

static struct {
    uint8_t bytes[MAX_BYTES];  /* what reads see, zeros behind `size` */
    uint8_t medium[MAX_BYTES]; /* what is left when the power fails */
    uint64_t medium_size, max_bytes;
    double seconds;
    bool is_open, is_dead;
    bool is_torn; /* a write has failed, so that a record may be there in part */
    transfer writing;
    rng r;
    sim_disk_state state;
} disk;

const sim_disk_state *sim_disk(void) { return &disk.state; }

static int64_t fail(int error) {
    disk.state.n_failed++;
    return -error;
}

/* ---- Contents ---- */

/* Carry out a write. Some of its blocks reach the medium at once. */
static void store(const uint8_t *from, size_t n, uint64_t offset) {
    if (n == 0) return;
    memcpy(disk.bytes + offset, from, n);
    if (disk.state.size < offset + n) disk.state.size = offset + n;
    const uint64_t bits = rng_next(&disk.r);
    if (bits & 1 && disk.medium_size < disk.state.size) disk.medium_size = disk.state.size;
    for (size_t at = 0; at < n; at += BLOCK)
        if (bits >> (1 + at / BLOCK % 60) & 1) memcpy(disk.medium + offset + at, from + at, BLOCK);
}

/* The first blocks of a write, at most n bytes of it. */
static size_t some_blocks(size_t n) { return rng_next(&disk.r) % (n / BLOCK + 1) * BLOCK; }

void sim_disk_reset(uint64_t max_bytes, double seconds) {
    if (max_bytes > MAX_BYTES) abort();
    memset(disk.bytes, 0, disk.max_bytes);
    memset(disk.medium, 0, disk.max_bytes);
    disk.state = (sim_disk_state){.bytes = disk.bytes};
    disk.medium_size = 0;
    disk.max_bytes = max_bytes;
    disk.seconds = seconds;
    disk.is_open = disk.is_dead = disk.is_torn = false;
    disk.writing = (transfer){0};
    disk.r = (rng){max_bytes};
}

void sim_disk_kill(void) {
    const transfer *w = &disk.writing;
    if (w->from) store(w->from, some_blocks(w->n), w->offset);
    disk.is_dead = true;
    disk.state.has_lied = true; /* a record may be torn */
}

void sim_disk_lose_power(void) {
    sim_disk_kill();
    const int mode = (int)rng_below(&disk.r, 3); /* all that can be lost is lost, or nothing, or anything */
    for (uint64_t at = 0; at < disk.state.size; at += BLOCK)
        if (mode == 0 || (mode == 2 && rng_chance(&disk.r, 2))) memcpy(disk.bytes + at, disk.medium + at, BLOCK);
    if (mode != 1 && disk.medium_size < disk.state.size) {
        memset(disk.bytes + disk.medium_size, 0, disk.state.size - disk.medium_size);
        disk.state.size = disk.medium_size;
    }
    memcpy(disk.medium, disk.bytes, disk.max_bytes);
    disk.medium_size = disk.state.size;
}

void sim_disk_start(void) {
    disk.is_dead = false;
    disk.state.has_lied |= disk.is_torn; /* its header may be there, and the tier does not know that the write failed */
}

/* ---- Reads and writes ---- */

/* Another place of the file, where a lying disk reads or writes n bytes instead. */
static uint64_t elsewhere(size_t n) {
    const uint64_t n_places = disk.state.size / CA_TIER_ALIGN;
    const uint64_t offset = n_places ? rng_next(&disk.r) % n_places * CA_TIER_ALIGN : 0;
    return offset + n <= disk.max_bytes ? offset : 0;
}

static void flip_bit(uint8_t *bytes, size_t n) {
    bytes[rng_below(&disk.r, (int32_t)n)] ^= (uint8_t)(1 << rng_below(&disk.r, 8));
}

/* What every transfer begins with: it takes time, and may be interrupted or do less. Returns 0, or the negative errno. */
static int64_t begin(const void *memory, size_t *n, uint64_t offset) {
    if (((uintptr_t)memory | *n | offset) % CA_TIER_ALIGN != 0) disk.state.wrong = "a transfer is not aligned";
    if (!disk.is_open) disk.state.wrong = "a transfer without an open file";
    io_thread_sleep(disk.seconds * (double)rng_range(&disk.r, 1, 200) / 100);
    if (disk.is_dead) return -EIO;
    if (fault_fires(FAULT_INTERRUPT)) return -EINTR;
    if (*n > CA_TIER_ALIGN && fault_fires(FAULT_SHORT))
        *n = (size_t)rng_range(&disk.r, 1, (int64_t)((*n - 1) / CA_TIER_ALIGN)) * CA_TIER_ALIGN;
    return 0;
}

static int64_t disk_read(void *ctx, int fd, void *to, size_t n, uint64_t offset) {
    (void)ctx, (void)fd;
    const int64_t result = begin(to, &n, offset);
    if (result) return result;
    if (fault_fires(FAULT_READ)) return fail(EIO);
    if (offset >= disk.state.size) return 0;
    if (n > disk.state.size - offset) n = disk.state.size - offset;
    memcpy(to, disk.bytes + offset, n);
    if (!fault_fires(FAULT_LYING_READ)) return (int64_t)n;
    disk.state.n_lying_reads++;
    switch (rng_below(&disk.r, 3)) {
    case 0: memcpy(to, disk.medium + offset, n); break; /* what it had earlier */
    case 1: memcpy(to, disk.bytes + elsewhere(n), n); break;
    default: flip_bit(to, n);
    }
    return (int64_t)n;
}

/* Report success, having done something else. */
static int64_t lie(const uint8_t *from, size_t n, uint64_t offset) {
    disk.state.has_lied = true;
    switch (rng_below(&disk.r, 4)) {
    case 0: break;
    case 1: store(from, some_blocks(n), offset); break;
    case 2: store(from, n, elsewhere(n)); break;
    default: store(from, n, offset); flip_bit(disk.bytes + offset, n);
    }
    return (int64_t)n;
}

static int64_t disk_write(void *ctx, int fd, const void *from, size_t n, uint64_t offset) {
    (void)ctx, (void)fd;
    if (offset + n > disk.max_bytes) {
        disk.state.wrong = "a write behind the tier's bytes";
        return fail(EIO);
    }
    disk.writing = (transfer){from, n, offset};
    const int64_t result = begin(from, &n, offset);
    disk.writing = (transfer){0};
    if (result) return result;
    const bool is_full = fault_fires(FAULT_FULL), fails = fault_fires(FAULT_WRITE);
    if (is_full || fails) {
        store(from, some_blocks(n), offset);
        disk.is_torn = true;
        return fail(is_full ? ENOSPC : EIO);
    }
    if (fault_fires(FAULT_LYING_WRITE)) return lie(from, n, offset);
    store(from, n, offset);
    return (int64_t)n;
}

/* ---- The other calls ---- */

static int disk_open(void *ctx, const char *dir, const char *path) {
    (void)ctx, (void)dir, (void)path;
    if (disk.is_open) disk.state.wrong = "the file is opened twice";
    if (fault_fires(FAULT_OPEN)) return (int)fail(EACCES);
    disk.is_open = true;
    return DESCRIPTOR;
}

static int disk_lock(void *ctx, int fd) {
    (void)ctx, (void)fd;
    return fault_fires(FAULT_OPEN) ? (int)fail(EWOULDBLOCK) : 0;
}

static int64_t disk_size(void *ctx, int fd) {
    (void)ctx, (void)fd;
    return fault_fires(FAULT_OPEN) ? fail(EIO) : (int64_t)disk.state.size;
}

static int disk_resize(void *ctx, int fd, uint64_t bytes) {
    (void)ctx, (void)fd;
    if (disk.is_dead) return -EIO;
    if (fault_fires(FAULT_OPEN)) return (int)fail(EIO);
    if (bytes > disk.max_bytes) disk.state.wrong = "the file grows behind the tier's bytes";
    if (bytes < disk.state.size) memset(disk.bytes + bytes, 0, disk.state.size - bytes);
    disk.state.size = bytes;
    return 0;
}

static void disk_close(void *ctx, int fd) {
    (void)ctx, (void)fd;
    if (!disk.is_open) disk.state.wrong = "the file is closed twice";
    disk.is_open = false;
}

static double disk_seconds(void *ctx) {
    (void)ctx;
    return io_thread_seconds();
}

const ca_tier_files sim_disk_files = {
    .open = disk_open,
    .lock = disk_lock,
    .size = disk_size,
    .read = disk_read,
    .write = disk_write,
    .resize = disk_resize,
    .close = disk_close,
    .seconds = disk_seconds,
};
