/* Makes plans from seeds, prints them and reads them: see plan.h. */
#include "plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "chunkattn.h"
#include "faults.h"
#include "stub_model.h"
#include "tests/support/rng.h"

/* ---- Fields ---- */

#define FIELDS(type, name)                                                                                                     \
    const plan_fields plan_##type##_fields = {name, type##_fields, sizeof type##_fields / sizeof *type##_fields}

#define FIELD(name, simplest)                                                                                                  \
    { #name, offsetof(plan_engine, name), simplest }
static const plan_field engine_fields[] = {
    FIELD(sharing, 0),
    FIELD(retention, 0),
    FIELD(kv_type, 0),
    FIELD(chunk_size, 16),
    FIELD(kv_budget_bytes, 1 << 20),
    FIELD(n_ctx, SIM_CONTEXT),
    FIELD(max_seqs, 4),
    FIELD(max_step_rows, 64),
    FIELD(prefill_segment, 0),
    FIELD(max_queued_requests, 0),
    FIELD(max_queued_tokens, 0),
    FIELD(window, 0),
    FIELD(speculation, 0),
    FIELD(row_cost, 150),
    {"weight0", offsetof(plan_engine, weights[0]), 1000},
    {"weight1", offsetof(plan_engine, weights[1]), 1000},
    {"weight2", offsetof(plan_engine, weights[2]), 1000},
    {"weight3", offsetof(plan_engine, weights[3]), 1000},
    FIELD(step_us, 1000),
    FIELD(row_us, 0),
    FIELD(target_us, 0),
    FIELD(stop_at, -1),
    FIELD(create_fault, 0),
    FIELD(tier_slots, 0),
    FIELD(disk_us, 0),
};
FIELDS(engine, "engine");
#undef FIELD

#define FIELD(name, simplest)                                                                                                  \
    { #name, offsetof(plan_request, name), simplest }
static const plan_field request_fields[] = {
    FIELD(at, 0),
    FIELD(n_prompt, 1),
    FIELD(family, 0),
    FIELD(n_family, 0),
    FIELD(own, 0),
    FIELD(turn_of, -1),
    FIELD(domain, 0),
    FIELD(priority, 0),
    FIELD(max_tokens, 1),
    FIELD(n, 1),
    FIELD(temperature, 0),
    FIELD(repetition_penalty, 1000),
    FIELD(top_k, 0),
    FIELD(seed, 0),
    FIELD(n_stop_tokens, 0),
    FIELD(n_stop, 0),
    FIELD(ignore_eos, 0),
    FIELD(logprobs, 0),
    FIELD(prompt_logprobs, 0),
    FIELD(n_top, 0),
    FIELD(timeout_ms, 0),
    FIELD(cancel_at, -1),
    FIELD(cancel_at_event, 0),
    FIELD(beam_search, 0),
    FIELD(early_stopping, 0),
    FIELD(length_penalty, 0),
    FIELD(n_bias, 0),
    FIELD(n_bad_words, 0),
    FIELD(n_allowed, 0),
    FIELD(min_tokens, 0),
    FIELD(include_stop, 0),
    FIELD(salt, 0),
};
FIELDS(request, "request");
#undef FIELD

#define FIELD(name, simplest)                                                                                                  \
    { #name, offsetof(plan_fault, name), simplest }
static const plan_field fault_fields[] = {FIELD(at, 0), FIELD(kind, 0), FIELD(n, 1), FIELD(times, 1)};
FIELDS(fault, "fault");
#undef FIELD

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
        .target_us = ONE_OF(r, 0, 0, 1, 1000, 100000, 10000000),
        .stop_at = rng_chance(r, 8) ? rng_range(r, 1, 100) : -1,
        .create_fault = rng_chance(r, 4) ? rng_range(r, 1, 60) : 0,
    };
    /* From a budget for less than one sequence of the context's length, beside metadata and workspace, to one for ten. */
    const int64_t context_bytes = (e->n_ctx + chunk_size) * (e->window > 0 ? 512 : 256);
    e->kv_budget_bytes = 40000 + context_bytes * rng_range(r, 5, ONE_OF(r, 15, 30, 100)) / 10;
    e->max_step_rows = e->max_seqs + ONE_OF(r, 0, 1, 7, 30, 100, 400);
    for (int i = 0; i < 4; i++) e->weights[i] = ONE_OF(r, 1000, 1000, 3000, 250);
    const bool retains = e->sharing != CATTN_PRIVATE && e->retention != CATTN_RETAIN_NONE;
    e->tier_slots = retains && !rng_chance(r, 3) ? ONE_OF(r, 1, 3, 10, 40, 100, PLAN_TIER_SLOTS) : 0;
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
    const bool fails = rng_chance(r, 2), happens = rng_chance(r, 4), wears = p->engine.tier_slots > 0 && !rng_chance(r, 3);
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

/* ---- Text ---- */

static void print_fields(const plan_fields *fields, const void *of, FILE *file) {
    fprintf(file, "%s", fields->name);
    for (size_t i = 0; i < fields->n; i++) {
        const int64_t is = *plan_value(&fields->fields[i], (void *)of);
        if (is != fields->fields[i].simplest) fprintf(file, " %s=%" PRId64, fields->fields[i].name, is);
    }
    fprintf(file, "\n");
}

void plan_print(const plan *p, FILE *file) {
    print_fields(&plan_engine_fields, &p->engine, file);
    for (int64_t i = 0; i < p->n_requests; i++) print_fields(&plan_request_fields, &p->requests[i], file);
    for (int64_t i = 0; i < p->n_faults; i++) print_fields(&plan_fault_fields, &p->faults[i], file);
}

static bool read_field(const plan_fields *fields, void *of, char *word) {
    char *equals = strchr(word, '=');
    for (size_t i = 0; equals && i < fields->n; i++) {
        const size_t length = strlen(fields->fields[i].name);
        if (length != (size_t)(equals - word) || memcmp(word, fields->fields[i].name, length) != 0) continue;
        *plan_value(&fields->fields[i], of) = strtoll(equals + 1, NULL, 10);
        return true;
    }
    fprintf(stderr, "%s has no field \"%s\"\n", fields->name, word);
    return false;
}

static bool read_fields(const plan_fields *fields, void *of) {
    for (size_t i = 0; i < fields->n; i++) *plan_value(&fields->fields[i], of) = fields->fields[i].simplest;
    for (char *word; (word = strtok(NULL, " \n"));)
        if (!read_field(fields, of, word)) return false;
    return true;
}

static bool read_line(plan *p, char *line) {
    const char *name = strtok(line, " \n");
    if (!name) return true;
    if (strcmp(name, plan_engine_fields.name) == 0) return read_fields(&plan_engine_fields, &p->engine);
    if (strcmp(name, plan_request_fields.name) == 0 && p->n_requests < PLAN_REQUESTS)
        return read_fields(&plan_request_fields, &p->requests[p->n_requests++]);
    if (strcmp(name, plan_fault_fields.name) == 0 && p->n_faults < PLAN_FAULTS)
        return read_fields(&plan_fault_fields, &p->faults[p->n_faults++]);
    fprintf(stderr, "\"%s\" is not engine, request or fault, or there are more than %d requests or %d faults\n", name,
            PLAN_REQUESTS, PLAN_FAULTS);
    return false;
}

bool plan_read(plan *p, FILE *file) {
    char line[1024];
    memset(p, 0, sizeof *p);
    while (fgets(line, sizeof line, file))
        if (!read_line(p, line)) return false;
    return true;
}
