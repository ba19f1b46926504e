/*
 * Drives an engine through its public interface: submits requests, waits for them, and notes what the engine reports of each,
 * and when. Completions are greedy.
 */
#ifndef BENCH_MEMORY_DRIVER_H
#define BENCH_MEMORY_DRIVER_H

#include <chunkllama.h>
#include <pthread.h>

typedef struct driver driver;

/* What is requested, set by the caller, and what was reported. */
typedef struct driver_request {
    const int32_t *prompt; /* [n_prompt] borrowed by driver_submit */
    int64_t n_prompt;
    int64_t max_tokens; /* as in cl_engine_request */
    uint32_t domain;
    bool ignore_eos;
    double *itl; /* [max_tokens - 1] borrowed; gets the seconds between tokens; NULL: not needed */

    driver *owner;
    uint64_t id;
    int64_t n_tokens; /* of the completion */
    int64_t n_cached; /* of the prompt's tokens, when the request was admitted */
    uint64_t hash;    /* of the completion's tokens */
    double submitted; /* clock_seconds() */
    double first;     /* the same of the first token */
    double latest;    /* the same of the last token so far */
    bool ended;       /* guarded by the driver's mutex */
} driver_request;

/* An engine, and how many of its requests are in flight. All functions belong to one thread. */
struct driver {
    cl_engine *engine;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    int64_t n_left;      /* requests that have not ended */
    int64_t n_unstarted; /* those of them without a token */
    cl_error error;      /* of the first request that failed; code CL_OK: none */
};

/* Start the engine. False with a message on stderr. driver_close must follow in either case. */
bool driver_open(driver *d, const cl_model *model, const cl_engine_config *config);
void driver_close(driver *d);

/* Submit requests [n], which are borrowed until they have ended. False with a message on stderr. */
bool driver_submit(driver *d, driver_request *requests, size_t n);

/* Wait until all requests have ended. False with a message on stderr if one failed since the driver was opened. */
bool driver_wait(driver *d);
/* Wait until at most n requests have not ended. */
bool driver_wait_left(driver *d, int64_t n);
/* Wait until at most n requests have reported no token and have not ended. */
bool driver_wait_unstarted(driver *d, int64_t n);
/* Wait until a request has ended. */
bool driver_wait_for(driver *d, const driver_request *r);

/* Cancel requests [n]; they end soon. */
void driver_cancel(driver *d, const driver_request *requests, size_t n);

/* driver_submit, then driver_wait. */
bool driver_run(driver *d, driver_request *requests, size_t n);

/* The engine's statistics. */
cl_engine_stats driver_stats(driver *d);
/* Bytes of a chunk's K/V. */
uint64_t driver_chunk_bytes(driver *d);

#endif
