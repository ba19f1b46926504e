/*
 * Embeddings: a mean is that of the states that each prefix of the prompt ends with, to the bit, whatever runs beside it,
 * however the prompt is cut, and after a preemption; the last state shares the prompt's prefix with other requests.
 */
#include "tests/support/testing.h"

#include <string.h>

#include "fixture.h"

enum { N_REQUESTS = 30, MAX_PROMPT = 100 };

static cl_engine_request embed(const int32_t *tokens, int64_t n, cl_engine_pooling pooling, recording *r) {
    cl_engine_request request = make_request(tokens, n, 0, r);
    request.logprobs = false;
    request.n_top = 0;
    request.pooling = pooling;
    return request;
}

/* Two thirds embeddings of both kinds; beside them requests that generate. */
static cl_engine_request variety(int i, int32_t *tokens, recording *r) {
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 33, 64, 65, 90, 100};
    const int64_t n = lengths[i % 10];
    make_prompt(tokens, n, i % 7 == 4 ? n : n * 2 / 3, (uint32_t)(i % 4), (uint32_t)i);
    return i % 3 == 2 ? make_request(tokens, n, 40 + i % 8, r)
                      : embed(tokens, n, i % 3 ? CL_ENGINE_POOL_LAST : CL_ENGINE_POOL_MEAN, r);
}

static void check_undisturbed(recording *const *expected) {
    for (int i = 0; i < N_REQUESTS; i++) assert_int_equal(expected[i]->n_embedding, i % 3 == 2 ? 0 : TOY_EMBD);
}

static int64_t n_preemptions;

static void check_run(const setting *set, const drafting *way, const cl_engine_stats *stats) {
    (void)set;
    (void)way;
    n_preemptions += stats->preemptions;
}

static void same_bytes_in_every_setting(void **state) {
    (void)state;
    static const drafting ways[] = {{false, NULL}, {true, NULL}};
    static const setting settings[] = {
        {CATTN_SHARED, CATTN_RETAIN_LRU, 32, 0, 512, 1, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_LEARNED, 32, 7, 64, 2, 64 * MIB, false},
        {CATTN_SHARED, CATTN_RETAIN_NONE, 8, 1, 19, 1, MIB / 4, false},
        {CATTN_SHARED, CATTN_RETAIN_LRU, 16, 0, 64, 2, MIB / 4, false},
        {CATTN_SHARED_STORAGE, CATTN_RETAIN_LRU, 32, 5, 64, 1, MIB / 3, false},
        {CATTN_PRIVATE, CATTN_RETAIN_NONE, 16, 0, 512, 2, MIB / 3, false},
    };
    static const cattn_type types[] = {CATTN_F32, CATTN_BF16, CATTN_I8};
    expect_same_bytes(&(series){.make = variety,
                                .n = N_REQUESTS,
                                .max_prompt = MAX_PROMPT,
                                .undisturbed = {CATTN_SHARED, CATTN_RETAIN_LRU, 3, 0, 512, 1, 64 * MIB, true},
                                .settings = settings,
                                .n_settings = 6,
                                .types = types,
                                .n_types = 3,
                                .ways = ways,
                                .n_ways = 2,
                                .check_undisturbed = check_undisturbed,
                                .check_run = check_run});
    assert_true(n_preemptions > 0);
}

static void run_one(fixture *f, const cl_engine_request *request) {
    submit(f, request);
    recording_wait(request->ctx);
}

/* The mean of the states with which the prefixes of a prompt end. */
static void a_mean_is_that_of_all_last_states(void **state) {
    (void)state;
    enum { N = 75 };
    fixture f;
    cl_engine_config config = fixture_config();
    config.max_step_rows = 16;
    fixture_start(&f, &config, 2);
    int32_t tokens[N];
    double sum[TOY_EMBD] = {0};
    make_prompt(tokens, N, N, 3, 0);
    for (int64_t n = 1; n <= N; n++) {
        recording *last = recording_create();
        const cl_engine_request request = embed(tokens, n, CL_ENGINE_POOL_LAST, last);
        run_one(&f, &request);
        for (int i = 0; i < TOY_EMBD; i++) sum[i] += (double)last->embedding[i];
        if (n > 4) assert_true(last->n_cached > 0); /* it shares the prefix of the one before */
        recording_free(last);
    }
    recording *mean = recording_create();
    const cl_engine_request request = embed(tokens, N, CL_ENGINE_POOL_MEAN, mean);
    toy_take_rows();
    run_one(&f, &request);
    assert_int_equal(toy_take_rows(), N);
    assert_int_equal(mean->n_cached, 0);
    float expected[TOY_EMBD];
    for (int i = 0; i < TOY_EMBD; i++) expected[i] = (float)(sum[i] / N);
    assert_memory_equal(mean->embedding, expected, sizeof expected);
    recording_free(mean);
    fixture_stop(&f);
}

static int n_ends_left; /* until one fails; 0: none does */

cattn_status __real_cattn_step_end(cattn_cache *cache, cattn_error *error);
cattn_status __wrap_cattn_step_end(cattn_cache *cache, cattn_error *error);

cattn_status __wrap_cattn_step_end(cattn_cache *cache, cattn_error *error) {
    if (n_ends_left == 0 || --n_ends_left > 0) return __real_cattn_step_end(cache, error);
    *error = (cattn_error){.code = CATTN_ERR_NOMEM, .entry = -1, .message = "the device is lost"};
    return error->code;
}

/* A step that fails after its states were taken is computed again; its states count once. */
static void a_failed_step_counts_once(void **state) {
    (void)state;
    enum { N = 60 };
    int32_t tokens[N];
    make_prompt(tokens, N, N, 4, 0);
    recording *r[2];
    for (int k = 0; k < 2; k++) {
        fixture f;
        cl_engine_config config = fixture_config();
        config.max_step_rows = 16;
        fixture_start(&f, &config, 1);
        n_ends_left = k == 1 ? 3 : 0;
        r[k] = recording_create();
        const cl_engine_request request = embed(tokens, N, CL_ENGINE_POOL_MEAN, r[k]);
        run_one(&f, &request);
        assert_int_equal(r[k]->choices[0].finish, CL_ENGINE_LENGTH);
        assert_int_equal(n_ends_left, 0);
        fixture_stop(&f);
    }
    assert_true(recording_equal(r[0], r[1]));
    for (int k = 0; k < 2; k++) recording_free(r[k]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_in_every_setting),
        cmocka_unit_test(a_mean_is_that_of_all_last_states),
        cmocka_unit_test(a_failed_step_counts_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
