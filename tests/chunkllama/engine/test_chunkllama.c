/* The public interface of an engine, chunkllama.h, at its edges: over the toy model, on threads of the engine's own. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../model/status.h"
#include "tests/support/testing.h"

#include "fixture.h"

enum { N_PROMPT = 20 };

static const int32_t *a_prompt(void) {
    static int32_t tokens[N_PROMPT];
    make_prompt(tokens, N_PROMPT, 0, 0, 1);
    return tokens;
}

static cl_engine *start_engine(void) {
    cl_engine_config config;
    cl_engine_config_init(&config);
    config.kv_budget_bytes = 16 * MIB;
    config.n_threads = 2;
    cl_engine *e = NULL;
    cl_error error;
    if (cl_engine_create(toy_model(), &config, &e, &error) != CL_OK) fail_msg("%s", error.message);
    return e;
}

static void versions_and_names(void **state) {
    (void)state;
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", CL_VERSION_MAJOR, CL_VERSION_MINOR, CL_VERSION_PATCH);
    assert_string_equal(cl_version(), version);
    assert_string_equal(cl_status_name(CL_OK), "CL_OK");
    assert_string_equal(cl_status_name(CL_ERR_LIMIT), "CL_ERR_LIMIT");
    assert_string_equal(cl_status_name((cl_status)1), "unknown status");
}

static void null_is_refused_or_ignored(void **state) {
    (void)state;
    cl_error error = {.message = ""};
    cl_engine *e = start_engine(), *none = NULL;
    cl_engine_request request = make_request(a_prompt(), N_PROMPT, 1, NULL);
    uint64_t id = 7;
    expect_status(cl_engine_create(NULL, NULL, &none, &error), &error, CL_ERR_ARG, "model is NULL");
    expect_status(cl_engine_create(toy_model(), NULL, NULL, &error), &error, CL_ERR_ARG, "engine is NULL");
    assert_int_equal(cl_engine_create(NULL, NULL, &none, NULL), CL_ERR_ARG);
    expect_status(cl_engine_submit(NULL, &request, &id, &error), &error, CL_ERR_ARG, "engine is NULL");
    expect_status(cl_engine_submit(e, NULL, &id, &error), &error, CL_ERR_ARG, "request is NULL");
    assert_int_equal(id, 0);
    request = make_request(NULL, N_PROMPT, 1, NULL);
    expect_status(cl_engine_submit(e, &request, NULL, &error), &error, CL_ERR_ARG, "prompt");
    assert_string_equal(error.field, "prompt");
    request = make_request(a_prompt(), N_PROMPT, 1, NULL); /* test_fields.c has the other fields */
    request.n_stop = 1;
    expect_status(cl_engine_submit(e, &request, NULL, &error), &error, CL_ERR_ARG, "stop is NULL");
    assert_string_equal(error.field, "stop");
    cl_engine_stats stats = {.struct_size = sizeof stats};
    cattn_stats kv = {.struct_size = sizeof kv};
    assert_int_equal(cl_engine_get_stats(NULL, &stats), CL_ERR_ARG);
    assert_int_equal(cl_engine_get_stats(e, NULL), CL_ERR_ARG);
    assert_int_equal(cl_engine_get_kv_stats(NULL, &kv), CL_ERR_ARG);
    assert_int_equal(cl_engine_get_kv_stats(e, NULL), CL_ERR_ARG);
    assert_int_equal(cl_engine_n_ctx(NULL), 0);
    cl_engine_cancel(NULL, 1);
    cl_engine_cancel(e, 12345);
    cl_engine_destroy(&e);
    assert_null(e);
    cl_engine_destroy(&e);
    cl_engine_destroy(NULL);
}

/* Struct sizes that no version has are refused by the struct's name. */
static void impossible_sizes_are_refused(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 8, 1 << 20};
    cl_engine *e = start_engine(), *none;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        cl_error error = {.message = ""};
        cl_engine_config config;
        cl_engine_config_init(&config);
        config.struct_size = sizes[i];
        expect_status(cl_engine_create(toy_model(), &config, &none, &error), &error, CL_ERR_ARG, "sizeof(cl_engine_config)");
        assert_null(none);
        cl_engine_request request = make_request(a_prompt(), N_PROMPT, 1, NULL);
        request.struct_size = sizes[i];
        expect_status(cl_engine_submit(e, &request, NULL, &error), &error, CL_ERR_ARG, "sizeof(cl_engine_request)");
        cl_engine_stats stats = {.struct_size = sizes[i]};
        assert_int_equal(cl_engine_get_stats(e, &stats), CL_ERR_ARG);
        cattn_stats kv = {.struct_size = sizes[i]};
        assert_int_equal(cl_engine_get_kv_stats(e, &kv), CL_ERR_ARG);
    }
    cl_engine_destroy(&e);
}

/* Structs of a newer version, with a field behind those that are known here. */
static void a_newer_caller_may_leave_its_fields_zero(void **state) {
    (void)state;
    struct {
        cl_engine_config known;
        int64_t added;
    } config = {.added = 0};
    struct {
        cl_engine_request known;
        int64_t added;
    } request = {.added = 0};
    struct {
        cl_engine_stats known;
        int64_t added;
    } stats = {.known = {.struct_size = sizeof stats}, .added = 5};
    cl_error error = {.message = ""};
    cl_engine *e;
    cl_engine_config_init(&config.known);
    config.known.kv_budget_bytes = 16 * MIB;
    config.known.struct_size = sizeof config;
    config.added = 1;
    expect_status(cl_engine_create(toy_model(), &config.known, &e, &error), &error, CL_ERR_UNSUPPORTED, "cl_engine_config");
    config.added = 0;
    assert_int_equal(cl_engine_create(toy_model(), &config.known, &e, &error), CL_OK);

    recording *r = recording_create();
    request.known = make_request(a_prompt(), N_PROMPT, 3, r);
    request.known.struct_size = sizeof request;
    request.added = 1;
    expect_status(cl_engine_submit(e, &request.known, NULL, &error), &error, CL_ERR_UNSUPPORTED, "cl_engine_request");
    assert_non_null(strstr(error.message, cl_version()));
    request.added = 0;
    assert_int_equal(cl_engine_submit(e, &request.known, NULL, &error), CL_OK);
    recording_wait(r);
    assert_int_equal(cl_engine_get_stats(e, &stats.known), CL_OK);
    assert_int_equal(stats.known.struct_size, sizeof stats);
    assert_int_equal(stats.known.completion_tokens, 3);
    assert_int_equal(stats.added, 0);
    recording_free(r);
    cl_engine_destroy(&e);
}

static void settings_are_checked(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++) {
        cl_engine_config config;
        cl_engine_config_init(&config);
        if (i == 0) config.n_threads = -1;
        if (i == 1) config.pin_threads = true, config.n_threads = 1000;
        if (i == 2) config.level = "mmx";
        if (i == 3) config.max_step_rows = INT32_MAX;
        if (i == 4) config.max_seqs = config.max_step_rows = INT32_MAX;
        if (i == 5) config.n_ctx = -5;
        static const char *const words[] = {"n_threads is -1",  "pin_threads", "mmx",
                                            "max_step_rows is", "max_seqs is", "n_ctx is -5; it must be at least 1"};
        cl_error error = {.message = ""};
        cl_engine *e;
        expect_status(cl_engine_create(toy_model(), &config, &e, &error), &error, CL_ERR_ARG, words[i]);
        assert_null(e);
    }
}

/* A target below 0 is one by the time of decoding, whatever the number; NaN is none. */
static void a_target_may_be_negative(void **state) {
    (void)state;
    static const double targets[] = {-0.5, -1, -2, -INFINITY, 0, 0.5};
    cl_engine_config config = {0};
    cl_error error = {.message = ""};
    cl_engine *e;
    cl_engine_config_init(&config);
    config.max_seqs = 4;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        config.target_itl_s = targets[i];
        if (cl_engine_create(toy_model(), &config, &e, &error) != CL_OK) fail_msg("%g: %s", targets[i], error.message);
        cl_engine_destroy(&e);
    }
    config.target_itl_s = NAN;
    expect_status(cl_engine_create(toy_model(), &config, &e, &error), &error, CL_ERR_ARG,
                  "target_itl_s is nan; it must be above 0, 0 for none, or negative");
}

/* A budget that holds a cache and no request is too small: a context of 0 would mean no limit to others. */
static void a_budget_holds_a_request(void **state) {
    (void)state;
    cl_engine_config config = fixture_config();
    cl_error error = {.message = ""};
    cl_engine *e;
    int n_refused = 0;
    for (config.kv_budget_bytes = MIB; config.kv_budget_bytes > 1000; config.kv_budget_bytes -= config.kv_budget_bytes / 16) {
        config.pin_bytes = config.kv_budget_bytes / 2;
        const cl_status status = cl_engine_create(toy_model(), &config, &e, &error);
        n_refused += status == CL_ERR_LIMIT && strcmp(error.field, "kv_budget_bytes") == 0;
        if (status == CL_OK)
            assert_true(cl_engine_n_ctx(e) >= 2);
        else
            assert_int_equal(status, CL_ERR_LIMIT);
        cl_engine_destroy(&e);
    }
    assert_true(n_refused > 0);
}

static void ids_ascend(void **state) {
    (void)state;
    cl_engine *e = start_engine();
    uint64_t before = 0, id;
    for (int i = 0; i < 3; i++, before = id) {
        recording *r = recording_create();
        const cl_engine_request request = make_request(a_prompt(), N_PROMPT, 1, r);
        assert_int_equal(cl_engine_submit(e, &request, &id, NULL), CL_OK);
        assert_true(id > before);
        recording_wait(r);
        assert_int_equal(r->request, id);
        recording_free(r);
    }
    cl_engine_destroy(&e);
}

/* What the events of a request have been so far. */
typedef struct order {
    const char *wrong; /* the first rule that one broke; NULL: none */
    int64_t n_prompt_events, n_tokens[RECORDING_CHOICES], n_completion;
    bool ended[RECORDING_CHOICES];
    int n_ended, n_last;
} order;

static void require(order *o, bool holds, const char *rule) {
    if (!holds && !o->wrong) o->wrong = rule;
}

/* Runs on the engine's thread, on which cmocka's assertions must not fail. */
static void check_event(void *ctx, const cl_engine_event *event) {
    order *o = ctx;
    const bool ends = event->kind == CL_EVENT_END, has_token = event->kind == CL_EVENT_TOKEN;
    const cl_event_token *token = &event->token;
    require(o, event->struct_size == sizeof *event, "struct_size is set");
    require(o, event->text != NULL, "text is not NULL");
    require(o, o->n_last == 0, "nothing follows the last event");
    require(o, !o->ended[event->choice], "nothing follows the end of a choice");
    require(o, event->n_prompt == N_PROMPT, "n_prompt is the prompt's");
    if (event->kind == CL_EVENT_PROMPT) {
        require(o, event->choice == 0, "the prompt's events have choice 0");
        require(o, token->position == o->n_prompt_events++, "the prompt's events are in order");
        require(o, event->text_size == 0, "the prompt has no text");
        require(o, o->n_completion == 0, "the prompt comes first");
        require(o, token->chosen.id == (token->position == 0 ? -1 : token->id), "only position 0 has no logprob");
    } else {
        require(o, o->n_prompt_events == N_PROMPT, "the prompt is complete before the first token");
        if (has_token) require(o, token->position == N_PROMPT + o->n_tokens[event->choice]++, "tokens are in order");
        o->n_completion += has_token;
    }
    require(o, event->n_completion == o->n_completion, "n_completion counts the tokens of all choices");
    require(o, !ends || event->end.finish != CL_ENGINE_RUNNING, "an end says why");
    o->ended[event->choice] = ends;
    o->n_ended += ends;
    o->n_last += event->last;
}

static void events_come_in_order(void **state) {
    (void)state;
    cl_engine *e = start_engine();
    order o = {.wrong = NULL};
    recording *r = recording_create();
    cl_engine_request request = make_request(a_prompt(), N_PROMPT, 12, r);
    request.n = 3;
    request.sampling.temperature = 1;
    request.prompt_logprobs = true;
    r->hook = check_event;
    r->hook_ctx = &o;
    assert_int_equal(cl_engine_submit(e, &request, NULL, NULL), CL_OK);
    recording_wait(r);
    if (o.wrong) fail_msg("an event broke the rule that %s", o.wrong);
    assert_int_equal(o.n_ended, 3);
    assert_int_equal(o.n_last, 1);
    assert_int_equal(o.n_completion, 36);
    recording_free(r);
    cl_engine_destroy(&e);
}

/* A request that says nothing but its prompt runs with the defaults, as far as the context allows. */
static void defaults_are_enough(void **state) {
    (void)state;
    cl_engine *e = NULL;
    assert_int_equal(cl_engine_create(toy_model(), NULL, &e, NULL), CL_OK);
    assert_int_equal(cl_engine_n_ctx(e), TOY_CONTEXT);
    recording *r = recording_create();
    cl_engine_request request;
    cl_engine_request_init(&request);
    request.prompt = a_prompt();
    request.n_prompt = N_PROMPT;
    request.on_event = recording_event;
    request.ctx = r;
    assert_int_equal(cl_engine_submit(e, &request, NULL, NULL), CL_OK);
    recording_wait(r);
    assert_int_equal(r->choices[0].finish, CL_ENGINE_STOP); /* the toy's end token comes soon */
    assert_true(r->n_completion > 0);
    recording_free(r);
    cl_engine_destroy(&e);
}

/* A submission from on_event while the engine is destroyed. */
typedef struct late_submission {
    cl_engine *engine;
    cl_engine_request request;
    uint64_t id;
    cl_status status;
} late_submission;

static void submit_at_the_end(void *ctx, const cl_engine_event *event) {
    late_submission *late = ctx;
    if (event->last) late->status = cl_engine_submit(late->engine, &late->request, &late->id, NULL);
}

static void destroying_ends_what_runs(void **state) {
    (void)state;
    cl_engine *e = start_engine();
    recording *r = recording_create();
    cl_engine_request request = make_request(a_prompt(), N_PROMPT, 1000, r);
    late_submission late = {.engine = e, .request = request, .id = 7};
    r->hook = submit_at_the_end;
    r->hook_ctx = &late;
    assert_int_equal(cl_engine_submit(e, &request, NULL, NULL), CL_OK);
    recording_wait_events(r, 1);
    cl_engine_destroy(&e);
    assert_true(r->done);
    assert_int_equal(r->choices[0].finish, CL_ENGINE_CANCELLED);
    assert_int_equal(late.status, CL_ERR_UNSUPPORTED);
    assert_int_equal(late.id, 0);
    recording_free(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_and_names),           cmocka_unit_test(null_is_refused_or_ignored),
        cmocka_unit_test(impossible_sizes_are_refused), cmocka_unit_test(a_newer_caller_may_leave_its_fields_zero),
        cmocka_unit_test(settings_are_checked),         cmocka_unit_test(a_target_may_be_negative),
        cmocka_unit_test(a_budget_holds_a_request),     cmocka_unit_test(ids_ascend),
        cmocka_unit_test(events_come_in_order),         cmocka_unit_test(defaults_are_enough),
        cmocka_unit_test(destroying_ends_what_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
