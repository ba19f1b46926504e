/*
 * The file tier of the cache: K/V of full chunks in a file, written and read by two threads beside the steps.
 *
 * The tier knows chunks by their key (record.h), nothing of the tree. Only its I/O threads touch the file, and chunk memory
 * only by two copies: `gather` from a chunk whose write is queued, which is full and does not change, and `scatter` to a chunk
 * whose read is queued, which nobody else reads or writes. So a chunk is guarded for the time of a memcpy, never for that of a
 * disk.
 *
 *   request   QUEUED -> (write) COPYING -> gone; the record is in the index once it is written
 *                    -> (read)  READING -> COPYING -> DONE -> ca_tier_poll; a read that failed skips COPYING
 *
 * Errors of the disk are no errors of the cache: a record that cannot be read, is damaged or is not the one expected is removed
 * and counted, and the read reports that it failed, so that the tokens are computed. A write that fails is counted. After
 * CA_TIER_MAX_ERRORS of them in a row nothing is written for CA_TIER_PAUSE_SECONDS. Where the disk is full, the file does not
 * grow for this time and cells are reused.
 *
 * Two I/O threads take the next request each, so that one reads while the other verifies and copies, or writes. One write at a
 * time is in progress, in the order in which they were queued.
 *
 * One thread at a time may call these functions, beside the I/O threads, which the tier has for itself.
 */
#ifndef CHUNKATTN_TIER_TIER_H
#define CHUNKATTN_TIER_TIER_H

#include "chunkattn.h"
#include "chunkattn/base/alloc.h"
#include "file.h"
#include "record.h"

typedef struct ca_tier ca_tier;

enum {
    CA_TIER_MAX_QUEUED = 1024, /* writes; as many reads */
    CA_TIER_MAX_ERRORS = 16,
    CA_TIER_PAUSE_SECONDS = 60,
    CA_TIER_CLOSE_SECONDS = 5, /* that ca_tier_close spends on queued writes */
};

/* How K/V are copied. Called by both I/O threads, while the chunk is guarded; they must not call the tier. */
typedef struct ca_tier_chunks {
    void (*gather)(void *ctx, int32_t chunk, void *payload); /* the chunk's tiles to payload [payload_bytes], all of it */
    void (*scatter)(void *ctx, int32_t chunk, const void *payload);
    void *ctx; /* borrowed until the tier is closed */
} ca_tier_chunks;

typedef struct ca_tier_config {
    const char *dir; /* used for the call only */
    uint64_t bytes;  /* of the file, at most */
    uint64_t fingerprint[2];
    int32_t chunk_tokens; /* at most CA_RECORD_MAX_TOKENS */
    size_t payload_bytes;
    ca_tier_chunks chunks;
    const ca_tier_files *files; /* borrowed until the tier is closed; NULL: the system's */
    bool no_thread; /* no threads are started; what is queued is carried out in calls that wait, or by ca_tier_work */
} ca_tier_config;

/*
 * Open the tier's file, index the records that it has, and start the threads. Reads the header of every cell of the file
 * with some more threads, which end before it returns, unless config.no_thread is set.
 *
 * Allocates the index, a record's staging buffer for each thread and, later, the queue with `alloc`, which is borrowed until
 * the tier is closed and only used inside calls, not by the I/O threads.
 *
 * Errors: CATTN_ERR_ARG, with a message that names tier_dir or tier_bytes: the file cannot be opened, another cache or process
 * has it, or the bytes hold no record; CATTN_ERR_NOMEM: no memory or no threads. *tier is NULL then.
 */
cattn_status ca_tier_open(ca_tier **tier, const ca_tier_config *config, ca_alloc *alloc, cattn_error *error);

/*
 * Drop queued reads, finish queued writes for at most CA_TIER_CLOSE_SECONDS plus the system call in progress, stop the threads,
 * close the file and set *tier to NULL. The chunks of queued writes must be there till it returns. tier and *tier may be NULL.
 */
void ca_tier_close(ca_tier **tier);

/*
 * Free the memory of a tier, and set *tier to NULL, in a child of the process that has opened it: the child has neither its
 * threads nor the right to use its file, whose lock stays the parent's.
 */
void ca_tier_abandon(ca_tier **tier);

/* The key that the first chunk of a domain's sequences has as its parent. */
ca_tier_key ca_tier_root(const ca_tier *tier, uint32_t domain);

/* The key of the chunk with these tokens [chunk_tokens] after the chunk with the key `parent`, or after a root. */
ca_tier_key ca_tier_next(const ca_tier *tier, ca_tier_key parent, const int32_t *tokens);

/* Whether there is a record with this key. It may still turn out to be damaged when it is read. */
bool ca_tier_has(ca_tier *tier, ca_tier_key key);

/*
 * The record with this key, if there is one, has been used, and with it its ancestors: they are replaced last. One call with
 * the key of the last chunk of a path suffices for the path.
 */
void ca_tier_touch(ca_tier *tier, ca_tier_key key);

/*
 * Queue the write of a chunk, which has all its K/V and stays as it is until it is written or released. Write a path from its
 * root on, and touch its last chunk once: a write whose parent is not in the file when its turn comes is dropped, since its
 * record could not be reached. So is one that needed the cell of its own ancestor. tokens: [chunk_tokens], copied.
 *
 * False, and nothing is queued: there is a record with this key, the chunk is queued already, the queue is full, writing pauses
 * after errors, or there is no memory.
 */
bool ca_tier_write(ca_tier *tier, ca_tier_key parent, const int32_t *tokens, int32_t chunk);

/*
 * Queue a read into a chunk, which nobody else reads or changes until the read is polled or released. tokens: [chunk_tokens],
 * copied. Reads begin in the order in which they are queued, and two at a time are in progress. ca_tier_poll reports the
 * ticket. Touch the last chunk of a path before, so that its records are not replaced until they are read.
 *
 * False, and nothing is queued: there is no record with this key, the chunk is queued already, the queue is full, or there is
 * no memory.
 */
bool ca_tier_read(ca_tier *tier, ca_tier_key parent, const int32_t *tokens, int32_t chunk, uint64_t ticket);

/*
 * The chunk is about to be freed or changed: its write or read, if it has one, is dropped, and a read is not reported. Waits
 * for the end of a copy in progress (less than 1 ms for each MB), for nothing else. Afterwards the I/O threads do not touch
 * the chunk. A chunk that has neither is ignored.
 */
void ca_tier_release(ca_tier *tier, int32_t chunk);

/* A read that has ended. Unless it is ok, the chunk's memory is as it was. */
typedef struct ca_tier_done {
    uint64_t ticket;
    int32_t chunk;
    bool ok;
} ca_tier_done;

/* Take up to n reads that have ended, in the order of their ends. Returns their number. Never waits. */
size_t ca_tier_poll(ca_tier *tier, ca_tier_done *done, size_t n);

/* Wait until there is a read to be polled. False: none is queued or in progress, or the time is over. */
bool ca_tier_wait(ca_tier *tier, double seconds);

/* Wait until all queued writes have ended. False: the time is over. */
bool ca_tier_flush(ca_tier *tier, double seconds);

/* Carry out the next request. False: there is none. Only where config.no_thread is set. */
bool ca_tier_work(ca_tier *tier);

/* The expected time until a read that is queued now has ended, with those before it; 0: none has been measured yet. */
double ca_tier_read_seconds(ca_tier *tier);

typedef struct ca_tier_stats {
    uint64_t n_cells, n_records, cell_bytes, file_bytes; /* now */
    uint64_t n_free_cells, n_broken_cells;               /* now; broken: set aside, since a write to it has failed */
    uint64_t n_queued_writes, n_queued_reads;            /* now, with those in progress */
    uint64_t n_writes, n_reads;                          /* records written; records read, verified and copied to a chunk */
    uint64_t n_write_errors, n_read_errors;              /* system calls that failed */
    uint64_t n_refused;                                  /* records read that were damaged or not those expected */
    uint64_t n_replaced;                                 /* records whose cell was needed for another */
    uint64_t n_dropped_writes;          /* released, or without place in queue or file, parent or memory, or paused */
    double read_seconds, write_seconds; /* in which a read was in progress; a write */
} ca_tier_stats;

void ca_tier_get_stats(ca_tier *tier, ca_tier_stats *stats);

/* The format of the tier's records, for other users of record.h. */
const ca_record_format *ca_tier_format(const ca_tier *tier);

#endif
