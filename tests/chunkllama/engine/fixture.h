/* What the engine's tests share: an engine over the toy model, requests, and a plain count of the tokens that prompts share. */
#ifndef TESTS_CHUNKLLAMA_ENGINE_FIXTURE_H
#define TESTS_CHUNKLLAMA_ENGINE_FIXTURE_H

#include <stdatomic.h>

#include "chunkllama/engine/engine.h"
#include "recording.h"
#include "toy_model.h"

typedef struct fixture {
    ca_pool *pool;
    cl_engine *engine;
    cl_engine_config config;
} fixture;

/* Small chunks, f32, a budget that is never short, the fake grammar engine, and no drafts, since rows and steps are counted. */
cl_engine_config fixture_config(void);

/* Whether fixture_config gives grammars processes of their own. Tests without grammars need none: false at first. */
extern bool fixture_has_processes;

/* Where the process of a fake grammar notes its id when it compiles it, in shared memory; NULL: nowhere. */
extern atomic_int *fake_grammar_process;

/* Settings that do not change what is reported; all other fields are those of fixture_config. */
typedef struct setting {
    cattn_sharing sharing;
    cattn_retention retention;
    int32_t max_seqs, prefill_segment, max_step_rows, n_threads;
    uint64_t kv_budget_bytes;
    bool one_by_one; /* each request is submitted when the one before has ended; otherwise all together */
} setting;
enum { MIB = 1 << 20 };
cl_engine_config setting_config(const setting *set, cattn_type kv_type);

/* Fails the test with the engine's message. */
void fixture_start(fixture *f, const cl_engine_config *config, int n_threads);
void fixture_stop(fixture *f);

/* A prompt of n tokens: the first `shared` depend on `family` only, the others on `individual`. */
void make_prompt(int32_t *tokens, int64_t n, int64_t shared, uint32_t family, uint32_t individual);

/* One greedy choice, with logprobs and two top ones, recorded by r. */
cl_engine_request make_request(const int32_t *prompt, int64_t n_prompt, int64_t max_tokens, recording *r);

/* Submit and fail the test if it is refused. */
uint64_t submit(fixture *f, const cl_engine_request *request);

/* Run a request up to its end. Returns what on_event got, for the caller to free. */
recording *run_request(fixture *f, cl_engine_request request);

/*
 * Submit n >= 1 requests to an idle engine, which has all of them before its second step: what it does does not depend on when
 * the test's thread runs. ids [n] may be NULL.
 */
void submit_together(fixture *f, const cl_engine_request *requests, int n, uint64_t *ids);

/* The largest max_tokens with which the engine accepts this request. */
int64_t longest_completion(fixture *f, cl_engine_request request);

cl_engine_stats stats_of(fixture *f);
cattn_stats kv_stats_of(fixture *f);
/* The same once the statistics say that no request runs or waits. */
cl_engine_stats stats_when_idle(fixture *f);
cattn_stats kv_stats_when_idle(fixture *f);

/* Whether a run drafts, and with which model: NULL for the tokens of earlier requests. Drafts are verified wherever there are
 * any. */
typedef struct drafting {
    bool on;
    const cl_model *model;
} drafting;

/* Request i of a series; its prompt is written to tokens. */
typedef cl_engine_request make_request_fn(int i, int32_t *tokens, recording *r);

/*
 * Run requests 0 to n - 1, with prompts of at most max_prompt tokens, on an engine of their own. recordings [n] are created
 * here, and the caller frees them. Fails the test unless all requests end, and nothing is left in the cache that is in use.
 */
cl_engine_stats run_requests(const setting *set, cattn_type kv_type, const drafting *drafting, make_request_fn *make, int n,
                             int max_prompt, recording **recordings);

/* Fails the test, with this text, unless the same was reported of all n requests. Frees the recordings `got`. */
void expect_same_reports(recording *const *expected, recording **got, int n, const char *text);

/* A series of requests, of which the same is to be reported in every setting, with every type of K/V and way of drafting. */
typedef struct series {
    make_request_fn *make;
    int n, max_prompt;
    setting undisturbed; /* of the run that the others are compared with, which does not draft */
    const setting *settings;
    size_t n_settings;
    const cattn_type *types;
    size_t n_types;
    const drafting *ways;
    size_t n_ways;
    bool turns; /* the types take turns over settings and ways, instead of being combined with all of them */
    /* Called with what was reported of the undisturbed requests, and with the statistics of each other run; or NULL. */
    void (*check_undisturbed)(recording *const *expected);
    void (*check_run)(const setting *set, const drafting *way, const cl_engine_stats *stats);
} series;
void expect_same_bytes(const series *s);

/*
 * The same in the usual settings and ways, which `s` leaves out: alone and together, cold and warm, with threads, preempted,
 * and without sharing of reads; without drafts, with those of earlier requests, and with those of a model that is always right.
 */
void expect_same_bytes_as_usual(const series *s);

/*
 * The number of tokens that must be computed for prompts that join in this order: those that no earlier prompt has. A match
 * ends at an even length and leaves at least one token.
 */
typedef struct prompt {
    const int32_t *tokens;
    int64_t n;
} prompt;
int64_t trie_tokens(const prompt *prompts, int n);

#endif
