/* Shared tokens against comparing every request with every other, and prompts in workloads made to have so many. */
#include "tests/support/testing.h"

#include <stdlib.h>
#include <string.h>

#include "bench/shared/shared_tokens.h"

enum { MAX_REQUESTS = 60, MAX_TOKENS = 400 };

static int32_t data[MAX_REQUESTS][MAX_TOKENS];
static cl_token_list spans[MAX_REQUESTS];

static uint32_t next(void) {
    static uint64_t state = 42;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static shared_tokens count(size_t n) {
    shared_tokens result;
    assert_true(shared_tokens_count(spans, n, &result));
    return result;
}

static void test_against_all_pairs(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        const size_t n = 1 + next() % MAX_REQUESTS;
        for (size_t i = 0; i < n; i++) {
            const size_t length = next() % 12;
            for (size_t k = 0; k < length; k++) data[i][k] = (int32_t)(next() % 2);
            spans[i] = (cl_token_list){.ids = data[i], .n = length};
        }
        double sum = 0, length = 0;
        size_t maximum = 0, n_distinct = 0;
        for (size_t i = 0; i < n; i++) {
            size_t most = 0;
            bool first = true;
            for (size_t j = 0; j < n; j++) {
                size_t k = 0;
                while (k < spans[i].n && k < spans[j].n && spans[i].ids[k] == spans[j].ids[k]) k++;
                if (j != i && k > most) most = k;
                if (j < i && k == spans[i].n && k == spans[j].n) first = false;
            }
            sum += (double)most;
            length += (double)spans[i].n;
            n_distinct += first;
            if (most > maximum) maximum = most;
        }
        const shared_tokens result = count(n);
        assert_int_equal(result.n_requests, n);
        assert_int_equal(result.n_distinct, n_distinct);
        assert_int_equal(result.maximum, maximum);
        assert_true(result.average == sum / (double)n);
        assert_true(result.average_length == length / (double)n);
    }
}

/* Request i begins with `common` tokens that all have, then with prompt i % n_prompts up to `prompt` tokens, then is its own.
 */
static void make(size_t n, size_t n_prompts, size_t common, size_t prompt, size_t own) {
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < prompt + own; k++)
            data[i][k] = (int32_t)(k < common ? k : k < prompt ? 1000 * (1 + i % n_prompts) + k : next() % 8);
        data[i][prompt + own - 1] = (int32_t)(100 + i);
        spans[i] = (cl_token_list){.ids = data[i], .n = prompt + own};
    }
}

static void test_prompts(void **state) {
    (void)state;
    make(60, 4, 3, 300, 20);
    assert_int_equal(count(60).n_prompts, 4);
    make(60, 4, 200, 300, 20); /* prompts that begin alike */
    assert_int_equal(count(60).n_prompts, 4);
    make(60, 1, 0, 300, 20);
    assert_int_equal(count(60).n_prompts, 1);
    make(10, 10, 0, 300, 20); /* nothing in common */
    assert_int_equal(count(10).n_prompts, 0);
    make(2, 1, 0, 300, 20);
    assert_int_equal(count(2).n_prompts, 1);
}

static void test_nobody(void **state) {
    (void)state;
    const shared_tokens none = count(0);
    assert_int_equal(none.n_requests, 0);
    assert_true(none.average == 0);
    make(1, 1, 0, 300, 20);
    const shared_tokens one = count(1);
    assert_int_equal(one.n_distinct, 1);
    assert_int_equal(one.maximum, 0);
    assert_int_equal(one.n_prompts, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_all_pairs),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
