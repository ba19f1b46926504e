/* What /metrics tells, in Prometheus' text format and with vLLM's names where vLLM has the same. */
#ifndef SERVER_METRICS_H
#define SERVER_METRICS_H

#include <pthread.h>

#include "engine/engine.h"

enum { METRICS_N_BUCKETS = 18 };

/* Seconds, counted by upper bound. */
typedef struct histogram {
    uint64_t buckets[METRICS_N_BUCKETS + 1]; /* not summed up; the last is beyond all bounds */
    double sum;
} histogram;

typedef struct metrics {
    pthread_mutex_t lock;
    histogram first_token, inter_token, request;
    uint64_t finished[CL_ENGINE_ERROR + 1]; /* requests by how they ended */
} metrics;

void metrics_init(metrics *m);
void metrics_destroy(metrics *m);

void metrics_first_token(metrics *m, double seconds);
void metrics_inter_token(metrics *m, double seconds);
void metrics_finished(metrics *m, cl_engine_finish how, double seconds);

/* The page, allocated; NULL without memory. */
char *metrics_write(metrics *m, const cl_engine_stats *stats, const char *model_name, size_t *size);

#endif
