/* Kernel levels: the list, and the choice by name, CPU and environment. */
#include "tests/support/testing.h"

#include <stdlib.h>

#include "chunkattn/base/cpu.h"
#include "chunkattn/base/levels.h"

static int chosen(const char *highest) {
    int level = -1;
    assert_int_equal(ca_level_choose(highest, &level), CA_LEVEL_OK);
    return level;
}

static void the_list_ascends(void **state) {
    (void)state;
    assert_string_equal(ca_level_name(CA_LEVEL_ref), "ref");
    assert_int_equal(ca_level_features(CA_LEVEL_ref), 0);
    uint32_t below = 0;
    for (int level = 0; level < CA_N_LEVELS; level++) {
        assert_int_equal(ca_level_find(ca_level_name(level)), level);
        assert_int_equal(below & ~ca_level_features(level), 0); /* a level needs what those below it need */
        below |= ca_level_features(level) & ~CA_CPU_AVX_VNNI;   /* CPUs with AVX-512 may lack this one */
    }
    assert_int_equal(ca_level_find("sse9"), -1);
}

static void the_cpu_decides(void **state) {
    (void)state;
    int i = 0;
    for (int level = 0; level < CA_N_LEVELS; level++) {
        assert_int_equal(ca_level_runs(level), (ca_level_features(level) & ~ca_cpu_features()) == 0);
        if (ca_level_runs(level)) assert_int_equal(ca_level_of_cpu(i++), level);
    }
    assert_int_equal(ca_level_of_cpu(i), -1);
    unsetenv("CATTN_LEVEL");
    assert_null(ca_level_environment());
    assert_int_equal(chosen(NULL), ca_level_of_cpu(i - 1));
}

static void names_and_environment_lower_it(void **state) {
    (void)state;
    int level = -1;
    assert_int_equal(ca_level_choose("sse9", &level), CA_LEVEL_UNKNOWN);
    setenv("CATTN_LEVEL", "", 1);
    assert_null(ca_level_environment());
    for (int asked = 0; asked < CA_N_LEVELS; asked++) {
        if (!ca_level_runs(asked)) {
            assert_int_equal(ca_level_choose(ca_level_name(asked), &level), CA_LEVEL_LACKING);
            continue;
        }
        for (int limit = 0; limit < CA_N_LEVELS; limit++) { /* also levels above this CPU's, which limit nothing */
            int expected = limit < asked ? limit : asked;
            while (!ca_level_runs(expected)) expected--;
            setenv("CATTN_LEVEL", ca_level_name(limit), 1);
            assert_int_equal(chosen(ca_level_name(asked)), expected);
        }
    }
    setenv("CATTN_LEVEL", "sse9", 1);
    assert_string_equal(ca_level_environment(), "sse9");
    assert_int_equal(ca_level_choose(NULL, &level), CA_LEVEL_ENVIRONMENT_UNKNOWN);
    unsetenv("CATTN_LEVEL");
    assert_int_equal(level, -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_ascends),
        cmocka_unit_test(the_cpu_decides),
        cmocka_unit_test(names_and_environment_lower_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
