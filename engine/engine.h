/*
 * Iteration-based batching: one thread of its own runs steps that mix decode rows with prefill pieces under a token budget;
 * requests join and leave at any step.
 *
 * First come, first served. A request is admitted when the K/V cache can promise it every token it may need, so an admitted
 * request always finishes. Requests with a new prefix in common have it computed once, also when they arrive together.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "chunkattn.h"
#include "llama/error.h"
#include "llama/model.h"
#include "llama/sampler.h"

typedef struct engine engine;

typedef struct engine_config {
    cattn_sharing sharing;
    cattn_type kv_type;
    uint64_t kv_budget_bytes;
    int32_t n_ctx;         /* longest prompt + completion; 0: the model's */
    int32_t max_seqs;      /* sequences running at once */
    int32_t max_step_rows; /* token budget of a step */
    int32_t prefill_piece; /* at most this many rows of one sequence in a step; 0: no limit but the budget */
    int32_t chunk_size;
    const char *level; /* kernel level; NULL: best */
} engine_config;

void engine_config_init(engine_config *config);

typedef enum engine_finish {
    ENGINE_RUNNING = 0,
    ENGINE_STOP,   /* end token, stop string or stop token */
    ENGINE_LENGTH, /* max_tokens or the context is reached */
    ENGINE_CANCELLED,
    ENGINE_ERROR,
} engine_finish;

/* What a request is told, on the engine's thread; must not block. One for each token of each choice, then a last one a choice.
 */
typedef struct engine_event {
    int32_t choice;
    int32_t token; /* -1: no token in this event */
    int64_t position;
    const char *text; /* bytes that may be shown now: whole UTF-8 characters, nothing that may begin a stop string */
    size_t text_size;
    sampler_logprob chosen;     /* where logprobs were asked for */
    const sampler_logprob *top; /* [n_top] */
    int32_t n_top;
    engine_finish finish; /* not ENGINE_RUNNING: the choice is done */
    bool last;            /* the request is done; no event follows and the engine forgets it */
    int64_t n_prompt, n_cached,
        n_completion;      /* usage so far: cached = prompt tokens found in the tree, computed by nobody anew */
    const cl_error *error; /* with ENGINE_ERROR */
} engine_event;

/* Logprobs of prompt tokens (echo): position i's token given those before; token 0 has none. */
typedef struct engine_request {
    const int32_t *prompt;
    int64_t n_prompt;
    int32_t n;          /* choices; >= 1 */
    int64_t max_tokens; /* completion tokens of a choice; 0 is allowed; < 0: up to the context */
    sampler_params sampling;
    const char *const *stop; /* [n_stop] stop strings, not part of the text */
    int32_t n_stop;
    const int32_t *stop_tokens; /* [n_stop_tokens] */
    int32_t n_stop_tokens;
    bool ignore_eos;
    bool logprobs;
    int32_t n_top;        /* likeliest tokens with each logprob */
    bool prompt_logprobs; /* events for the prompt's positions too */
    uint32_t domain;
    void (*on_event)(void *ctx, const engine_event *event);
    void *ctx;
} engine_request;

/* Start the engine's thread. m and pool are borrowed until engine_destroy. */
cl_status engine_create(const model *m, ca_pool *pool, const engine_config *config, engine **e, cl_error *error);
/* Cancels what runs, stops the thread. */
void engine_destroy(engine **e);

/* Queue a request (copied). Any thread. CL_ERR_LIMIT with both numbers if it is too large for the context or the K/V budget. */
cl_status engine_submit(engine *e, const engine_request *request, uint64_t *id, cl_error *error);

/* End a request: its sequences leave before the next step; its last event says ENGINE_CANCELLED. Any thread; unknown ids are
 * ignored. */
void engine_cancel(engine *e, uint64_t id);

typedef struct engine_stats {
    int64_t n_waiting, n_running;
    int64_t prompt_tokens, cached_tokens, prefill_tokens_computed, completion_tokens, requests_finished;
    int64_t steps;
    double prefill_s, decode_s; /* time of steps, shared out by rows */
    int64_t batch_peak;
    cattn_stats kv;
} engine_stats;

void engine_get_stats(engine *e, engine_stats *stats);
int64_t engine_n_ctx(const engine *e);

#endif
