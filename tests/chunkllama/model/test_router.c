/* The router of a mixture of experts, against its definition in double. */
#include "tests/support/testing.h"

#include "chunkattn/base/fp.h"
#include "chunkllama/linear/linear.h"
#include "chunkllama/linear/linear_kernels.h"
#include "chunkllama/model/router.h"
#include "random_matrix.h"

enum { MAX_EXPERTS = 600, MAX_USED = 10 };

typedef struct choice {
    int32_t expert[MAX_USED];
    float weight[MAX_USED];
} choice;

static choice choose(const cl_kernels *kernel, const cl_router_params *p, const float *bias, const float *logits) {
    static float copy[MAX_EXPERTS], room[MAX_EXPERTS];
    choice c = {{0}, {0}};
    memcpy(copy, logits, sizeof copy);
    const unsigned fp = ca_fp_enter();
    cl_router_choose(p, &kernel->row_ops, bias, copy, room, c.expert, c.weight);
    ca_fp_leave(fp);
    return c;
}

/* The sum of the best two of a group. */
static double best_two(const double *x, int n) {
    double first = -INFINITY, second = -INFINITY;
    for (int i = 0; i < n; i++) {
        second = fmax(second, fmin(first, x[i]));
        first = fmax(first, x[i]);
    }
    return first + second;
}

static void check(const cl_kernels *kernel, const cl_router_params *p, const float *bias, const float *logits) {
    double scores[MAX_EXPERTS] = {0}, best[MAX_EXPERTS] = {0}, sum = 0, used = 0;
    const int n = p->n_experts, size = n / p->n_groups;
    for (int i = 0; i < n; i++) sum += exp(logits[i]);
    for (int i = 0; i < n; i++) {
        scores[i] = p->scoring == CL_SCORING_SIGMOID ? 1 / (1 + exp(-logits[i])) : exp(logits[i]) / sum;
        best[i] = scores[i] + (bias ? bias[i] : 0);
    }
    double sums[MAX_EXPERTS] = {0};
    for (int g = 0; g < p->n_groups; g++) sums[g] = best_two(best + g * size, size);
    for (int g = 0; g < p->n_groups; g++) {
        int better = 0;
        for (int other = 0; other < p->n_groups; other++) better += sums[other] > sums[g];
        for (int i = g * size; better >= p->n_groups_used && i < (g + 1) * size; i++) best[i] = -INFINITY;
    }
    const choice got = choose(kernel, p, bias, logits);
    for (int k = 0; k < p->n_used; k++) {
        int largest = 0;
        for (int i = 1; i < n; i++) largest = best[i] > best[largest] ? i : largest;
        if (got.expert[k] != largest) fail_msg("%d experts: choice %d is %d in place of %d", n, k, got.expert[k], largest);
        best[largest] = -INFINITY;
        used += scores[largest];
    }
    for (int k = 0; k < p->n_used; k++) {
        const double weight = scores[got.expert[k]] / (p->normalised ? used : 1) * p->scale;
        assert_true(fabs(got.weight[k] - weight) <= 2e-6 * weight); /* e^x to 5e-7, and a few roundings */
    }
}

static void chooses_by_definition(void **state) {
    (void)state;
    static const cl_router_params cases[] = {
        {128, 8, 1, 1, CL_SCORING_SOFTMAX, true, 1},    {8, 2, 1, 1, CL_SCORING_SOFTMAX, false, 1},
        {600, 10, 1, 1, CL_SCORING_SOFTMAX, true, 1},   {160, 8, 1, 1, CL_SCORING_SIGMOID, true, 2.5f},
        {64, 6, 8, 3, CL_SCORING_SIGMOID, false, 1.5f}, {12, 4, 6, 2, CL_SCORING_SOFTMAX, true, 1},
        {1, 1, 1, 1, CL_SCORING_SIGMOID, true, 1},      {7, 7, 1, 1, CL_SCORING_SOFTMAX, false, 1},
    };
    static float logits[MAX_EXPERTS], bias[MAX_EXPERTS];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int i = 0; i < 50; i++) {
            for (int e = 0; e < MAX_EXPERTS; e++) {
                logits[e] = 6 * next_float();
                bias[e] = next_float() / 4;
            }
            choice first = {{0}, {0}};
            for (int level = 0; cl_kernels_level_name(level); level++) {
                const cl_kernels *kernel = cl_kernels_find(cl_kernels_level_name(level));
                check(kernel, &cases[c], i % 2 ? bias : NULL, logits);
                const choice got = choose(kernel, &cases[c], i % 2 ? bias : NULL, logits);
                if (level == 0) first = got;
                assert_memory_equal(&got, &first, sizeof got);
            }
        }
}

/* Of experts with equal scores, and of equal groups, the first ones are chosen. */
static void ties_go_to_the_first(void **state) {
    (void)state;
    static float logits[MAX_EXPERTS];
    const cl_kernels *kernel = cl_kernels_find(NULL);
    const cl_router_params p = {16, 4, 4, 2, CL_SCORING_SOFTMAX, true, 1};
    choice got = choose(kernel, &p, NULL, logits);
    for (int k = 0; k < 4; k++) {
        assert_int_equal(got.expert[k], k);
        assert_true(got.weight[k] == 0.25f);
    }
    logits[9] = logits[13] = 1;
    got = choose(kernel, &p, NULL, logits);
    static const int32_t expected[] = {9, 13, 8, 10};
    assert_memory_equal(got.expert, expected, sizeof expected);
}

/* Whatever a damaged file makes of logits, experts exist. */
static void numbers_that_are_none(void **state) {
    (void)state;
    static float logits[MAX_EXPERTS];
    static const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0};
    for (int i = 0; i < 2000; i++) {
        const cl_router_params p = {12,   5, i % 2 ? 3 : 1, i % 2 ? 2 : 1, i % 4 < 2 ? CL_SCORING_SOFTMAX : CL_SCORING_SIGMOID,
                                    true, 1};
        for (int e = 0; e < 12; e++) logits[e] = i < 4 ? NAN : odd[next_u32() % 6];
        const choice got = choose(cl_kernels_find(NULL), &p, i % 3 ? logits : NULL, logits);
        for (int k = 0; k < 5; k++) assert_in_range(got.expert[k], 0, 11);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(chooses_by_definition), cmocka_unit_test(ties_go_to_the_first),
                                       cmocka_unit_test(numbers_that_are_none)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
