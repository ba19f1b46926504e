/*
 * What is computed when: prefixes once, requests in the order of their arrival, within the budget, and without those that end
 * early.
 */
#include "tests/support/testing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "chunkattn/base/clock.h"
#include "fixture.h"
#include "toy_model.h"

/* On the engine's thread, at the n-th event of a request that keeps it busy, do something: so that tests know the moment. */
typedef struct conductor {
    fixture *f;
    cl_engine_request requests[64];
    uint64_t ids[64];
    int n_steps; /* of the one that keeps it busy */
    int n;       /* submitted together at event `submit_at` */
    int64_t n_events, submit_at, cancel_at;
    int cancel; /* which of them is cancelled at event `cancel_at`; -1: none */
} conductor;

static void conduct(void *ctx, const cl_engine_event *event) {
    (void)event;
    conductor *c = ctx;
    const int64_t at = c->n_events++;
    for (int i = 0; at == c->submit_at && i < c->n; i++) c->ids[i] = submit(c->f, &c->requests[i]);
    if (at == c->cancel_at && c->cancel >= 0) cl_engine_cancel(c->f->engine, c->ids[c->cancel]);
}

/* Run the conductor's requests beside one of 4 prompt tokens that decodes for n_steps. */
static void perform(conductor *c) {
    int32_t tokens[4];
    make_prompt(tokens, 4, 0, 0, 999);
    recording *busy = recording_create();
    busy->hook = conduct;
    busy->hook_ctx = c;
    const cl_engine_request request = make_request(tokens, 4, c->n_steps, busy);
    submit(c->f, &request);
    recording_wait(busy);
    recording_free(busy);
}

/* Together, one after the other, and again when all is cached: computed tokens are those of the plain trie. */
static void prefixes_are_computed_once(void **state) {
    (void)state;
    enum { N = 14 };
    static const int64_t lengths[N] = {96, 96, 32, 1, 2, 64, 120, 121, 98, 48, 33, 160, 97, 96};
    static const int32_t segments[] = {0, 1, 7, 8, 16, 64, 0, 7}; /* the last two with storage shared only */
    enum { N_SEGMENTS = sizeof segments / sizeof *segments };
    for (int p = 0; p < N_SEGMENTS; p++) {
        int32_t tokens[N + 1][160];
        prompt prompts[2 * N + 1];
        recording *recordings[N];
        cl_engine_config config = fixture_config();
        config.prefill_segment = segments[p];
        config.sharing = p < N_SEGMENTS - 2 ? CATTN_SHARED : CATTN_SHARED_STORAGE;
        fixture f;
        fixture_start(&f, &config, 1);
        conductor c = {.f = &f, .n_steps = 8, .n = N, .submit_at = 3, .cancel = -1};
        make_prompt(tokens[N], 4, 0, 0, 999);
        prompts[0] = (prompt){tokens[N], 4};
        for (int i = 0; i < N; i++) { /* every third is the whole beginning of later ones, which may compute its end */
            make_prompt(tokens[i], lengths[i], i % 3 == 2 ? lengths[i] : lengths[i] * 3 / 4, 1, (uint32_t)i);
            prompts[1 + i] = prompts[1 + N + i] = (prompt){tokens[i], lengths[i]};
            recordings[i] = recording_create();
            c.requests[i] = make_request(tokens[i], lengths[i], 6, recordings[i]);
        }
        perform(&c);
        for (int i = 0; i < N; i++) recording_wait(recordings[i]);
        cl_engine_stats stats = stats_when_idle(&f);
        assert_int_equal(stats.prefill_tokens_computed, trie_tokens(prompts, 1 + N));
        assert_int_equal(stats.cached_tokens + stats.prefill_tokens_computed, stats.prompt_tokens);
        for (int i = 0; i < N; i++) {
            recording_free(recordings[i]);
            recordings[i] = recording_create();
            c.requests[i].ctx = recordings[i];
            submit(&f, &c.requests[i]);
        }
        for (int i = 0; i < N; i++) {
            recording_wait(recordings[i]);
            recording_free(recordings[i]);
        }
        stats = stats_when_idle(&f);
        assert_int_equal(stats.prefill_tokens_computed, trie_tokens(prompts, 1 + 2 * N));
        /* K/V of a choice's last token is never needed */
        assert_int_equal(toy_take_rows(), stats.prefill_tokens_computed + stats.completion_tokens - (1 + 2 * N));
        fixture_stop(&f);
    }
}

/* The one that computes a prefix goes away in the middle of it: another goes on where it was. */
static void waiting_request_takes_over(void **state) {
    (void)state;
    enum { PREFIX = 150, N_PROMPT = 160 };
    for (int cancel_after = 1; cancel_after < 12; cancel_after++) {
        for (int cancelled = 0; cancelled < 2; cancelled++) {
            cl_engine_config config = fixture_config();
            config.prefill_segment = 16;
            fixture f;
            fixture_start(&f, &config, 1);
            int32_t tokens[2][N_PROMPT];
            recording *r[2];
            conductor c = {.f = &f, .n_steps = 20, .n = 2, .submit_at = 3, .cancel_at = 3 + cancel_after, .cancel = cancelled};
            for (int i = 0; i < 2; i++) {
                make_prompt(tokens[i], N_PROMPT, PREFIX, 1, (uint32_t)i);
                r[i] = recording_create();
                c.requests[i] = make_request(tokens[i], N_PROMPT, 20, r[i]);
            }
            perform(&c);
            recording_wait(r[0]);
            recording_wait(r[1]);
            assert_int_equal(r[cancelled]->choices[0].finish, CL_ENGINE_CANCELLED);
            assert_int_equal(r[1 - cancelled]->choices[0].finish, CL_ENGINE_LENGTH);
            const cl_engine_stats stats = stats_when_idle(&f);
            /* what the other one had not computed when it went away was not in the cache */
            if (!cancelled && cancel_after < 4) assert_in_range(stats.cached_tokens, 0, PREFIX - 1);
            /* the prefix once, the other's own end, and of the cancelled one's own end all or nothing, if it got that far */
            const int64_t computed = stats.prefill_tokens_computed - 4;
            if (computed != N_PROMPT) assert_in_range(computed, N_PROMPT + 1, 2 * N_PROMPT - PREFIX);
            if (cancel_after < 5) assert_int_equal(computed, N_PROMPT);
            assert_int_equal(kv_stats_of(&f).n_seqs, 0);
            recording_free(r[0]);
            recording_free(r[1]);
            fixture_stop(&f);
        }
    }
}

/*
 * A budget of a few chunks: all finish; a large request is not overtaken by the small ones after it, since what these share is
 * less than half of them (overtake.h).
 */
static void budget_admits_by_arrival(void **state) {
    (void)state;
    enum { N = 40 };
    static const cattn_sharing sharings[] = {CATTN_SHARED, CATTN_SHARED_STORAGE, CATTN_PRIVATE};
    for (int s = 0; s < 3; s++) {
        cl_engine_config config = fixture_config();
        config.sharing = sharings[s];
        config.kv_budget_bytes = 1 << 20;
        fixture f;
        fixture_start(&f, &config, 1);
        const int64_t capacity = (int64_t)kv_stats_of(&f).chunks_capacity * config.chunk_size;
        assert_in_range(capacity, 400, TOY_CONTEXT);
        int32_t tokens[N][64];
        static int32_t large_prompt[TOY_CONTEXT];
        recording *r[N];
        conductor c = {.f = &f, .n_steps = 200, .n = N, .submit_at = 100, .cancel = -1};
        for (int i = 0; i < N; i++) {
            make_prompt(tokens[i], 40, 18, (uint32_t)i % 2, (uint32_t)i);
            r[i] = recording_create();
            c.requests[i] = make_request(tokens[i], 40, capacity / 8, r[i]);
            c.requests[i].n = 1 + i % 3;
        }
        const int large = 5;
        make_prompt(large_prompt, capacity * 3 / 4, 0, 0, 77);
        c.requests[large] = make_request(large_prompt, capacity * 3 / 4, 20, r[large]);
        perform(&c);
        for (int i = 0; i < N; i++) {
            recording_wait(r[i]);
            assert_int_equal(r[i]->choices[0].finish, CL_ENGINE_LENGTH);
        }
        for (int i = large + 1; i < N; i++) assert_true(r[i]->first_event_order > r[large]->first_event_order);
        const cl_engine_stats stats = stats_when_idle(&f);
        assert_int_equal(stats.requests_finished, N + 1);
        assert_int_equal(kv_stats_of(&f).n_seqs, 0);
        for (int i = 0; i < N; i++) recording_free(r[i]);
        fixture_stop(&f);
    }
}

/*
 * Where the budget does not hold the workspace of a large step, the prompt is computed in smaller ones: same bytes. Rows need
 * workspace where their segments are spread over the threads: a few hundred rows after some thousand tokens, with one KV head.
 */
static void small_budget_makes_small_steps(void **state) {
    (void)state;
    enum { N_PROMPT = 4000 };
    static int32_t tokens[N_PROMPT];
    make_prompt(tokens, N_PROMPT, 0, 0, 3);
    recording *r[2];
    int64_t steps[2];
    for (int small = 0; small < 2; small++) {
        cl_engine_config config = fixture_config();
        config.max_step_rows = 240;
        if (small) config.kv_budget_bytes = 5 << 19;
        fixture f;
        fixture_start(&f, &config, 2);
        r[small] = recording_create();
        const cl_engine_request request = make_request(tokens, N_PROMPT, 50, r[small]);
        submit(&f, &request);
        recording_wait(r[small]);
        steps[small] = stats_of(&f).steps;
        fixture_stop(&f);
    }
    assert_true(recording_equal(r[0], r[1]));
    assert_int_equal(r[1]->choices[0].finish, CL_ENGINE_LENGTH);
    assert_true(steps[1] > steps[0]);
    recording_free(r[0]);
    recording_free(r[1]);
}

/* A request that is accepted ends well, also where the budget holds a few chunks only. */
static void what_is_accepted_fits(void **state) {
    (void)state;
    int n_accepted = 0;
    for (uint64_t budget = 180 << 10; budget < 420 << 10; budget += 6 << 10) {
        cl_engine_config config = fixture_config();
        config.kv_budget_bytes = budget;
        config.chunk_size = 64;
        ca_pool *pool = ca_pool_create(2);
        cl_engine *e;
        if (cl_engine_create_on_pool(toy_model(), pool, &config, &e, NULL) == CL_OK) {
            for (int turn = 0; turn < 2; turn++) {
                int32_t tokens[14];
                make_prompt(tokens, 14, 0, 0, (uint32_t)turn);
                recording *r = recording_create();
                cl_engine_request request = make_request(tokens, turn == 0 ? 8 : 14, turn == 0 ? 8 : -1, r);
                request.n = 2;
                uint64_t id;
                if (cl_engine_submit(e, &request, &id, NULL) == CL_OK) {
                    recording_wait(r);
                    for (int i = 0; i < 2; i++) assert_int_equal(r->choices[i].finish, CL_ENGINE_LENGTH);
                    n_accepted++;
                }
                recording_free(r);
            }
            cl_engine_destroy(&e);
        }
        ca_pool_destroy(&pool);
    }
    assert_true(n_accepted > 10);
}

/* The longest beginning of a prompt of n tokens that is accepted. */
static int64_t longest_prompt(fixture *f, const int32_t *tokens, int64_t n) {
    recording *r = recording_create();
    cl_engine_request request = make_request(tokens, n, -1, r);
    while (cl_engine_submit(f->engine, &request, NULL, NULL) != CL_OK) request.n_prompt--;
    recording_wait(r);
    recording_free(r);
    return request.n_prompt;
}

/* Turns of a conversation, each of which parts within a chunk from what the one before left, up to all that the budget holds.
 */
static void a_conversation_fills_the_budget(void **state) {
    (void)state;
    cl_engine_config config = fixture_config();
    config.kv_budget_bytes = 9 << 18;
    fixture f;
    fixture_start(&f, &config, 1);
    static int32_t prompt[5000], turn[5000];
    make_prompt(prompt, 5000, 5000, 1, 0);
    const int64_t longest = longest_prompt(&f, prompt, 5000);
    const int64_t in_budget = (int64_t)(config.kv_budget_bytes / kv_stats_of(&f).chunk_bytes * 16);
    assert_in_range(longest, in_budget * 3 / 4, in_budget * 7 / 8);
    for (int64_t n = 24; n <= longest; n = n < longest && n + 48 > longest ? longest : n + 48) {
        memcpy(turn, prompt, (size_t)n * sizeof *turn);
        turn[n - 1] = turn[n - 1] % 200 + 1;
        recording *r = recording_create();
        const cl_engine_request request = make_request(turn, n, n < longest ? 2 : -1, r);
        submit(&f, &request);
        recording_wait(r);
        assert_int_equal(r->choices[0].finish, CL_ENGINE_LENGTH);
        recording_free(r);
    }
    fixture_stop(&f);
}

/* A step has as many rows as allowed, decoding first: a long prompt does not hold up the choices that decode. */
static void decoding_goes_before_prefill(void **state) {
    (void)state;
    cl_engine_config config = fixture_config();
    config.max_step_rows = 16;
    fixture f;
    fixture_start(&f, &config, 1);
    int32_t tokens[1500];
    make_prompt(tokens, 1500, 0, 0, 1);
    recording *r = recording_create();
    conductor c = {.f = &f, .n_steps = 200, .n = 1, .submit_at = 0, .cancel = -1};
    c.requests[0] = make_request(tokens, 1500, 1, r);
    perform(&c); /* 200 decode steps leave 15 rows each: 100 steps for the prompt */
    recording_wait(r);
    const cl_engine_stats stats = stats_when_idle(&f);
    assert_int_equal(stats.steps, 200);
    assert_int_equal(stats.batch_peak, 2);
    assert_true(stats.prefill_s > 0 && stats.decode_s > 0);
    recording_free(r);
    fixture_stop(&f);
}

/* A step that fails preempts the youngest, and changes nothing for anyone; one that is alone continues too. */
static void failed_step_preempts_the_youngest(void **state) {
    (void)state;
    recording *r[3][2];
    for (int n_failures = 0; n_failures < 3; n_failures++) {
        fixture f;
        const cl_engine_config config = fixture_config();
        fixture_start(&f, &config, 1);
        int32_t tokens[2][40];
        conductor c = {.f = &f, .n_steps = 40, .n = 2, .submit_at = 3, .cancel = -1};
        for (int i = 0; i < 2; i++) {
            make_prompt(tokens[i], 40, 30, 1, (uint32_t)i);
            r[n_failures][i] = recording_create();
            c.requests[i] = make_request(tokens[i], 40, 20, r[n_failures][i]);
        }
        toy_fail_steps(10, n_failures);
        perform(&c);
        for (int i = 0; i < 2; i++) recording_wait(r[n_failures][i]);
        assert_int_equal(kv_stats_when_idle(&f).n_seqs, 0);
        assert_int_equal(stats_of(&f).preemptions, n_failures);
        assert_true(stats_of(&f).recomputed_tokens <= n_failures * 40);
        fixture_stop(&f);
    }
    for (int i = 0; i < 4; i++) assert_true(recording_equal(r[0][i % 2], r[1 + i / 2][i % 2]));
    for (int i = 0; i < 6; i++) recording_free(r[i / 2][i % 2]);
}

/* If no step succeeds, the requests end one by one. */
static void steps_that_always_fail_end_all(void **state) {
    (void)state;
    enum { N = 3 };
    fixture f;
    const cl_engine_config config = fixture_config();
    fixture_start(&f, &config, 1);
    int32_t tokens[N][40];
    recording *r[N];
    toy_fail_steps(1, 1000);
    for (int i = 0; i < N; i++) {
        make_prompt(tokens[i], 40, 30, 1, (uint32_t)i);
        r[i] = recording_create();
        const cl_engine_request request = make_request(tokens[i], 40, 20, r[i]);
        submit(&f, &request);
    }
    for (int i = 0; i < N; i++) {
        recording_wait(r[i]);
        assert_int_equal(r[i]->choices[0].finish, CL_ENGINE_ERROR);
        assert_string_equal(r[i]->error, "a failure that the test requested");
        recording_free(r[i]);
    }
    toy_fail_steps(0, 0);
    fixture_stop(&f);
}

/* What the last event says of a request beside its tokens, and when it came. */
typedef struct ending {
    int32_t n_sharing;
    double queued_s, at;
} ending;

static void keep_ending(void *ctx, const cl_engine_event *event) {
    if (event->last) *(ending *)ctx = (ending){event->n_sharing, event->queued_s, clock_seconds()};
}

/* Requests share with those that begin with the same chunk, in their domain, and are in the cache at the same time. */
static void events_tell_with_how_many_a_request_shares(void **state) {
    (void)state;
    enum { N = 7, MOST = 40 };
    static const struct {
        int64_t n_prompt, n_shared;
        uint32_t family, domain;
        bool computes_all;
        int32_t expected;
    } cases[N] = {
        {40, 20, 1, 0, false, 2}, {30, 16, 1, 0, false, 2}, {40, 40, 1, 0, false, 2}, /* the first 16 tokens are equal */
        {40, 14, 1, 0, false, 0},                                                     /* only 14 are */
        {40, 40, 1, 1, false, 0},                                                     /* another domain */
        {40, 40, 1, 0, true, 0},                                                      /* shares nothing */
        {10, 10, 1, 0, false, 0},                                                     /* shorter than a chunk, and nobody's */
    };
    for (int private = 0; private < 2; private ++) {
        int32_t tokens[N][MOST];
        recording *r[N];
        ending ends[N];
        cl_engine_request requests[N];
        cl_engine_config config = fixture_config();
        config.sharing = private ? CATTN_PRIVATE : CATTN_SHARED;
        config.max_seqs = 6; /* one waits */
        fixture f;
        fixture_start(&f, &config, 1);
        for (int i = 0; i < N; i++) {
            make_prompt(tokens[i], cases[i].n_prompt, cases[i].n_shared, cases[i].family, (uint32_t)(100 + i));
            r[i] = recording_create();
            r[i]->hook = keep_ending;
            r[i]->hook_ctx = &ends[i];
            requests[i] = make_request(tokens[i], cases[i].n_prompt, 20, r[i]);
            requests[i].domain = cases[i].domain;
            requests[i].prompt_logprobs = cases[i].computes_all;
        }
        const double before = clock_seconds();
        toy_hold();
        for (int i = 0; i < N; i++) {
            submit(&f, &requests[i]);
            if (i == 0) toy_pass(0);
        }
        const double submitted = clock_seconds();
        toy_release();
        double first_end = INFINITY, longest_queued = 0;
        for (int i = 0; i < N; i++) {
            recording_wait(r[i]);
            recording_free(r[i]);
            assert_int_equal(ends[i].n_sharing, private ? 0 : cases[i].expected);
            assert_true(ends[i].queued_s >= 0 && ends[i].queued_s <= ends[i].at - before);
            first_end = fmin(first_end, ends[i].at);
            longest_queued = fmax(longest_queued, ends[i].queued_s);
        }
        assert_true(longest_queued >= first_end - submitted); /* the one that waits gets a place then */
        const cl_engine_stats stats = stats_when_idle(&f);
        int64_t n_steps = 0, least = 0, most = 0;
        for (int i = 0, size = 1; i < CL_STEP_SIZES; i++, size = size == 1 ? 8 : 2 * size) {
            n_steps += stats.steps_by_rows[i];
            least += stats.steps_by_rows[i] * (i == 0 ? 1 : i == 1 ? 2 : size / 2 + 1);
            most += stats.steps_by_rows[i] * size;
        }
        assert_int_equal(n_steps, stats.steps);
        assert_in_range(stats.step_rows, least, most);
        fixture_stop(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefixes_are_computed_once),      cmocka_unit_test(waiting_request_takes_over),
        cmocka_unit_test(budget_admits_by_arrival),        cmocka_unit_test(small_budget_makes_small_steps),
        cmocka_unit_test(a_conversation_fills_the_budget), cmocka_unit_test(decoding_goes_before_prefill),
        cmocka_unit_test(what_is_accepted_fits),           cmocka_unit_test(failed_step_preempts_the_youngest),
        cmocka_unit_test(steps_that_always_fail_end_all),  cmocka_unit_test(events_tell_with_how_many_a_request_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
