/*
 * All that is reported of a request, kept for comparison: two recordings of one request are equal byte for byte, however it was
 * batched. Usage of the cache is kept beside it.
 */
#ifndef TESTS_CHUNKLLAMA_ENGINE_RECORDING_H
#define TESTS_CHUNKLLAMA_ENGINE_RECORDING_H

#include <pthread.h>
#include <stdbool.h>

#include "chunkllama/engine/engine.h"

enum { RECORDING_CHOICES = 8, RECORDING_EMBEDDING = 4096 };

typedef struct recorded_choice {
    unsigned char *log; /* every event's contents */
    size_t log_size, log_capacity;
    int32_t tokens[1024];
    float logprobs[1024];
    int64_t n_tokens;
    char text[8192];
    size_t text_size;
    cl_engine_finish finish;
    int32_t stop; /* the last event's */
} recorded_choice;

typedef struct recording {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    recorded_choice choices[RECORDING_CHOICES];
    float prompt_logprobs[4096];                 /* by position */
    int64_t n_prompt_events, first_prompt_event; /* and the position of the first one */
    float embedding[RECORDING_EMBEDDING];
    int32_t n_embedding; /* of the last event */
    uint64_t request;
    int64_t n_events, n_cached, n_pinned, n_completion;
    int64_t first_event_order; /* counted over all recordings */
    bool done;
    char error[512];
    void (*hook)(void *ctx, const cl_engine_event *event); /* on the engine's thread, after the event is kept; may be NULL */
    void *hook_ctx;
} recording;

recording *recording_create(void);
void recording_free(recording *r);

/* For cl_engine_request.on_event, with the recording as ctx. */
void recording_event(void *ctx, const cl_engine_event *event);

/* Wait for the last event, or for the n-th. */
void recording_wait(recording *r);
void recording_wait_events(recording *r, int64_t n);

/* Whether the same was reported of all choices. */
bool recording_equal(const recording *a, const recording *b);

#endif
