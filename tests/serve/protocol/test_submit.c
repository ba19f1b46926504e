/* A request's prompts are submitted in order; their events carry the request's owner and the prompt's index. */
#include "tests/support/testing.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"
#include "openai_fixture.h"

enum { MAX_PROMPTS = 6 };

/* The owner of the submitted: the text of each prompt's answer, which the fake engine repeats from the prompt. */
typedef struct answers {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    char text[MAX_PROMPTS][16];
    size_t n_ended;
} answers;

static void on_event(void *ctx, const cl_engine_event *event) {
    const openai_submitted *submitted = ctx;
    answers *a = submitted->owner;
    pthread_mutex_lock(&a->lock);
    strncat(a->text[submitted->prompt], event->text ? event->text : "", event->text_size);
    a->n_ended += event->last;
    pthread_cond_signal(&a->ended);
    pthread_mutex_unlock(&a->lock);
}

static void wait_for(answers *a, size_t n) {
    pthread_mutex_lock(&a->lock);
    while (a->n_ended < n) pthread_cond_wait(&a->ended, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

/* Submit a body's prompts to a fake engine with a context of 16 tokens. Returns the number submitted. */
static size_t submit_with(const openai_context *c, const char *body, openai_request *r, openai_submitted *submitted, answers *a,
                          openai_error *error) {
    const fake_config config = {.step_us = 100, .max_running = 8, .prefill_steps = 1, .n_ctx = 16};
    *a = (answers){.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    parse_ok(c, OPENAI_COMPLETION, body, r);
    cl_engine *e = fake_engine_create(&config);
    const size_t n = openai_submit(r, 0, e, a, on_event, submitted, error);
    wait_for(a, n);
    cl_engine_destroy(&e);
    return n;
}

static size_t submit(const char *body, openai_request *r, openai_submitted *submitted, answers *a, openai_error *error) {
    const openai_context c = fake_context();
    return submit_with(&c, body, r, submitted, a, error);
}

static void all_prompts_are_submitted(void **state) {
    (void)state;
    openai_request r;
    openai_submitted submitted[MAX_PROMPTS];
    answers a;
    openai_error error;
    assert_int_equal(submit("{\"prompt\":[\"ab\",\"cde\",\"f\"],\"max_tokens\":3}", &r, submitted, &a, &error), 3);
    assert_string_equal(a.text[0], "aba");
    assert_string_equal(a.text[1], "cde");
    assert_string_equal(a.text[2], "fff");
    for (size_t i = 0; i < 3; i++) {
        assert_ptr_equal(submitted[i].owner, &a);
        assert_int_equal(submitted[i].prompt, i);
        assert_int_equal(submitted[i].id, i + 1); /* the fake engine counts them */
    }
    openai_request_free(&r);
}

/* A length is a wish, whoever says it: each prompt's completion ends where the context does, and the request is not refused. */
static void a_length_ends_with_the_context(void **state) {
    (void)state;
    openai_request r;
    openai_submitted submitted[MAX_PROMPTS];
    answers a;
    openai_error error;
    openai_context c = fake_context();
    c.n_ctx = 16;
    c.defaults.max_tokens_completion = 12;
    assert_int_equal(submit_with(&c, "{\"prompt\":[\"ab\",\"abcdefgh\"]}", &r, submitted, &a, &error), 2);
    assert_int_equal(openai_max_tokens(&r, 0), 12);
    assert_int_equal(openai_max_tokens(&r, 1), -1);
    assert_string_equal(a.text[0], "abababababab");
    assert_string_equal(a.text[1], "abcdefgh");
    openai_request_free(&r);
    static const char *const names[] = {"max_tokens", "max_completion_tokens", "n_predict"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char body[100];
        snprintf(body, sizeof body, "{\"prompt\":[\"ab\",\"abcdefgh\"],\"%s\":2000000}", names[i]);
        assert_int_equal(submit_with(&c, body, &r, submitted, &a, &error), 2);
        assert_int_equal(strlen(a.text[0]), 14);
        assert_int_equal(strlen(a.text[1]), 8);
        openai_request_free(&r);
    }
}

static void the_first_refused_prompt_ends_it(void **state) {
    (void)state;
    openai_request r;
    openai_submitted submitted[MAX_PROMPTS];
    answers a;
    openai_error error;
    assert_int_equal(
        submit("{\"prompt\":[\"ab\",\"a prompt that is too long\",\"f\"],\"max_tokens\":2}", &r, submitted, &a, &error), 1);
    assert_string_equal(a.text[0], "ab");
    assert_string_equal(a.text[2], "");
    assert_int_equal(error.status, 400);
    assert_string_equal(error.code, "context_length_exceeded");
    assert_non_null(strstr(error.message, "25 prompt tokens and 2 to come, but the context has 16"));
    openai_request_free(&r);
}

/* A request that waits holds the queue; the next one is refused with the time that the engine reports, at least a second. */
static void a_full_queue_says_when_to_try_again(void **state) {
    (void)state;
    for (int32_t max_waiting = 1; max_waiting <= 5; max_waiting += 4) {
        const fake_config config = {.step_us = 100, .max_running = 0, .n_ctx = 16, .max_waiting = max_waiting};
        const openai_context c = fake_context();
        answers a = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
        openai_request r;
        openai_submitted submitted[MAX_PROMPTS];
        openai_error error;
        cl_engine *e = fake_engine_create(&config);
        parse_ok(&c, OPENAI_COMPLETION, "{\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\"],\"max_tokens\":1}", &r);
        assert_int_equal(openai_submit(&r, 0, e, &a, on_event, submitted, &error), max_waiting);
        assert_int_equal(error.status, 429);
        assert_string_equal(error.code, "rate_limit_exceeded");
        assert_int_equal(error.retry_after_s, max_waiting == 1 ? 1 : 3); /* of 0.5 and 2.5 s */
        cl_engine_destroy(&e);
        openai_request_free(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_prompts_are_submitted),
        cmocka_unit_test(a_length_ends_with_the_context),
        cmocka_unit_test(the_first_refused_prompt_ends_it),
        cmocka_unit_test(a_full_queue_says_when_to_try_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
