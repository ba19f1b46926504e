/*
 * The I/O threads: how a request is carried out, and what happens when the disk fails. Each function is called with the mutex
 * locked, and unlocks it while it copies, computes checksums or waits for the disk.
 */
#include "tier_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "chunkattn/base/signals.h"

static ca_record_header *header_of(const ca_io_thread *io) { return (ca_record_header *)(void *)io->record; }

static char *payload_of(const ca_io_thread *io) { return io->record + CA_RECORD_HEADER_BYTES; }

/* ---- Writing ---- */

/*
 * A cell, taken, for a record with this parent, which is touched; a record is replaced if there is no free cell. -1: none. If
 * the oldest record is the parent, then all others are its ancestors, which the new record needs: of a path that is longer than
 * the tier, the beginning stays.
 */
static int32_t take_cell(ca_tier *t, ca_tier_key parent) {
    const int32_t parent_cell = ca_tier_index_find(&t->index, parent);
    if (parent_cell >= 0) ca_tier_index_touch(&t->index, parent_cell);
    const int32_t free = t->index.free.first;
    if (free >= 0 && (free < t->file.n_grown || ca_tier_now(t) >= t->full_until)) {
        ca_tier_index_take(&t->index, free);
        return free;
    }
    const int32_t oldest = t->index.used.last;
    if (oldest < 0 || oldest == parent_cell) return -1;
    ca_tier_index_remove(&t->index, oldest);
    t->stats.n_replaced++;
    return oldest;
}

static bool is_full(int result) { return result == -ENOSPC || result == -EDQUOT || result == -EFBIG; }

/*
 * Write the sealed record to a cell that has been taken. If the disk has no room for the file to grow, another cell is taken. A
 * cell that cannot be written is set aside: were it freed, it would be the next one to be taken. Returns 0 or the negative
 * errno.
 */
static int write_record(ca_io_thread *io, ca_tier_entry entry, int32_t cell) {
    ca_tier *t = io->tier;
    while (cell >= 0) {
        const bool grows = cell >= t->file.n_grown;
        pthread_mutex_unlock(&t->mutex);
        const int result = ca_tier_file_write(&t->file, cell, io->record, t->file.cell_bytes);
        if (result != 0 && grows) ca_tier_file_cut(&t->file);
        pthread_mutex_lock(&t->mutex);
        if (result == 0) {
            if (grows) t->file.n_grown = cell + 1;
            ca_tier_index_use(&t->index, cell, entry);
            return 0;
        }
        t->stats.n_write_errors++;
        if (!grows || !is_full(result)) {
            ca_tier_index_set_aside(&t->index, cell);
            return result;
        }
        ca_tier_index_free(&t->index, cell);
        t->full_until = ca_tier_now(t) + CA_TIER_PAUSE_SECONDS;
        cell = take_cell(t, entry.parent);
    }
    return -ENOSPC;
}

/* Count the result of a write. */
static void count_write(ca_tier *t, int result) {
    if (result == 0) {
        t->n_errors = 0;
        t->stats.n_writes++;
    } else if (++t->n_errors >= CA_TIER_MAX_ERRORS) {
        /* Not single cells but the disk fails; afterwards, all of them are tried again. */
        t->n_errors = 0;
        t->paused_until = ca_tier_now(t) + CA_TIER_PAUSE_SECONDS;
        ca_tier_index_bring_back(&t->index);
    }
}

/* Whether a queued write is dropped before its chunk is copied. */
static bool is_to_drop(const ca_tier *t, ca_tier_entry entry) {
    const double time = ca_tier_now(t);
    if (time < t->paused_until || (t->stop && time >= t->stop_at)) return true;
    /* Its parent's write has failed or was dropped: without it the record cannot be reached. */
    return !ca_tier_key_is_root(entry.parent) && ca_tier_index_find(&t->index, entry.parent) < 0;
}

/* The cell for a queued write, taken. -1: the write is dropped. */
static int32_t begin_write(ca_tier *t, ca_tier_entry entry) {
    if (ca_tier_index_find(&t->index, entry.key) >= 0) return -1; /* another chunk with the same tokens was first */
    const bool drop = is_to_drop(t, entry);
    const int32_t cell = drop ? -1 : take_cell(t, entry.parent);
    if (cell < 0) t->stats.n_dropped_writes++;
    /* Without a cell because none can be written, or because the disk has no room for one. */
    if (cell < 0 && !drop && (t->index.aside.n > 0 || t->index.used.n == 0)) count_write(t, -ENOSPC);
    return cell;
}

static void carry_out_write(ca_io_thread *io, int32_t i) {
    ca_tier *t = io->tier;
    const ca_tier_entry entry = t->queue.requests[i].entry;
    const double begin = ca_tier_now(t);
    const int32_t cell = begin_write(t, entry), chunk = t->queue.requests[i].chunk;
    if (cell < 0) {
        ca_tier_queue_remove(&t->queue, i);
        return;
    }
    int32_t tokens[CA_RECORD_MAX_TOKENS];
    const size_t c = (size_t)t->format.chunk_tokens;
    memcpy(tokens, t->queue.tokens + (size_t)i * c, c * sizeof *tokens);
    t->is_writing = true;
    ca_tier_queue_advance(&t->queue, i, CA_REQUEST_COPYING);
    pthread_mutex_unlock(&t->mutex);
    t->chunks.gather(t->chunks.ctx, chunk, payload_of(io));
    pthread_mutex_lock(&t->mutex);
    ca_tier_queue_remove(&t->queue, i); /* the chunk may change from here on */
    pthread_cond_broadcast(&t->progress);
    pthread_mutex_unlock(&t->mutex);
    ca_record_seal(&t->format, header_of(io), payload_of(io), entry.parent, tokens, t->sequence++);
    pthread_mutex_lock(&t->mutex);
    count_write(t, write_record(io, entry, cell));
    t->stats.write_seconds += ca_tier_now(t) - begin;
    t->is_writing = false;
}

/* ---- Reading ---- */

/* Read and verify a record. False: there is none that is right; it is then removed. */
static bool read_record(ca_io_thread *io, ca_tier_entry entry, const int32_t *tokens) {
    ca_tier *t = io->tier;
    const int32_t cell = ca_tier_index_find(&t->index, entry.key);
    if (cell < 0) return false; /* it was replaced */
    pthread_mutex_unlock(&t->mutex);
    const int result = ca_tier_file_read(&t->file, cell, io->record, t->file.cell_bytes);
    const bool ok = result == 0 && ca_record_valid(&t->format, header_of(io), payload_of(io), entry.parent, tokens);
    pthread_mutex_lock(&t->mutex);
    if (ok) return true;
    if (ca_tier_index_find(&t->index, entry.key) != cell) return false; /* the other thread has replaced or removed it */
    if (result != 0)
        t->stats.n_read_errors++;
    else
        t->stats.n_refused++;
    ca_tier_index_remove(&t->index, cell);
    ca_tier_index_free(&t->index, cell);
    return false;
}

/* Measure a read that has ended, by the time since the last one if that ended after it began. */
static void count_read(ca_tier *t, bool ok) {
    const double end = ca_tier_now(t), seconds = end - t->reading_since;
    t->reading_since = end;
    t->n_reading--;
    t->stats.read_seconds += seconds;
    if (ok) t->read_seconds = t->read_seconds > 0 ? 0.75 * t->read_seconds + 0.25 * seconds : seconds;
}

static void carry_out_read(ca_io_thread *io, int32_t i) {
    ca_tier *t = io->tier;
    int32_t tokens[CA_RECORD_MAX_TOKENS];
    const size_t c = (size_t)t->format.chunk_tokens;
    memcpy(tokens, t->queue.tokens + (size_t)i * c, c * sizeof *tokens);
    if (t->n_reading++ == 0) t->reading_since = ca_tier_now(t);
    ca_tier_queue_advance(&t->queue, i, CA_REQUEST_READING);
    const bool ok = read_record(io, t->queue.requests[i].entry, tokens);
    const int32_t chunk = t->queue.requests[i].chunk;
    if (chunk < 0) { /* it was released meanwhile */
        ca_tier_queue_remove(&t->queue, i);
    } else {
        if (ok) {
            ca_tier_queue_advance(&t->queue, i, CA_REQUEST_COPYING);
            pthread_mutex_unlock(&t->mutex);
            t->chunks.scatter(t->chunks.ctx, chunk, payload_of(io));
            pthread_mutex_lock(&t->mutex);
            t->stats.n_reads++;
        }
        t->queue.requests[i].ok = ok;
        ca_tier_queue_advance(&t->queue, i, CA_REQUEST_DONE);
    }
    count_read(t, ok);
}

/* ---- The threads ---- */

static bool has_work(const ca_tier *t) { return t->queue.reads.n > 0 || (t->queue.writes.n > 0 && !t->is_writing); }

bool ca_tier_carry_out_next(ca_io_thread *io) {
    ca_tier *t = io->tier;
    if (!has_work(t)) return false;
    if (t->queue.reads.n > 0)
        carry_out_read(io, t->queue.reads.first);
    else
        carry_out_write(io, t->queue.writes.first);
    pthread_cond_broadcast(&t->progress);
    return true;
}

void *ca_io_main(void *arg) {
    ca_io_thread *io = arg;
    ca_tier *t = io->tier;
    thread_set_name("cattn-tier");
    pthread_mutex_lock(&t->mutex);
    while (ca_tier_carry_out_next(io) || !t->stop)
        while (!t->stop && !has_work(t)) pthread_cond_wait(&t->work, &t->mutex);
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}
