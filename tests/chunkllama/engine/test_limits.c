/* Time limits of requests, under a clock of the test's own, and limits of the queue. */
#include "tests/support/testing.h"

#include <stdatomic.h>
#include <string.h>

#include "fixture.h"

double __wrap_cl_now(void);

static atomic_llong milliseconds, advance; /* the time, and by how much each reading advances it */
double __wrap_cl_now(void) { return 1e-3 * (double)atomic_fetch_add(&milliseconds, atomic_load(&advance)); }

enum { N_PROMPT = 24 };

/* The limits on a request's time, in seconds; 0: none. */
typedef struct limits {
    double end_s, queue_s;
} limits;

static recording *start_with(fixture *f, uint32_t individual, int64_t max_tokens, limits within, int32_t n) {
    int32_t tokens[N_PROMPT];
    make_prompt(tokens, N_PROMPT, 0, 0, individual);
    recording *r = recording_create();
    cl_engine_request request = make_request(tokens, N_PROMPT, max_tokens, r);
    request.timeout_s = within.end_s;
    request.queue_timeout_s = within.queue_s;
    request.n = n;
    submit(f, &request);
    return r;
}

static recording *start(fixture *f, uint32_t individual, int64_t max_tokens, double timeout_s, int32_t n) {
    return start_with(f, individual, max_tokens, (limits){.end_s = timeout_s}, n);
}

/* How many requests wait, by the statistics that a client of r finds when r has ended. */
typedef struct end_watch {
    fixture *f;
    int64_t n_waiting, waiting_tokens;
} end_watch;

static void watch_end(void *ctx, const cl_engine_event *event) {
    end_watch *w = ctx;
    if (!event->last) return;
    const cl_engine_stats stats = stats_of(w->f);
    w->n_waiting = stats.n_waiting;
    w->waiting_tokens = stats.waiting_tokens;
}

/* The time for an answer counts from its first token, and ends it once it has a line break. */
static void answers_end_in_time(void **state) {
    (void)state;
    static const int32_t line_break = '\n', other = 'a';
    for (int breaks = 0; breaks < 2; breaks++) {
        const cl_engine_config config = fixture_config();
        fixture f;
        int32_t tokens[N_PROMPT];
        make_prompt(tokens, N_PROMPT, 0, 0, 0);
        fixture_start(&f, &config, 1);
        toy_hold();
        recording *r = recording_create();
        cl_engine_request request = make_request(tokens, N_PROMPT, 50, r);
        request.allowed_tokens = breaks ? &line_break : &other;
        request.n_allowed_tokens = 1;
        request.generation_s = 3;
        submit(&f, &request);
        atomic_fetch_add(&milliseconds, 100000); /* before the first token */
        toy_pass(5);
        assert_false(r->done);
        atomic_fetch_add(&milliseconds, 4000);
        toy_release();
        recording_wait(r);
        assert_int_equal(r->choices[0].finish, CL_ENGINE_LENGTH);
        assert_true(breaks ? r->choices[0].n_tokens < 8 : r->choices[0].n_tokens == 50);
        recording_free(r);
        fixture_stop(&f);
    }
}

static void expect_timeout(recording *r, int n) {
    recording_wait(r);
    for (int i = 0; i < n; i++) assert_int_equal(r->choices[i].finish, CL_ENGINE_ERROR);
    assert_non_null(strstr(r->error, "timeout_s"));
    recording_free(r);
}

/* At its deadline a request ends, whether it waits, runs, or was preempted; others continue. */
static void late_requests_end(void **state) {
    (void)state;
    cl_engine_config config = fixture_config();
    config.max_seqs = 2;
    fixture f;
    fixture_start(&f, &config, 1);
    toy_hold();
    recording *busy = start(&f, 0, 1000, 0, 1), *running = start(&f, 1, 1000, 5, 1), *waiting = start(&f, 2, 10, 3, 2);
    recording *later = start(&f, 3, 10, 100, 1);
    end_watch end = {.f = &f};
    waiting->hook = watch_end;
    waiting->hook_ctx = &end;
    toy_pass(5);
    atomic_fetch_add(&milliseconds, 2900);
    toy_pass(3);
    assert_true(running->n_events > 3 && !running->done && !waiting->done);
    atomic_fetch_add(&milliseconds, 200);
    toy_pass(2);
    assert_true(!running->done && waiting->done);
    assert_int_equal(end.n_waiting, 1); /* which is `later` */
    assert_int_equal(end.waiting_tokens, N_PROMPT);
    expect_timeout(waiting, 2);
    atomic_fetch_add(&milliseconds, 2000);
    toy_pass(2);
    assert_true(running->done);
    expect_timeout(running, 1);
    toy_release();
    recording_wait(later);
    assert_int_equal(later->choices[0].finish, CL_ENGINE_LENGTH);
    recording_wait(busy);
    assert_int_equal(busy->choices[0].finish, CL_ENGINE_LENGTH);
    assert_int_equal(stats_when_idle(&f).waiting_tokens, 0);
    recording_free(later);
    recording_free(busy);
    fixture_stop(&f);
}

/*
 * A request that waits longer than queue_timeout_s ends, whatever it has of timeout_s. One that was admitted does not, and one
 * that comes during a long step is admitted if there is a place.
 */
static void requests_that_wait_too_long_end(void **state) {
    (void)state;
    cl_engine_config config = fixture_config();
    config.max_seqs = 2;
    fixture f;
    fixture_start(&f, &config, 1);
    toy_hold();
    recording *busy = start_with(&f, 0, 1000, (limits){0}, 1), *quick = start_with(&f, 1, 40, (limits){.queue_s = 3}, 1);
    recording *waiting = start_with(&f, 2, 10, (limits){.end_s = 100, .queue_s = 3}, 2);
    recording *patient = start_with(&f, 3, 10, (limits){.queue_s = 1000}, 1);
    end_watch end = {.f = &f};
    waiting->hook = watch_end;
    waiting->hook_ctx = &end;
    toy_pass(5);
    atomic_fetch_add(&milliseconds, 2900);
    toy_pass(3);
    assert_true(!waiting->done);
    atomic_fetch_add(&milliseconds, 200);
    toy_pass(2);
    assert_true(waiting->done && !quick->done && !patient->done);
    assert_int_equal(end.n_waiting, 1); /* which is `patient` */
    assert_int_equal(end.waiting_tokens, N_PROMPT);
    assert_int_equal(waiting->choices[0].finish, CL_ENGINE_ERROR);
    assert_int_equal(waiting->choices[1].finish, CL_ENGINE_ERROR);
    assert_non_null(strstr(waiting->error, "queue_timeout_s, 3 s"));
    toy_release();
    recording_wait(quick);
    recording_wait(patient);
    assert_int_equal(quick->choices[0].finish, CL_ENGINE_LENGTH);
    assert_int_equal(patient->choices[0].finish, CL_ENGINE_LENGTH);
    toy_hold();
    toy_pass(1); /* the next step runs, with a place free */
    recording *during = start_with(&f, 4, 10, (limits){.queue_s = 3}, 1);
    atomic_fetch_add(&milliseconds, 5000);
    toy_pass(2);
    toy_release();
    recording_wait(during);
    assert_int_equal(during->choices[0].finish, CL_ENGINE_LENGTH);
    recording_wait(busy);
    assert_int_equal(busy->choices[0].finish, CL_ENGINE_LENGTH);
    assert_int_equal(stats_when_idle(&f).waiting_tokens, 0);
    recording *all[] = {busy, quick, waiting, patient, during};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) recording_free(all[i]);
    fixture_stop(&f);
}

/* A clock that jumps by days, forward and back, ends nobody too early, delays nobody, and changes nothing that is reported. */
static void a_clock_may_jump(void **state) {
    (void)state;
    enum { N = 12, N_TOKENS = 60 };
    static const long long jumps[] = {86400000, -2 * 86400000LL, 1, -1, 5 * 86400000LL, -86400000};
    recording *expected[N];
    for (int jumping = 0; jumping < 2; jumping++) {
        cl_engine_config config = fixture_config();
        config.max_seqs = 3;
        config.kv_budget_bytes = MIB / 4; /* choices are preempted */
        config.target_itl_s = 0.001;
        fixture f;
        fixture_start(&f, &config, 1);
        recording *r[N];
        for (int i = 0; i < N; i++) {
            r[i] = start(&f, (uint32_t)i, N_TOKENS + 5 * i, i % 4 == 3 ? 1e9 : 0, 1 + i % 2);
            if (jumping) atomic_fetch_add(&milliseconds, jumps[i % 6]);
        }
        for (int i = 0; i < N; i++) {
            if (jumping) recording_wait_events(r[i], 10);
            if (jumping) atomic_fetch_add(&milliseconds, jumps[i % 6]);
            recording_wait(r[i]);
            for (int k = 0; k < 1 + i % 2; k++) assert_int_equal(r[i]->choices[k].finish, CL_ENGINE_LENGTH);
            if (!jumping) expected[i] = r[i];
            if (!jumping) continue;
            assert_true(recording_equal(r[i], expected[i]));
            recording_free(r[i]);
            recording_free(expected[i]);
        }
        fixture_stop(&f);
    }
}

/* However long steps seem to take, the time until those that wait are admitted is finite, and at least a second. */
static void the_time_to_retry_is_finite(void **state) {
    (void)state;
    static const long long advances[] = {-86400000, 86400000, 0};
    for (size_t k = 0; k < sizeof advances / sizeof *advances; k++) {
        enum { N = 4 };
        cl_engine_config config = fixture_config();
        config.max_seqs = 1;
        fixture f;
        fixture_start(&f, &config, 1);
        atomic_store(&advance, advances[k]);
        recording *r[N];
        for (int i = 0; i < N; i++) r[i] = start(&f, (uint32_t)i, 400, 0, 1);
        recording_wait_events(r[0], 20);
        const cl_engine_stats stats = stats_of(&f);
        if (!(stats.retry_after_s >= 1 && stats.retry_after_s <= 86400)) fail_msg("retry_after_s is %g", stats.retry_after_s);
        assert_true(stats.prefill_s >= 0 && stats.decode_s >= 0);
        for (int i = 0; i < N; i++) {
            recording_wait(r[i]);
            assert_int_equal(r[i]->choices[0].finish, CL_ENGINE_LENGTH);
            recording_free(r[i]);
        }
        fixture_stop(&f);
        atomic_store(&advance, 0);
    }
}

/* Submit until the queue is full, for two domains, from an event of the request that occupies the only place. */
typedef struct crowd {
    fixture *f;
    cl_engine_request request;
    int n_accepted[2];
    cl_error error[2];
} crowd;

static void crowd_in(void *ctx, const cl_engine_event *event) {
    (void)event;
    crowd *c = ctx;
    for (int d = 0; d < 2; d++) {
        c->request.domain = (uint32_t)d;
        while (c->error[d].code == CL_OK && cl_engine_submit(c->f->engine, &c->request, NULL, &c->error[d]) == CL_OK)
            c->n_accepted[d]++;
    }
}

static void ignore_event(void *ctx, const cl_engine_event *event) {
    (void)ctx;
    (void)event;
}

static void full_queues_refuse(void **state) {
    (void)state;
    for (int by_tokens = 0; by_tokens < 2; by_tokens++) {
        cl_engine_config config = fixture_config();
        config.max_seqs = 1;
        config.pin_bytes = MIB / 8;
        if (by_tokens)
            config.max_queued_tokens = 10 * N_PROMPT + 5;
        else
            config.max_queued_requests = 7;
        fixture f;
        fixture_start(&f, &config, 1);
        int32_t tokens[N_PROMPT];
        make_prompt(tokens, N_PROMPT, 0, 0, 9);
        recording *r = recording_create(), *p = recording_create();
        cl_engine_request pinned = make_request(tokens, N_PROMPT, 0, p); /* it has ended, and so keeps out nothing */
        pinned.domain = 1;
        pinned.pin = true;
        submit(&f, &pinned);
        recording_wait(p);
        recording_free(p);
        assert_int_equal(stats_when_idle(&f).n_pins, 1);
        crowd c = {.f = &f, .request = make_request(tokens, N_PROMPT, 3, NULL)};
        c.request.on_event = ignore_event;
        r->hook = crowd_in;
        r->hook_ctx = &c;
        const cl_engine_request first = make_request(tokens, N_PROMPT, 5, r);
        submit(&f, &first);
        recording_wait(r);
        assert_int_equal(c.n_accepted[0], by_tokens ? 10 : 7);
        assert_int_equal(c.n_accepted[1], 1); /* although the queue is full */
        for (int d = 0; d < 2; d++) {
            assert_int_equal(c.error[d].code, CL_ERR_BUSY);
            assert_non_null(strstr(c.error[d].message, by_tokens ? "max_queued_tokens is 245" : "max_queued_requests is 7"));
        }
        assert_int_equal(stats_when_idle(&f).requests_finished, c.n_accepted[0] + 3);
        recording *again = start(&f, 1, 2, 0, 1); /* the queue is empty again */
        recording_wait(again);
        recording_free(again);
        recording_free(r);
        fixture_stop(&f);
    }
}

/* How many requests of n choices an engine accepts after the first one, of which a step is under way or was not begun. */
static int count_accepted(const cl_engine_config *config, int32_t n, bool is_taken) {
    fixture f;
    fixture_start(&f, config, 1);
    int32_t tokens[N_PROMPT];
    int n_accepted = 0;
    cl_error error = {.code = CL_OK};
    make_prompt(tokens, N_PROMPT, 0, 0, 9);
    cl_engine_request request = make_request(tokens, N_PROMPT, 3, NULL);
    request.on_event = ignore_event;
    request.n = n;
    toy_hold();
    submit(&f, &request);
    if (is_taken) toy_pass(0); /* the statistics do not count it yet */
    while (cl_engine_submit(f.engine, &request, NULL, &error) == CL_OK) n_accepted++;
    toy_release();
    assert_int_equal(error.code, CL_ERR_BUSY);
    assert_int_equal(stats_when_idle(&f).requests_finished, n_accepted + 1);
    fixture_stop(&f);
    return n_accepted;
}

/* Requests for which a place is free do not count as waiting, however many of them come at once. */
static void a_burst_finds_all_free_places(void **state) {
    (void)state;
    for (int is_taken = 0; is_taken < 2; is_taken++) {
        cl_engine_config config = fixture_config();
        config.max_seqs = 8;
        config.max_queued_requests = 2;
        assert_int_equal(count_accepted(&config, 1, is_taken), 7 + 2);
        assert_int_equal(count_accepted(&config, 3, is_taken), 2 + 2); /* the third one finds two places */
        config.max_queued_requests = 0;
        config.max_queued_tokens = 2 * N_PROMPT;
        assert_int_equal(count_accepted(&config, 1, is_taken), 7 + 2);
    }
}

/* The same when a request is dropped before those that came with its end have a place. */
static void a_burst_finds_them_beside_a_cancelled_request(void **state) {
    (void)state;
    cl_engine_config config = fixture_config();
    config.max_seqs = 8;
    config.max_queued_requests = 2;
    fixture f;
    fixture_start(&f, &config, 1);
    int32_t tokens[200]; /* more than a step computes, so that the end of the first request is its first event */
    make_prompt(tokens, 200, 0, 0, 9);
    crowd c = {.f = &f, .request = make_request(tokens, N_PROMPT, 3, NULL)};
    c.request.on_event = ignore_event;
    recording *r = recording_create();
    r->hook = crowd_in;
    r->hook_ctx = &c;
    const cl_engine_request first = make_request(tokens, 200, 50, r);
    toy_hold();
    const uint64_t id = submit(&f, &first);
    toy_pass(0);
    for (int i = 0; i < 3; i++) submit(&f, &c.request);
    cl_engine_cancel(f.engine, id);
    toy_release();
    recording_wait(r);
    assert_int_equal(r->choices[0].finish, CL_ENGINE_CANCELLED);
    recording_free(r);
    assert_int_equal(c.n_accepted[0], 8 - 3 + 2);
    stats_when_idle(&f);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_end_in_time),
        cmocka_unit_test(late_requests_end),
        cmocka_unit_test(requests_that_wait_too_long_end),
        cmocka_unit_test(a_clock_may_jump),
        cmocka_unit_test(the_time_to_retry_is_finite),
        cmocka_unit_test(full_queues_refuse),
        cmocka_unit_test(a_burst_finds_all_free_places),
        cmocka_unit_test(a_burst_finds_them_beside_a_cancelled_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
