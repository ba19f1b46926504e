/*
 * The file of a tier: cells of one size, reached through a table of system calls.
 *
 * Cell i is at offset i * cell_bytes; there is nothing else in the file. It begins empty and grows as cells are written.
 * Nothing is synchronised with the disk and there is no journal, since a record proves by its checksums that it is whole: a
 * process or system that stops at any time leaves torn records at worst, which are refused.
 *
 * The file is locked as long as it is open, so that one cache at a time writes to it.
 *
 * Reads and writes are direct (O_DIRECT) where the file system allows it: through the page cache, a write costs 20 times the
 * processor time, and the system's memory fills with copies of what the cache has evicted (docs/experiments.md). Hence memory,
 * sizes and offsets of all transfers are multiples of CA_TIER_ALIGN.
 */
#ifndef CHUNKATTN_TIER_FILE_H
#define CHUNKATTN_TIER_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "chunkattn.h"

enum { CA_TIER_ALIGN = 4096 };

/*
 * The system calls of a tier, which tests replace. Where nothing else is said they return 0, or the negative errno. read, write
 * and resize are called by the I/O threads, where one may read while the other reads or writes; read also by the threads that
 * read the headers of a file; the others by the thread that opens or closes the tier; seconds by all.
 */
typedef struct ca_tier_files {
    int (*open)(void *ctx, const char *dir, const char *path); /* for reading and writing; both are created. A descriptor. */
    int (*lock)(void *ctx, int fd);     /* -EWOULDBLOCK: another process keeps it; -ENOENT: it was removed */
    int64_t (*size)(void *ctx, int fd); /* bytes */
    int64_t (*read)(void *ctx, int fd, void *to, size_t n, uint64_t offset);          /* bytes, as pread */
    int64_t (*write)(void *ctx, int fd, const void *from, size_t n, uint64_t offset); /* bytes, as pwrite */
    int (*resize)(void *ctx, int fd, uint64_t bytes);
    void (*close)(void *ctx, int fd); /* unlocks, too */
    double (*seconds)(void *ctx);     /* a monotonic clock */
    void *ctx;                        /* borrowed */
} ca_tier_files;

/* The system calls themselves; seconds is CLOCK_MONOTONIC. */
extern const ca_tier_files ca_tier_system_files;

typedef struct ca_tier_file {
    const ca_tier_files *files; /* borrowed */
    int fd;
    size_t cell_bytes;
    int32_t n_cells; /* at most */
    int32_t n_grown; /* cells that the file has now; the caller raises it after a write behind them */
} ca_tier_file;

/*
 * Open and lock the file <fingerprint as 32 hex digits>.kv in dir; both are created if they do not exist, readable by their
 * owner alone. What the file has behind n_cells cells is cut off, as is a cell at its end that is not whole.
 *
 * Errors: CATTN_ERR_ARG, with a message that names tier_dir, if dir or file cannot be opened, locked or resized.
 */
cattn_status ca_tier_file_open(ca_tier_file *file, const ca_tier_files *files, const char *dir, const uint64_t fingerprint[2],
                               size_t cell_bytes, int32_t n_cells, cattn_error *error);

void ca_tier_file_close(ca_tier_file *file);

/*
 * Read or write the first n bytes of a cell, all of them. `to`, `from` and n are multiples of CA_TIER_ALIGN. Returns 0, or the
 * negative errno; -ENODATA where the file ends before.
 */
int ca_tier_file_read(const ca_tier_file *file, int32_t cell, void *to, size_t n);
int ca_tier_file_write(const ca_tier_file *file, int32_t cell, const void *from, size_t n);

/* Return to the file system what a failed write has allocated behind n_grown cells. */
void ca_tier_file_cut(const ca_tier_file *file);

#endif
