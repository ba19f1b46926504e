/* Calls that hold the engine's mutex take few steps, however many requests wait. */
#include "tests/support/testing.h"

#include <search.h>

#include "chunkllama/engine/live.h"
#include "fixture.h"

/* ---- The comparisons of searches ---- */

typedef int comparison(const void *a, const void *b);
static _Thread_local int64_t n_compared;
static _Thread_local comparison *compare;

static int count(const void *a, const void *b) {
    n_compared++;
    return compare(a, b);
}

void *__real_tfind(const void *key, void *const *root, comparison *fn);
void *__wrap_tfind(const void *key, void *const *root, comparison *fn);
void *__wrap_tfind(const void *key, void *const *root, comparison *fn) {
    compare = fn;
    return __real_tfind(key, root, count);
}

enum { N = 4096, FEW = 2 * 12 + 2 }; /* a balanced tree of N has at most twice log2(N) levels */

static void assert_few(int64_t n_calls) {
    assert_in_range(n_compared, n_calls, n_calls * FEW); /* and every call has searched */
    n_compared = 0;
}

/* ---- The list ---- */

static void requests_are_found_and_counted(void **state) {
    (void)state;
    cl_live live = {0};
    cl_request *r = calloc(N, sizeof *r);
    for (uint32_t i = 0; i < N; i++) {
        r[i].id = i + 1;
        r[i].params.domain = i % 3;
        assert_true(cl_live_add(&live, &r[i]));
    }
    n_compared = 0;
    for (uint64_t id = 1; id <= N; id++) assert_ptr_equal(cl_live_find(&live, id), &r[id - 1]);
    assert_few(N);
    assert_null(cl_live_find(&live, N + 1));
    for (int i = 0; i < N; i += 3) cl_live_end(&r[i]);
    assert_false(cl_live_has_open(&live, 0)); /* pins may be left */
    assert_true(cl_live_has_open(&live, 1));
    assert_ptr_equal(cl_live_find(&live, 1), &r[0]);
    cl_live_end(&r[0]); /* again, as when its pin ends */
    for (int i = 0; i < N; i++) cl_live_remove(&live, &r[i]);
    for (uint32_t d = 0; d < 4; d++) assert_false(cl_live_has_open(&live, d));
    assert_null(live.requests);
    assert_null(live.domains);
    free(r);
}

/* ---- The engine ---- */

static void nobody_waits_for_a_walk_over_all_requests(void **state) {
    (void)state;
    static uint64_t ids[N];
    static const int32_t prompt[] = {7};
    cl_engine_config config = fixture_config();
    config.max_seqs = 1;
    config.max_queued_requests = N;
    fixture f;
    fixture_start(&f, &config, 1);
    recording *flood = recording_create(), *other = recording_create();
    cl_engine_request request = make_request(prompt, 1, 2, flood);
    request.on_event = NULL; /* the test waits for none of them */
    toy_hold();
    for (int i = 0; i < N; i++) ids[i] = submit(&f, &request);
    n_compared = 0;
    for (int i = N - 1; i >= 0; i--) cl_engine_cancel(f.engine, ids[i]);
    assert_few(N);
    request = make_request(prompt, 1, 2, other);
    request.domain = 1;
    submit(&f, &request);
    assert_in_range(n_compared, 1, FEW);
    toy_release();
    recording_wait(other);
    recording_free(other);
    recording_free(flood);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_found_and_counted),
        cmocka_unit_test(nobody_waits_for_a_walk_over_all_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
