/* Who is served when: tenants share the engine by weight, a flood of one delays no other, and priority orders the rest. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <string.h>

#include "chunkllama/engine/pace.h"
#include "chunkllama/engine/question.h"
#include "chunkllama/engine/turns.h"
#include "fixture.h"

/* How often steps asked whether a family has half of a tenant's places. Only the engine's thread writes. */
static int64_t n_asked;
bool __real_cl_turns_has_half(const cl_admission *a, const cl_request *r);
bool __wrap_cl_turns_has_half(const cl_admission *a, const cl_request *r);
bool __wrap_cl_turns_has_half(const cl_admission *a, const cl_request *r) {
    n_asked++;
    return __real_cl_turns_has_half(a, r);
}

enum { N_TENANTS = 2, N_MOST = 120, N_PROMPT = 24 };

/* Tokens that were reported to each tenant, as they come. Only the engine's thread writes. */
typedef struct tally {
    int64_t tokens[N_TENANTS];
    int n_left;                             /* requests of tenant 1 */
    int64_t from[N_TENANTS], to[N_TENANTS]; /* tokens when tenant 1 had three and one quarters of its requests left */
} tally;

typedef struct client {
    tally *tally;
    int tenant;
} client;

static void count(void *ctx, const cl_engine_event *event) {
    const client *c = ctx;
    tally *t = c->tally;
    t->tokens[c->tenant] += event->kind == CL_EVENT_TOKEN;
    if (!event->last || c->tenant != 1) return;
    t->n_left--;
    if (t->n_left == N_MOST * 3 / 4) memcpy(t->from, t->tokens, sizeof t->from);
    if (t->n_left == N_MOST / 4) memcpy(t->to, t->tokens, sizeof t->to);
}

/* N_MOST requests of a tenant, of 1 to 60 tokens each. */
static void make_flood(const client *c, int32_t tokens[][N_PROMPT], cl_engine_request *requests, recording **recordings) {
    for (int i = 0; i < N_MOST; i++) {
        make_prompt(tokens[i], N_PROMPT, 0, (uint32_t)c->tenant, (uint32_t)(1000 * c->tenant + i));
        recordings[i] = recording_create();
        recordings[i]->hook = count;
        recordings[i]->hook_ctx = (void *)c;
        requests[i] = make_request(tokens[i], N_PROMPT, 1 + (i * 37 + c->tenant) % 60, recordings[i]);
        requests[i].domain = (uint32_t)c->tenant;
    }
}

/* While two tenants have requests, they get tokens by weight, whether places or chunks are short. */
static void tokens_go_by_weight(void **state) {
    (void)state;
    for (int by_budget = 0; by_budget < 2; by_budget++) {
        static const cl_engine_weight weights[] = {{1, 3}};
        cl_engine_config config = fixture_config();
        config.max_seqs = by_budget ? 32 : 8;
        if (by_budget) config.kv_budget_bytes = MIB * 3 / 8; /* for some of them at once */
        config.weights = weights;
        config.n_weights = 1;
        fixture f;
        fixture_start(&f, &config, 1);
        static int32_t tokens[N_TENANTS * N_MOST][N_PROMPT];
        static cl_engine_request requests[N_TENANTS * N_MOST];
        static recording *r[N_TENANTS * N_MOST];
        tally t = {.n_left = N_MOST};
        client clients[N_TENANTS] = {{&t, 0}, {&t, 1}};
        for (int i = 0; i < N_TENANTS; i++) make_flood(&clients[i], tokens + i * N_MOST, requests + i * N_MOST, r + i * N_MOST);
        submit_together(&f, requests, N_TENANTS * N_MOST, NULL);
        for (int i = 0; i < N_TENANTS * N_MOST; i++) recording_wait(r[i]);
        assert_in_range((t.to[1] - t.from[1]) * 100 / (t.to[0] - t.from[0]), 250, 350);
        for (int i = 0; i < N_TENANTS * N_MOST; i++) recording_free(r[i]);
        fixture_stop(&f);
    }
}

/* A flood of tenant 0, in which requests of tenant 1 arrive at set events, on the engine's thread. */
enum { N_FLOOD = 40, N_OTHER = 5, BETWEEN = 500 };
typedef struct deluge {
    fixture *f;
    cl_engine_request requests[N_OTHER];
    int64_t n_events, waited[N_OTHER]; /* events of the flood before the first of each request */
} deluge;

static void arrive(void *ctx, const cl_engine_event *event) {
    (void)event;
    deluge *d = ctx;
    const int64_t i = d->n_events++ / BETWEEN;
    if (d->n_events % BETWEEN == 0 && i < N_OTHER) submit(d->f, &d->requests[i]);
}

static void note_wait(void *ctx, const cl_engine_event *event) {
    deluge *d = ctx;
    for (int i = 0; i < N_OTHER; i++) {
        const recording *r = d->requests[i].ctx;
        if (r->request == event->request && r->n_events == 1) d->waited[i] = d->n_events - (i + 1) * BETWEEN;
    }
}

/* One tenant floods; the requests of another start at once, though all places and chunks are in use. */
static void a_flood_delays_no_other(void **state) {
    (void)state;
    for (int by_budget = 0; by_budget < 2; by_budget++) {
        cl_engine_config config = fixture_config();
        config.max_seqs = by_budget ? 32 : 4;
        if (by_budget) config.kv_budget_bytes = MIB * 3 / 8; /* for some of them at once */
        fixture f;
        fixture_start(&f, &config, 1);
        int32_t tokens[N_FLOOD][N_PROMPT], other_tokens[N_OTHER][N_PROMPT];
        cl_engine_request requests[N_FLOOD];
        recording *r[N_FLOOD], *other[N_OTHER];
        deluge d = {.f = &f};
        for (int i = 0; i < N_OTHER; i++) {
            make_prompt(other_tokens[i], N_PROMPT, 0, 1, (uint32_t)(100 + i));
            other[i] = recording_create();
            other[i]->hook = note_wait;
            other[i]->hook_ctx = &d;
            d.requests[i] = make_request(other_tokens[i], N_PROMPT, 10, other[i]);
            d.requests[i].domain = 1;
        }
        for (int i = 0; i < N_FLOOD; i++) {
            make_prompt(tokens[i], N_PROMPT, 0, 0, (uint32_t)i);
            r[i] = recording_create();
            r[i]->hook = arrive;
            r[i]->hook_ctx = &d;
            requests[i] = make_request(tokens[i], N_PROMPT, 200, r[i]);
        }
        submit_together(&f, requests, N_FLOOD, NULL);
        for (int i = 0; i < N_FLOOD; i++) recording_wait(r[i]);
        assert_true(stats_when_idle(&f).preemptions > 0);
        for (int i = 0; i < N_OTHER; i++) assert_in_range(d.waited[i], 0, 3 * config.max_seqs); /* a few steps */
        for (int i = 0; i < N_FLOOD; i++) recording_free(r[i]);
        for (int i = 0; i < N_OTHER; i++) recording_free(other[i]);
        fixture_stop(&f);
    }
}

/* A flood of prompts that take several steps, in which others of tenant 1 arrive; what the steps after that compute. */
typedef struct rows_watch {
    deluge d;
    int64_t n_steps, n_rows, n_before;           /* of prefill, after the last step and after the one before it */
    int64_t arrived[N_OTHER], n_waited[N_OTHER]; /* steps before a request, and up to its first token */
} rows_watch;

static void watch_rows(rows_watch *w) {
    const cl_engine_stats stats = stats_of(w->d.f);
    if (stats.steps == w->n_steps) return;
    w->n_steps = stats.steps;
    w->n_before = w->n_rows;
    w->n_rows = stats.prefill_tokens_computed;
}

static void arrive_and_watch(void *ctx, const cl_engine_event *event) {
    rows_watch *w = ctx;
    watch_rows(w);
    const int64_t i = w->d.n_events / BETWEEN;
    if (i < N_OTHER) w->arrived[i] = w->n_steps;
    arrive(&w->d, event);
}

static void note_rows(void *ctx, const cl_engine_event *event) {
    rows_watch *w = ctx;
    watch_rows(w);
    for (int i = 0; i < N_OTHER; i++) {
        const recording *r = w->d.requests[i].ctx;
        if (r->request != event->request || r->n_events != 1) continue;
        w->d.waited[i] = w->n_rows - w->n_before;
        w->n_waited[i] = w->n_steps - w->arrived[i];
    }
}

/* Prompts of n tokens beside a flood begin in the next step, and are not interrupted. */
static void watch_prompts(int n, rows_watch *w) {
    enum { N_LONG = 200, LONG = 200, N_GENERATED = BETWEEN * N_OTHER / N_LONG + 1 };
    cl_engine_config config = fixture_config();
    config.max_seqs = 8;
    config.max_step_rows = 100;
    fixture f;
    fixture_start(&f, &config, 1);
    static int32_t tokens[N_LONG][LONG], other_tokens[N_OTHER][LONG];
    static cl_engine_request requests[N_LONG];
    static recording *r[N_LONG], *other[N_OTHER];
    *w = (rows_watch){.d.f = &f};
    for (int i = 0; i < N_OTHER; i++) {
        make_prompt(other_tokens[i], n, 0, 1, (uint32_t)(1000 + i));
        other[i] = recording_create();
        other[i]->hook = note_rows;
        other[i]->hook_ctx = w;
        w->d.requests[i] = make_request(other_tokens[i], n, 2, other[i]);
        w->d.requests[i].domain = 1;
    }
    for (int i = 0; i < N_LONG; i++) {
        make_prompt(tokens[i], LONG, 0, 0, (uint32_t)i);
        r[i] = recording_create();
        r[i]->hook = arrive_and_watch;
        r[i]->hook_ctx = w;
        requests[i] = make_request(tokens[i], LONG, N_GENERATED, r[i]);
    }
    submit_together(&f, requests, N_LONG, NULL);
    for (int i = 0; i < N_LONG; i++) recording_wait(r[i]);
    for (int i = 0; i < N_OTHER; i++) recording_wait(other[i]);
    for (int i = 0; i < N_LONG; i++) recording_free(r[i]);
    for (int i = 0; i < N_OTHER; i++) recording_free(other[i]);
    fixture_stop(&f);
}

/* Beside a flood a prompt takes as many steps as it needs, and its last step has no rows of the flood. */
static void a_flood_makes_no_prompt_slower(void **state) {
    (void)state;
    rows_watch w;
    watch_prompts(40, &w);
    for (int i = 0; i < N_OTHER; i++) {
        assert_int_equal(w.n_waited[i], 1);
        assert_int_equal(w.d.waited[i], 40);
    }
    watch_prompts(150, &w);
    for (int i = 0; i < N_OTHER; i++) {
        assert_int_equal(w.n_waited[i], 2);
        assert_in_range(w.d.waited[i], 50, 57); /* beside 7 choices of the flood at most, which decode in the first step */
    }
}

/*
 * A family, which fills all places and queues far more, and others of the same tenant that come at set events: they start
 * when choices of the family end, whether the family is one request of many choices or many parts, and whether it computes
 * prompts or completions.
 */
static void a_family_takes_turns_with_others(void **state) {
    (void)state;
    static const struct { int n_parts, n, max_tokens; } families[] = {{1, 64, 60}, {64, 1, 60}, {8, 8, 60}, {3000, 1, 1}};
    enum { MOST = 3000 };
    static int32_t tokens[MOST][N_PROMPT], other_tokens[N_OTHER][N_PROMPT];
    static recording *other[N_OTHER];
    for (size_t k = 0; k < sizeof families / sizeof *families; k++) {
        cl_engine_config config = fixture_config();
        config.max_seqs = 4;
        fixture f;
        fixture_start(&f, &config, 1);
        deluge d = {.f = &f};
        for (int i = 0; i < N_OTHER; i++) {
            make_prompt(other_tokens[i], N_PROMPT, 0, 1, (uint32_t)(10000 + i));
            other[i] = recording_create();
            other[i]->hook = note_wait;
            other[i]->hook_ctx = &d;
            d.requests[i] = make_request(other_tokens[i], N_PROMPT, 10, other[i]);
        }
        uint64_t first = 0;
        toy_hold();
        for (int i = 0; i < families[k].n_parts; i++) {
            make_prompt(tokens[i], N_PROMPT, 0, 0, (uint32_t)i);
            cl_engine_request part = make_request(tokens[i], N_PROMPT, families[k].max_tokens, NULL);
            part.on_event = arrive;
            part.ctx = &d;
            part.n = families[k].n;
            part.part_of = first;
            const uint64_t id = submit(&f, &part);
            if (i == 0) first = id;
        }
        toy_release();
        for (int i = 0; i < N_OTHER; i++) recording_wait(other[i]);
        stats_when_idle(&f);
        for (int i = 0; i < N_OTHER; i++) assert_in_range(d.waited[i], 0, config.max_seqs * (families[k].max_tokens + 4));
        for (int i = 0; i < N_OTHER; i++) recording_free(other[i]);
        fixture_stop(&f);
    }
}

/* It takes time to count a family, so a step does it once for each prompt, however many prompts it orders. */
static void a_family_is_counted_once_for_each_prompt(void **state) {
    (void)state;
    enum { N = 16, LONG = 200 };
    const cl_engine_config config = fixture_config(); /* of which all have a place */
    fixture f;
    fixture_start(&f, &config, 1);
    static int32_t tokens[N][LONG];
    recording *r[N];
    uint64_t first = 0;
    n_asked = 0;
    toy_hold();
    for (int i = 0; i < N; i++) {
        make_prompt(tokens[i], LONG, 0, 0, (uint32_t)i);
        r[i] = recording_create();
        cl_engine_request request = make_request(tokens[i], LONG, 1, r[i]);
        if (i < N / 2) request.part_of = first;
        const uint64_t id = submit(&f, &request);
        if (i == 0) first = id;
        if (i == 0) toy_pass(0);
    }
    toy_release();
    for (int i = 0; i < N; i++) recording_wait(r[i]);
    const cl_engine_stats stats = stats_when_idle(&f);
    assert_in_range(n_asked, stats.steps, stats.steps * N);
    for (int i = 0; i < N; i++) recording_free(r[i]);
    fixture_stop(&f);
}

/* The most prompts for which choices that decode waited. Only the engine's thread writes. */
static int32_t most_prompts;
int32_t __real_cl_pace_rows(const cl_pace *p, int32_t n_decoding, int32_t n_prompts);
int32_t __wrap_cl_pace_rows(const cl_pace *p, int32_t n_decoding, int32_t n_prompts);
int32_t __wrap_cl_pace_rows(const cl_pace *p, int32_t n_decoding, int32_t n_prompts) {
    if (n_decoding > 0 && n_prompts > most_prompts) most_prompts = n_prompts;
    return __real_cl_pace_rows(p, n_decoding, n_prompts);
}

/* Each prompt makes the steps longer in which a stream of its tenant decodes; of other tenants' prompts only one does. */
static void a_flood_of_prompts_slows_no_other_stream(void **state) {
    (void)state;
    enum { N = 8, LONG = 200 };
    const cl_engine_config config = fixture_config(); /* of which all have a place */
    static int32_t tokens[N][LONG];
    recording *r[N];
    for (uint32_t tenant = 0; tenant < 2; tenant++) {
        fixture f;
        fixture_start(&f, &config, 1);
        int32_t own[N_PROMPT];
        make_prompt(own, N_PROMPT, 0, 0, 999);
        recording *stream = recording_create();
        cl_engine_request request = make_request(own, N_PROMPT, 1000, stream);
        toy_hold();
        const uint64_t id = submit(&f, &request);
        toy_pass(1);
        most_prompts = 0;
        for (int i = 0; i < N; i++) {
            make_prompt(tokens[i], LONG, 0, 0, (uint32_t)i);
            r[i] = recording_create();
            request = make_request(tokens[i], LONG, 1, r[i]);
            request.domain = tenant;
            submit(&f, &request);
        }
        toy_release();
        for (int i = 0; i < N; i++) recording_wait(r[i]);
        cl_engine_cancel(f.engine, id);
        recording_wait(stream);
        assert_int_equal(most_prompts, tenant == 0 ? N : 1);
        for (int i = 0; i < N; i++) recording_free(r[i]);
        recording_free(stream);
        fixture_stop(&f);
    }
}

/* Of one tenant's waiting requests those of smaller priority start first, equal ones in the order of their arrival. */
static void priority_orders(void **state) {
    (void)state;
    enum { N = 30 };
    cl_engine_config config = fixture_config();
    config.max_seqs = 1;
    fixture f;
    fixture_start(&f, &config, 1);
    int32_t tokens[N_PROMPT];
    recording *busy = recording_create(), *r[N];
    make_prompt(tokens, N_PROMPT, 0, 0, 999);
    cl_engine_request request = make_request(tokens, N_PROMPT, 1000, busy);
    toy_hold();
    const uint64_t id = submit(&f, &request);
    toy_pass(1);
    for (int i = 0; i < N; i++) {
        make_prompt(tokens, N_PROMPT, 0, 0, (uint32_t)i);
        r[i] = recording_create();
        request = make_request(tokens, N_PROMPT, 2, r[i]);
        request.priority = 2 - i % 5;
        submit(&f, &request);
    }
    cl_engine_cancel(f.engine, id);
    toy_release();
    for (int i = 0; i < N; i++) recording_wait(r[i]);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++) {
            const bool before = i % 5 > k % 5 || (i % 5 == k % 5 && i < k);
            if (before) assert_true(r[i]->first_event_order < r[k]->first_event_order);
        }
    for (int i = 0; i < N; i++) recording_free(r[i]);
    recording_wait(busy);
    recording_free(busy);
    fixture_stop(&f);
}

/* ---- What is retained ---- */

/* Who sweeps the cache beside requests of tenant 1 with priority 0. */
typedef struct sweeper {
    uint32_t domain;
    int32_t priority;
    const char *salt;
    bool evicts;
} sweeper;

static const sweeper sweepers[] = {{1, 0, NULL, true},
                                   {1, 1, NULL, false},
                                   {0, 0, NULL, false},
                                   {0, 0, "as many salts", false},
                                   {1, 0, "as many salts", true}};

/* Cached tokens of a prompt of tenant 1 when it comes again, after prompts that fill the cache several times. */
static int64_t cached_after(const sweeper *s, cattn_retention retention) {
    enum { LONG = 160, N_SWEEP = 40 };
    cl_engine_config config = fixture_config();
    config.retention = retention;
    config.kv_budget_bytes = MIB;
    fixture f;
    fixture_start(&f, &config, 1);
    int32_t tokens[LONG];
    int64_t n_cached = 0;
    for (int i = 0; i < N_SWEEP + 2; i++) {
        const bool swept = i > 0 && i <= N_SWEEP;
        recording *r = recording_create();
        make_prompt(tokens, LONG, 0, 1, swept ? (uint32_t)i : 1000);
        cl_engine_request request = make_request(tokens, LONG, 1, r);
        char salt[32];
        snprintf(salt, sizeof salt, "%s %d", s->salt ? s->salt : "", i);
        request.domain = swept ? s->domain : 1;
        request.priority = swept ? s->priority : 0;
        if (swept && s->salt) request.salt = salt, request.salt_size = strlen(salt);
        submit(&f, &request);
        recording_wait(r);
        n_cached = r->n_cached;
        recording_free(r);
    }
    assert_true(kv_stats_when_idle(&f).tokens_evicted > N_SWEEP / 2 * LONG); /* the cache holds less than half */
    fixture_stop(&f);
    return n_cached;
}

/* Another tenant's sweep, or one of lower priority, evicts nothing that was used lately; salts are no accounts. */
static void a_sweep_evicts_its_own(void **state) {
    (void)state;
    const cattn_retention both[] = {CATTN_RETAIN_LRU, CATTN_RETAIN_LEARNED};
    for (size_t i = 0; i < sizeof sweepers / sizeof *sweepers; i++)
        for (int k = 0; k < 2; k++) {
            const int64_t n = cached_after(&sweepers[i], both[k]);
            if (sweepers[i].evicts ? n > 0 : n < 144) fail_msg("sweeper %zu, retention %d: %lld cached", i, k, (long long)n);
        }
}

/* What joins for a request that is none, as that of an import, counts for its tenant, and leaves the weight as it is. */
typedef struct asking {
    const cl_engine *engine;
    cl_engine_request request;
    cattn_join_options options;
} asking;

static void ask_options(void *ctx, cattn_cache *cache) {
    (void)cache;
    asking *a = ctx;
    a->options = cl_engine_join_options(a->engine, &a->request);
}

static void imports_have_the_account_of_their_tenant(void **state) {
    (void)state;
    const cl_engine_config config = fixture_config();
    fixture f;
    fixture_start(&f, &config, 1);
    const uint32_t domains[] = {7, 8, 7, 9}, accounts[] = {0, 2, 0, 4};
    for (int i = 0; i < 4; i++) {
        asking a = {.engine = f.engine, .request = {.domain = domains[i]}};
        assert_int_equal(cl_engine_ask(f.engine, ask_options, &a, NULL), CL_OK);
        assert_int_equal(a.options.account, accounts[i]);
        assert_true(a.options.account_weight == 0);
    }
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_go_by_weight),
        cmocka_unit_test(a_flood_delays_no_other),
        cmocka_unit_test(a_flood_makes_no_prompt_slower),
        cmocka_unit_test(a_family_takes_turns_with_others),
        cmocka_unit_test(a_family_is_counted_once_for_each_prompt),
        cmocka_unit_test(a_flood_of_prompts_slows_no_other_stream),
        cmocka_unit_test(priority_orders),
        cmocka_unit_test(a_sweep_evicts_its_own),
        cmocka_unit_test(imports_have_the_account_of_their_tenant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
