/* Sampling: the distribution, every option's edges, and that a draw depends on nothing else. */
#include "tests/support/testing.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunkllama/common/philox.h"
#include "chunkllama/model/sampler.h"

enum { SEED = 20240215 };

static cl_sampler_params params_with(float temperature) {
    cl_sampler_params p;
    cl_sampler_params_init(&p);
    p.temperature = temperature;
    p.seed = SEED;
    return p;
}

static int32_t draw(cl_sampler *s, const cl_sampler_params *p, const float *logits, int64_t position) {
    return cl_sampler_draw(s, p, NULL, logits, (cl_sampler_history){0}, 0, position);
}

/* A list of tokens is the same as minus infinity for all others, with all that params have. */
static void among_few_is_among_all(void **state) {
    (void)state;
    enum { N = 300, DRAWS = 3000 };
    float logits[N], masked[N];
    int32_t ids[N], history[8];
    cl_sampler *s = cl_sampler_create(N);
    uint32_t x = 1;
    for (int i = 0; i < DRAWS; i++) {
        int32_t n = 0;
        for (int32_t id = 0; id < N; id++) {
            x = x * 1664525u + 1013904223u;
            logits[id] = (x >> 8) % 97 == 0 ? NAN : (x >> 8) % 89 == 0 ? -INFINITY : (float)((x >> 12) % 64) / 8;
            const bool among = (x >> 20) % (1 + (uint32_t)i % 40) == 0;
            if (among) ids[n++] = id;
            masked[id] = among ? logits[id] : -INFINITY;
        }
        if (n == 0) continue;
        for (int k = 0; k < 8; k++) history[k] = (int32_t)((x >> k) % N);
        cl_sampler_params p = params_with(i % 5 == 0 ? 0 : 0.3f + (float)(i % 7));
        if (i % 3 == 0) p.top_k = 1 + i % 9;
        if (i % 4 == 0) p.top_p = 0.8f;
        if (i % 6 == 0) p.min_p = 0.05f;
        if (i % 7 == 0) p.repetition_penalty = 1.3f;
        if (i % 8 == 0) p.presence_penalty = 0.5f;
        const int32_t all = cl_sampler_redraw(s, &p, NULL, masked, NULL, 0, (cl_sampler_history){history, 4, 8}, i % 3, i);
        const int32_t few = cl_sampler_redraw(s, &p, NULL, logits, ids, n, (cl_sampler_history){history, 4, 8}, i % 3, i);
        if (masked[all] > -INFINITY) /* otherwise nothing was to be drawn from */
            assert_int_equal(few, all);
        else
            assert_int_equal(few, ids[0]);
    }
    cl_sampler_free(&s);
}

/* Known answers published with the generator. */
static void philox_known_answers(void **state) {
    (void)state;
    uint32_t zero[4] = {0}, ones[4] = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    cl_philox(zero, 0);
    cl_philox(ones, UINT64_MAX);
    const uint32_t expect_zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    const uint32_t expect_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    assert_memory_equal(zero, expect_zero, sizeof zero);
    assert_memory_equal(ones, expect_ones, sizeof ones);
}

/* The first of the tokens that are drawn in place of each other and have an even id; otherwise one of those of a list. */
static int32_t draw_even(cl_sampler *s, const cl_sampler_params *p, const float *logits, int64_t position) {
    static const int32_t even[] = {0, 2, 4, 6, 8};
    int32_t id = draw(s, p, logits, position);
    for (int attempt = 1; id >= 0 && attempt < 4; attempt++) {
        if (id % 2 == 0) return id;
        id = cl_sampler_draw_other(s, p, 0, position, attempt);
    }
    return cl_sampler_redraw(s, p, NULL, logits, even, 5, (cl_sampler_history){0}, 0, position);
}

/* Draw many times; chi-square against the expected probabilities. */
static void check_frequencies_of(int32_t (*draw_one)(cl_sampler *, const cl_sampler_params *, const float *, int64_t),
                                 const cl_sampler_params *p, const float *logits, const double *expect, int32_t n) {
    enum { DRAWS = 200000 };
    cl_sampler *s = cl_sampler_create(n);
    int *count = calloc((size_t)n, sizeof *count);
    for (int64_t i = 0; i < DRAWS; i++) count[draw_one(s, p, logits, i)]++;
    double chi2 = 0;
    int freedom = -1;
    for (int32_t i = 0; i < n; i++) {
        if (expect[i] == 0) {
            assert_int_equal(count[i], 0);
            continue;
        }
        const double e = expect[i] * DRAWS;
        chi2 += (count[i] - e) * (count[i] - e) / e;
        freedom++;
    }
    /* Five standard deviations of chi-square: passes for 999,999 of a million seeds, and this one is fixed. */
    const double limit = freedom + 5 * sqrt(2.0 * freedom);
    if (chi2 > limit) fail_msg("chi-square %g above %g (seed %llu)", chi2, limit, (unsigned long long)p->seed);
    free(count);
    cl_sampler_free(&s);
}

static void check_frequencies(const cl_sampler_params *p, const float *logits, const double *expect, int32_t n) {
    check_frequencies_of(draw, p, logits, expect, n);
}

static void softmax(const float *logits, double temperature, double *out, int n) {
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) max = fmax(max, logits[i]);
    for (int i = 0; i < n; i++) sum += out[i] = exp((logits[i] - max) / temperature);
    for (int i = 0; i < n; i++) out[i] /= sum;
}

static const float ten[10] = {0.5f, -1, 2, 1.5f, 0, 2, -3, 1, 0.25f, -0.5f}; /* by rank: 2 5 3 7 0 8 4 9 1 6 */

static void draws_follow_the_distribution(void **state) {
    (void)state;
    double expect[10];
    for (int seed = 0; seed < 3; seed++) {
        cl_sampler_params p = params_with(1);
        p.seed = (uint64_t)seed << 40 | SEED;
        softmax(ten, 1, expect, 10);
        check_frequencies(&p, ten, expect, 10);
    }
    cl_sampler_params p = params_with(0.7f);
    softmax(ten, 0.7f, expect, 10);
    check_frequencies(&p, ten, expect, 10);
    p = params_with(3);
    softmax(ten, 3, expect, 10);
    check_frequencies(&p, ten, expect, 10);
}

static void keep(double *expect, const int *ids, int n_ids, int n) {
    double sum = 0;
    for (int i = 0; i < n_ids; i++) sum += expect[ids[i]];
    for (int i = 0; i < n; i++) {
        int kept = 0;
        for (int j = 0; j < n_ids; j++) kept |= ids[j] == i;
        expect[i] = kept ? expect[i] / sum : 0;
    }
}

/* Tokens that may not follow are drawn in vain, and those that may keep their probabilities among themselves. */
static void refused_draws_change_no_probability(void **state) {
    (void)state;
    double expect[10];
    cl_sampler_params p = params_with(0.8f);
    softmax(ten, 0.8f, expect, 10);
    keep(expect, (const int[]){0, 2, 4, 6, 8}, 5, 10);
    check_frequencies_of(draw_even, &p, ten, expect, 10);
    p.min_p = 0.05f;
    softmax(ten, 0.8f, expect, 10);
    keep(expect, (const int[]){0, 2, 4, 8}, 4, 10);
    check_frequencies_of(draw_even, &p, ten, expect, 10);
}

/* Every token that has a chance comes once, in another order for each seed, and then none. */
static void other_tokens_come_once(void **state) {
    (void)state;
    enum { N = 1000 };
    float logits[N];
    for (int32_t id = 0; id < N; id++) logits[id] = id % 10 == 3 ? -INFINITY : (float)(id * 7919 % 64) / 8;
    cl_sampler *s = cl_sampler_create(N);
    int32_t second[2] = {0};
    for (int seed = 0; seed < 2; seed++) {
        bool seen[N] = {false};
        cl_sampler_params p = params_with(1);
        p.seed = (uint64_t)seed;
        int32_t n = 0;
        for (int32_t id = draw(s, &p, logits, 5); id >= 0; id = cl_sampler_draw_other(s, &p, 0, 5, n)) {
            assert_true(id % 10 != 3 && !seen[id]);
            seen[id] = true;
            if (n++ == 1) second[seed] = id;
        }
        assert_int_equal(n, N - N / 10);
        assert_int_equal(cl_sampler_draw_other(s, &p, 0, 5, n), -1);
    }
    assert_true(second[0] != second[1]);
    const cl_sampler_params greedy = params_with(0);
    draw(s, &greedy, logits, 5);
    assert_int_equal(cl_sampler_draw_other(s, &greedy, 0, 5, 1), -1);
    cl_sampler_free(&s);
}

static void cuts_keep_the_likeliest(void **state) {
    (void)state;
    const int by_rank[10] = {2, 5, 3, 7, 0, 8, 4, 9, 1, 6};
    double expect[10], all[10];
    softmax(ten, 1, all, 10);
    for (int k = 1; k <= 11; k++) { /* top-k, also of more than there are */
        cl_sampler_params p = params_with(1);
        p.top_k = k;
        memcpy(expect, all, sizeof all);
        keep(expect, by_rank, k < 10 ? k : 10, 10);
        check_frequencies(&p, ten, expect, 10);
    }
    double mass = 0;
    for (int k = 0; k < 10; k++) { /* top-p just below and above each sum */
        for (int above = 0; above < 2; above++) {
            cl_sampler_params p = params_with(1);
            p.top_p = (float)(above ? mass + all[by_rank[k]] * 0.01 : mass + all[by_rank[k]] * 0.99);
            memcpy(expect, all, sizeof all);
            keep(expect, by_rank, k + 1, 10);
            check_frequencies(&p, ten, expect, 10);
        }
        mass += all[by_rank[k]];
    }
    for (int k = 1; k < 10; k++) { /* min-p just below and above a token's share */
        if (ten[by_rank[k]] == 2) continue;
        for (int above = 0; above < 2; above++) {
            cl_sampler_params p = params_with(1);
            p.min_p = (float)(all[by_rank[k]] / all[2]) * (above ? 1.01f : 0.99f);
            memcpy(expect, all, sizeof all);
            keep(expect, by_rank, above ? k : k + 1, 10);
            check_frequencies(&p, ten, expect, 10);
        }
    }
    cl_sampler_params p = params_with(1); /* top-p takes its share of what top-k left */
    p.top_k = 3;
    p.top_p = 0.7f;
    memcpy(expect, all, sizeof all);
    keep(expect, by_rank, 2, 10);
    check_frequencies(&p, ten, expect, 10);
}

static void edges_of_options(void **state) {
    (void)state;
    cl_sampler *s = cl_sampler_create(10);
    for (int i = 0; i < 1000; i++) {
        cl_sampler_params p = params_with(0);
        assert_int_equal(draw(s, &p, ten, i), 2); /* greedy: the lower of two equal ones */
        p = params_with(1e-40f);
        assert_true(draw(s, &p, ten, i) == 2 || draw(s, &p, ten, i) == 5);
        p = params_with(1);
        p.top_k = 1;
        assert_int_equal(draw(s, &p, ten, i), 2);
        p = params_with(1);
        p.top_p = 0;
        assert_int_equal(draw(s, &p, ten, i), 2);
        p = params_with(1);
        p.min_p = 1;
        assert_true(draw(s, &p, ten, i) == 2 || draw(s, &p, ten, i) == 5);
        p = params_with(FLT_MAX);
        assert_in_range(draw(s, &p, ten, i), 0, 9);
    }
    cl_sampler_free(&s);
    s = cl_sampler_create(1);
    const cl_sampler_params p = params_with(1);
    assert_int_equal(draw(s, &p, ten, 0), 0);
    cl_sampler_free(&s);
}

static void odd_logits_do_not_crash(void **state) {
    (void)state;
    const float odd[][4] = {{NAN, 1, NAN, 0},
                            {NAN, NAN, NAN, NAN},
                            {-INFINITY, -INFINITY, -INFINITY, -INFINITY},
                            {0, INFINITY, NAN, INFINITY},
                            {-INFINITY, 3, -INFINITY, NAN},
                            {FLT_MAX, -FLT_MAX, NAN, 0}};
    const int32_t greedy[] = {1, 0, 0, 1, 1, 0};
    cl_sampler *s = cl_sampler_create(4);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        for (int variant = 0; variant < 32; variant++) {
            cl_sampler_params p = params_with(variant & 1 ? 0.8f : 0);
            if (variant & 2) p.top_k = 2;
            if (variant & 4) p.top_p = 0.5f;
            if (variant & 8) p.min_p = 0.1f;
            if (variant & 16) p.repetition_penalty = 1.5f;
            const int32_t id =
                cl_sampler_draw(s, &p, NULL, odd[i], (cl_sampler_history){(const int32_t[]){3, -1, 4}, 2, 3}, 0, variant);
            assert_in_range(id, 0, 3);
            if (!(variant & 1)) assert_int_equal(id, greedy[i]);
            if (i == 0 || i == 4) assert_false(isnan(odd[i][id]));
        }
        cl_sampler_logprob chosen, top[6];
        cl_sampler_logprobs(s, odd[i], 2, &chosen, 6, top);
        assert_int_equal(chosen.id, 2);
        for (int j = 0; j < 6; j++) assert_false(isnan(top[j].logprob));
        assert_int_equal(top[5].id, -1);
    }
    cl_sampler_free(&s);
}

static void penalties(void **state) {
    (void)state;
    cl_sampler *s = cl_sampler_create(4);
    const int32_t history[] = {0, 3, 1, 1};
    cl_sampler_params p = params_with(0);
    /* Greedy shows the order of the penalised logits. */
    const float a[4] = {2, 1.5f, 1, 0};
    assert_int_equal(cl_sampler_draw(s, &p, NULL, a, (cl_sampler_history){history, 2, 4}, 0, 0), 0);
    p.repetition_penalty = 4; /* 0.5 0.375 1 0: the prompt counts */
    assert_int_equal(cl_sampler_draw(s, &p, NULL, a, (cl_sampler_history){history, 2, 4}, 0, 0), 2);
    const float b[4] = {-1, -1, -3.5f, -1};
    assert_int_equal(cl_sampler_draw(s, &p, NULL, b, (cl_sampler_history){history, 2, 4}, 0, 0),
                     2); /* negative ones are multiplied */
    p = params_with(0);
    p.presence_penalty = 1; /* output only, once */
    const float c[4] = {0.5f, 2.25f, 1, 0};
    assert_int_equal(cl_sampler_draw(s, &p, NULL, c, (cl_sampler_history){history, 2, 4}, 0, 0), 1);
    p.presence_penalty = 1.5f;
    assert_int_equal(cl_sampler_draw(s, &p, NULL, c, (cl_sampler_history){history, 2, 4}, 0, 0), 2);
    p.presence_penalty = 0;
    p.frequency_penalty = 0.7f; /* 2.25 - 1.4 < 1 */
    assert_int_equal(cl_sampler_draw(s, &p, NULL, c, (cl_sampler_history){history, 2, 4}, 0, 0), 2);
    assert_int_equal(cl_sampler_draw(s, &p, NULL, c, (cl_sampler_history){history, 3, 4}, 0, 0),
                     1);      /* one of them in the prompt */
    p.frequency_penalty = -2; /* negative ones encourage */
    assert_int_equal(cl_sampler_draw(s, &p, NULL, a, (cl_sampler_history){history, 2, 4}, 0, 0), 1);
    p = params_with(0); /* the scratch keeps nothing from earlier draws */
    assert_int_equal(cl_sampler_draw(s, &p, NULL, a, (cl_sampler_history){history, 2, 4}, 0, 0), 0);
    p.presence_penalty = 0.25f;
    assert_int_equal(cl_sampler_draw(s, &p, NULL, a, (cl_sampler_history){history, 4, 4}, 0, 0), 0);
    cl_sampler_free(&s);
}

/* A window counts prompt and output alike, for all three penalties. */
static void penalties_have_a_window(void **state) {
    (void)state;
    static const struct {
        int32_t window;
        float repetition, presence, frequency;
        int32_t drawn;
    } cases[] = {
        {-1, 4, 0, 0, 2}, {0, 4, 0, 0, 0},    {1, 4, 0, 0, 0},    {3, 4, 0, 0, 0},    {4, 4, 0, 0, 2},     {9, 4, 0, 0, 2},
        {-1, 1, 2, 0, 0}, {4, 1, 1.5f, 0, 2}, {3, 1, 1.5f, 0, 0}, {4, 1, 0, 1.5f, 2}, {-1, 1, 0, 1.5f, 0}, {0, 1, 2, 2, 0},
    };
    cl_sampler *s = cl_sampler_create(4);
    const int32_t history[] = {0, 3, 1, 1}; /* the first two are the prompt */
    const float logits[4] = {2, 1.5f, 1, 0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cl_sampler_params p = params_with(0);
        p.repetition_penalty = cases[i].repetition;
        p.presence_penalty = cases[i].presence;
        p.frequency_penalty = cases[i].frequency;
        const cl_sampler_history h = cl_sampler_history_of(history, 2, 4, cases[i].window);
        const int32_t id = cl_sampler_draw(s, &p, NULL, logits, h, 0, 0);
        if (id != cases[i].drawn) fail_msg("case %zu: %d", i, id);
    }
    cl_sampler_free(&s);
}

/* How many different tokens 2000 draws give. */
static int count_drawn(cl_sampler *s, const cl_sampler_params *p, const cl_sampler_cuts *cuts, const float *logits, int n) {
    bool drawn[16] = {0};
    int n_drawn = 0;
    for (int i = 0; i < 2000; i++) drawn[cl_sampler_draw(s, p, cuts, logits, (cl_sampler_history){0}, 0, i)] = true;
    for (int i = 0; i < n; i++) n_drawn += drawn[i];
    return n_drawn;
}

#define STEP_T CL_SAMPLER_TEMPERATURE
#define STEP_M CL_SAMPLER_MIN_P
#define STEP_K CL_SAMPLER_TOP_K
#define STEP_P CL_SAMPLER_TOP_P

/* The order of steps decides what they leave, those that are not listed do nothing, and min_keep keeps some. */
static void steps_have_an_order(void **state) {
    (void)state;
    enum { N = 10 };
    static const float logits[N] = {5, 4, 3, 2, 1, 0, -1, -2, -3, -4};
    static const struct {
        cl_sampler_cuts cuts;
        float temperature, top_p, min_p;
        int32_t top_k;
        int n; /* tokens that may be drawn */
    } cases[] = {
        {{0, 0, {STEP_T}}, 5, 0.6f, 0, 0, 4},                  /* at temperature 5 the distribution is flat */
        {{0, 2, {STEP_T, STEP_P}}, 5, 0.6f, 0, 0, 4},          /* the same */
        {{0, 2, {STEP_P, STEP_T}}, 5, 0.6f, 0, 0, 1},          /* at 1 the first token has 0.63 */
        {{0, 2, {STEP_M, STEP_T}}, 5, 1, 0.3f, 0, 2},          /* e^-1 is above 0.3, e^-2 is not */
        {{0, 2, {STEP_T, STEP_M}}, 5, 1, 0.3f, 0, 7},          /* e^(-6/5) is */
        {{0, 1, {STEP_T}}, 5, 0.6f, 0.3f, 3, N},               /* no cuts */
        {{0, 1, {STEP_K}}, 0.001f, 0.6f, 0.3f, 3, 3},          /* no temperature */
        {{0, 3, {STEP_K, STEP_P, STEP_T}}, 5, 0.99f, 0, 3, 3}, /* of three all are needed */
        {{0, 3, {STEP_P, STEP_K, STEP_T}}, 5, 0.6f, 0, 3, 1},
        {{4, 2, {STEP_P, STEP_T}}, 5, 0.6f, 0, 0, 4}, /* min_keep */
        {{4, 2, {STEP_M, STEP_T}}, 5, 1, 0.3f, 0, 4},
        {{4, 0, {STEP_T}}, 5, 1, 0.9f, 0, 4},
        {{99, 0, {STEP_T}}, 5, 1, 0.9f, 0, N},
        {{1, 0, {STEP_T}}, 5, 0.6f, 0, 0, 4},
        {{6, 0, {STEP_T}}, 5, 0.1f, 0.9f, 3, 3}, /* top_k keeps as many as it says */
    };
    cl_sampler *s = cl_sampler_create(N);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cl_sampler_params p = params_with(cases[i].temperature);
        p.top_p = cases[i].top_p;
        p.min_p = cases[i].min_p;
        p.top_k = cases[i].top_k;
        const int n = count_drawn(s, &p, &cases[i].cuts, logits, N);
        if (n != cases[i].n) fail_msg("case %zu: %d tokens were drawn", i, n);
    }
    cl_sampler_free(&s);
}

/* The greedy draw under rules, which shows the largest of the restricted logits. */
static int32_t restricted(cl_sampler *s, const cl_sampler_params *p, const cl_sampler_rules *r, const float *logits,
                          const int32_t *history, int64_t n_prompt, int64_t n_history) {
    const float *left = cl_sampler_restrict(s, r, logits, history, n_prompt, n_history);
    return cl_sampler_draw(s, p, NULL, left, (cl_sampler_history){history, n_prompt, n_history}, 0, 0);
}

static void rules_restrict_draws(void **state) {
    (void)state;
    cl_sampler *s = cl_sampler_create(4);
    const int32_t history[] = {0, 3, 1, 2};
    const float logits[4] = {1, 0.9f, 0.5f, 0};
    const cl_sampler_params p = params_with(0);

    const cl_logit_bias bias[] = {{1, 0.2f}, {0, -0.5f}, {2, 0.25f}, {2, 0.5f}};
    cl_sampler_rules r = {.bias = bias, .n_bias = 1};
    assert_int_equal(restricted(s, &p, &r, logits, history, 2, 2), 1);
    r.n_bias = 4; /* those of one token add up */
    assert_int_equal(restricted(s, &p, &r, logits, history, 2, 2), 2);
    const cl_logit_bias never = {0, -INFINITY};
    r = (cl_sampler_rules){.bias = &never, .n_bias = 1};
    assert_int_equal(restricted(s, &p, &r, logits, history, 2, 2), 1);

    const int32_t allowed[] = {3, 2, 2};
    r = (cl_sampler_rules){.allowed = allowed, .n_allowed = 3};
    assert_int_equal(restricted(s, &p, &r, logits, history, 2, 2), 2);

    /* 0; 3 1 0, which the prompt alone does not begin; 2 1 */
    const int32_t words[] = {0, 3, 1, 0, 2, 1}, sizes[] = {1, 3, 2};
    r = (cl_sampler_rules){.bad_words = words, .bad_word_sizes = sizes, .n_bad_words = 1};
    assert_int_equal(restricted(s, &p, &r, logits, history, 2, 2), 1);
    r = (cl_sampler_rules){.bad_words = words + 1, .bad_word_sizes = sizes + 1, .n_bad_words = 2};
    assert_int_equal(restricted(s, &p, &r, logits, history, 2, 3), 0);
    assert_int_equal(restricted(s, &p, &r, logits, history, 1, 3), 1);
    assert_int_equal(restricted(s, &p, &r, logits, history, 3, 4), 0);
    r.n_bad_words = 0;
    assert_ptr_equal(cl_sampler_restrict(s, &r, logits, history, 2, 3), logits); /* nothing to do, nothing copied */

    const int32_t ends[] = {0, 1, 1};
    r = (cl_sampler_rules){.min_tokens = 2, .ends = ends, .n_ends = 3};
    assert_int_equal(restricted(s, &p, &r, logits, history, 2, 3), 2);
    assert_int_equal(restricted(s, &p, &r, logits, history, 2, 4), 0);
    assert_ptr_equal(cl_sampler_restrict(s, &r, logits, history, 2, 4), logits);
    cl_sampler_free(&s);
}

static void rules_leave_a_token(void **state) {
    (void)state;
    cl_sampler *s = cl_sampler_create(4);
    const float logits[4] = {1, 0.9f, 0.5f, 0}, impossible[4] = {1, NAN, -INFINITY, 0};
    const cl_sampler_params p = params_with(0);
    const int32_t allowed[] = {2, 1}, ends[] = {1, 2};
    const cl_sampler_rules r = {.allowed = allowed, .n_allowed = 2, .min_tokens = 1, .ends = ends, .n_ends = 2};
    assert_int_equal(restricted(s, &p, &r, logits, NULL, 0, 0), 1);
    assert_int_equal(restricted(s, &p, &r, impossible, NULL, 0, 0), 2);
    cl_sampler_free(&s);
}

/* Rules come before penalties, and may be applied to logits that were restricted before. */
static void rules_have_their_order(void **state) {
    (void)state;
    cl_sampler *s = cl_sampler_create(2);
    const int32_t history[] = {1};
    const float logits[2] = {1, 0.9f};
    cl_sampler_params p = params_with(0);
    const cl_logit_bias bias = {1, 0.3f};
    const cl_sampler_rules r = {.bias = &bias, .n_bias = 1};
    assert_int_equal(restricted(s, &p, &r, logits, history, 1, 1), 1);
    p.repetition_penalty = 1.25f; /* 1.2 / 1.25 < 1 < 0.9 / 1.25 + 0.3 */
    assert_int_equal(restricted(s, &p, &r, logits, history, 1, 1), 0);
    const float *once = cl_sampler_restrict(s, &r, logits, history, 1, 1);
    assert_true(once != logits && logits[1] == 0.9f);
    assert_int_equal(restricted(s, &p, &r, once, history, 1, 1), 1); /* 1.5 / 1.25 */
    cl_sampler_free(&s);
}

static uint64_t next(uint64_t *x) { return *x = *x * 6364136223846793005u + 1442695040888963407u; }

static void random_logits(float *logits, int n, uint64_t *x) {
    for (int i = 0; i < n; i++) logits[i] = (float)(int64_t)next(x) * 0x1p-60f;
}

/* The same draws alone and among others, whatever the scratch was used for before. */
static void draws_depend_on_nothing_else(void **state) {
    (void)state;
    enum { N = 5000, ROWS = 40 };
    static float logits[ROWS][N];
    uint64_t x = SEED;
    int32_t history[100], alone[ROWS];
    for (int i = 0; i < 100; i++) history[i] = (int32_t)(next(&x) >> 40) % N;
    cl_sampler_params p = params_with(1);
    for (int row = 0; row < ROWS; row++) {
        random_logits(logits[row], N, &x);
        cl_sampler *s = cl_sampler_create(N);
        p.top_k = row % 3 ? 50 * row : 0, p.top_p = row % 2 ? 0.9f : 1, p.repetition_penalty = row % 5 ? 1 : 1.2f;
        alone[row] = cl_sampler_draw(s, &p, NULL, logits[row], (cl_sampler_history){history, 10, row}, row % 4, row);
        cl_sampler_free(&s);
    }
    cl_sampler *s = cl_sampler_create(N);
    for (int row = ROWS - 1; row >= 0; row--) {
        p.top_k = row % 3 ? 50 * row : 0, p.top_p = row % 2 ? 0.9f : 1, p.repetition_penalty = row % 5 ? 1 : 1.2f;
        assert_int_equal(cl_sampler_draw(s, &p, NULL, logits[row], (cl_sampler_history){history, 10, row}, row % 4, row),
                         alone[row]);
    }
    int differ_choice = 0, differ_seed = 0, differ_position = 0;
    p = params_with(2);
    for (int row = 0; row < ROWS; row++) {
        const int32_t id = cl_sampler_draw(s, &p, NULL, logits[row], (cl_sampler_history){0}, 0, row);
        differ_choice += cl_sampler_draw(s, &p, NULL, logits[row], (cl_sampler_history){0}, 1, row) != id;
        differ_position += cl_sampler_draw(s, &p, NULL, logits[row], (cl_sampler_history){0}, 0, row + (1ll << 32)) != id;
        p.seed ^= 1ull << 63;
        differ_seed += cl_sampler_draw(s, &p, NULL, logits[row], (cl_sampler_history){0}, 0, row) != id;
        p.seed ^= 1ull << 63;
    }
    assert_true(differ_choice > ROWS / 2 && differ_seed > ROWS / 2 && differ_position > ROWS / 2);
    cl_sampler_free(&s);
}

static const float *order_by;
static int by_logit(const void *a, const void *b) {
    const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (order_by[i] != order_by[j]) return order_by[i] > order_by[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

/* The cuts on a large vocabulary against a full sort in double. */
static void nucleus_on_a_large_vocabulary(void **state) {
    (void)state;
    enum { N = 20000 };
    static float logits[N];
    static int32_t order[N];
    static double probability[N];
    uint64_t x = SEED;
    cl_sampler *s = cl_sampler_create(N);
    for (int round = 0; round < 12; round++) {
        random_logits(logits, N, &x);
        if (round % 3 == 1) /* many equal ones */
            for (int i = 0; i < N; i++) logits[i] = roundf(logits[i]);
        softmax(logits, 1, probability, N);
        for (int i = 0; i < N; i++) order[i] = i;
        order_by = logits;
        qsort(order, N, sizeof *order, by_logit);
        cl_sampler_params p = params_with(1);
        p.top_p = (float)(round + 1) / 13;
        int kept = 0;
        for (double mass = 0; mass < (double)p.top_p; kept++) mass += probability[order[kept]];
        static char in[N];
        memset(in, 0, N);
        for (int i = 0; i < kept + 1; i++) in[order[i]] = 1; /* one more for float's rounding */
        for (int i = 0; i < 300; i++) assert_true(in[draw(s, &p, logits, i)]);
    }
    cl_sampler_free(&s);
}

static void logprobs_against_double(void **state) {
    (void)state;
    enum { N = 49152, TOP = 20 };
    static float logits[N];
    static int32_t order[N];
    uint64_t x = SEED;
    cl_sampler *s = cl_sampler_create(N);
    for (int round = 0; round < 10; round++) {
        random_logits(logits, N, &x);
        for (int i = 0; i < N; i++) logits[i] *= (float)(round + 1) / 2;
        logits[777] = logits[4242]; /* a tie */
        double sum = 0;
        for (int i = 0; i < N; i++) sum += exp((double)logits[i]), order[i] = i;
        order_by = logits;
        qsort(order, N, sizeof *order, by_logit);
        cl_sampler_logprob chosen, top[TOP];
        const int32_t id = (int32_t)(next(&x) >> 40) % N;
        cl_sampler_logprobs(s, logits, id, &chosen, TOP, top);
        assert_int_equal(chosen.id, id);
        /* Half a unit of the result's last place, and the sum's relative error. */
        assert_true(fabs(chosen.logprob - (logits[id] - log(sum))) < 4e-6);
        for (int i = 0; i < TOP; i++) {
            assert_int_equal(top[i].id, order[i]);
            assert_true(fabs(top[i].logprob - (logits[order[i]] - log(sum))) < 2e-6);
        }
    }
    cl_sampler_free(&s);
}

/* Two tokens: the weight's polynomial over its whole range shows in the larger one's logprob. */
static void weights_are_exponentials(void **state) {
    (void)state;
    cl_sampler *s = cl_sampler_create(2);
    for (int i = 0; i < 9000; i++) {
        const float logits[2] = {0, -(float)i / 100};
        cl_sampler_logprob chosen, top[2];
        cl_sampler_logprobs(s, logits, 0, &chosen, 2, top);
        assert_true(fabs((double)chosen.logprob + log1p(exp((double)logits[1]))) < 2e-7);
        assert_true(fabs((double)top[1].logprob - (double)logits[1] + log1p(exp((double)logits[1]))) < 4e-6);
    }
    cl_sampler_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(among_few_is_among_all),
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(refused_draws_change_no_probability),
        cmocka_unit_test(other_tokens_come_once),
        cmocka_unit_test(cuts_keep_the_likeliest),
        cmocka_unit_test(edges_of_options),
        cmocka_unit_test(odd_logits_do_not_crash),
        cmocka_unit_test(penalties),
        cmocka_unit_test(penalties_have_a_window),
        cmocka_unit_test(steps_have_an_order),
        cmocka_unit_test(rules_restrict_draws),
        cmocka_unit_test(rules_leave_a_token),
        cmocka_unit_test(rules_have_their_order),
        cmocka_unit_test(draws_depend_on_nothing_else),
        cmocka_unit_test(nucleus_on_a_large_vocabulary),
        cmocka_unit_test(logprobs_against_double),
        cmocka_unit_test(weights_are_exponentials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
