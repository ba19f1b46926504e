/* The tier's calls, its I/O thread, and what happens when the disk fails: see tier.h. */
#include "tier.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "index.h"
#include "lib/error.h"
#include "queue.h"

enum { STACK_BYTES = 512 << 10 };

struct ca_tier {
    ca_alloc *alloc;
    ca_record_format format;
    ca_tier_chunks chunks;
    const ca_tier_files *files;
    ca_tier_file file; /* the I/O thread's once the tier is open, but that the mutex guards n_grown */
    char *staging;     /* the I/O thread's */
    char *record;      /* [slot_bytes], in the staging buffer at its first multiple of CA_TIER_ALIGN: header, payload, zeros */
    uint64_t sequence; /* of the next write; the I/O thread's */
    bool no_thread;
    pthread_t thread;
    pthread_mutex_t mutex;         /* guards what follows */
    pthread_cond_t work, progress; /* for the I/O thread; for a thread that waits for it */
    ca_tier_index index;
    ca_tier_queue queue;
    bool is_reading, is_writing; /* a request has been taken out of the queue and has not ended */
    bool stop;
    double stop_at;      /* no write begins afterwards */
    double full_until;   /* the file does not grow before */
    double paused_until; /* nothing is written before */
    int n_errors;        /* writes that failed in a row */
    double read_seconds; /* of one record, average with more weight on the last */
    ca_tier_stats stats; /* those that are counted */
};

static double now(const ca_tier *tier) { return tier->files->seconds(tier->files->ctx); }

static ca_record_header *header_of(const ca_tier *tier) { return (ca_record_header *)(void *)tier->record; }

static char *payload_of(const ca_tier *tier) { return tier->record + CA_RECORD_HEADER_BYTES; }

/* ---- The I/O thread. Each of these functions is called with the mutex locked, and unlocks it while it copies or waits ---- */

/*
 * A slot, taken, for a record with this parent, which is touched; a record is replaced if there is no free slot. -1: none. If
 * the oldest record is the parent, then all others are its ancestors, which the new record needs: of a path that is longer than
 * the tier, the beginning stays.
 */
static int32_t take_slot(ca_tier *t, ca_tier_key parent) {
    const int32_t parent_slot = ca_tier_index_find(&t->index, parent);
    if (parent_slot >= 0) ca_tier_index_touch(&t->index, parent_slot);
    const int32_t free = ca_tier_index_first_free(&t->index);
    if (free >= 0 && (free < t->file.n_grown || now(t) >= t->full_until)) {
        ca_tier_index_take(&t->index, free);
        return free;
    }
    const int32_t oldest = ca_tier_index_oldest(&t->index);
    if (oldest < 0 || oldest == parent_slot) return -1;
    ca_tier_index_remove(&t->index, oldest);
    t->stats.n_replaced++;
    return oldest;
}

static bool is_full(int result) { return result == -ENOSPC || result == -EDQUOT || result == -EFBIG; }

/*
 * Write the sealed record to a slot that has been taken. If the disk has no room for the file to grow, another slot is taken. A
 * slot that cannot be written is set aside: were it freed, it would be the next one to be taken. Returns 0 or the negative
 * errno.
 */
static int write_record(ca_tier *t, ca_tier_entry entry, int32_t slot) {
    while (slot >= 0) {
        const bool grows = slot >= t->file.n_grown;
        pthread_mutex_unlock(&t->mutex);
        const int result = ca_tier_file_write(&t->file, slot, t->record, t->file.slot_bytes);
        if (result != 0 && grows) ca_tier_file_cut(&t->file);
        pthread_mutex_lock(&t->mutex);
        if (result == 0) {
            if (grows) t->file.n_grown = slot + 1;
            ca_tier_index_use(&t->index, slot, entry);
            return 0;
        }
        t->stats.n_write_errors++;
        if (!grows || !is_full(result)) {
            ca_tier_index_set_aside(&t->index, slot);
            return result;
        }
        ca_tier_index_free(&t->index, slot);
        t->full_until = now(t) + CA_TIER_PAUSE_SECONDS;
        slot = take_slot(t, entry.parent);
    }
    return -ENOSPC;
}

/* Count the result of a write. */
static void count_write(ca_tier *t, int result) {
    if (result == 0) {
        t->n_errors = 0;
        t->stats.n_writes++;
    } else if (++t->n_errors >= CA_TIER_MAX_ERRORS) {
        /* Not single slots but the disk fails; afterwards, all of them are tried again. */
        t->n_errors = 0;
        t->paused_until = now(t) + CA_TIER_PAUSE_SECONDS;
        ca_tier_index_bring_back(&t->index);
    }
}

/* Whether a queued write is dropped before its chunk is copied. */
static bool is_to_drop(const ca_tier *t, ca_tier_entry entry) {
    const double time = now(t);
    if (time < t->paused_until || (t->stop && time >= t->stop_at)) return true;
    /* Its parent's write has failed or was dropped: without it the record cannot be reached. */
    return !ca_tier_key_is_root(entry.parent) && ca_tier_index_find(&t->index, entry.parent) < 0;
}

/* The slot for a queued write, taken. -1: the write is dropped. */
static int32_t begin_write(ca_tier *t, ca_tier_entry entry) {
    if (ca_tier_index_find(&t->index, entry.key) >= 0) return -1; /* another chunk with the same tokens was first */
    const bool drop = is_to_drop(t, entry);
    const int32_t slot = drop ? -1 : take_slot(t, entry.parent);
    if (slot < 0) t->stats.n_dropped_writes++;
    /* Without a slot because none can be written, or because the disk has no room for one. */
    if (slot < 0 && !drop && (t->index.aside.n > 0 || t->index.used.n == 0)) count_write(t, -ENOSPC);
    return slot;
}

static void carry_out_write(ca_tier *t, int32_t i) {
    const ca_tier_entry entry = t->queue.requests[i].entry;
    const double begin = now(t);
    const int32_t slot = begin_write(t, entry), chunk = t->queue.requests[i].chunk;
    if (slot < 0) {
        ca_tier_queue_remove(&t->queue, i);
        return;
    }
    int32_t tokens[CA_RECORD_MAX_TOKENS];
    const size_t c = (size_t)t->format.chunk_tokens;
    memcpy(tokens, t->queue.tokens + (size_t)i * c, c * sizeof *tokens);
    t->is_writing = true;
    ca_tier_queue_advance(&t->queue, i, CA_REQUEST_COPYING);
    pthread_mutex_unlock(&t->mutex);
    t->chunks.gather(t->chunks.ctx, chunk, payload_of(t));
    pthread_mutex_lock(&t->mutex);
    ca_tier_queue_remove(&t->queue, i); /* the chunk may change from here on */
    pthread_cond_broadcast(&t->progress);
    pthread_mutex_unlock(&t->mutex);
    ca_record_seal(&t->format, header_of(t), payload_of(t), entry.parent, tokens, t->sequence++);
    pthread_mutex_lock(&t->mutex);
    count_write(t, write_record(t, entry, slot));
    t->stats.write_seconds += now(t) - begin;
    t->is_writing = false;
}

/* Read and verify a record. False: there is none that is right; it is then removed. */
static bool read_record(ca_tier *t, ca_tier_entry entry, const int32_t *tokens) {
    const int32_t slot = ca_tier_index_find(&t->index, entry.key);
    if (slot < 0) return false; /* it was replaced */
    pthread_mutex_unlock(&t->mutex);
    const int result = ca_tier_file_read(&t->file, slot, t->record, t->file.slot_bytes);
    const bool ok = result == 0 && ca_record_valid(&t->format, header_of(t), payload_of(t), entry.parent, tokens);
    pthread_mutex_lock(&t->mutex);
    if (ok) return true;
    if (result != 0)
        t->stats.n_read_errors++;
    else
        t->stats.n_refused++;
    ca_tier_index_remove(&t->index, slot);
    ca_tier_index_free(&t->index, slot);
    return false;
}

static void carry_out_read(ca_tier *t, int32_t i) {
    const double begin = now(t);
    int32_t tokens[CA_RECORD_MAX_TOKENS];
    const size_t c = (size_t)t->format.chunk_tokens;
    memcpy(tokens, t->queue.tokens + (size_t)i * c, c * sizeof *tokens);
    t->is_reading = true;
    ca_tier_queue_advance(&t->queue, i, CA_REQUEST_READING);
    const bool ok = read_record(t, t->queue.requests[i].entry, tokens);
    const int32_t chunk = t->queue.requests[i].chunk;
    if (chunk < 0) { /* it was released meanwhile */
        ca_tier_queue_remove(&t->queue, i);
    } else {
        if (ok) {
            ca_tier_queue_advance(&t->queue, i, CA_REQUEST_COPYING);
            pthread_mutex_unlock(&t->mutex);
            t->chunks.scatter(t->chunks.ctx, chunk, payload_of(t));
            pthread_mutex_lock(&t->mutex);
            t->stats.n_reads++;
        }
        t->queue.requests[i].ok = ok;
        ca_tier_queue_advance(&t->queue, i, CA_REQUEST_DONE);
    }
    const double seconds = now(t) - begin;
    t->stats.read_seconds += seconds;
    if (ok) t->read_seconds = t->read_seconds > 0 ? 0.75 * t->read_seconds + 0.25 * seconds : seconds;
    t->is_reading = false;
}

/* Carry out the next request: reads before writes, since a sequence may wait for them. False: there is none. */
static bool carry_out_next(ca_tier *t) {
    const int32_t read = t->queue.reads.first, write = t->queue.writes.first;
    if (read >= 0)
        carry_out_read(t, read);
    else if (write >= 0)
        carry_out_write(t, write);
    else
        return false;
    pthread_cond_broadcast(&t->progress);
    return true;
}

static void *io_main(void *arg) {
    ca_tier *t = arg;
    pthread_mutex_lock(&t->mutex);
    while (carry_out_next(t) || !t->stop)
        while (!t->stop && t->queue.reads.n == 0 && t->queue.writes.n == 0) pthread_cond_wait(&t->work, &t->mutex);
    pthread_mutex_unlock(&t->mutex);
    return NULL;
}

/* ---- Opening ---- */

/* Index the records of the file whose headers are valid. Returns 0, or -1 without memory. */
static int load(ca_tier *t) {
    const size_t n = (size_t)t->file.n_grown;
    if (n == 0) return 0;
    ca_tier_found *found = ca_new(t->alloc, n, sizeof *found);
    int32_t *path = ca_new(t->alloc, n, sizeof *path);
    if (found && path) {
        size_t n_found = 0;
        const ca_record_header *header = header_of(t);
        for (int32_t slot = 0; slot < t->file.n_grown; slot++) {
            if (ca_tier_file_read(&t->file, slot, t->record, CA_RECORD_HEADER_BYTES) != 0) continue;
            if (!ca_record_header_valid(&t->format, header)) continue;
            found[n_found++] = (ca_tier_found){header->sequence, slot, {header->key, header->parent}};
            if (header->sequence >= t->sequence) t->sequence = header->sequence + 1;
        }
        ca_tier_index_load(&t->index, found, path, n_found);
    }
    const int result = found && path ? 0 : -1;
    ca_delete(t->alloc, path, n, sizeof *path);
    ca_delete(t->alloc, found, n, sizeof *found);
    return result;
}

/* Start the thread with all signals blocked, since signals are for the program's own threads. Returns 0 or an error. */
static int start_thread(ca_tier *t) {
    sigset_t all, before;
    pthread_attr_t attr;
    sigfillset(&all);
    int failed = pthread_attr_init(&attr);
    if (failed) return failed;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&t->thread, &attr, io_main, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return failed;
}

static void init_locks(ca_tier *t) {
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->work, NULL);
    clock_cond_init(&t->progress);
}

static size_t slot_bytes_of(const ca_record_format *format) {
    return (CA_RECORD_HEADER_BYTES + format->payload_bytes + CA_TIER_ALIGN - 1) / CA_TIER_ALIGN * CA_TIER_ALIGN;
}

static size_t staging_bytes(size_t slot_bytes) { return slot_bytes + CA_TIER_ALIGN; }

static void destroy(ca_tier *t) {
    ca_tier_queue_destroy(&t->queue);
    ca_tier_index_destroy(&t->index);
    ca_delete(t->alloc, t->staging, staging_bytes(t->file.slot_bytes), 1);
    ca_tier_file_close(&t->file);
    pthread_cond_destroy(&t->progress);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->mutex);
    ca_delete(t->alloc, t, 1, sizeof *t);
}

/* Open what a tier consists of, up to the thread. */
static cattn_status open_parts(ca_tier *t, const ca_tier_config *config, size_t slot_bytes, cattn_error *error) {
    const uint64_t n = config->bytes / slot_bytes;
    const int32_t n_slots = n < INT32_MAX ? (int32_t)n : INT32_MAX - 1;
    const cattn_status status =
        ca_tier_file_open(&t->file, t->files, config->dir, config->fingerprint, slot_bytes, n_slots, error);
    if (status != CATTN_OK) return status;
    t->staging = ca_new_zero(t->alloc, staging_bytes(slot_bytes), 1);
    t->record = t->staging ? t->staging + (-(uintptr_t)t->staging & (CA_TIER_ALIGN - 1)) : NULL;
    if (!t->record || ca_tier_index_create(&t->index, n_slots, t->alloc) != 0 || load(t) != 0)
        return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the index of %d records of the tier; reduce tier_bytes",
                       n_slots);
    return CATTN_OK;
}

cattn_status ca_tier_open(ca_tier **tier, const ca_tier_config *config, ca_alloc *alloc, cattn_error *error) {
    *tier = NULL;
    assert(config->chunk_tokens > 0 && config->chunk_tokens <= CA_RECORD_MAX_TOKENS && config->payload_bytes > 0);
    const ca_record_format format = {
        {config->fingerprint[0], config->fingerprint[1]}, config->chunk_tokens, config->payload_bytes};
    const size_t slot_bytes = slot_bytes_of(&format);
    if (config->bytes < slot_bytes)
        return ca_fail(error, CATTN_ERR_ARG, -1,
                       "tier_bytes is %llu, but the K/V of one chunk need %zu bytes in the file; raise it",
                       (unsigned long long)config->bytes, slot_bytes);
    ca_tier *t = ca_new_zero(alloc, 1, sizeof *t);
    if (!t) return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the tier");
    *t = (ca_tier){.alloc = alloc,
                   .format = format,
                   .chunks = config->chunks,
                   .files = config->files ? config->files : &ca_tier_system_files,
                   .file = {.fd = -1, .slot_bytes = slot_bytes},
                   .sequence = 1,
                   .no_thread = config->no_thread};
    init_locks(t);
    ca_tier_queue_init(&t->queue, format.chunk_tokens, alloc);
    cattn_status status = open_parts(t, config, slot_bytes, error);
    if (status == CATTN_OK && !t->no_thread) {
        const int failed = start_thread(t);
        if (failed)
            status = ca_fail(error, CATTN_ERR_NOMEM, -1, "the thread that reads and writes the tier cannot be started: %s",
                             strerror(failed));
    }
    if (status == CATTN_OK)
        *tier = t;
    else
        destroy(t);
    return status;
}

void ca_tier_close(ca_tier **tier) {
    if (!tier || !*tier) return;
    ca_tier *t = *tier;
    pthread_mutex_lock(&t->mutex);
    while (t->queue.reads.n > 0) ca_tier_queue_remove(&t->queue, t->queue.reads.first);
    t->stop_at = now(t) + CA_TIER_CLOSE_SECONDS;
    t->stop = true;
    pthread_cond_signal(&t->work);
    pthread_mutex_unlock(&t->mutex);
    if (t->no_thread)
        while (ca_tier_work(t)) {
        }
    else
        pthread_join(t->thread, NULL);
    destroy(t);
    *tier = NULL;
}

/* ---- Calls ---- */

ca_tier_key ca_tier_root(const ca_tier *tier, uint32_t domain) { return ca_record_root(&tier->format, domain); }

ca_tier_key ca_tier_next(const ca_tier *tier, ca_tier_key parent, const int32_t *tokens) {
    return ca_record_next(&tier->format, parent, tokens);
}

const ca_record_format *ca_tier_format(const ca_tier *tier) { return &tier->format; }

bool ca_tier_has(ca_tier *tier, ca_tier_key key) {
    pthread_mutex_lock(&tier->mutex);
    const bool has = ca_tier_index_find(&tier->index, key) >= 0;
    pthread_mutex_unlock(&tier->mutex);
    return has;
}

void ca_tier_touch(ca_tier *tier, ca_tier_key key) {
    pthread_mutex_lock(&tier->mutex);
    const int32_t slot = ca_tier_index_find(&tier->index, key);
    if (slot >= 0) ca_tier_index_touch(&tier->index, slot);
    pthread_mutex_unlock(&tier->mutex);
}

/* Add a request and wake the I/O thread. */
static bool add(ca_tier *t, const ca_request *request, const int32_t *tokens) {
    const ca_list *list = request->is_read ? &t->queue.reads : &t->queue.writes;
    if (list->n >= CA_TIER_MAX_QUEUED || ca_tier_queue_add(&t->queue, request, tokens) != 0) return false;
    pthread_cond_signal(&t->work);
    return true;
}

bool ca_tier_write(ca_tier *tier, ca_tier_key parent, const int32_t *tokens, int32_t chunk) {
    const ca_request request = {.entry = {ca_record_next(&tier->format, parent, tokens), parent}, .chunk = chunk};
    bool added = false;
    pthread_mutex_lock(&tier->mutex);
    if (ca_tier_index_find(&tier->index, request.entry.key) < 0 && ca_tier_queue_find(&tier->queue, chunk) < 0) {
        added = now(tier) >= tier->paused_until && add(tier, &request, tokens);
        if (!added) tier->stats.n_dropped_writes++;
    }
    pthread_mutex_unlock(&tier->mutex);
    return added;
}

bool ca_tier_read(ca_tier *tier, ca_tier_key parent, const int32_t *tokens, int32_t chunk, uint64_t ticket) {
    const ca_request request = {
        .entry = {ca_record_next(&tier->format, parent, tokens), parent}, .chunk = chunk, .ticket = ticket, .is_read = true};
    pthread_mutex_lock(&tier->mutex);
    const bool added = ca_tier_index_find(&tier->index, request.entry.key) >= 0 &&
                       ca_tier_queue_find(&tier->queue, chunk) < 0 && add(tier, &request, tokens);
    pthread_mutex_unlock(&tier->mutex);
    return added;
}

void ca_tier_release(ca_tier *tier, int32_t chunk) {
    pthread_mutex_lock(&tier->mutex);
    int32_t i;
    while ((i = ca_tier_queue_find(&tier->queue, chunk)) >= 0 && tier->queue.requests[i].state == CA_REQUEST_COPYING)
        pthread_cond_wait(&tier->progress, &tier->mutex);
    if (i >= 0) {
        if (!tier->queue.requests[i].is_read) tier->stats.n_dropped_writes++;
        if (tier->queue.requests[i].state == CA_REQUEST_READING)
            ca_tier_queue_detach(&tier->queue, i);
        else
            ca_tier_queue_remove(&tier->queue, i);
    }
    pthread_mutex_unlock(&tier->mutex);
}

size_t ca_tier_poll(ca_tier *tier, ca_tier_done *done, size_t n) {
    size_t n_done = 0;
    pthread_mutex_lock(&tier->mutex);
    for (; n_done < n && tier->queue.done.n > 0; n_done++) {
        const int32_t i = tier->queue.done.first;
        const ca_request *request = &tier->queue.requests[i];
        done[n_done] = (ca_tier_done){request->ticket, request->chunk, request->ok};
        ca_tier_queue_remove(&tier->queue, i);
    }
    pthread_mutex_unlock(&tier->mutex);
    return n_done;
}

/* ---- Waiting ---- */

static bool reads_ended(const ca_tier *t) { return t->queue.done.n > 0 || (t->queue.reads.n == 0 && !t->is_reading); }

static bool writes_ended(const ca_tier *t) { return t->queue.writes.n == 0 && !t->is_writing; }

/* Wait, with the mutex locked, until has_ended(t), or for some seconds. */
static void wait_until(ca_tier *t, bool (*has_ended)(const ca_tier *), double seconds) {
    if (t->no_thread) {
        while (!has_ended(t)) carry_out_next(t);
        return;
    }
    const struct timespec deadline = clock_deadline(seconds > 0 ? seconds : 0);
    while (!has_ended(t) && pthread_cond_timedwait(&t->progress, &t->mutex, &deadline) != ETIMEDOUT) {
    }
}

bool ca_tier_wait(ca_tier *tier, double seconds) {
    pthread_mutex_lock(&tier->mutex);
    wait_until(tier, reads_ended, seconds);
    const bool some = tier->queue.done.n > 0;
    pthread_mutex_unlock(&tier->mutex);
    return some;
}

bool ca_tier_flush(ca_tier *tier, double seconds) {
    pthread_mutex_lock(&tier->mutex);
    wait_until(tier, writes_ended, seconds);
    const bool ended = writes_ended(tier);
    pthread_mutex_unlock(&tier->mutex);
    return ended;
}

bool ca_tier_work(ca_tier *tier) {
    assert(tier->no_thread);
    pthread_mutex_lock(&tier->mutex);
    const bool worked = carry_out_next(tier);
    pthread_mutex_unlock(&tier->mutex);
    return worked;
}

double ca_tier_read_seconds(ca_tier *tier) {
    pthread_mutex_lock(&tier->mutex);
    const double seconds = tier->read_seconds * (double)(tier->queue.reads.n + tier->is_reading + 1);
    pthread_mutex_unlock(&tier->mutex);
    return seconds;
}

void ca_tier_get_stats(ca_tier *tier, ca_tier_stats *stats) {
    pthread_mutex_lock(&tier->mutex);
    *stats = tier->stats;
    stats->n_slots = (uint64_t)tier->index.n_slots;
    stats->n_records = tier->index.used.n;
    stats->slot_bytes = tier->file.slot_bytes;
    stats->file_bytes = tier->file.slot_bytes * (uint64_t)tier->file.n_grown;
    stats->n_queued_writes = tier->queue.writes.n + tier->is_writing;
    stats->n_queued_reads = tier->queue.reads.n + tier->is_reading;
    pthread_mutex_unlock(&tier->mutex);
}
