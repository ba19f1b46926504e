/* The step runner: what a step computes, and that no failure leaves a step open or anything computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "chunkllama/engine/runner.h"
#include "fixture.h"

enum { N_TOKENS = 21, MAX_ROWS = 64, MAX_SEQS = 4 };

/* The linker puts this in the place of the library's cattn_step_end. */
cattn_status __real_cattn_step_end(cattn_cache *cache, cattn_error *error);
cattn_status __wrap_cattn_step_end(cattn_cache *cache, cattn_error *error);
static bool end_fails;

cattn_status __wrap_cattn_step_end(cattn_cache *cache, cattn_error *error) {
    if (!end_fails) return __real_cattn_step_end(cache, error);
    end_fails = false;
    *error = (cattn_error){.code = CATTN_ERR_NOMEM, .entry = -1, .message = "the device is lost"};
    return error->code;
}

typedef struct world {
    ca_pool *pool;
    cl_runner runner;
    int32_t tokens[2][N_TOKENS]; /* two prompts whose first 16 tokens are the same */
    cattn_seq seqs[2];
} world;

static int set_up(void **state) {
    static world w;
    memset(&w, 0, sizeof w);
    const cl_engine_config config = fixture_config();
    cl_error error;
    w.pool = ca_pool_create(1);
    assert_int_equal(
        cl_runner_init(&w.runner, toy_model(), w.pool, &config, config.kv_budget_bytes, MAX_SEQS, MAX_ROWS, MAX_ROWS, &error),
        CL_OK);
    for (uint32_t i = 0; i < 2; i++) {
        make_prompt(w.tokens[i], N_TOKENS, 16, 1, i);
        assert_int_equal(cattn_seq_join(w.runner.cache, w.tokens[i], N_TOKENS, NULL, &w.seqs[i], NULL, NULL), CATTN_OK);
    }
    *state = &w;
    return 0;
}

static int tear_down(void **state) {
    world *w = *state;
    cl_runner_free(&w->runner);
    cl_runner_free(&w->runner); /* a second time does nothing */
    ca_pool_destroy(&w->pool);
    return 0;
}

static void list_both(world *w, int64_t max_rows) {
    cl_runner_clear(&w->runner);
    for (int i = 0; i < 2; i++) cl_runner_add(&w->runner, w->seqs[i], max_rows, w->tokens[i]);
}

/* The last row of each entry that has any. */
static void choose_last(void *n_calls, cl_runner *r) {
    int32_t row = 0;
    ++*(int *)n_calls;
    for (int32_t i = 0; i < r->n_entries; i++) {
        row += (int32_t)r->entries[i].n_rows;
        if (r->entries[i].n_rows > 0) r->logit_rows[r->n_logits++] = row - 1;
    }
}

static int64_t n_ready(const world *w, int i) {
    cattn_seq_info info = {.struct_size = sizeof info};
    assert_int_equal(cattn_seq_get_info(w->runner.cache, w->seqs[i], &info, NULL), CATTN_OK);
    return info.n_ready;
}

/* Run the step that the list describes and expect it to succeed. */
static void run(world *w, int32_t row_limit) {
    cl_error error = {.message = ""};
    int n_calls = 0;
    if (cl_runner_step(&w->runner, row_limit, choose_last, &n_calls, &error) != CL_OK) fail_msg("%s", error.message);
    assert_int_equal(n_calls, w->runner.n_rows > 0);
}

static void rows_of_a_shared_prefix(void **state) {
    world *w = *state;
    const cl_runner *r = &w->runner;
    list_both(w, MAX_ROWS);
    run(w, MAX_ROWS);
    assert_int_equal(r->n_rows, N_TOKENS + N_TOKENS - 16);
    for (int32_t row = 0; row < r->n_rows; row++) {
        const int i = row >= N_TOKENS;
        const int64_t position = i ? row - N_TOKENS + 16 : row;
        assert_int_equal(r->positions[row], position);
        assert_int_equal(r->tokens[row], w->tokens[i][position]);
    }
    assert_int_equal(r->n_logits, 2);
    assert_int_equal(r->logit_rows[0], N_TOKENS - 1);
    assert_int_equal(r->logit_rows[1], r->n_rows - 1);
    assert_int_equal(n_ready(w, 0), N_TOKENS);
    assert_int_equal(n_ready(w, 1), N_TOKENS);
}

/* Steps of any size give the same logits. */
static void logits_do_not_depend_on_the_limit(void **state) {
    world *w = *state;
    float expected[2][TOY_VOCAB], last[2][TOY_VOCAB];
    list_both(w, MAX_ROWS);
    run(w, MAX_ROWS);
    memcpy(expected, w->runner.logits, sizeof expected);
    cl_runner_free(&w->runner);
    ca_pool_destroy(&w->pool);
    set_up(state);
    w = *state;
    do {
        list_both(w, 4);
        run(w, 7);
        for (int32_t i = 0; i < w->runner.n_logits; i++) {
            const bool second = w->runner.logit_rows[i] >= w->runner.entries[0].n_rows;
            memcpy(last[second], w->runner.logits + (size_t)i * TOY_VOCAB, sizeof last[0]);
        }
    } while (w->runner.n_rows > 0);
    assert_memory_equal(last, expected, sizeof expected);
}

static void nothing_to_compute(void **state) {
    world *w = *state;
    list_both(w, MAX_ROWS);
    run(w, MAX_ROWS);
    list_both(w, MAX_ROWS);
    run(w, MAX_ROWS);
    assert_int_equal(w->runner.n_rows, 0);
    assert_int_equal(w->runner.n_logits, 0);
    assert_int_equal(cattn_step_abort(w->runner.cache, NULL), CATTN_ERR_STATE);
}

/* The step fails as described; no step is open, nothing is ready, and the next step computes everything. */
static void expect_failure(world *w, int32_t row_limit, cl_status status, const char *message) {
    cl_error error = {.message = ""};
    int n_calls = 0;
    assert_int_equal(cl_runner_step(&w->runner, row_limit, choose_last, &n_calls, &error), status);
    assert_int_equal(error.code, status);
    if (!strstr(error.message, message)) fail_msg("'%s' does not contain '%s'", error.message, message);
    assert_int_equal(cattn_step_abort(w->runner.cache, NULL), CATTN_ERR_STATE);
    assert_int_equal(n_ready(w, 0), 0);
    list_both(w, MAX_ROWS);
    run(w, MAX_ROWS);
    assert_int_equal(n_ready(w, 0), N_TOKENS);
    assert_int_equal(n_ready(w, 1), N_TOKENS);
}

static void opening_fails(void **state) {
    world *w = *state;
    list_both(w, MAX_ROWS);
    w->runner.entries[1].seq = 12345;
    expect_failure(w, MAX_ROWS, CL_ERR_ARG, "opening a step: ");
}

static void forward_pass_fails(void **state) {
    world *w = *state;
    list_both(w, MAX_ROWS);
    toy_fail_steps(1, 1);
    expect_failure(w, MAX_ROWS, CL_ERR_NOMEM, "the test");
}

static void closing_fails(void **state) {
    world *w = *state;
    list_both(w, MAX_ROWS);
    end_fails = true;
    expect_failure(w, MAX_ROWS, CL_ERR_NOMEM, "closing a step: the device is lost");
}

/* A failed step's rows are not shown as computed where there is no error to fill in either. */
static void errors_are_optional(void **state) {
    world *w = *state;
    int n_calls = 0;
    list_both(w, MAX_ROWS);
    end_fails = true;
    assert_int_equal(cl_runner_step(&w->runner, MAX_ROWS, choose_last, &n_calls, NULL), CL_ERR_NOMEM);
    assert_int_equal(n_ready(w, 1), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rows_of_a_shared_prefix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(logits_do_not_depend_on_the_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_to_compute, set_up, tear_down),
        cmocka_unit_test_setup_teardown(opening_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(forward_pass_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(closing_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(errors_are_optional, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
