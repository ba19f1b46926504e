/* Makes plans from seeds: see plan.h. */
#include "plan.h"

#include <stddef.h>
#include <stdlib.h>

#include "chunkattn.h"
#include "faults.h"
#include "stub_model.h"
#include "tests/support/rng.h"

/* ---- Records ---- */

static const plan_records records[] = {
    {"engine",
     "sharing retention kv_type chunk_size=16 kv_budget_bytes=1048576 n_ctx=512 max_seqs=4 max_step_rows=64 prefill_segment "
     "max_queued_requests max_queued_tokens window speculation row_cost=150 weight0=1000 weight1=1000 weight2=1000 "
     "weight3=1000 "
     "step_us=1000 row_us target_us stop_at=-1 create_fault tier_cells disk_us",
     sizeof(plan_engine), offsetof(plan, engine), PLAN_ONE, 1},
    {"request",
     "at n_prompt=1 family n_family own turn_of:request=-1 domain priority max_tokens=1 n=1 temperature "
     "repetition_penalty=1000 "
     "top_k seed n_stop_tokens n_stop ignore_eos logprobs prompt_logprobs prompt_logprobs_from n_top beam_search "
     "early_stopping "
     "length_penalty n_bias "
     "n_bad_words n_allowed min_tokens include_stop salt timeout_ms cancel_at=-1 cancel_at_event",
     sizeof(plan_request), offsetof(plan, requests), offsetof(plan, n_requests), PLAN_REQUESTS},
    {"fault", "at kind n=1 times=1", sizeof(plan_fault), offsetof(plan, faults), offsetof(plan, n_faults), PLAN_FAULTS},
};
const plan_kind sim_plan_kind = {sizeof(plan), records, sizeof records / sizeof *records};

/* ---- Making ---- */

static int64_t one_of(rng *r, const int64_t *values, int n) { return values[rng_below(r, n)]; }
#define ONE_OF(r, ...) one_of((r), (const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void make_engine(plan_engine *e, rng *r) {
    const int64_t chunk_size = ONE_OF(r, 16, 16, 16, 32, 64);
    *e = (plan_engine){
        .sharing = ONE_OF(r, CATTN_SHARED, CATTN_SHARED, CATTN_SHARED, CATTN_SHARED_STORAGE, CATTN_PRIVATE),
        .retention = ONE_OF(r, CATTN_RETAIN_LRU, CATTN_RETAIN_LEARNED, CATTN_RETAIN_LEARNED, CATTN_RETAIN_NONE),
        .kv_type = ONE_OF(r, CATTN_F32, CATTN_F16, CATTN_BF16, CATTN_I8),
        .chunk_size = chunk_size,
        .n_ctx = ONE_OF(r, 24, 64, 150, 300, SIM_CONTEXT),
        .max_seqs = ONE_OF(r, 1, 2, 4, 8, 16, 16),
        .prefill_segment = ONE_OF(r, 0, 0, 1, 5, 16, 40),
        .max_queued_requests = ONE_OF(r, 0, 0, 0, 0, 0, 1, 3, 20),
        .max_queued_tokens = ONE_OF(r, 0, 0, 0, 0, 0, 1, 100, 1000),
        .window = rng_chance(r, 4) ? ONE_OF(r, 1, 2, 15, 16, 40, 100) : 0,
        .speculation = ONE_OF(r, 0, 0, 1, 1, 2),
        .row_cost = ONE_OF(r, 0, 20, 150),
        .step_us = ONE_OF(r, 10, 1000, 100000, 3000000),
        .row_us = ONE_OF(r, 0, 1, 100, 10000),
        .target_us = ONE_OF(r, 0, -1, 1, 1000, 100000, 10000000),
        .stop_at = rng_chance(r, 8) ? rng_range(r, 1, 100) : -1,
        .create_fault = rng_chance(r, 4) ? rng_range(r, 1, 60) : 0,
    };
    /* From a budget for less than one sequence of the context's length, beside metadata and workspace, to one for ten. */
    const int64_t context_bytes = (e->n_ctx + chunk_size) * (e->window > 0 ? 512 : 256);
    e->kv_budget_bytes = 40000 + context_bytes * rng_range(r, 5, ONE_OF(r, 15, 30, 100)) / 10;
    e->max_step_rows = e->max_seqs + ONE_OF(r, 0, 1, 7, 30, 100, 400);
    for (int i = 0; i < 4; i++) e->weights[i] = ONE_OF(r, 1000, 1000, 3000, 250);
    const bool retains = e->sharing != CATTN_PRIVATE && e->retention != CATTN_RETAIN_NONE;
    e->tier_cells = retains && !rng_chance(r, 3) ? ONE_OF(r, 1, 3, 10, 40, 100, PLAN_TIER_CELLS) : 0;
    e->disk_us = ONE_OF(r, 0, 1, 100, 5000, 100000);
}

/* What the requests of a plan have in common. */
typedef struct mood {
    int64_t gap, longest, n_families, n_domains, most_choices;
    int cancels, timeouts, turns, salts; /* one request in so many */
} mood;

static mood make_mood(rng *r, const plan_engine *e) {
    return (mood){
        .gap = ONE_OF(r, 0, 1, 3, 10, 30),
        .longest = rng_range(r, 1, e->n_ctx * 3 / 4),
        .n_families = ONE_OF(r, 1, 2, 5),
        .n_domains = ONE_OF(r, 1, 1, 2, 4),
        .most_choices = ONE_OF(r, 1, 1, 3, 6),
        .cancels = (int)ONE_OF(r, 3, 10, 1000),
        .timeouts = (int)ONE_OF(r, 5, 1000, 1000),
        .turns = (int)ONE_OF(r, 2, 5, 1000),
        .salts = (int)ONE_OF(r, 3, 1000, 1000),
    };
}

static void make_request(plan_request *q, int64_t i, int64_t at, const mood *m, const plan_engine *e, rng *r) {
    const int64_t n_prompt = rng_range(r, 1, rng_chance(r, 3) ? m->longest : (m->longest + 3) / 4);
    *q = (plan_request){
        .at = at,
        .n_prompt = n_prompt,
        .family = rng_range(r, 1, m->n_families),
        .n_family = rng_chance(r, 4) ? n_prompt : rng_range(r, 0, n_prompt),
        .own = rng_chance(r, 5) ? 1 : i + 1,
        .turn_of = i > 0 && rng_chance(r, m->turns) ? rng_range(r, 0, i - 1) : -1,
        .domain = rng_range(r, 0, m->n_domains - 1),
        .priority = rng_chance(r, 4) ? rng_range(r, -3, 3) : 0,
        .max_tokens = rng_chance(r, 3)    ? -1
                      : rng_chance(r, 20) ? 0
                                          : rng_range(r, 1, 60),
        .n = rng_chance(r, 3) ? rng_range(r, 1, m->most_choices) : 1,
        .temperature = ONE_OF(r, 0, 0, 700, 1000),
        .repetition_penalty = ONE_OF(r, 1000, 1000, 1000, 1300),
        .top_k = ONE_OF(r, 0, 0, 3),
        .seed = rng_range(r, 0, 1000),
        .n_stop_tokens = rng_chance(r, 6),
        .n_stop = rng_chance(r, 6) ? rng_range(r, 1, 2) : 0,
        .ignore_eos = rng_chance(r, 3),
        .logprobs = rng_chance(r, 2),
        .prompt_logprobs = rng_chance(r, 8),
        .n_top = rng_chance(r, 3) ? rng_range(r, 1, 5) : 0,
        .beam_search = rng_chance(r, 6),
        .early_stopping = rng_chance(r, 3),
        .length_penalty = rng_range(r, -1, 2),
        .timeout_ms = rng_chance(r, m->timeouts) ? rng_range(r, 1, 100) * (e->step_us / 1000 + 1) : 0,
        .cancel_at = rng_chance(r, m->cancels) ? at + rng_range(r, 0, 40) : -1,
        .cancel_at_event = rng_chance(r, m->cancels) ? rng_range(r, 1, 30) : 0,
    };
    if (rng_chance(r, 3)) q->domain = 0; /* one tenant submits more than the others */
    if (q->beam_search) q->n = rng_range(r, 1, 6);
    if (rng_chance(r, 6)) q->n_bias = rng_range(r, 1, SIM_RULES);
    if (rng_chance(r, 6)) q->n_bad_words = rng_range(r, 1, SIM_RULES);
    if (rng_chance(r, 12)) q->n_allowed = rng_range(r, 1, SIM_RULES);
    if (rng_chance(r, 4)) q->min_tokens = rng_range(r, 0, q->max_tokens < 0 ? 30 : q->max_tokens);
    q->include_stop = rng_chance(r, 3);
    if (rng_chance(r, m->salts)) q->salt = rng_range(r, 1, 2);
    if (q->prompt_logprobs && rng_chance(r, 2)) q->prompt_logprobs_from = rng_range(r, 0, n_prompt + 1);
}

static int compare_faults(const void *a, const void *b) {
    const int64_t x = ((const plan_fault *)a)->at, y = ((const plan_fault *)b)->at;
    return (x > y) - (x < y);
}

static plan_fault make_failure(rng *r) {
    return (plan_fault){
        .kind = ONE_OF(r, FAULT_ALLOCATION, FAULT_ALLOCATION, FAULT_COMMIT, FAULT_FORWARD, FAULT_STEP_END),
        .n = rng_range(r, 1, rng_chance(r, 2) ? 3 : 20),
        .times = rng_chance(r, 3) ? rng_range(r, 1, 4) : 1,
    };
}

static plan_fault make_event(rng *r) {
    plan_fault f = {
        .kind = ONE_OF(r, EVENT_JUMP, EVENT_BUDGET, EVENT_ENGINE_BUDGET, EVENT_PIN, EVENT_PIN, EVENT_UNPIN, EVENT_RESTART),
        .times = 1};
    if (f.kind == EVENT_JUMP) f.n = rng_range(r, -100000, 100000);
    if (f.kind == EVENT_BUDGET || f.kind == EVENT_ENGINE_BUDGET) f.n = ONE_OF(r, 0, 30, 60, 90, 100, 100);
    if (f.kind == EVENT_RESTART) f.n = rng_below(r, RESTART_KINDS);
    if (f.kind == EVENT_PIN) f.n = rng_chance(r, 2) ? 0 : rng_range(r, 0, 40);
    if (f.kind == EVENT_UNPIN) f.n = rng_below(r, PLAN_PINS);
    return f;
}

/* Of the tier: its disk, its thread, its engine. */
static plan_fault make_tier_failure(rng *r) {
    if (rng_chance(r, 6)) return (plan_fault){.kind = EVENT_RESTART, .n = rng_below(r, RESTART_KINDS), .times = 1};
    return (plan_fault){
        .kind = rng_range(r, FAULT_OPEN, FAULT_THREAD),
        .n = rng_range(r, 1, rng_chance(r, 2) ? 3 : 20),
        .times = rng_chance(r, 3) ? rng_range(r, 1, 40) : 1,
    };
}

static plan_fault make_fault(bool fails, bool happens, bool wears, rng *r) {
    if (wears && ((!fails && !happens) || rng_chance(r, 2))) return make_tier_failure(r);
    return happens && (!fails || rng_chance(r, 3)) ? make_event(r) : make_failure(r);
}

/*
 * In most plans only failures, only events, or neither, since either excuses much of what must hold otherwise. What happens to
 * the tier excuses nothing.
 */
static void make_faults(plan *p, int64_t n_steps, rng *r) {
    const bool fails = rng_chance(r, 2), happens = rng_chance(r, 4), wears = p->engine.tier_cells > 0 && !rng_chance(r, 3);
    p->n_faults = fails || happens || wears ? rng_range(r, 1, PLAN_FAULTS) : 0;
    for (int64_t i = 0; i < p->n_faults; i++) {
        p->faults[i] = make_fault(fails, happens, wears, r);
        p->faults[i].at = rng_range(r, 0, n_steps);
    }
    qsort(p->faults, (size_t)p->n_faults, sizeof *p->faults, compare_faults);
}

void plan_make(plan *p, uint64_t seed) {
    rng r = {seed};
    p->seed = seed;
    make_engine(&p->engine, &r);
    const mood m = make_mood(&r, &p->engine);
    p->n_requests = rng_range(&r, 1, ONE_OF(&r, 4, 20, 100, PLAN_REQUESTS));
    int64_t at = 0;
    for (int64_t i = 0; i < p->n_requests; i++) {
        make_request(&p->requests[i], i, at, &m, &p->engine, &r);
        at += rng_range(&r, 0, 2 * m.gap);
    }
    make_faults(p, at + 50, &r);
}
