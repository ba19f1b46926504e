/*
 * Requests that wait for the file tier, whose disk does not answer for a while: one that is cancelled, and one whose time is
 * over, end meanwhile, once, and leave nothing in use. Those beside them, with the same prompt and with another, report what
 * they report otherwise.
 */
#include "tests/support/testing.h"

#include <string.h>
#include <unistd.h>

#include "chunkattn/api/file_tier.h"
#include "fixture.h"
#include "tests/chunkattn/tier/disk.h"

enum { TIMEOUT_S = 100, N_PROMPT = 140, N_RESTORED = 128, N_COMPLETION = 20 };

/* ---- A disk whose reads wait ---- */

static struct {
    disk disk;
    ca_tier_files files;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool closed;   /* reads wait until it is open */
    int n_waiting; /* reads that do */
} gate = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int64_t gate_read(void *ctx, int fd, void *to, size_t n, uint64_t offset) {
    pthread_mutex_lock(&gate.mutex);
    gate.n_waiting++;
    pthread_cond_broadcast(&gate.changed);
    while (gate.closed) pthread_cond_wait(&gate.changed, &gate.mutex);
    gate.n_waiting--;
    pthread_mutex_unlock(&gate.mutex);
    return gate.disk.files.read(ctx, fd, to, n, offset);
}

static void set_gate(bool closed) {
    pthread_mutex_lock(&gate.mutex);
    gate.closed = closed;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
}

static void wait_for_read(void) {
    pthread_mutex_lock(&gate.mutex);
    while (gate.n_waiting == 0) pthread_cond_wait(&gate.changed, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
}

/* Takes the place of cattn_cache_create: the tier's file is on that disk. */
cattn_status __wrap_cattn_cache_create(const cattn_config *config, cattn_cache **cache, cattn_error *error);
cattn_status __wrap_cattn_cache_create(const cattn_config *config, cattn_cache **cache, cattn_error *error) {
    const ca_file_tier_hooks hooks = {.files = &gate.files};
    return ca_cache_create(config, &hooks, cache, error);
}

/* Takes the place of cl_now, so that time is over only after a request has begun to wait. */
static _Atomic(double) now;
double __wrap_cl_now(void);
double __wrap_cl_now(void) { return now; }

/* ---- Requests ---- */

typedef struct tier_test {
    fixture f;
    int32_t prompt[N_PROMPT], other[N_PROMPT];
    recording *expected, *expected_other; /* by an engine without records */
} tier_test;

static uint64_t ask(tier_test *t, const int32_t *tokens, double timeout_s, recording **r) {
    *r = recording_create();
    cl_engine_request request = make_request(tokens, N_PROMPT, N_COMPLETION, *r);
    request.timeout_s = timeout_s;
    return submit(&t->f, &request);
}

static void start(tier_test *t) {
    cl_engine_config config = fixture_config();
    config.kv_tier_dir = "anywhere";
    config.kv_tier_bytes = MIB;
    fixture_start(&t->f, &config, 1);
}

/* An engine that has started again: the file has the prompt's records, and the disk does not answer. */
static void setup(tier_test *t) {
    disk_init(&gate.disk);
    gate.files = gate.disk.files;
    gate.files.read = gate_read;
    make_prompt(t->prompt, N_PROMPT, 0, 0, 1);
    make_prompt(t->other, N_PROMPT, 0, 0, 2);
    start(t);
    ask(t, t->prompt, 0, &t->expected);
    recording_wait(t->expected);
    fixture_stop(&t->f);
    assert_true(gate.disk.size > 0);
    start(t);
    set_gate(true);
    ask(t, t->other, 0, &t->expected_other);
    recording_wait(t->expected_other);
}

static void teardown(tier_test *t) {
    fixture_stop(&t->f);
    disk_free(&gate.disk);
    recording_free(t->expected);
    recording_free(t->expected_other);
}

static void expect_nothing_in_use(tier_test *t) {
    const cattn_stats kv = kv_stats_when_idle(&t->f);
    assert_int_equal(kv.n_seqs + kv.tokens_referenced + kv.chunks_live + kv.chunks_reserved, 0);
}

static int64_t n_events(recording *r) {
    pthread_mutex_lock(&r->mutex);
    const int64_t n = r->n_events;
    pthread_mutex_unlock(&r->mutex);
    return n;
}

/* The request has ended with its only event, which says so. */
static void expect_ended(recording *r, cl_engine_finish finish) {
    recording_wait(r);
    assert_int_equal(r->choices[0].finish, finish);
    assert_int_equal(r->choices[0].n_tokens, 0);
    assert_int_equal(n_events(r), 1);
}

/* Cancel the request, or let its time be over. */
static void end_request(tier_test *t, uint64_t id, double timeout_s) {
    if (timeout_s == 0)
        cl_engine_cancel(t->f.engine, id);
    else
        now = now + timeout_s;
}

/* Let the request end that waits, while a request with the same prompt and one with another are there. */
static void end_while_reading(double timeout_s, cl_engine_finish finish) {
    tier_test t;
    recording *waiting, *same, *other;
    setup(&t);
    const uint64_t id = ask(&t, t.prompt, timeout_s, &waiting);
    wait_for_read();
    ask(&t, t.prompt, 0, &same);
    ask(&t, t.other, 0, &other);
    recording_wait(other); /* steps do not wait for the disk */
    assert_int_equal(n_events(waiting), 0);
    end_request(&t, id, timeout_s);
    expect_ended(waiting, finish);
    assert_int_equal(n_events(same), 0);
    assert_int_equal(kv_stats_of(&t.f).tokens_restored, 0);
    set_gate(false);
    recording_wait(same);
    expect_nothing_in_use(&t);
    assert_int_equal(kv_stats_of(&t.f).tokens_restored, N_RESTORED);
    assert_int_equal(n_events(waiting), 1);
    assert_true(recording_equal(t.expected, same));
    assert_true(recording_equal(t.expected_other, other));
    recording_free(waiting);
    recording_free(same);
    recording_free(other);
    teardown(&t);
}

static void a_request_is_cancelled_while_it_waits(void **state) {
    (void)state;
    end_while_reading(0, CL_ENGINE_CANCELLED);
}

static void time_is_over_while_a_request_waits(void **state) {
    (void)state;
    end_while_reading(TIMEOUT_S, CL_ENGINE_ERROR);
}

/* Nobody waits for the read any more when it ends; a later request computes what it does not find. */
static void the_only_request_that_waits_ends(double timeout_s, cl_engine_finish finish) {
    tier_test t;
    recording *waiting, *later;
    setup(&t);
    const uint64_t id = ask(&t, t.prompt, timeout_s, &waiting);
    wait_for_read();
    end_request(&t, id, timeout_s);
    expect_ended(waiting, finish);
    expect_nothing_in_use(&t); /* although the read has not ended */
    set_gate(false);
    ask(&t, t.prompt, 0, &later);
    recording_wait(later);
    expect_nothing_in_use(&t);
    assert_int_equal(n_events(waiting), 1);
    assert_true(recording_equal(t.expected, later));
    recording_free(waiting);
    recording_free(later);
    teardown(&t);
}

static void the_only_request_is_cancelled(void **state) {
    (void)state;
    the_only_request_that_waits_ends(0, CL_ENGINE_CANCELLED);
}

static void the_only_requests_time_is_over(void **state) {
    (void)state;
    the_only_request_that_waits_ends(TIMEOUT_S, CL_ENGINE_ERROR);
}

/* For a thread: let the disk answer when the request has ended. */
static void *open_after(void *r) {
    recording_wait(r);
    set_gate(false);
    return NULL;
}

/* The engine stops while a read has not ended: the request is cancelled, and the read is waited for. */
static void the_engine_stops_while_a_request_waits(void **state) {
    (void)state;
    tier_test t;
    recording *waiting;
    setup(&t);
    ask(&t, t.prompt, 0, &waiting);
    wait_for_read();
    pthread_t opener;
    assert_int_equal(pthread_create(&opener, NULL, open_after, waiting), 0);
    fixture_stop(&t.f);
    pthread_join(opener, NULL);
    expect_ended(waiting, CL_ENGINE_CANCELLED);
    recording_free(waiting);
    start(&t);
    teardown(&t);
}

/* What is computed because its record is damaged was not cached; what comes before it was. */
static void a_damaged_record_is_not_cached(void **state) {
    (void)state;
    for (int lies = 0; lies < 2; lies++) {
        tier_test t;
        recording *r;
        setup(&t);
        gate.disk.lies_at = lies ? 5000 : SIZE_MAX; /* behind the header of each record that is read */
        set_gate(false);
        ask(&t, t.prompt, 0, &r);
        recording_wait(r);
        assert_int_equal(r->n_cached, lies ? 0 : N_RESTORED);
        assert_int_equal(kv_stats_of(&t.f).tier_refused > 0, lies);
        assert_true(recording_equal(t.expected, r));
        recording_free(r);
        teardown(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_cancelled_while_it_waits),  cmocka_unit_test(time_is_over_while_a_request_waits),
        cmocka_unit_test(the_only_request_is_cancelled),          cmocka_unit_test(the_only_requests_time_is_over),
        cmocka_unit_test(the_engine_stops_while_a_request_waits), cmocka_unit_test(a_damaged_record_is_not_cached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
