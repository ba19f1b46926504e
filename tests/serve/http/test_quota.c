/* Quotas under a clock that the test sets. */
#include "tests/support/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "serve/http/quota.h"

enum { ALICE = 7, BOB = 8, CAROL = 9 };

static void assert_left(const quota_left *q, int64_t left, double reset_s) {
    if (q->left != left || q->reset_s < reset_s - 1e-3 || q->reset_s > reset_s + 1e-3)
        fail_msg("%lld are left, all in %g s, not %lld in %g", (long long)q->left, q->reset_s, (long long)left, reset_s);
}

static void assert_refused(http_quota *q, int64_t n_prompt, double now, const char *exceeded, double retry_s) {
    const quota_state s = quota_take(q, ALICE, n_prompt, now);
    if (!s.exceeded || strcmp(s.exceeded, exceeded) != 0) fail_msg("%s at %g", s.exceeded ? s.exceeded : "admitted", now);
    if (s.retry_s < retry_s - 1e-3 || s.retry_s > retry_s + 1e-3) fail_msg("again in %g s, not %g", s.retry_s, retry_s);
}

static void assert_admitted(http_quota *q, int64_t n_prompt, double now) {
    const quota_state s = quota_take(q, ALICE, n_prompt, now);
    if (s.exceeded) fail_msg("too many %s at %g, again in %g s", s.exceeded, now, s.retry_s);
}

static void set(http_quota *q, const quota_limit *limits, size_t n) {
    quota_entry *entries = quota_reserve(n);
    assert_non_null(entries);
    quota_set(q, entries, limits, n, 100);
}

static void set_up_quota(http_quota *q, int64_t requests, int64_t tokens) {
    const quota_limit limits[] = {{.domain = ALICE, .requests = requests, .tokens = tokens}, {.domain = BOB, .requests = 1}};
    quota_init(q);
    set(q, limits, 2);
}

static void requests_flow_off(void **state) {
    (void)state;
    http_quota q;
    set_up_quota(&q, 6, 0); /* one in 10 seconds */
    for (int i = 0; i < 6; i++) {
        const quota_state s = quota_take(&q, ALICE, 1000000, 100);
        assert_true(!s.exceeded && s.requests.limit == 6 && s.tokens.limit == 0);
        assert_left(&s.requests, 5 - i, 10 * (i + 1));
    }
    assert_refused(&q, 1, 100, "requests", 10);
    assert_refused(&q, 1, 104, "requests", 6);
    assert_refused(&q, 1, 109.99, "requests", 0.01);
    assert_admitted(&q, 1, 110);
    assert_refused(&q, 1, 110, "requests", 10);
    assert_admitted(&q, 1, 120);
    assert_refused(&q, 1, 119, "requests", 10); /* a thread that looked at the clock before: time does not go back */
    const quota_state s = quota_take(&q, ALICE, 1, 1000);
    assert_left(&s.requests, 5, 10); /* unused ones do not add up */
    quota_destroy(&q);
}

static void tokens_of_prompts_and_answers_count(void **state) {
    (void)state;
    http_quota q;
    set_up_quota(&q, 0, 600); /* ten a second */
    quota_state s = quota_take(&q, ALICE, 500, 100);
    assert_true(!s.exceeded && s.tokens.limit == 600 && s.requests.limit == 0);
    assert_left(&s.tokens, 100, 50);
    assert_refused(&q, 101, 100, "tokens", 0.1);
    s = quota_take(&q, ALICE, 101, 100);
    assert_left(&s.tokens, 100, 50); /* a refused one counts nothing */
    assert_admitted(&q, 100, 100);
    quota_count(&q, ALICE, 300, 100); /* an answer goes beyond the limit */
    assert_refused(&q, 1, 100, "tokens", 30.1);
    s = quota_take(&q, ALICE, 1, 110);
    assert_left(&s.tokens, 0, 80);
    assert_admitted(&q, 1, 131);
    /* A prompt that is larger than the limit: once nothing is in use. */
    assert_refused(&q, 5000, 150, "tokens", 40.1);
    assert_admitted(&q, 5000, 191);
    assert_refused(&q, 1, 191, "tokens", 440.1);
    quota_give_back(&q, ALICE, 5000, 191);
    assert_admitted(&q, 600, 191);
    quota_destroy(&q);
}

static void the_longer_wait_counts(void **state) {
    (void)state;
    http_quota q;
    set_up_quota(&q, 1, 600);
    assert_admitted(&q, 600, 100);
    assert_refused(&q, 600, 100, "requests", 60);
    assert_refused(&q, 1200, 130, "requests", 30);
    quota_count(&q, ALICE, 600, 130);
    assert_refused(&q, 600, 130, "tokens", 90);
    quota_destroy(&q);
}

static void tenants_do_not_disturb_each_other(void **state) {
    (void)state;
    http_quota q;
    set_up_quota(&q, 1, 0);
    assert_admitted(&q, 1, 100);
    assert_refused(&q, 1, 100, "requests", 60);
    assert_null(quota_take(&q, BOB, 1, 100).exceeded);
    assert_non_null(quota_take(&q, BOB, 1, 100).exceeded);
    for (int i = 0; i < 1000; i++) { /* one without limits */
        const quota_state s = quota_take(&q, CAROL, 1000000, 100);
        assert_true(!s.exceeded && s.requests.limit == 0 && s.tokens.limit == 0);
        quota_count(&q, CAROL, 1000000, 100);
    }
    quota_destroy(&q);
}

static void what_was_used_counts_under_new_limits(void **state) {
    (void)state;
    http_quota q;
    set_up_quota(&q, 10, 0);
    for (int i = 0; i < 6; i++) assert_admitted(&q, 100, 100);
    set(&q, &(quota_limit){.domain = ALICE, .requests = 8, .tokens = 600}, 1);
    quota_state s = quota_take(&q, ALICE, 100, 100);
    assert_left(&s.requests, 1, 52.5);
    assert_left(&s.tokens, 500, 10); /* there was no such limit before */
    assert_null(quota_take(&q, BOB, 1, 100).exceeded);
    set(&q, &(quota_limit){.domain = ALICE, .requests = 2}, 1);
    assert_refused(&q, 1, 100, "requests", 180);
    set(&q, NULL, 0);
    assert_admitted(&q, 1, 100);
    set(&q, &(quota_limit){.domain = ALICE, .requests = 9, .tokens = 600}, 1);
    assert_admitted(&q, 600, 100);
    quota_count(&q, ALICE, 6000, 100);
    set(&q, &(quota_limit){.domain = ALICE, .requests = 9}, 1);
    set(&q, &(quota_limit){.domain = ALICE, .requests = 9, .tokens = 600}, 1);
    assert_admitted(&q, 600, 100); /* the use of a limit that ended is forgotten */
    quota_destroy(&q);
}

static atomic_int n_admitted;

static void *take_many(void *q) {
    for (int i = 0; i < 1000; i++) {
        if (!quota_take(q, ALICE, 1, 100).exceeded) atomic_fetch_add(&n_admitted, 1);
        quota_count(q, BOB, 1, 100);
    }
    return NULL;
}

static void threads_share_a_limit(void **state) {
    (void)state;
    http_quota q;
    pthread_t threads[4];
    set_up_quota(&q, 1500, 0);
    for (size_t i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, take_many, &q), 0);
    const quota_limit same[] = {{.domain = ALICE, .requests = 1500}, {.domain = BOB, .requests = 1}};
    for (int i = 0; i < 50; i++) set(&q, same, 2);
    for (size_t i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(n_admitted, 1500);
    quota_destroy(&q);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_flow_off),
        cmocka_unit_test(tokens_of_prompts_and_answers_count),
        cmocka_unit_test(the_longer_wait_counts),
        cmocka_unit_test(tenants_do_not_disturb_each_other),
        cmocka_unit_test(what_was_used_counts_under_new_limits),
        cmocka_unit_test(threads_share_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
