/* Paired rounds: the ratio and its interval, the order within rounds, and when they stop. */
#include <stdbool.h>
#include <stdlib.h>

#include "bench/shared/statistics.h"
#include "tests/support/testing.h"

/* Work whose times are scripted: way B takes 1 s, way A the next of a list of ratios, over and over. */
typedef struct script {
    const double *ratios;
    int n, next, n_b_first, calls, fail_at;
    bool expects_second;
} script;

static bool scripted(void *ctx, paired_way way, double *seconds) {
    script *s = ctx;
    if (!s->expects_second) s->n_b_first += way == PAIRED_B;
    s->expects_second = !s->expects_second;
    *seconds = way == PAIRED_B ? 1 : s->ratios[s->next++ % s->n];
    return ++s->calls != s->fail_at;
}

static const paired_goal goal = {.precision = 0.01, .cap = 1e9, .min_rounds = 30};

static void interval_is_the_sign_tests(void **state) {
    (void)state;
    static paired p;
    p.n = 100;
    for (int i = 0; i < 100; i++) { /* 1.00, 1.01, ... 1.99, not in order */
        p.seconds[PAIRED_A][i] = 2 * (1 + 0.01 * ((i * 37) % 100));
        p.seconds[PAIRED_B][i] = 2;
    }
    const paired_ratio r = paired_evaluate(&p);
    assert_int_equal(r.n, 100);
    assert_float_equal(r.ratio, 1.495, 1e-12);
    assert_float_equal(r.low, 1.39, 1e-12); /* rank 40 from below: (100 - 19.6) / 2 */
    assert_float_equal(r.high, 1.60, 1e-12);
    assert_float_equal(r.seconds[PAIRED_A], 2.99, 1e-12);
    assert_float_equal(r.seconds[PAIRED_B], 2, 1e-12);
}

static void few_rounds_span_all(void **state) {
    (void)state;
    static paired p = {.n = 3, .seconds = {{3, 1, 2}, {1, 1, 1}}};
    const paired_ratio r = paired_evaluate(&p);
    assert_float_equal(r.low, 1, 0);
    assert_float_equal(r.ratio, 2, 0);
    assert_float_equal(r.high, 3, 0);
}

static void stops_when_precise(void **state) {
    (void)state;
    static paired p;
    static const double ratios[] = {1.0, 1.004, 0.996};
    script s = {.ratios = ratios, .n = 3};
    assert_true(paired_measure(&p, &goal, scripted, &s));
    assert_int_equal(p.n, goal.min_rounds);
    assert_int_equal(s.calls, 2 * p.n);
    assert_in_range(s.n_b_first, 5, p.n - 5); /* both orders occur */
}

static void goes_on_while_it_is_not(void **state) {
    (void)state;
    static paired p;
    static const double ratios[] = {0.8, 1.2};
    script s = {.ratios = ratios, .n = 2};
    assert_true(paired_measure(&p, &goal, scripted, &s));
    assert_int_equal(p.n, PAIRED_MAX_ROUNDS);
    static paired capped;
    s = (script){.ratios = ratios, .n = 2};
    const paired_goal none = {.precision = 0.01, .cap = 0, .min_rounds = 30};
    assert_true(paired_measure(&capped, &none, scripted, &s));
    assert_int_equal(capped.n, 1);
}

/* One end of the interval is at the ratio from the beginning, the other comes near it after about 100 rounds. */
static void both_ends_must_be_near(void **state) {
    (void)state;
    static const double ratios[2][10] = {{1, 1.5, 1, 1.5, 1, 1.5, 1, 1.5, 1, 1}, {1, 0.5, 1, 0.5, 1, 0.5, 1, 0.5, 1, 1}};
    for (int i = 0; i < 2; i++) {
        static paired p;
        p.n = 0;
        script s = {.ratios = ratios[i], .n = 10};
        assert_true(paired_measure(&p, &goal, scripted, &s));
        assert_in_range(p.n, 90, 120);
    }
}

/* A third of the rounds is disturbed, half of them in each direction: the ratio is still that of the others. */
static void disturbed_rounds_do_not_count(void **state) {
    (void)state;
    static paired p;
    static const double ratios[] = {1.001, 5, 0.999, 1.002, 0.998, 0.2};
    script s = {.ratios = ratios, .n = 6};
    const paired_goal many = {.precision = 0, .cap = 1e9, .min_rounds = 600};
    assert_true(paired_measure(&p, &many, scripted, &s));
    const paired_ratio r = paired_evaluate(&p);
    assert_float_equal(r.ratio, 1, 0.0021);
    assert_true(r.low > 0.99 && r.high < 1.01);
}

/* Noise of a standard deviation of 0.03 around 1, the sum of twelve uniform numbers; one round in six has ten times the noise.
 */
static bool noisy(void *ctx, paired_way way, double *seconds) {
    uint64_t *state = ctx;
    double sum = -6;
    for (int i = 0; i < 12; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*state >> 40) / (1 << 24);
    }
    *seconds = way == PAIRED_B ? 1 : 1 + 0.03 * sum * ((*state >> 33) % 6 ? 1 : 10);
    return true;
}

/* Rounds end when the interval is narrow; it must still miss the true ratio in at most 3.5 % of measurements on either side. */
static void interval_holds_the_ratio(void **state) {
    (void)state;
    enum { N = 1000 };
    static paired p;
    uint64_t random = 1;
    int n_low = 0, n_high = 0;
    for (int i = 0; i < N; i++) {
        p.n = 0;
        assert_true(paired_measure(&p, &goal, noisy, &random));
        const paired_ratio r = paired_evaluate(&p);
        assert_true(r.n < PAIRED_MAX_ROUNDS && r.high - r.low <= 0.02);
        n_low += r.low > 1;
        n_high += r.high < 1;
    }
    assert_in_range(n_low, 1, N * 35 / 1000);
    assert_in_range(n_high, 1, N * 35 / 1000);
}

static void no_part_has_most_of_the_rounds(void **state) {
    (void)state;
    enum { N = 4 };
    static paired p;
    uint64_t random = 1;
    int rounds[N];
    for (int i = 0; i < N; i++) {
        const paired_goal part = paired_goal_of_part(&goal, &p, i, N);
        assert_float_equal(part.cap, goal.cap / N, 0);
        const int before = p.n;
        assert_true(paired_measure(&p, &part, noisy, &random));
        rounds[i] = p.n - before;
    }
    const paired_ratio r = paired_evaluate(&p);
    assert_true(r.high - r.ratio <= goal.precision && r.ratio - r.low <= goal.precision);
    for (int i = 0; i < N; i++) assert_true(rounds[i] >= p.n / (2 * N) && rounds[i] <= p.n / 2);
}

static void failed_work_ends_it(void **state) {
    (void)state;
    static paired p;
    static const double ratios[] = {1};
    script s = {.ratios = ratios, .n = 1, .fail_at = 4};
    assert_false(paired_measure(&p, &goal, scripted, &s));
    assert_int_equal(p.n, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interval_is_the_sign_tests),
        cmocka_unit_test(few_rounds_span_all),
        cmocka_unit_test(stops_when_precise),
        cmocka_unit_test(goes_on_while_it_is_not),
        cmocka_unit_test(disturbed_rounds_do_not_count),
        cmocka_unit_test(failed_work_ends_it),
        cmocka_unit_test(both_ends_must_be_near),
        cmocka_unit_test(interval_holds_the_ratio),
        cmocka_unit_test(no_part_has_most_of_the_rounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
