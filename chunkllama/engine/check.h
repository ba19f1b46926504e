/*
 * The engine's configuration and its requests as callers pass them: their defaults (cl_engine_config_init and
 * cl_engine_request_init of chunkllama.h), and the refusal of requests that can never run.
 */
#ifndef CHUNKLLAMA_ENGINE_CHECK_H
#define CHUNKLLAMA_ENGINE_CHECK_H

#include "engine.h"

/*
 * Complete and check a caller's configuration, which may be of another version, or NULL for the defaults. *config then has
 * no field left to default but n_threads and level. CL_ERR_ARG names the field.
 */
cl_status cl_check_config(const cl_engine_config *from, const cl_model *m, cl_engine_config *config, cl_error *error);

/* The limits of an engine's requests; constant while it runs. */
typedef struct cl_engine_limits {
    int32_t n_vocab;
    int32_t n_end_tokens; /* of these, those that end a choice */
    int32_t max_seqs;
    int64_t max_queued_requests, max_queued_tokens; /* 0: no limit */
    int64_t n_ctx;                                  /* tokens of prompt and completion, at most what the K/V budget holds */
    uint64_t device_bytes;                          /* cl_engine_device_bytes */
    const char *context_reason;                     /* cl_engine_context_reason */
    const cattn_cache *cache;                       /* borrowed; says what the K/V budget could hold */
    uint64_t kv_budget_bytes;
    uint64_t kv_headroom_bytes; /* of the K/V budget that requests may not use */
    bool has_grammars;          /* the engine has a grammar library */
    bool can_pin;               /* prompts can be pinned */
    bool embeddings_only;       /* the model has no logits */
} cl_engine_limits;

/* The tokens of the longest prompt with its completion: limits->n_ctx, or what the K/V budget could hold if that is less. */
int64_t cl_served_context(const cl_engine_limits *limits);

/*
 * Complete and check a caller's request, which may be of another version. *request borrows what *from points to; its
 * max_tokens is the number that applies where the caller left it open. CL_ERR_ARG names the field; CL_ERR_LIMIT has the number
 * that was requested and the limit.
 */
cl_status cl_check_request(const cl_engine_limits *limits, const cl_engine_request *from, cl_engine_request *request,
                           cl_error *error);

/*
 * Check the fields of a request whose rules are the same in every engine, whose model has n_vocab tokens: all but the prompt,
 * on_event and the pins. So an API can refuse them before it has a prompt. CL_ERR_LIMIT for a grammar that is too large,
 * otherwise CL_ERR_ARG; both name the field.
 */
cl_status cl_check_fields(const cl_engine_request *r, int32_t n_vocab, cl_error *error);

/* A number of a field, and its range, in words or NULL: "from LOW to HIGH". NaN is in no range. */
typedef struct cl_range {
    const char *field;
    double value, low, high;
    const char *text;
} cl_range;

cl_status cl_check_ranges(const cl_range *ranges, size_t n, cl_error *error);

/* Check the tokens [n] of a field. */
cl_status cl_check_tokens(const char *field, const int32_t *tokens, int64_t n, int32_t n_vocab, cl_error *error);

/* Check the fields that say with which requests a request shares K/V: its domain and salt. CL_ERR_ARG names the field. */
cl_status cl_check_domain(const cl_engine_request *r, cl_error *error);

/* The load of the queue when a request is submitted. */
typedef struct cl_queue_load {
    int64_t n_waiting, n_tokens;       /* requests of which no choice is in the cache, and tokens of their prompts */
    int64_t n_queued, n_queued_tokens; /* the same of those that find no place at once */
    int32_t n_free;                    /* choices that still find a place at once */
    double retry_after_s;              /* until those that wait are admitted */
} cl_queue_load;

/*
 * Whether the queue accepts a request with a prompt of n_prompt tokens, which finds no place at once. One request may always
 * wait. CL_ERR_BUSY has the limit, and the time after which the caller may try again.
 */
cl_status cl_check_queue(const cl_engine_limits *limits, const cl_queue_load *load, int64_t n_prompt, cl_error *error);

#endif
