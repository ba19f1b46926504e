/* The tier's calls, and its life: see tier.h. What its threads do is in io.c. */
#include "tier_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "chunkattn/base/clock.h"
#include "chunkattn/base/fail.h"
#include "chunkattn/base/signals.h"
#include "chunkattn/base/threads.h"

enum {
    STACK_BYTES = 512 << 10,
    SCAN_THREADS = 16, /* that read headers when a file is opened */
    SCAN_CELLS = 16,   /* that one of them takes at a time */
};

/* ---- Opening ---- */

/* Headers are read by several threads, since one read of 4 KB at a time leaves a disk idle (docs/experiments.md). */
typedef struct scan {
    const ca_tier *tier;
    ca_tier_found *found; /* [n_grown]; cell: -1 if it has no valid header */
} scan;

/* Read the headers of SCAN_CELLS cells. */
static void scan_cells(void *arg, int32_t task, int32_t worker) {
    (void)worker;
    const scan *s = arg;
    const ca_tier *t = s->tier;
    _Alignas(CA_TIER_ALIGN) ca_record_header header;
    const int32_t begin = task * SCAN_CELLS, n = t->file.n_grown - begin;
    for (int32_t cell = begin; cell < begin + (n < SCAN_CELLS ? n : SCAN_CELLS); cell++) {
        const bool valid =
            ca_tier_file_read(&t->file, cell, &header, sizeof header) == 0 && ca_record_header_valid(&t->format, &header);
        s->found[cell] =
            valid ? (ca_tier_found){header.sequence, cell, {header.key, header.parent}} : (ca_tier_found){.cell = -1};
    }
}

/* Fill found [n_grown] with the records whose headers are valid. Returns their number, or -1 without memory or threads. */
static int64_t find_records(ca_tier *t, ca_tier_found *found) {
    const int32_t n_tasks = t->file.n_grown / SCAN_CELLS + 1;
    ca_pool *pool = ca_pool_create(t->no_thread || n_tasks == 1 ? 1 : SCAN_THREADS);
    if (!pool) return -1;
    ca_pool_run(pool, n_tasks, scan_cells, &(scan){t, found});
    ca_pool_destroy(&pool);
    int64_t n_found = 0;
    for (int32_t cell = 0; cell < t->file.n_grown; cell++)
        if (found[cell].cell >= 0) {
            if (found[cell].sequence >= t->sequence) t->sequence = found[cell].sequence + 1;
            found[n_found++] = found[cell];
        }
    return n_found;
}

/* Index the records of the file whose headers are valid. Returns 0, or -1 without memory or threads. */
static int load(ca_tier *t) {
    const size_t n = (size_t)t->file.n_grown;
    if (n == 0) return 0;
    ca_tier_found *found = ca_new(t->alloc, n, sizeof *found);
    int32_t *path = ca_new(t->alloc, n, sizeof *path);
    const int64_t n_found = found && path ? find_records(t, found) : -1;
    if (n_found >= 0) ca_tier_index_load(&t->index, found, path, (size_t)n_found);
    ca_delete(t->alloc, path, n, sizeof *path);
    ca_delete(t->alloc, found, n, sizeof *found);
    return n_found < 0 ? -1 : 0;
}

/* Start a thread with all signals blocked, since signals are for the program's own threads. Returns 0 or an error. */
static int start_thread(ca_io_thread *io) {
    sigset_t before;
    pthread_attr_t attr;
    int failed = pthread_attr_init(&attr);
    if (failed) return failed;
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    signals_block_all(&before);
    failed = pthread_create(&io->id, &attr, ca_io_main, io);
    signals_restore(&before);
    pthread_attr_destroy(&attr);
    return failed;
}

static int start_threads(ca_tier *t) {
    int failed = 0;
    while (t->n_threads < CA_TIER_THREADS && !(failed = start_thread(&t->threads[t->n_threads]))) t->n_threads++;
    return failed;
}

/* Let the threads finish what is queued, and stop them; no write begins after `seconds`. */
static void stop_threads(ca_tier *t, double seconds) {
    pthread_mutex_lock(&t->mutex);
    t->stop_at = ca_tier_now(t) + seconds;
    t->stop = true;
    pthread_cond_broadcast(&t->work);
    pthread_mutex_unlock(&t->mutex);
    while (t->n_threads > 0) pthread_join(t->threads[--t->n_threads].id, NULL);
}

static void init_locks(ca_tier *t) {
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->work, NULL);
    clock_cond_init(&t->progress);
}

static size_t cell_bytes_of(const ca_record_format *format) {
    return (CA_RECORD_HEADER_BYTES + format->payload_bytes + CA_TIER_ALIGN - 1) / CA_TIER_ALIGN * CA_TIER_ALIGN;
}

static size_t staging_bytes(size_t cell_bytes) { return cell_bytes + CA_TIER_ALIGN; }

/* Staging buffers for the threads, or one for the caller if there are none. Returns 0, or -1 without memory. */
static int create_staging(ca_tier *t) {
    for (int i = 0; i < (t->no_thread ? 1 : CA_TIER_THREADS); i++) {
        ca_io_thread *io = &t->threads[i];
        io->tier = t;
        io->staging = ca_new_zero(t->alloc, staging_bytes(t->file.cell_bytes), 1);
        if (!io->staging) return -1;
        io->record = io->staging + (-(uintptr_t)io->staging & (CA_TIER_ALIGN - 1));
    }
    return 0;
}

/* Free everything but the locks, which wait for their threads. */
static void free_parts(ca_tier *t) {
    ca_tier_queue_destroy(&t->queue);
    ca_tier_index_destroy(&t->index);
    for (int i = 0; i < CA_TIER_THREADS; i++) ca_delete(t->alloc, t->threads[i].staging, staging_bytes(t->file.cell_bytes), 1);
    ca_tier_file_close(&t->file);
    ca_delete(t->alloc, t, 1, sizeof *t);
}

static void destroy(ca_tier *t) {
    pthread_cond_destroy(&t->progress);
    pthread_cond_destroy(&t->work);
    pthread_mutex_destroy(&t->mutex);
    free_parts(t);
}

/* Open what a tier consists of, up to the threads. */
static cattn_status open_parts(ca_tier *t, const ca_tier_config *config, size_t cell_bytes, cattn_error *error) {
    const uint64_t n = config->bytes / cell_bytes;
    const int32_t n_cells = n < INT32_MAX ? (int32_t)n : INT32_MAX - 1;
    const cattn_status status =
        ca_tier_file_open(&t->file, t->files, config->dir, config->fingerprint, cell_bytes, n_cells, error);
    if (status != CATTN_OK) return status;
    if (create_staging(t) != 0 || ca_tier_index_create(&t->index, n_cells, t->alloc) != 0 || load(t) != 0)
        return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the index of %d records of the tier; reduce tier_bytes",
                       n_cells);
    return CATTN_OK;
}

cattn_status ca_tier_open(ca_tier **tier, const ca_tier_config *config, ca_alloc *alloc, cattn_error *error) {
    *tier = NULL;
    assert(config->chunk_tokens > 0 && config->chunk_tokens <= CA_RECORD_MAX_TOKENS && config->payload_bytes > 0);
    const ca_record_format format = {
        {config->fingerprint[0], config->fingerprint[1]}, config->chunk_tokens, config->payload_bytes};
    const size_t cell_bytes = cell_bytes_of(&format);
    if (config->bytes < cell_bytes)
        return ca_fail(error, CATTN_ERR_ARG, -1,
                       "tier_bytes is %llu, but the K/V of one chunk need %zu bytes in the file; raise it",
                       (unsigned long long)config->bytes, cell_bytes);
    ca_tier *t = ca_new_zero(alloc, 1, sizeof *t);
    if (!t) return ca_fail(error, CATTN_ERR_NOMEM, -1, "no memory for the tier");
    *t = (ca_tier){.alloc = alloc,
                   .format = format,
                   .chunks = config->chunks,
                   .files = config->files ? config->files : &ca_tier_system_files,
                   .file = {.fd = -1, .cell_bytes = cell_bytes},
                   .sequence = 1,
                   .no_thread = config->no_thread};
    init_locks(t);
    ca_tier_queue_init(&t->queue, format.chunk_tokens, alloc);
    cattn_status status = open_parts(t, config, cell_bytes, error);
    if (status == CATTN_OK && !t->no_thread) {
        const int failed = start_threads(t);
        if (failed) {
            stop_threads(t, 0);
            status = ca_fail(error, CATTN_ERR_NOMEM, -1, "the threads that read and write the tier cannot be started: %s",
                             strerror(failed));
        }
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
    pthread_mutex_unlock(&t->mutex);
    stop_threads(t, CA_TIER_CLOSE_SECONDS);
    while (t->no_thread && ca_tier_work(t)) {
    }
    destroy(t);
    *tier = NULL;
}

void ca_tier_abandon(ca_tier **tier) {
    if (!tier || !*tier) return;
    free_parts(*tier);
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
    const int32_t cell = ca_tier_index_find(&tier->index, key);
    if (cell >= 0) ca_tier_index_touch(&tier->index, cell);
    pthread_mutex_unlock(&tier->mutex);
}

/* Add a request and wake an I/O thread, unless it is one that has to wait for the write in progress. */
static bool add(ca_tier *t, const ca_request *request, const int32_t *tokens) {
    const ca_list *list = request->is_read ? &t->queue.reads : &t->queue.writes;
    if (list->n >= CA_TIER_MAX_QUEUED || ca_tier_queue_add(&t->queue, request, tokens) != 0) return false;
    if (request->is_read || !t->is_writing) pthread_cond_signal(&t->work);
    return true;
}

bool ca_tier_write(ca_tier *tier, ca_tier_key parent, const int32_t *tokens, int32_t chunk) {
    const ca_request request = {.entry = {ca_record_next(&tier->format, parent, tokens), parent}, .chunk = chunk};
    bool added = false;
    pthread_mutex_lock(&tier->mutex);
    if (ca_tier_index_find(&tier->index, request.entry.key) < 0 && ca_tier_queue_find(&tier->queue, chunk) < 0) {
        added = ca_tier_now(tier) >= tier->paused_until && add(tier, &request, tokens);
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

static bool reads_ended(const ca_tier *t) { return t->queue.done.n > 0 || (t->queue.reads.n == 0 && t->n_reading == 0); }

static bool writes_ended(const ca_tier *t) { return t->queue.writes.n == 0 && !t->is_writing; }

/* Wait, with the mutex locked, until has_ended(t), or for some seconds. */
static void wait_until(ca_tier *t, bool (*has_ended)(const ca_tier *), double seconds) {
    if (t->no_thread) {
        while (!has_ended(t)) ca_tier_carry_out_next(&t->threads[0]);
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
    const bool worked = ca_tier_carry_out_next(&tier->threads[0]);
    pthread_mutex_unlock(&tier->mutex);
    return worked;
}

double ca_tier_read_seconds(ca_tier *tier) {
    pthread_mutex_lock(&tier->mutex);
    const double seconds = tier->read_seconds * (double)(tier->queue.reads.n + (size_t)tier->n_reading + 1);
    pthread_mutex_unlock(&tier->mutex);
    return seconds;
}

void ca_tier_get_stats(ca_tier *tier, ca_tier_stats *stats) {
    pthread_mutex_lock(&tier->mutex);
    *stats = tier->stats;
    stats->n_cells = (uint64_t)tier->index.n_cells;
    stats->n_records = tier->index.used.n;
    stats->n_free_cells = tier->index.free.n;
    stats->n_broken_cells = tier->index.aside.n;
    stats->cell_bytes = tier->file.cell_bytes;
    stats->file_bytes = tier->file.cell_bytes * (uint64_t)tier->file.n_grown;
    stats->n_queued_writes = tier->queue.writes.n + tier->is_writing;
    stats->n_queued_reads = tier->queue.reads.n + (size_t)tier->n_reading;
    pthread_mutex_unlock(&tier->mutex);
}
