/* What the files of a run share: its state, its clients, and the checks. */
#ifndef TESTS_CHUNKATTN_SIM_WORLD_INTERNAL_H
#define TESTS_CHUNKATTN_SIM_WORLD_INTERNAL_H

#include "chunkattn/tier/tier.h"
#include "chunkllama/engine/scheduler.h"
#include "faults.h"
#include "oracle.h"
#include "stub_model.h"
#include "world.h"

enum { MAX_STOP_TOKENS = 2, MAX_STOP = 2, MAX_STOP_BYTES = 70 };

/* A request of the plan. */
typedef struct client {
    struct world *world;
    const plan_request *planned;
    cl_engine_request request; /* as submitted, with the max_tokens that applies */
    int32_t prompt[SIM_CONTEXT], stop_tokens[MAX_STOP_TOKENS];
    char stop_strings[MAX_STOP][MAX_STOP_BYTES + 1];
    const char *stop[MAX_STOP];
    cl_logit_bias bias[SIM_RULES];
    int32_t allowed[SIM_RULES], bad_words[3 * SIM_RULES], bad_word_sizes[SIM_RULES];
    char salt;
    cl_request *r;  /* the engine's; NULL: not submitted, refused or ended */
    oracle *oracle; /* NULL: not submitted, or refused */
    int64_t n_events, submitted_at;
    int64_t waits_before;
    double waited_before; /* the world's counters when it came */
    int64_t work_before;  /* rows of the requests that were there when it came, less all that were submitted by then */
    int32_t n_overtaken;  /* choices of later requests that joined while it waited */
    bool cancelled;
    bool is_retained; /* its prompt was computed in its domain, and stays in the cache until something is evicted */

    /* Before the step. */
    int32_t n_in_cache, n_waiting;
    bool admitted;
    double served; /* its tenant's counter */
} client;

/* A prefix that the plan has pinned. */
typedef struct world_pin {
    cattn_seq seq; /* 0: none */
    int64_t n_tokens;
    int32_t tokens[SIM_CONTEXT];
    uint32_t domain;
} world_pin;

typedef struct world {
    const plan *plan;
    world_counts *counts;
    ca_pool *pool;
    cl_scheduler *scheduler;
    cl_engine_config config;
    cl_engine_weight weights[4];
    int64_t step, n_submitted, next_fault;
    int64_t work_submitted, work_ended; /* rows of the requests that were submitted, and that have ended */
    int64_t faults_before;              /* that had fired when the engine was called last */
    int64_t fired_before;               /* that had fired when the run began */
    int64_t n_completion;
    int64_t n_waits;       /* steps without rows while the tier read */
    double seconds_waited; /* in these */
    uint64_t last_id;
    bool cancels;
    world_pin pins[PLAN_PINS];
    int64_t n_pins;
    bool is_short;       /* pins or a lower budget take what a request was promised when it was submitted */
    bool engine_lowered; /* the engine's budget: a choice that is alone may use all of the configured one */
    uint64_t
        lower_bytes[SIM_CACHES]; /* of each cache, when the budget was last changed: they may exceed it until sequences leave */
    client clients[PLAN_REQUESTS];
} world;

/* Report that something is wrong, with the step, and end. */
__attribute__((format(printf, 2, 3))) void sim_fail(const world *w, const char *format, ...);

#define CHECK(w, condition)                                                                                                    \
    do {                                                                                                                       \
        if (!(condition)) sim_fail((w), "not " #condition);                                                                    \
    } while (0)

static inline int client_number(const client *c) { return (int)(c - c->world->clients); }

/* The engine's code runs between these two. */
static inline void enter_engine(world *w) {
    w->faults_before = faults_n_fired();
    faults_arm();
}
static inline void leave_engine(void) { faults_disarm(); }

/* Whether a call has failed since enter_engine, which excuses errors. */
static inline bool fault_fired(const world *w) { return faults_n_fired() > w->faults_before; }

/* ---- world.c: the run ---- */

/* End the engine and all requests in the way that `how` says, and begin anew with what the disk has. */
void world_restart(world *w, int64_t how);

/* The cache's tier; NULL: there is none. */
ca_tier *world_tier(void);

/* ---- events.c: what happens from outside ---- */

/* Request the failures that are due, and do what else is. */
void events_due(world *w);

/* End all pins, or set the budget back. */
void events_unpin_all(world *w);
void events_end(world *w);

/* The tokens at the beginning of a prompt of n tokens that are pinned. */
int64_t events_n_pinned(const world *w, uint32_t domain, const int32_t *tokens, int64_t n);

/* ---- client.c: requests ---- */

/* Submit the request, as cl_engine_submit does. */
void client_submit(client *c);

/* Cancel it, as cl_engine_cancel does. */
void client_cancel(client *c);

/* At most this many rows are computed for a request that is never preempted. */
static inline int64_t client_work(const client *c) { return c->request.n * (c->request.n_prompt + c->request.max_tokens); }

/* ---- checks.c: what must hold ---- */

/* To be called before a step, and after it but before its results are reported: who has joined, and what joins have found. */
void checks_note(world *w);
void checks_joined(world *w, int64_t preemptions_before);

/* To be called when the results are reported: caches, statistics, progress and fairness. */
void checks_state(world *w);

/* The file tier and its disk. Reads the whole file. */
void checks_tier(const world *w);

#endif
