/*
 * A disk in memory for the tier's system calls (chunkattn/tier/file.h), which fails on command: short, interrupted, full,
 * broken, lying or held. It has one file, which stays when it is closed.
 */
#ifndef TESTS_CHUNKATTN_TIER_DISK_H
#define TESTS_CHUNKATTN_TIER_DISK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkattn/tier/file.h"

typedef struct disk {
    uint8_t *bytes; /* [size] */
    size_t size;
    size_t capacity;                    /* ENOSPC behind it */
    bool is_locked;                     /* by whoever has the file open */
    int open_error, lock_error;         /* negative errno of the next calls, 0: none */
    atomic_int read_error, write_error; /* likewise; may be set while calls are made */
    int n_good_writes;                  /* that succeed before write_error counts */
    size_t most;                        /* bytes that one call reads or writes; 0: all */
    bool interrupts;                    /* every second call returns -EINTR */
    uint64_t broken_at, n_broken;       /* writes to these bytes return -EIO */
    size_t lies_at;                     /* offset in what a call reads where a bit is wrong; SIZE_MAX: nowhere */
    int n_spins;                        /* what each read or write computes first, so that it takes a moment */
    atomic_bool is_held;                /* reads and writes wait until it is false again */
    _Atomic double seconds;             /* the clock, which the test advances */
    double call_seconds;                /* by which each read or write advances the clock */
    atomic_int n_calls;                 /* of read and write, that have begun */
    atomic_int n_reading, most_reading; /* calls now, and at once */
    atomic_int n_writing, most_writing;
    pthread_mutex_t mutex; /* guards bytes, size and the next one */
    int n_writes;          /* that succeeded */
    ca_tier_files files;
} disk;

/* An empty disk without faults. files.ctx is the disk. */
void disk_init(disk *d);
void disk_free(disk *d);

#endif
