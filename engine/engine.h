/*
 * Iteration-based batching: one thread of its own runs steps that mix decode rows with prefill pieces under a token budget;
 * requests join and leave at any step.
 *
 * First come, first served. A request is admitted when the K/V cache can promise it every token it may need, so an admitted
 * request always finishes. Requests with a new prefix in common have it computed once, also when they arrive together.
 *
 * A request's tokens and logprobs depend on nothing but the request: not on its batch, the limits below or the sharing mode.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "chunkattn.h"
#include "llama/common/error.h"
#include "llama/model.h"
#include "llama/sampler.h"

typedef struct cl_engine cl_engine;

enum { CL_ENGINE_MAX_TOP = 32 }; /* likeliest tokens that can be asked for with each logprob */

/* Fill with cl_engine_config_init, then change what you need. */
typedef struct cl_engine_config {
    cattn_sharing sharing;     /* default CATTN_SHARED */
    cattn_retention retention; /* default CATTN_RETAIN_LRU */
    cattn_type kv_type;        /* default CATTN_BF16 */
    uint64_t kv_budget_bytes;  /* default 1 GiB */
    int32_t n_ctx;             /* longest prompt + completion; 0 (default): the model's */
    int32_t max_seqs;          /* sequences running at once; default 32 */
    int32_t max_step_rows;     /* token budget of a step, at least max_seqs; default 512 */
    int32_t prefill_piece;     /* at most this many rows of one sequence in a step; 0 (default): no limit but the budget */
    int32_t chunk_size;        /* default 64 */
    bool
        speculate; /* draft tokens and verify several in a step, where that pays: never changes what a request is told; false */
    const cl_model *draft_model; /* NULL (default): drafts are what followed the same tokens earlier, in the request or in
                                 others of its domain. Else this model's; of the same vocabulary, borrowed until
                                 cl_engine_destroy, with a K/V cache of its own that holds as many tokens */
    float row_cost;    /* of one more row, in units of what a step costs anyway: drafts must be worth it; default 0.15 */
    const char *level; /* kernel level of attention; NULL (default): best. Borrowed for cl_engine_create only */
} cl_engine_config;

void cl_engine_config_init(cl_engine_config *config);

typedef enum cl_engine_finish {
    CL_ENGINE_RUNNING = 0,
    CL_ENGINE_STOP,   /* end token, stop string or stop token */
    CL_ENGINE_LENGTH, /* max_tokens or the context is reached */
    CL_ENGINE_CANCELLED,
    CL_ENGINE_ERROR,
} cl_engine_finish;

/*
 * What a request is told. For each choice: one event for each token, then one with token -1 that ends it and brings the text
 * still held back. Before those, where prompt_logprobs was asked for: one event for each position of the prompt, once for the
 * whole request, with choice 0. Everything pointed to lives until the callback returns.
 */
typedef struct cl_engine_event {
    uint64_t request; /* as cl_engine_submit gave it; the first event may come before cl_engine_submit returns */
    int32_t choice;
    int32_t token; /* -1: no token in this event. End and stop tokens are reported too, but have no text */
    int64_t position;
    bool prompt;      /* a token of the prompt: no text */
    const char *text; /* bytes that may be shown now: whole UTF-8 characters, nothing that may begin a stop string; those of
                         this token or earlier ones; not terminated */
    size_t text_size;
    cl_sampler_logprob chosen; /* where logprobs were asked for; id is -1 elsewhere, and at position 0 */
    const cl_sampler_logprob *top;
    int32_t n_top;           /* 0 where chosen.id is -1 */
    cl_engine_finish finish; /* not CL_ENGINE_RUNNING: the choice is done */
    bool last;               /* the request is done; no event follows and the engine forgets it */
    int64_t n_prompt;        /* usage so far */
    int64_t n_cached;        /* prompt tokens found in the tree when the request was admitted; 0 before */
    int64_t n_completion;    /* of all choices, end and stop tokens included */
    const cl_error *error;   /* with CL_ENGINE_ERROR, else NULL */
} cl_engine_event;

/* Zero-initialise, fill `sampling` with cl_sampler_params_init. */
typedef struct cl_engine_request {
    const int32_t *prompt; /* [n_prompt] */
    int64_t n_prompt;      /* >= 1 */
    int64_t max_tokens;    /* completion tokens of a choice; 0: the prompt is computed, nothing drawn; < 0: up to what the
                              context and the K/V budget hold */
    cl_sampler_params sampling;
    const char *const *stop;    /* [n_stop] stop strings, terminated, not empty; not part of the text */
    const int32_t *stop_tokens; /* [n_stop_tokens] */
    void (*on_event)(void *ctx,
                     const cl_engine_event *event); /* on the engine's thread: must not block; may submit and cancel */
    void *ctx;
    int32_t n; /* choices; 1..max_seqs */
    int32_t n_stop, n_stop_tokens;
    int32_t n_top;   /* likeliest tokens with each logprob; 0..ENGINE_MAX_TOP */
    uint32_t domain; /* only requests of one domain share; less than 2^31 */
    bool ignore_eos; /* end tokens of the model do not end a choice; stop_tokens still do */
    bool logprobs;
    bool prompt_logprobs; /* (echo) events with logprobs, of n_top tokens, for the prompt's positions too: that of position i
                             given those before. The whole prompt is computed then, whatever the cache holds, since what is
                             cached are K/V, not logits: n_cached is 0 */
} cl_engine_request;

/* Start the engine's thread. m and pool are borrowed until cl_engine_destroy; nobody else may use the pool until then. */
cl_status cl_engine_create(const cl_model *m, ca_pool *pool, const cl_engine_config *config, cl_engine **e, cl_error *error);
/* Cancels what waits and runs (their last events come before this returns), stops the thread. Not from on_event. */
void cl_engine_destroy(cl_engine **e);

/* How messages about a request that is too long begin. Clients know it by OpenAI's words, not by a code. Takes a long long. */
#define ENGINE_CONTEXT_LENGTH "This model's maximum context length is %lld tokens"

/*
 * Queue a request (copied). Any thread. CL_ERR_ARG names the field; CL_ERR_LIMIT with both numbers if it is too large for the
 * context or the K/V budget; CL_ERR_NOMEM; CL_ERR_UNSUPPORTED while the engine stops. No event comes then,
 * and *id means nothing.
 */
cl_status cl_engine_submit(cl_engine *e, const cl_engine_request *request, uint64_t *id, cl_error *error);

/* End a request: its sequences leave before the next step; its last event says CL_ENGINE_CANCELLED. Any thread; unknown ids are
 * ignored. */
void cl_engine_cancel(cl_engine *e, uint64_t id);

typedef struct cl_engine_drafts {
    int64_t n_drafts, n_tokens, n_accepted; /* verified drafts, their tokens, those of them that were accepted */
} cl_engine_drafts;

typedef struct cl_engine_stats {
    int64_t n_waiting, n_running; /* requests */
    int64_t prompt_tokens;        /* of admitted requests */
    int64_t cached_tokens;        /* of those, found in the tree */
    int64_t prefill_tokens_computed;
    int64_t completion_tokens;
    int64_t requests_finished; /* for whatever reason */
    int64_t steps;
    double prefill_s, decode_s; /* time of steps, shared out by rows */
    int64_t batch_peak;         /* most sequences in one step */
    cl_engine_drafts drafts;
    cattn_stats kv;
} cl_engine_stats;

/* Any thread. What is computed and drawn is counted before it is told; who has finished or left, a moment after. */
void cl_engine_get_stats(cl_engine *e, cl_engine_stats *stats);
int64_t cl_engine_n_ctx(const cl_engine *e);

#endif
