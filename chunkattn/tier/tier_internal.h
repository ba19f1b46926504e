/*
 * What the tier's files share: its state, and an I/O thread.
 */
#ifndef CHUNKATTN_TIER_TIER_INTERNAL_H
#define CHUNKATTN_TIER_TIER_INTERNAL_H

#include <pthread.h>

#include "index.h"
#include "io_queue.h"
#include "tier.h"

enum { CA_TIER_THREADS = 2 };

typedef struct ca_io_thread {
    ca_tier *tier;
    pthread_t id;
    char *staging; /* owned */
    char *record;  /* [cell_bytes], in the staging buffer at its first multiple of CA_TIER_ALIGN: header, payload, zeros */
} ca_io_thread;

struct ca_tier {
    ca_alloc *alloc;
    ca_record_format format;
    ca_tier_chunks chunks;
    const ca_tier_files *files;
    ca_tier_file file; /* the mutex guards n_grown */
    uint64_t sequence; /* of the next write; the thread's that writes */
    bool no_thread;    /* what is queued is carried out by the caller, with the first of the buffers */
    ca_io_thread threads[CA_TIER_THREADS];
    int n_threads;                 /* that have been started */
    pthread_mutex_t mutex;         /* guards what follows */
    pthread_cond_t work, progress; /* for the I/O threads; for a thread that waits for them */
    ca_tier_index index;
    ca_tier_queue queue;
    int n_reading;   /* requests that have been taken out of the queue and have not ended */
    bool is_writing; /* likewise */
    bool stop;
    double stop_at;       /* no write begins afterwards */
    double full_until;    /* the file does not grow before */
    double paused_until;  /* nothing is written before */
    int n_errors;         /* writes that failed in a row */
    double reading_since; /* the end of the last read or, if none was in progress then, the beginning of the next one */
    double read_seconds;  /* from the end of a read to that of the next one, average with more weight on the last */
    ca_tier_stats stats;  /* those that are counted */
};

static inline double ca_tier_now(const ca_tier *tier) { return tier->files->seconds(tier->files->ctx); }

/*
 * Carry out the next request: reads before writes, since a sequence may wait for them. One write at a time is in progress. The
 * mutex is locked, and unlocked in between. False: there is none.
 */
bool ca_tier_carry_out_next(ca_io_thread *io);

/* The main function of an I/O thread, whose argument is a ca_io_thread. */
void *ca_io_main(void *arg);

#endif
