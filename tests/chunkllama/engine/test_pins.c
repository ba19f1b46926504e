/* Pinned prompts stay in the cache under pressure, within their budget, and answers stay the same. */
#include "tests/support/testing.h"

#include "fixture.h"

enum { N_PINNED = 101, N_LONG = 140 };

typedef struct answer {
    int64_t n_cached;
    cl_engine_finish finish;
    recording *recorded; /* owned by the caller */
} answer;

static answer ask(fixture *f, const int32_t *tokens, int64_t n, int64_t max_tokens) {
    recording *r = recording_create();
    const cl_engine_request request = make_request(tokens, n, max_tokens, r);
    submit(f, &request);
    recording_wait(r);
    return (answer){r->n_cached, r->choices[0].finish, r};
}

/* Submit the prompt to be pinned, and wait. Returns the request's id. */
static uint64_t pin(fixture *f, const int32_t *tokens, int64_t n, cl_engine_finish finish) {
    recording *r = recording_create();
    cl_engine_request request = make_request(tokens, n, 0, r);
    request.pin = true;
    const uint64_t id = submit(f, &request);
    recording_wait(r);
    if (r->choices[0].finish != finish) fail_msg("finish is %d: %s", (int)r->choices[0].finish, r->error);
    if (finish == CL_ENGINE_ERROR) assert_non_null(strstr(r->error, "pin_bytes"));
    recording_free(r);
    return id;
}

/* Prompts of no family, whose K/V together are several times the budget, so that they evict all that is older and not pinned.
 */
static void flood(fixture *f) {
    for (uint32_t i = 0; i < 40; i++) {
        int32_t tokens[150];
        make_prompt(tokens, 150, 0, 0, 1000 + i);
        recording_free(ask(f, tokens, 150, 3).recorded);
    }
}

static cl_engine_config small_config(void) {
    cl_engine_config config = fixture_config();
    config.kv_budget_bytes = MIB / 2;
    config.pin_bytes = MIB / 8;
    config.retention = CATTN_RETAIN_LRU; /* the default prefers prompts that have come back, pinned or not */
    return config;
}

/* Tokens of a prompt with the pinned prefix that are in the cache after a flood. */
static int64_t cached_after_flood(fixture *f, const int32_t *tokens, recording **recorded) {
    flood(f);
    const answer a = ask(f, tokens, N_LONG, 20);
    assert_int_equal(a.finish, CL_ENGINE_LENGTH);
    *recorded = a.recorded;
    return a.n_cached;
}

static void a_pinned_prompt_survives_a_flood(void **state) {
    (void)state;
    fixture f;
    int32_t tokens[N_LONG];
    recording *cold, *warm, *evicted;
    const cl_engine_config config = small_config();
    make_prompt(tokens, N_LONG, N_PINNED, 7, 1);
    fixture_start(&f, &config, 1);
    assert_int_equal(cached_after_flood(&f, tokens, &cold), 0);

    const uint64_t id = pin(&f, tokens, N_PINNED, CL_ENGINE_LENGTH);
    assert_int_equal(stats_when_idle(&f).n_pins, 1);
    assert_int_equal(kv_stats_of(&f).chunks_pinned, 7);
    cl_engine_cancel(f.engine, id); /* it has ended, so this changes nothing */
    assert_int_equal(cached_after_flood(&f, tokens, &warm), N_PINNED / 2 * 2);

    cl_engine_unpin(f.engine, id);
    cl_engine_unpin(f.engine, id + 1000);
    assert_int_equal(cached_after_flood(&f, tokens, &evicted), 0);
    assert_int_equal(stats_when_idle(&f).n_pins, 0);
    assert_int_equal(kv_stats_of(&f).chunks_pinned, 0);
    assert_int_equal(kv_stats_of(&f).n_seqs, 0);
    assert_true(recording_equal(cold, warm) && recording_equal(cold, evicted));
    recording_free(cold);
    recording_free(warm);
    recording_free(evicted);
    fixture_stop(&f);
}

/* Beyond the budget of pins a request fails, and the pins before it stay. A pin that ends makes space for others. */
static void pins_have_a_budget(void **state) {
    (void)state;
    fixture f;
    int32_t tokens[64];
    cl_engine_config config = small_config();
    fixture_start(&f, &config, 1);
    config.pin_bytes = 3 * kv_stats_of(&f).chunk_bytes;
    fixture_stop(&f);
    fixture_start(&f, &config, 1);
    uint64_t ids[2];
    for (uint32_t i = 0; i < 3; i++) {
        make_prompt(tokens, 32, 0, 0, i);
        ids[i > 0] = pin(&f, tokens, i == 0 ? 32 : 16, i == 2 ? CL_ENGINE_ERROR : CL_ENGINE_LENGTH);
    }
    assert_int_equal(stats_when_idle(&f).n_pins, 2);
    cl_engine_unpin(f.engine, ids[0]);
    pin(&f, tokens, 32, CL_ENGINE_LENGTH);
    assert_int_equal(stats_when_idle(&f).n_pins, 2);
    fixture_stop(&f); /* frees the pins that are left */
}

/* Ask for an answer, and for a pin of the prompt's first pin_tokens tokens. */
static uint64_t ask_and_pin(fixture *f, const int32_t *tokens, int64_t max_tokens, int64_t pin_tokens, recording **recorded) {
    recording *r = *recorded = recording_create();
    cl_engine_request request = make_request(tokens, N_LONG, max_tokens, r);
    request.pin_tokens = pin_tokens;
    const uint64_t id = submit(f, &request);
    recording_wait(r);
    assert_int_equal(r->choices[0].finish, CL_ENGINE_LENGTH);
    return id;
}

/* A request that generates pins what it is to of its prompt, and its answer is the same as without. */
static void a_request_pins_the_beginning_of_its_prompt(void **state) {
    (void)state;
    fixture f;
    int32_t tokens[N_LONG];
    recording *plain, *pinning, *again, *whole;
    const cl_engine_config config = small_config();
    make_prompt(tokens, N_LONG, N_PINNED, 7, 1);
    fixture_start(&f, &config, 1);
    ask_and_pin(&f, tokens, 20, 0, &plain);
    assert_int_equal(plain->n_pinned, 0);
    cl_engine_reset_cache(f.engine, NULL);
    const uint64_t id = ask_and_pin(&f, tokens, 20, N_PINNED, &pinning);
    assert_int_equal(pinning->n_pinned, N_PINNED / 2 * 2);
    assert_int_equal(stats_when_idle(&f).n_pins, 1);
    assert_int_equal(kv_stats_of(&f).chunks_pinned, 7);
    assert_int_equal(cached_after_flood(&f, tokens, &again), N_PINNED / 2 * 2);
    cl_engine_unpin(f.engine, id);
    cl_engine_unpin(f.engine, ask_and_pin(&f, tokens, 0, N_LONG, &whole)); /* without an answer, and all */
    assert_int_equal(whole->n_pinned, N_LONG);
    recording_free(ask(&f, tokens, 2, 1).recorded); /* before which pins end */
    assert_int_equal(stats_when_idle(&f).n_pins, 0);
    assert_int_equal(kv_stats_of(&f).chunks_pinned, 0);
    assert_true(recording_equal(plain, pinning) && recording_equal(plain, again));
    recording_free(plain);
    recording_free(pinning);
    recording_free(again);
    recording_free(whole);
    fixture_stop(&f);
}

/* Where its pin does not fit, a request goes on, with the same answer. */
static void a_pin_that_does_not_fit_is_left_out(void **state) {
    (void)state;
    fixture f;
    int32_t tokens[N_LONG];
    recording *plain, *fits, *full;
    make_prompt(tokens, N_LONG, 0, 0, 1);
    cl_engine_config config = small_config();
    config.pin_bytes = 0;
    fixture_start(&f, &config, 1);
    ask_and_pin(&f, tokens, 20, 64, &plain);
    assert_int_equal(plain->n_pinned, 0);
    assert_int_equal(stats_when_idle(&f).n_pins, 0);
    config.pin_bytes = 4 * kv_stats_of(&f).chunk_bytes;
    fixture_stop(&f);
    fixture_start(&f, &config, 1);
    ask_and_pin(&f, tokens, 20, 64, &fits);
    ask_and_pin(&f, tokens, 20, 2, &full);
    assert_int_equal(fits->n_pinned, 64);
    assert_int_equal(full->n_pinned, 0);
    assert_int_equal(stats_when_idle(&f).n_pins, 1);
    assert_true(recording_equal(plain, fits) && recording_equal(plain, full));
    recording_free(plain);
    recording_free(fits);
    recording_free(full);
    fixture_stop(&f);
}

/* A pin takes the place of a shorter one of the same prompt, so both need not fit at once; where it does not fit, the shorter
 * one stays.
 */
static void a_pin_takes_the_place_of_a_shorter_one(void **state) {
    (void)state;
    fixture f;
    int32_t tokens[N_LONG], others[N_LONG];
    make_prompt(tokens, N_LONG, 0, 0, 1);
    make_prompt(others, N_LONG, 0, 0, 2);
    cl_engine_config config = small_config();
    fixture_start(&f, &config, 1);
    config.pin_bytes = 5 * kv_stats_of(&f).chunk_bytes;
    fixture_stop(&f);
    fixture_start(&f, &config, 1);
    static const struct {
        bool other, by_other_domain;
        int64_t n, n_pinned;
        uint64_t n_chunks; /* of all pins afterwards */
    } turns[] = {
        {false, false, 48, 48, 3}, {false, false, 80, 80, 5},
        {false, false, 96, 0, 5}, /* 6 chunks: it does not fit, and the 5 stay */
        {true, false, 80, 0, 5},  /* other tokens */
        {false, true, 80, 0, 5},   {false, false, 80, 80, 5},
    };
    uint64_t id = 0;
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        recording *r = recording_create();
        cl_engine_request request = make_request(turns[i].other ? others : tokens, N_LONG, 4, r);
        request.pin_tokens = turns[i].n;
        request.pin_instead_of = id;
        request.domain = turns[i].by_other_domain;
        const uint64_t new_id = submit(&f, &request);
        recording_wait(r);
        assert_int_equal(r->n_pinned, turns[i].n_pinned);
        if (r->n_pinned > 0) id = new_id;
        assert_int_equal(stats_when_idle(&f).n_pins, 1);
        assert_int_equal(kv_stats_when_idle(&f).chunks_pinned, turns[i].n_chunks);
        recording_free(r);
    }
    recording *after;
    assert_int_equal(cached_after_flood(&f, tokens, &after), 80);
    recording_free(after);
    cl_engine_unpin(f.engine, id);
    recording_free(ask(&f, tokens, 2, 1).recorded);
    assert_int_equal(stats_when_idle(&f).n_pins, 0);
    fixture_stop(&f);
}

static void unpin_now(void *ctx, const cl_engine_event *event) { cl_engine_unpin(*(cl_engine **)ctx, event->request); }

/* A pin that ends while its request runs stays until the request ends. */
static void a_running_request_keeps_its_pin(void **state) {
    (void)state;
    fixture f;
    int32_t tokens[N_LONG];
    make_prompt(tokens, N_LONG, 0, 0, 1);
    const cl_engine_config config = small_config();
    fixture_start(&f, &config, 1);
    recording *r = recording_create();
    r->hook = unpin_now;
    r->hook_ctx = &f.engine;
    cl_engine_request request = make_request(tokens, N_LONG, 20, r);
    request.pin_tokens = N_LONG;
    submit(&f, &request);
    recording_wait(r);
    assert_int_equal(r->n_pinned, N_LONG);
    assert_int_equal(stats_when_idle(&f).n_pins, 0);
    assert_int_equal(kv_stats_when_idle(&f).chunks_pinned, 0);
    recording_free(r);
    fixture_stop(&f);
}

/* A request that the budget without the pins' part could not hold is refused at once, so none fails halfway. */
static void pins_keep_their_part_of_the_budget(void **state) {
    (void)state;
    int64_t longest[2];
    for (int with_pins = 0; with_pins < 2; with_pins++) {
        fixture f;
        cl_engine_config config = small_config();
        if (!with_pins) config.pin_bytes = 0;
        fixture_start(&f, &config, 1);
        static int32_t tokens[TOY_CONTEXT];
        make_prompt(tokens, TOY_CONTEXT, 0, 0, 5);
        recording *r = recording_create();
        cl_engine_request request = make_request(tokens, 1, 0, r);
        longest[with_pins] = 0;
        for (request.n_prompt = TOY_CONTEXT; longest[with_pins] == 0; request.n_prompt -= 16)
            if (cl_engine_submit(f.engine, &request, NULL, NULL) == CL_OK) longest[with_pins] = request.n_prompt;
        recording_wait(r);
        assert_int_equal(r->choices[0].finish, CL_ENGINE_LENGTH);
        recording_free(r);
        if (with_pins) { /* beside all pins that there may be, too */
            pin(&f, tokens + 100, 16 * (int64_t)(config.pin_bytes / kv_stats_of(&f).chunk_bytes), CL_ENGINE_LENGTH);
            const answer a = ask(&f, tokens, longest[1] - 32, 32);
            assert_int_equal(a.finish, CL_ENGINE_LENGTH);
            recording_free(a.recorded);
        }
        fixture_stop(&f);
    }
    assert_true(longest[1] < longest[0]);
}

static void assert_refused(fixture *f, const cl_engine_request *request, const char *message) {
    cl_error error = {.message = ""};
    assert_int_equal(cl_engine_submit(f->engine, request, NULL, &error), CL_ERR_ARG);
    if (!strstr(error.message, message)) fail_msg("<%s> does not say <%s>", error.message, message);
}

static void what_cannot_be_pinned_is_refused(void **state) {
    (void)state;
    fixture f;
    int32_t tokens[64];
    cl_error error;
    make_prompt(tokens, 64, 0, 0, 1);
    cl_engine_config config = small_config();
    config.pin_bytes = 0;
    fixture_start(&f, &config, 1);
    cl_engine_request request = make_request(tokens, 64, 0, NULL);
    request.pin = true;
    assert_refused(&f, &request, "pin_bytes is 0");
    fixture_stop(&f);
    config = small_config();
    fixture_start(&f, &config, 1);
    request.max_tokens = 1;
    assert_refused(&f, &request, "max_tokens 1");
    request.max_tokens = 0;
    request.n_prompt = 1;
    assert_refused(&f, &request, "1 prompt tokens");
    request.n_prompt = 64;
    request.prompt_logprobs = true;
    assert_refused(&f, &request, "prompt_logprobs 1");
    request.prompt_logprobs = false;
    request.pin_tokens = 64;
    assert_refused(&f, &request, "pin_tokens is 64 with 64 prompt tokens and pin 1");
    request.pin = false;
    request.pin_tokens = 1;
    assert_refused(&f, &request, "pin_tokens is 1 ");
    request.pin_tokens = 65;
    assert_refused(&f, &request, "pin_tokens is 65 ");
    cl_engine *none;
    config.pin_bytes = config.kv_budget_bytes / 2 + 1;
    assert_int_equal(cl_engine_create_on_pool(toy_model(), f.pool, &config, &none, &error), CL_ERR_ARG);
    assert_non_null(strstr(error.message, "pin_bytes is 262145; it must be at most half of the K/V budget, 524288"));
    config.pin_bytes = 1;
    config.sharing = CATTN_PRIVATE;
    assert_int_equal(cl_engine_create_on_pool(toy_model(), f.pool, &config, &none, &error), CL_ERR_ARG);
    assert_non_null(strstr(error.message, "CATTN_PRIVATE"));
    cl_engine_unpin(NULL, 1);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pinned_prompt_survives_a_flood),           cmocka_unit_test(pins_have_a_budget),
        cmocka_unit_test(a_request_pins_the_beginning_of_its_prompt), cmocka_unit_test(a_pin_that_does_not_fit_is_left_out),
        cmocka_unit_test(a_pin_takes_the_place_of_a_shorter_one),     cmocka_unit_test(a_running_request_keeps_its_pin),
        cmocka_unit_test(pins_keep_their_part_of_the_budget),         cmocka_unit_test(what_cannot_be_pinned_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
