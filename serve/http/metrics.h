/* The counters of /metrics, in Prometheus' text format, under vLLM's names where vLLM has the same metric. */
#ifndef SERVE_HTTP_METRICS_H
#define SERVE_HTTP_METRICS_H

#include <pthread.h>
#include <stdbool.h>

#include "chunkllama/engine/engine.h"
#include "process_stats.h"
#include "serve/protocol/openai.h"

enum {
    METRICS_MOST_BUCKETS = 23,   /* with bounds, of a histogram */
    METRICS_MOST_TENANTS = 1000, /* that have metrics of their own */
    METRICS_FIRST_STATUS = 100,
    METRICS_N_STATUS = 500, /* of HTTP */
};

/* A distribution of durations or numbers. */
typedef struct metrics_histogram {
    const double *bounds; /* [n_bounds] the buckets' upper bounds; static */
    int32_t n_bounds;
    uint64_t buckets[METRICS_MOST_BUCKETS + 1]; /* values in each bucket; the last one, [n_bounds], has no bound */
    double sum;
} metrics_histogram;

/* What is known of a request to the engine: of one prompt, with all its choices. Times are in seconds. */
typedef struct metrics_request {
    cl_engine_finish finish;
    double total;            /* since its arrival */
    double queued;           /* until it was admitted */
    double prefill;          /* from then to its first token; 0: there was none */
    double decode;           /* from there to its last token */
    int64_t n_prompt;        /* tokens */
    int64_t n_choices;       /* the request's n */
    const int64_t *n_tokens; /* [n_choices] generated; borrowed for the call */
    int64_t max_tokens;      /* that the request asked for; < 0: it did not */
} metrics_request;

/* The tokens of a tenant's requests that have ended. */
typedef struct metrics_tenant {
    char name[OPENAI_MAX_TENANT + 1];
    uint64_t n_requests, n_prompt, n_cached, n_generated;
} metrics_tenant;

/* The metrics that the engine does not count itself. Its functions may be called on any thread. */
typedef struct server_metrics {
    pthread_mutex_t lock; /* guards the fields below */
    metrics_histogram first_token, inter_token, per_token, total, queued, prefill, decode, inference;
    metrics_histogram prompt_tokens, tokens, max_tokens, choices;
    uint64_t finished[CL_ENGINE_ERROR + 1]; /* ended requests by their cl_engine_finish */
    uint64_t replies[METRICS_N_STATUS];     /* by their status, from METRICS_FIRST_STATUS on */
    metrics_tenant *tenants;                /* [n_tenants] of most_tenants + 1, owned; the last one is all others together */
    int32_t n_tenants, most_tenants;
} server_metrics;

/* most_tenants: those that come first are counted one by one, and all others together; 0: none is. False: memory is lacking. */
bool metrics_init(server_metrics *m, int32_t most_tenants);
void metrics_destroy(server_metrics *m);

/* Count the time from a request's arrival to its first token. */
void metrics_first_token(server_metrics *m, double seconds);

/* Count the time from one token of a choice to its next. */
void metrics_inter_token(server_metrics *m, double seconds);

/*
 * The mean time from one token of a choice to its next, of choices that generated n_tokens together. seconds: from the first of
 * these tokens to the last. A choice's first token has no time of its own; < 0: none has another one.
 */
double metrics_token_s(double seconds, int64_t n_tokens, int64_t n_choices);

/* Count a request that has ended. */
void metrics_finished(server_metrics *m, const metrics_request *r);

/*
 * Count a request of a tenant that has ended, and its tokens: of its prompts, those of them in the cache, and generated ones.
 * tenant: NULL: its name is not known any more.
 */
void metrics_of_tenant(server_metrics *m, const char *tenant, int64_t n_prompt, int64_t n_cached, int64_t n_generated);

/* Count a reply of this HTTP status. */
void metrics_reply(server_metrics *m, unsigned status);

/* What the page shows beside the server's own metrics. */
typedef struct metrics_source {
    cl_engine_stats engine;
    cattn_stats kv;
    process_stats process;
    int64_t started_at;    /* seconds since 1970 */
    int32_t n_connections; /* that are open, of at most max_connections */
    int32_t max_connections;
    const char *model_name;
    int64_t n_ctx;        /* tokens; 0: no model is served yet */
    int32_t chunk_size;   /* tokens of a chunk of the K/V cache */
    size_t request_bytes; /* of requests that arrive or wait, beyond REQUEST_BYTES of each */
    uint64_t lost_lines;  /* of the log */
} metrics_source;

/* The page as allocated text [*size]; NULL if memory is lacking. */
char *metrics_write(server_metrics *m, const metrics_source *source, size_t *size);

#endif
