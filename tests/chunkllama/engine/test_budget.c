/* The K/V budget changes while the engine runs: memory returns, every request still ends, and what is reported stays the same.
 */
#include "tests/support/wait.h"

#include "fixture.h"
#include "tests/support/sleeping.h"

enum { N_REQUESTS = 12, MAX_PROMPT = 200 };

static const uint64_t whole = MIB;

static cl_engine_config config_of_budget(void) {
    cl_engine_config config = fixture_config();
    config.kv_budget_bytes = whole;
    config.max_seqs = 4;
    return config;
}

static void set_budget(fixture *f, uint64_t bytes) {
    cl_error error = {.message = ""};
    if (cl_engine_set_kv_budget(f->engine, bytes, &error) != CL_OK) fail_msg("%s", error.message);
}

/* Wait until the statistics report the budget. */
static cattn_stats wait_for_budget(fixture *f, uint64_t bytes) {
    cattn_stats stats;
    WAIT_UNTIL((stats = kv_stats_of(f), stats.budget_bytes == bytes));
    return stats;
}

static void run(fixture *f, int64_t max_tokens, recording **recordings) {
    static int32_t tokens[N_REQUESTS][MAX_PROMPT];
    for (int i = 0; i < N_REQUESTS; i++) {
        const int64_t n = MAX_PROMPT - 13 * i;
        make_prompt(tokens[i], n, n / 2, (uint32_t)i % 2, (uint32_t)i);
        recordings[i] = recording_create();
        const cl_engine_request request = make_request(tokens[i], n, max_tokens, recordings[i]);
        submit(f, &request);
    }
}

static void finish(recording **recordings) {
    for (int i = 0; i < N_REQUESTS; i++) {
        recording_wait(recordings[i]);
        if (recordings[i]->choices[0].finish != CL_ENGINE_LENGTH) fail_msg("request %d: %s", i, recordings[i]->error);
    }
}

static void memory_returns_and_comes_back(void **state) {
    (void)state;
    fixture f;
    recording *recordings[N_REQUESTS];
    const cl_engine_config config = config_of_budget();
    fixture_start(&f, &config, 1);
    run(&f, 40, recordings);
    finish(recordings);
    const cattn_stats before = kv_stats_when_idle(&f);
    assert_true(before.bytes_in_use > whole / 2 && before.chunks_retained > 0);
    set_budget(&f, whole / 3);
    const cattn_stats lowered = wait_for_budget(&f, whole / 3);
    assert_true(lowered.bytes_in_use <= whole / 3 && lowered.chunks_retained > 0);
    WAIT_UNTIL(others_sleep()); /* before that an idle engine could make memory resident for later requests, but must not */
    assert_true(kv_stats_of(&f).bytes_in_use <= lowered.bytes_in_use);
    set_budget(&f, whole);
    wait_for_budget(&f, whole);
    for (int i = 0; i < N_REQUESTS; i++) recording_free(recordings[i]);
    run(&f, 40, recordings);
    finish(recordings);
    assert_true(kv_stats_when_idle(&f).bytes_in_use > whole / 2);
    for (int i = 0; i < N_REQUESTS; i++) recording_free(recordings[i]);
    fixture_stop(&f);
}

/* Also without any memory for the cache: then one choice runs at a time, with what it needs. */
static void running_requests_end_the_same(void **state) {
    (void)state;
    recording *expected[N_REQUESTS], *got[N_REQUESTS];
    const cl_engine_config config = config_of_budget();
    static const uint64_t budgets[] = {whole, whole / 2, whole / 5, 0};
    for (int b = 0; b < 4; b++) {
        fixture f;
        fixture_start(&f, &config, 1);
        toy_hold();
        run(&f, 120, got);
        toy_pass(8); /* some decode then, and some wait */
        set_budget(&f, budgets[b]);
        toy_release();
        finish(got);
        stats_when_idle(&f);
        wait_for_budget(&f, budgets[b]); /* once nothing runs, also where a choice got more */
        fixture_stop(&f);
        for (int i = 0; i < N_REQUESTS; i++) {
            if (b == 0) {
                expected[i] = got[i];
                continue;
            }
            if (!recording_equal(expected[i], got[i])) fail_msg("budget %d, request %d: something else was reported", b, i);
            recording_free(got[i]);
        }
    }
    for (int i = 0; i < N_REQUESTS; i++) recording_free(expected[i]);
}

/* A choice that is alone gets the whole budget before its steps become steps of one row, for which there is always room. */
static void a_prompt_keeps_its_rows(void **state) {
    (void)state;
    enum { N_PROMPT = 3000 };
    static int32_t tokens[N_PROMPT];
    fixture f;
    cl_engine_config config = config_of_budget();
    config.kv_budget_bytes = 4 * MIB;
    make_prompt(tokens, N_PROMPT, N_PROMPT / 2, 0, 0);
    fixture_start(&f, &config, 1);
    recording *recorded = recording_create();
    const cl_engine_request request = make_request(tokens, N_PROMPT, 1, recorded);
    toy_hold();
    submit(&f, &request);
    toy_pass(1); /* its chunks are live, and longer beginnings of the prompt need more workspace */
    set_budget(&f, 0);
    toy_release();
    recording_wait(recorded);
    assert_int_equal(recorded->choices[0].finish, CL_ENGINE_LENGTH);
    const cl_engine_stats stats = stats_when_idle(&f);
    assert_true(stats.steps_by_rows[0] <= 1);
    recording_free(recorded);
    fixture_stop(&f);
}

static void wrong_budgets_are_refused(void **state) {
    (void)state;
    fixture f;
    cl_error error;
    const cl_engine_config config = config_of_budget();
    fixture_start(&f, &config, 1);
    assert_int_equal(cl_engine_set_kv_budget(f.engine, whole + 1, &error), CL_ERR_ARG);
    assert_non_null(strstr(error.message, "budget_bytes is 1048577; it must be at most kv_budget_bytes, 1048576"));
    assert_int_equal(cl_engine_set_kv_budget(NULL, 1, NULL), CL_ERR_ARG);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_returns_and_comes_back),
        cmocka_unit_test(running_requests_end_the_same),
        cmocka_unit_test(a_prompt_keeps_its_rows),
        cmocka_unit_test(wrong_budgets_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
