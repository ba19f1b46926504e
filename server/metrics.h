/* Counts what /metrics reports, in Prometheus' text format, under vLLM's names where vLLM has the same metric. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include <pthread.h>

#include "engine/engine.h"

enum { METRICS_N_BUCKETS = 18 };

/* A distribution of durations. */
typedef struct histogram {
    uint64_t buckets[METRICS_N_BUCKETS + 1]; /* durations in each bucket, by upper bound; the last bucket has no bound */
    double sum;                              /* seconds */
} histogram;

/* The metrics that the engine does not count itself. Its functions may be called on any thread. */
typedef struct server_metrics {
    pthread_mutex_t lock; /* guards what follows */
    histogram first_token, inter_token, request;
    uint64_t finished[CL_ENGINE_ERROR + 1]; /* ended requests by their cl_engine_finish */
} server_metrics;

void metrics_init(server_metrics *m);
void metrics_destroy(server_metrics *m);

/* Count the time from a request's arrival to its first token. */
void metrics_first_token(server_metrics *m, double seconds);

/* Count the time from one token of a choice to its next. */
void metrics_inter_token(server_metrics *m, double seconds);

/* Count an ended request, and the time from its arrival. */
void metrics_finished(server_metrics *m, cl_engine_finish how, double seconds);

/* The page as allocated text [*size]; NULL if memory is lacking. chunk_size: tokens of a chunk of the K/V cache. */
char *metrics_write(server_metrics *m, const cl_engine_stats *stats, const cattn_stats *kv_stats, int32_t chunk_size,
                    const char *model_name, size_t *size);

#endif
