/*
 * A plan (tests/chunkattn/plans/plans.h): everything that happens in a run of the simulation.
 */
#ifndef TESTS_CHUNKATTN_SIM_PLAN_H
#define TESTS_CHUNKATTN_SIM_PLAN_H

#include <stdint.h>

#include "../plans/plans.h"
#include "faults.h"

/* The engine's configuration, and the run as a whole. */
typedef struct plan_engine {
    int64_t sharing, retention, kv_type, chunk_size, kv_budget_bytes;
    int64_t n_ctx, max_seqs, max_step_rows, prefill_segment;
    int64_t max_queued_requests, max_queued_tokens;
    int64_t window;       /* of the model's second layer; 0: it has none */
    int64_t speculation;  /* 0: off; 1: by lookup; 2: by the draft model */
    int64_t row_cost;     /* in thousandths */
    int64_t weights[4];   /* of domains 0 to 3, in thousandths */
    int64_t step_us;      /* duration of a step, in microseconds */
    int64_t row_us;       /* by which each row prolongs it */
    int64_t target_us;    /* target_itl_s; 0: none; < 0: by the time of decoding */
    int64_t stop_at;      /* the step before which the engine is destroyed; -1: when all requests have ended */
    int64_t create_fault; /* the allocation that fails while the engine is created first; 0: none */
    int64_t tier_cells;   /* the file tier's, each for the record of a chunk; 0: there is no tier */
    int64_t disk_us;      /* that a read or write of the tier's file takes on average */
} plan_engine;

typedef struct plan_request {
    int64_t at; /* the step before which it is submitted */

    /* The prompt: the tokens of another request, then n_family tokens that depend on `family`, then others, on `own`. */
    int64_t n_prompt, family, n_family, own;
    int64_t turn_of; /* index of that other request; -1: none */

    /* As in cl_engine_request; temperature and penalty in thousandths. Stop tokens and stop strings depend on `own`. */
    int64_t domain, priority, max_tokens, n;
    int64_t temperature, repetition_penalty, top_k, seed;
    int64_t n_stop_tokens, n_stop, ignore_eos;
    int64_t logprobs, prompt_logprobs, prompt_logprobs_from, n_top;
    int64_t beam_search; /* without stop strings and penalty then, and n is at most max_seqs */
    int64_t early_stopping, length_penalty;
    int64_t n_bias, n_bad_words, n_allowed, min_tokens; /* which tokens may be drawn, and those depend on `own` */
    int64_t include_stop;
    int64_t salt; /* a byte; 0: none */

    int64_t timeout_ms;      /* 0: none */
    int64_t cancel_at;       /* the step before which it is cancelled; -1: none */
    int64_t cancel_at_event; /* the event, counted from 1, from within which it is cancelled; 0: none */
} plan_request;

/* What happens beside failures; these kinds follow those of faults.h. */
enum {
    EVENT_JUMP = FAULT_KINDS, /* the clock jumps by n milliseconds, forward or back */
    EVENT_BUDGET,             /* the cache's budget becomes n percent of the configured one */
    EVENT_ENGINE_BUDGET,      /* the engine's budget does, as by cl_engine_set_kv_budget */
    EVENT_PIN,                /* what a running choice has is pinned, less its last n tokens */
    EVENT_UNPIN,              /* pin n is ended, if there is one */
    EVENT_RESTART,            /* the engine ends with all its requests, and begins anew; n: how it ends */
    EVENT_KINDS,
};

/* How an engine ends before it begins anew. */
enum {
    RESTART_STOP,
    RESTART_KILL,
    RESTART_POWER,
    RESTART_STOP_POWER /* the power fails after it has stopped */,
    RESTART_KINDS
};

/* A failure, or another event from outside. */
typedef struct plan_fault {
    int64_t at;       /* the step before which it is requested; in a plan the later ones come later */
    int64_t kind;     /* fault_kind, or one of the above */
    int64_t n, times; /* as for fault_request */
} plan_fault;

enum { SIM_RULES = 6 }; /* the most of n_bias, n_bad_words and n_allowed */
enum { PLAN_REQUESTS = 400, PLAN_FAULTS = 64, PLAN_PINS = 4, PLAN_TIER_CELLS = 200 };

typedef struct plan {
    uint64_t seed; /* that it was made from */
    plan_engine engine;
    int64_t n_requests, n_faults;
    plan_request requests[PLAN_REQUESTS];
    plan_fault faults[PLAN_FAULTS];
} plan;

/* The records are an engine, requests and faults. */
extern const plan_kind sim_plan_kind;

void plan_make(plan *p, uint64_t seed);

#endif
