/* When is drafted, and for how long; and drafts hold up no other request. test_exact.c compares what is reported. */
#include "tests/support/wait.h"

#include <string.h>

#include "chunkllama/engine/draft.h"
#include "fixture.h"

/* The cache that was created last: that of the draft model, if an engine has one. */
static const cattn_cache *last_cache;

cattn_status __real_cattn_cache_create(const cattn_config *config, cattn_cache **cache, cattn_error *error);
cattn_status __wrap_cattn_cache_create(const cattn_config *config, cattn_cache **cache, cattn_error *error);

cattn_status __wrap_cattn_cache_create(const cattn_config *config, cattn_cache **cache, cattn_error *error) {
    const cattn_status status = __real_cattn_cache_create(config, cache, error);
    last_cache = *cache;
    return status;
}

/* A draft is verified wherever there is one, also where it would not be expected to pay. */
static cl_engine_config drafting_config(void) {
    cl_engine_config config = fixture_config();
    config.speculate = true;
    config.row_cost = 0;
    return config;
}

/* ---- A draft model ---- */

enum { LONG_PROMPT = 400 };

/* The next of a series of requests; tokens drafted for it. */
static int64_t n_drafted_for(fixture *f, int64_t n_prompt, int64_t shared, uint32_t individual, int64_t max_tokens) {
    int32_t tokens[LONG_PROMPT];
    const int64_t before = stats_when_idle(f).drafts.n_tokens;
    recording *r = recording_create();
    make_prompt(tokens, n_prompt, shared, 0, individual);
    const cl_engine_request request = make_request(tokens, n_prompt, max_tokens, r);
    submit(f, &request);
    recording_wait(r);
    recording_free(r);
    return stats_when_idle(f).drafts.n_tokens - before;
}

static void start_with_draft_model(fixture *f, float part, float row_cost) {
    cl_engine_config config = drafting_config();
    config.row_cost = row_cost;
    config.draft_model = toy_draft_model(part);
    fixture_start(f, &config, 1);
}

/*
 * The draft model does not compute a prompt if that costs more than its drafts save, as for a short answer. A prompt that many
 * requests share is computed once their missed savings together are enough, and all later requests are drafted for.
 */
static void prompts_must_be_worth_it(void **state) {
    (void)state;
    fixture f;
    start_with_draft_model(&f, 0.3f, 0.15f);
    assert_true(n_drafted_for(&f, 3, 0, 1, 60) > 0);
    assert_int_equal(n_drafted_for(&f, LONG_PROMPT, 0, 2, 10), 0);
    fixture_stop(&f);

    start_with_draft_model(&f, 0.3f, 0.15f);
    int first = 0;
    for (int i = 0; i < 40; i++) {
        const bool drafted = n_drafted_for(&f, LONG_PROMPT, LONG_PROMPT - 2, (uint32_t)i, 30) > 0;
        if (drafted && first == 0) first = i;
        assert_int_equal(drafted, first > 0);
    }
    assert_in_range(first, 1, 10);
    fixture_stop(&f);
}

/* Whatever becomes of the first drafts: nothing is drafted for a while after wrong ones, but not for ever. */
static void wrong_drafts_are_forgotten(void **state) {
    (void)state;
    for (uint32_t first = 0; first < 12; first++) {
        fixture f;
        start_with_draft_model(&f, 0.36f, 0.15f);
        (void)n_drafted_for(&f, 20, 0, first, 20);
        (void)n_drafted_for(&f, 20, 0, 5000, 300);
        assert_true(n_drafted_for(&f, 20, 0, 5001, 300) > 100);
        fixture_stop(&f);
    }
}

/* The more a small model costs, the fewer tokens it drafts at once, down to none. */
static void dear_models_draft_less(void **state) {
    (void)state;
    static const float parts[] = {0.02f, 0.3f, 1.5f};
    double n[3];
    for (int i = 0; i < 3; i++) {
        fixture f;
        start_with_draft_model(&f, parts[i], 0.15f);
        (void)n_drafted_for(&f, 4, 0, 1, 300);
        const cl_engine_drafts d = stats_when_idle(&f).drafts;
        n[i] = d.n_drafts == 0 ? 0 : (double)d.n_tokens / (double)d.n_drafts;
        fixture_stop(&f);
    }
    assert_true(n[0] > n[1] + 0.5);
    assert_true(n[1] > 1.2);
    assert_true(n[2] == 0);
}

static cattn_stats stats_of_cache(const cattn_cache *cache) {
    cattn_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(cattn_cache_stats(cache, &stats), CATTN_OK);
    return stats;
}

static void set_budget(fixture *f, uint64_t bytes) {
    assert_int_equal(cl_engine_set_kv_budget(f->engine, bytes, NULL), CL_OK);
    WAIT_UNTIL(kv_stats_of(f).budget_bytes == bytes);
}

/* A lower K/V budget also returns memory of the draft model's cache. Where that has no chunks, nothing is drafted meanwhile. */
static void the_draft_model_follows_the_budget(void **state) {
    (void)state;
    fixture f;
    start_with_draft_model(&f, 0.1f, 0.15f);
    const cattn_cache *of_draft_model = last_cache;
    const uint64_t whole = f.config.kv_budget_bytes;
    assert_true(n_drafted_for(&f, LONG_PROMPT, 0, 5000, 300) > 100);
    const cattn_stats before = stats_of_cache(of_draft_model);
    assert_true(before.budget_bytes == whole && before.chunks_retained > 0);
    set_budget(&f, whole / 8);
    assert_true(stats_of_cache(of_draft_model).budget_bytes == whole / 8);
    set_budget(&f, 0);
    const cattn_stats lowered = stats_of_cache(of_draft_model);
    assert_true(lowered.chunks_retained == 0 && lowered.bytes_in_use < before.bytes_in_use);
    assert_int_equal(n_drafted_for(&f, LONG_PROMPT, 0, 5001, 300), 0);
    set_budget(&f, whole);
    assert_true(n_drafted_for(&f, LONG_PROMPT, 0, 5002, 300) > 100);
    fixture_stop(&f);
}

/* A draft model of other tokens is refused, and the message says how they differ. */
static void another_vocabulary_is_refused(void **state) {
    (void)state;
    cl_model other = *toy_model();
    other.params.n_vocab = 100;
    cl_engine_config config = drafting_config();
    config.draft_model = &other;
    ca_pool *pool = ca_pool_create(1);
    cl_engine *e;
    cl_error error;
    assert_int_equal(cl_engine_create_on_pool(toy_model(), pool, &config, &e, &error), CL_ERR_ARG);
    assert_null(e);
    assert_string_equal(error.message, "the draft model has 100 tokens, the model 272; choose one of the same family");
    ca_pool_destroy(&pool);
}

/* ---- Other requests ---- */

/* A request of 200 tokens that has been drawn before, so that its drafts are right. */
static cl_engine_request familiar(fixture *f, int32_t *tokens, recording *r) {
    recording *first = recording_create();
    make_prompt(tokens, 10, 0, 0, 999);
    cl_engine_request request = make_request(tokens, 10, 200, first);
    submit(f, &request);
    recording_wait(first);
    recording_free(first);
    request.ctx = r;
    return request;
}

typedef struct watcher {
    fixture *f;
    const cl_engine_request *other; /* submitted at the first event */
    int64_t n_events, cancel_at;    /* < 0: never */
} watcher;

static void watch(void *ctx, const cl_engine_event *event) {
    watcher *w = ctx;
    if (w->n_events++ == 0 && w->other) submit(w->f, w->other);
    if (w->n_events - 1 == w->cancel_at) cl_engine_cancel(w->f->engine, event->request);
}

/* 1500 prompt tokens take 100 steps of 15, a row in each is the other's: no drafts meanwhile, all tokens drafted afterwards. */
static void drafts_do_not_delay_prefill(void **state) {
    (void)state;
    cl_engine_config config = drafting_config();
    config.max_step_rows = 16;
    fixture f;
    fixture_start(&f, &config, 1);
    int32_t tokens[10], long_prompt[1500];
    recording *busy = recording_create(), *r = recording_create();
    const cl_engine_request request = familiar(&f, tokens, busy);
    const int64_t steps = stats_when_idle(&f).steps;
    make_prompt(long_prompt, 1500, 0, 0, 1);
    const cl_engine_request other = make_request(long_prompt, 1500, 1, r);
    watcher w = {.f = &f, .other = &other, .cancel_at = -1};
    busy->hook = watch;
    busy->hook_ctx = &w;
    submit(&f, &request);
    recording_wait(busy);
    recording_wait(r);
    const cl_engine_stats stats = stats_when_idle(&f);
    assert_int_equal(stats.drafts.n_accepted, stats.drafts.n_tokens);
    assert_in_range(stats.steps - steps, 1 + 100 + 99 / 9, 1 + 100 + 99 / 9 + 2);
    recording_free(busy);
    recording_free(r);
    fixture_stop(&f);
}

/* After a request cancels itself at an event, none of the tokens accepted after it is reported. */
static void cancelled_amid_a_draft(void **state) {
    (void)state;
    for (int64_t cancel_at = 20; cancel_at < 31; cancel_at++) {
        const cl_engine_config config = drafting_config();
        fixture f;
        fixture_start(&f, &config, 1);
        int32_t tokens[10];
        recording *r = recording_create();
        const cl_engine_request request = familiar(&f, tokens, r);
        watcher w = {.f = &f, .cancel_at = cancel_at};
        r->hook = watch;
        r->hook_ctx = &w;
        submit(&f, &request);
        recording_wait(r);
        assert_int_equal(r->choices[0].finish, CL_ENGINE_CANCELLED);
        assert_int_equal(r->choices[0].n_tokens, cancel_at + 1);
        const cl_engine_stats stats = stats_when_idle(&f);
        assert_true(stats.drafts.n_accepted > 10);
        assert_int_equal(kv_stats_of(&f).chunks_live, 0);
        recording_free(r);
        fixture_stop(&f);
    }
}

/* A step that fails drops its drafts: the same is reported of the requests that continue. */
static void failed_step_takes_its_drafts(void **state) {
    (void)state;
    recording *r[2];
    for (int with_failure = 0; with_failure < 2; with_failure++) {
        const cl_engine_config config = drafting_config();
        fixture f;
        fixture_start(&f, &config, 1);
        int32_t tokens[10], other_tokens[30];
        r[with_failure] = recording_create();
        recording *youngest = recording_create();
        const cl_engine_request request = familiar(&f, tokens, r[with_failure]);
        make_prompt(other_tokens, 30, 0, 0, 1);
        const cl_engine_request other = make_request(other_tokens, 30, 100, youngest);
        watcher w = {.f = &f, .other = &other, .cancel_at = -1};
        r[with_failure]->hook = watch;
        r[with_failure]->hook_ctx = &w;
        if (with_failure) toy_fail_steps(7, 1);
        submit(&f, &request);
        recording_wait(r[with_failure]);
        recording_wait(youngest);
        assert_int_equal(youngest->choices[0].finish, CL_ENGINE_LENGTH);
        assert_int_equal(stats_of(&f).preemptions, with_failure);
        recording_free(youngest);
        fixture_stop(&f);
    }
    assert_int_equal(r[1]->choices[0].finish, CL_ENGINE_LENGTH);
    assert_true(recording_equal(r[0], r[1]));
    recording_free(r[0]);
    recording_free(r[1]);
}

/* ---- Lookup ---- */

static void ignore_event(void *ctx, const cl_engine_event *event) {
    (void)ctx;
    (void)event;
}

/* A request of one choice that has these tokens, the first of them its prompt. */
static cl_request *with_tokens(const int32_t *tokens, int64_t n, uint32_t domain) {
    const cl_engine_request params = {.prompt = tokens,
                                      .n_prompt = 1,
                                      .n = 1,
                                      .max_tokens = 100,
                                      .max_reasoning_tokens = -1,
                                      .domain = domain,
                                      .on_event = ignore_event};
    cl_request *r = cl_request_create(&params);
    assert_true(cl_choice_start(&r->choices[0]));
    memcpy(r->choices[0].tokens, tokens, (size_t)n * sizeof *tokens);
    r->choices[0].n_tokens = n;
    return r;
}

static cl_draft look_up(cl_drafter *d, const int32_t *tokens, int64_t n, uint32_t domain, int32_t n_max) {
    cl_request *r = with_tokens(tokens, n, domain);
    cl_draft found = {.choice = &r->choices[0], .n_max = n_max};
    d->propose(d, &found, 1);
    cl_request_free(r);
    return found;
}

static void lookup_finds_what_followed(void **state) {
    (void)state;
    cl_drafter *d = cl_draft_lookup_create();
    static const int32_t own[] = {1, 2, 3, 4, 9, 3, 4, 5, 6, 7, 2, 3, 4};
    cl_draft found = look_up(d, own, 13, 0, 4); /* 2 3 4 was followed by 9 3 4 5; the later 3 4 is the shorter match */
    static const int32_t expected[] = {9, 3, 4, 5};
    assert_int_equal(found.n, 4);
    assert_memory_equal(found.tokens, expected, sizeof expected);
    for (int i = 0; i < 4; i++) assert_int_equal(found.ranks[i], 3 + i);

    static const int32_t loop[] = {5, 8, 7, 8, 7, 8, 7}; /* goes on beyond the end */
    found = look_up(d, loop, 7, 0, CL_DRAFT_MAX);
    assert_int_equal(found.n, CL_DRAFT_MAX);
    for (int i = 0; i < CL_DRAFT_MAX; i++) assert_int_equal(found.tokens[i], i % 2 ? 7 : 8);

    static const int32_t nothing[] = {1, 2, 3, 2};
    assert_int_equal(look_up(d, nothing, 4, 0, 4).n, 0);
    assert_int_equal(look_up(d, nothing, 1, 0, 4).n, 0);

    cl_request *left = with_tokens(own, 10, 3);
    left->choices[0].finish = CL_ENGINE_STOP;
    d->leave(d, &left->choices[0]);
    cl_request_free(left);
    static const int32_t other[] = {11, 4, 5, 6};
    found = look_up(d, other, 4, 3, CL_DRAFT_MAX); /* only one token follows 4 5 6 */
    assert_int_equal(found.n, 1);
    assert_int_equal(found.tokens[0], 7);
    assert_int_equal(found.ranks[0], 3);
    for (uint32_t domain = 4; domain < 300000; domain++) /* another's never, though some have the same hash */
        assert_int_equal(look_up(d, other, 4, domain, CL_DRAFT_MAX).n, 0);
    d->free(d);
}

/* The store holds the newest: what is older is overwritten, and no run goes on with another one's tokens. */
static void lookup_forgets_the_oldest(void **state) {
    (void)state;
    cl_drafter *d = cl_draft_lookup_create();
    for (int32_t run = 0; run < 6000; run++) {
        int32_t tokens[40];
        for (int32_t i = 0; i < 40; i++) tokens[i] = run * 100 + i;
        cl_request *left = with_tokens(tokens, 40, 0);
        left->choices[0].finish = CL_ENGINE_STOP;
        d->leave(d, &left->choices[0]);
        cl_request_free(left);
    }
    int n_found = 0;
    for (int32_t run = 0; run < 6000; run++) {
        const int32_t tokens[] = {run * 100 + 30, run * 100 + 31};
        const cl_draft found = look_up(d, tokens, 2, 0, CL_DRAFT_MAX);
        n_found += found.n > 0;
        assert_int_equal(found.n, run > 6000 - 3000 ? CL_DRAFT_MAX : run < 6000 - 3300 ? 0 : found.n);
        for (int i = 0; i < found.n; i++) assert_int_equal(found.tokens[i], run * 100 + 32 + i);
    }
    assert_in_range(n_found, 3000, 3300);
    d->free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_vocabulary_is_refused), cmocka_unit_test(drafts_do_not_delay_prefill),
        cmocka_unit_test(cancelled_amid_a_draft),        cmocka_unit_test(failed_step_takes_its_drafts),
        cmocka_unit_test(lookup_finds_what_followed),    cmocka_unit_test(lookup_forgets_the_oldest),
        cmocka_unit_test(prompts_must_be_worth_it),      cmocka_unit_test(dear_models_draft_less),
        cmocka_unit_test(wrong_drafts_are_forgotten),    cmocka_unit_test(the_draft_model_follows_the_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
