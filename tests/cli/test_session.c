/* What the program makes of its options when it loads a model. */
#include "tests/support/testing.h"

#include "cli/session.h"

static const uint64_t MB = UINT64_C(1) << 20, GB = UINT64_C(1) << 30;

/* The K/V budget is what --kv-budget says, or three quarters of what is free beside the weights, and never less than 64 MiB. */
static void the_budget_is_a_part_of_the_free_memory(void **state) {
    (void)state;
    const struct {
        uint64_t option, free, weights, budget;
    } cases[] = {
        {0, 10 * GB, 2 * GB, 6 * GB},
        {0, 2 * GB + 100 * MB, 2 * GB, 75 * MB},
        {0, 2 * GB + 80 * MB, 2 * GB, 64 * MB},
        {0, 2 * GB, 2 * GB, 64 * MB},
        {0, 1 * GB, 2 * GB, 64 * MB}, /* the weights may be in memory already */
        {0, 0, 0, 64 * MB},
        {0, UINT64_MAX, 2 * GB, 2 * GB}, /* it is not known how much is free */
        {5 * GB, 10 * GB, 2 * GB, 5 * GB},
        {50 * GB, 10 * GB, 2 * GB, 50 * GB},
        {1 * MB, UINT64_MAX, 2 * GB, 1 * MB},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const cli_options options = {.kv_budget = (int64_t)cases[i].option};
        const uint64_t budget = session_kv_budget(&options, cases[i].free, cases[i].weights);
        if (budget != cases[i].budget) fail_msg("case %zu: %llu bytes", i, (unsigned long long)budget);
    }
}

int __wrap_main(void);
int __wrap_main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_budget_is_a_part_of_the_free_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
