/* One request: what is refused, how it ends, what is reported. */
#include "tests/support/wait.h"

#include <stdio.h>
#include <string.h>

#include "chunkllama/engine/draw.h"
#include "chunkllama/engine/request.h"
#include "fixture.h"
#include "tests/support/sleeping.h"

static void expect_refusal(fixture *f, const cl_engine_request *request, cl_status status, const char *one, const char *other) {
    uint64_t id = 0;
    cl_error error = {.message = ""};
    assert_int_equal(cl_engine_submit(f->engine, request, &id, &error), status);
    assert_int_equal(error.code, status);
    if (!strstr(error.message, one) || !strstr(error.message, other))
        fail_msg("\"%s\" should name %s and %s", error.message, one, other);
}

/* An eighth of the budget is left to the steps' workspace. */
static int64_t usable_chunks(fixture *f) {
    const int64_t capacity = (int64_t)kv_stats_of(f).chunks_capacity;
    return capacity - capacity / 8;
}

/* A context is no longer than what the K/V budget holds, exactly, and messages say so. */
static void the_budget_cuts_the_context(void **state) {
    (void)state;
    cl_engine_config config = fixture_config();
    config.kv_budget_bytes = 1 << 20;
    fixture f;
    fixture_start(&f, &config, 1);
    static int32_t tokens[TOY_CONTEXT];
    make_prompt(tokens, TOY_CONTEXT, 0, 0, 1);
    const int64_t n_ctx = cl_engine_n_ctx(f.engine);
    assert_in_range(n_ctx, 16 * (usable_chunks(&f) * 9 / 10), 16 * usable_chunks(&f));
    recording *r = recording_create();
    cl_engine_request request = make_request(tokens, n_ctx - 1, 2, r);
    char context[64];
    snprintf(context, sizeof context, "length is %lld tokens, as many as the K/V budget", (long long)n_ctx);
    expect_refusal(&f, &request, CL_ERR_LIMIT, context, "--kv-budget");
    request.max_tokens = 1;
    request.n = 2;
    request.beam_search = true;
    expect_refusal(&f, &request, CL_ERR_LIMIT, "beams of 1 are more than the K/V budget holds", "lower n");
    request.n = 1;
    request.beam_search = false;
    submit(&f, &request);
    recording_wait(r);
    assert_int_equal(r->choices[0].n_tokens, 1);
    recording_free(r);
    fixture_stop(&f);
}

static void what_can_never_run_is_refused(void **state) {
    (void)state;
    cl_engine_config config = fixture_config();
    config.n_ctx = 3000;
    fixture f;
    fixture_start(&f, &config, 1);
    static int32_t tokens[TOY_CONTEXT];
    make_prompt(tokens, TOY_CONTEXT, 0, 0, 1);
    recording *r = recording_create();
    cl_engine_request request = make_request(tokens, 2990, 11, r);
    expect_refusal(&f, &request, CL_ERR_LIMIT, "2990", "3000");
    request.max_tokens = INT64_MAX;
    expect_refusal(&f, &request, CL_ERR_LIMIT, "2990", "3000");
    request.n_prompt = 3000;
    request.max_tokens = -1;
    expect_refusal(&f, &request, CL_ERR_LIMIT, "3000", "1");
    request = make_request(tokens, 0, 1, r);
    expect_refusal(&f, &request, CL_ERR_ARG, "prompt", "empty");
    tokens[3] = TOY_VOCAB;
    request = make_request(tokens, 10, 1, r);
    expect_refusal(&f, &request, CL_ERR_ARG, "prompt[3]", "271");
    tokens[3] = -1;
    expect_refusal(&f, &request, CL_ERR_ARG, "prompt[3]", "-1");
    assert_int_equal(r->n_events, 0);
    recording_free(r);
    fixture_stop(&f);
}

static void wrong_settings_are_refused(void **state) {
    (void)state;
    ca_pool *pool = ca_pool_create(1);
    cl_engine *e;
    for (int i = 0; i < 5; i++) {
        cl_engine_config config = fixture_config();
        if (i == 0) config.max_seqs = 0;
        if (i == 1) config.max_step_rows = config.max_seqs - 1;
        if (i == 2) config.prefill_segment = -1;
        if (i == 3) config.chunk_size = 17;
        if (i == 4) config.kv_budget_bytes = 1000;
        static const char *const names[] = {"max_seqs", "max_step_rows", "prefill_segment",
                                            "chunk_size is 17; it must be 16, 32, 64, 128 or 256", "budget"};
        cl_error error;
        assert_int_equal(cl_engine_create_on_pool(toy_model(), pool, &config, &e, &error), i == 4 ? CL_ERR_LIMIT : CL_ERR_ARG);
        assert_null(e);
        assert_non_null(strstr(error.message, names[i]));
        if (i == 3) assert_string_equal(error.field, "chunk_size");
    }
    ca_pool_destroy(&pool);
}

/* Choices of no tokens go on in no chunks of their own, so that as many fit as there are sequences. */
static void choices_of_nothing_take_no_chunks(void **state) {
    (void)state;
    cl_engine_config config = fixture_config();
    config.kv_budget_bytes = 132 << 10;
    config.max_seqs = RECORDING_CHOICES;
    fixture f;
    fixture_start(&f, &config, 1);
    int32_t tokens[40];
    make_prompt(tokens, 40, 0, 0, 7);
    cl_engine_request request = make_request(tokens, 40, 0, NULL);
    request.n = RECORDING_CHOICES;
    assert_in_range(usable_chunks(&f), 3, RECORDING_CHOICES + 2);
    recording_free(run_request(&f, request));
    fixture_stop(&f);
}

static void ends_and_texts(void **state) {
    (void)state;
    fixture f;
    cl_engine_config config = fixture_config();
    config.n_ctx = 1000;
    fixture_start(&f, &config, 1);
    int32_t tokens[50];
    make_prompt(tokens, 50, 0, 0, 4);
    cl_engine_request request = make_request(tokens, 50, 100, NULL);
    request.sampling.temperature = 1;
    recording *whole = run_request(&f, request);
    const recorded_choice *w = &whole->choices[0];
    assert_int_equal(w->finish, CL_ENGINE_LENGTH);
    assert_int_equal(w->stop, -1);
    assert_int_equal(w->n_tokens, 100);
    assert_int_equal(whole->n_completion, 100);
    assert_int_equal(stats_of(&f).completion_tokens, 100); /* counted when the last event comes */

    /* a stop token: reported, without text, and nothing after it */
    request.stop_tokens = &w->tokens[20];
    request.n_stop_tokens = 1;
    recording *r = run_request(&f, request);
    int64_t first = 0;
    while (w->tokens[first] != w->tokens[20]) first++;
    assert_int_equal(r->choices[0].finish, CL_ENGINE_STOP);
    assert_int_equal(r->choices[0].stop, -1);
    assert_int_equal(r->choices[0].n_tokens, first + 1);
    assert_memory_equal(r->choices[0].tokens, w->tokens, (size_t)(first + 1) * sizeof(int32_t));
    recording_free(r);
    request.n_stop_tokens = 0;

    /* every part of the text as a stop string, wherever the tokens' borders are */
    for (size_t at = 0; at + 5 < w->text_size; at += 7) {
        char part[6] = "";
        memcpy(part, w->text + at, 5);
        if (strlen(part) < 5 || strstr(part, "\xef") || strstr(part, "\xbf") || strstr(part, "\xbd")) continue;
        const char *const stop[] = {"is not in the text", part};
        request.stop = stop;
        request.n_stop = 2;
        r = run_request(&f, request);
        const char *found = memmem(w->text, w->text_size, part, 5);
        assert_int_equal(r->choices[0].finish, CL_ENGINE_STOP);
        assert_int_equal(r->choices[0].stop, 1);
        assert_int_equal(r->choices[0].text_size, found - w->text);
        assert_memory_equal(r->choices[0].text, w->text, r->choices[0].text_size);
        assert_true(r->choices[0].n_tokens < 100);
        recording_free(r);
    }
    request.n_stop = 0;

    /* nothing to draw */
    request.max_tokens = 0;
    r = run_request(&f, request);
    assert_int_equal(r->choices[0].finish, CL_ENGINE_LENGTH);
    assert_int_equal(r->n_events, 1);
    assert_int_equal(r->n_completion, 0);
    recording_free(r);
    request.prompt_logprobs = true;
    r = run_request(&f, request);
    assert_int_equal(r->n_events, 51);
    recording_free(r);
    request.prompt_logprobs = false;

    /* as many as the context holds, unless the model ends; it does, with an end token */
    request.max_tokens = -1;
    request.ignore_eos = false;
    for (uint64_t seed = 0; seed < 10; seed++) {
        request.sampling.seed = seed;
        r = run_request(&f, request);
        const recorded_choice *c = &r->choices[0];
        assert_int_equal(c->finish, CL_ENGINE_STOP);
        assert_int_equal(c->tokens[c->n_tokens - 1], TOY_END);
        for (int64_t i = 0; i + 1 < c->n_tokens; i++) assert_int_not_equal(c->tokens[i], TOY_END);
        recording_free(r);
    }
    recording_free(whole);
    fixture_stop(&f);
}

/* max_tokens < 0 goes to the end of the context, or to what the budget holds, exactly. */
static void open_end_is_bounded(void **state) {
    (void)state;
    int32_t tokens[100];
    make_prompt(tokens, 100, 0, 0, 4);
    for (int by_budget = 0; by_budget < 2; by_budget++) {
        fixture f;
        cl_engine_config config = fixture_config();
        config.n_ctx = by_budget ? TOY_CONTEXT : 300;
        if (by_budget) config.kv_budget_bytes = 1 << 19;
        fixture_start(&f, &config, 1);
        const int64_t capacity = usable_chunks(&f);
        recording *r = run_request(&f, make_request(tokens, 100, -1, NULL));
        assert_int_equal(r->choices[0].finish, CL_ENGINE_LENGTH);
        const int64_t n = r->choices[0].n_tokens;
        if (by_budget) {
            assert_in_range(n, 16 * (capacity * 9 / 10) - 100, 16 * capacity - 100); /* whole chunks of 16 tokens */
            assert_int_equal(n, cl_engine_n_ctx(f.engine) - 100);
        } else {
            assert_int_equal(n, 300 - 100);
        }
        recording_free(r);
        fixture_stop(&f);
    }
}

/* An idle engine readies memory for an eighth of the chunks, and no more. */
static void memory_is_ready_before_requests(void **state) {
    (void)state;
    fixture f;
    const cl_engine_config config = fixture_config();
    fixture_start(&f, &config, 1);
    const uint64_t wanted = (uint64_t)usable_chunks(&f) / 8 * kv_stats_of(&f).chunk_bytes;
    WAIT_UNTIL(kv_stats_of(&f).bytes_in_use >= wanted);
    WAIT_UNTIL(others_sleep()); /* it readies no more */
    assert_true(kv_stats_of(&f).bytes_in_use < 2 * wanted);
    fixture_stop(&f);
}

/* ---- Without memory ---- */

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);

static int reallocs_left; /* until one fails; 0: none will */

void *__wrap_realloc(void *p, size_t size) {
    return reallocs_left > 0 && --reallocs_left == 0 ? NULL : __real_realloc(p, size);
}

typedef struct tally {
    int64_t n_tokens, n_completion;
    size_t text_size;
    cl_engine_finish finish;
} tally;

static void count_event(void *ctx, const cl_engine_event *event) {
    tally *t = ctx;
    t->n_tokens += event->kind == CL_EVENT_TOKEN;
    t->n_completion = event->n_completion;
    t->text_size += event->text_size;
    if (event->kind == CL_EVENT_END) t->finish = event->end.finish;
}

/* The text is held back, so all of it comes with the end. A token for which memory is lacking is neither shown nor counted. */
static void tokens_without_memory(void **state) {
    (void)state;
    enum { N = 80 };
    char stop[2 * N + 1];
    memset(stop, 'E', 2 * N);
    stop[2 * N] = '\0';
    const char *const stops[] = {stop};
    const int32_t prompt = 1;
    const cl_engine_request params = {.prompt = &prompt,
                                      .n_prompt = 1,
                                      .max_tokens = N,
                                      .n = 1,
                                      .max_reasoning_tokens = -1,
                                      .stop = stops,
                                      .n_stop = 1,
                                      .on_event = count_event};
    for (int nth = 0; nth < 5; nth++) {
        tally t = {0};
        cl_request *r = cl_request_create(&params);
        r->params.ctx = &t;
        cl_choice *c = &r->choices[0];
        assert_true(cl_choice_start(c));
        reallocs_left = nth;
        for (int i = 0; i < N && c->finish == CL_ENGINE_RUNNING; i++) {
            const cl_draw d = {.choice = c, .token = 'E', .position = c->n_tokens, .chosen = {.id = -1}};
            cl_choice_add(c, toy_model()->tok, &d);
        }
        assert_int_equal(t.finish, nth > 0 ? CL_ENGINE_ERROR : CL_ENGINE_LENGTH);
        assert_int_equal(t.n_completion, t.n_tokens);
        assert_int_equal(t.text_size, t.n_tokens);
        cl_request_free(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_budget_cuts_the_context),       cmocka_unit_test(what_can_never_run_is_refused),
        cmocka_unit_test(wrong_settings_are_refused),        cmocka_unit_test(ends_and_texts),
        cmocka_unit_test(choices_of_nothing_take_no_chunks), cmocka_unit_test(open_end_is_bounded),
        cmocka_unit_test(memory_is_ready_before_requests),   cmocka_unit_test(tokens_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
