/* The states of a generation, and the transitions between them. */
#include "tests/support/testing.h"

#include "serve/http/generation_state.h"

enum { N = GENERATION_ABANDONED + 1 };

static void only_these_changes_are_legal(void **state) {
    static const bool legal[N][N] = {
        [GENERATION_PREPARING] = {[GENERATION_RUNNING] = true,
                                  [GENERATION_REFUSED] = true,
                                  [GENERATION_FAILED] = true,
                                  [GENERATION_STOPPED] = true,
                                  [GENERATION_ABANDONED] = true},
        [GENERATION_RUNNING] = {[GENERATION_FAILED] = true, [GENERATION_STOPPED] = true, [GENERATION_ABANDONED] = true},
    };
    (void)state;
    for (int from = 0; from < N; from++)
        for (int to = 0; to < N; to++)
            if (generation_may_become((generation_state)from, (generation_state)to) != legal[from][to])
                fail_msg("from %d to %d", from, to);
}

/* Whatever comes, in any order: a generation is prepared at most once, and the first end stays. */
static void the_first_end_stays(void **state) {
    (void)state;
    for (int order = 0; order < N * N * N * N; order++) {
        http_generation g = {.state = GENERATION_PREPARING};
        for (int rest = order, i = 0; i < 4; rest /= N, i++) {
            const generation_state before = g.state, to = (generation_state)(rest % N);
            generation_become(&g, to);
            const bool moves =
                before != to && (before == GENERATION_PREPARING || (before == GENERATION_RUNNING && to > GENERATION_REFUSED));
            const bool back = to == GENERATION_PREPARING;
            assert_int_equal(g.state, moves && !back ? to : before);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_these_changes_are_legal),
        cmocka_unit_test(the_first_end_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
