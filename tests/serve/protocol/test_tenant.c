/* Names of tenants and their domains. */
#include "tests/support/testing.h"

#include <string.h>

#include "serve/protocol/openai.h"

/* K/V in files are the tenant's after a restart and an update, so a name's domain never changes. */
static void a_name_has_one_domain(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t domain;
    } cases[] = {{"default", 0}, {"alice", 1306897498}, {"bob", 325888088}, {"alice", 1306897498}};
    openai_tenants tenants = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t domain = 1;
        assert_int_equal(openai_tenants_domain(&tenants, cases[i].name, &domain, NULL), CL_OK);
        assert_int_equal(domain, cases[i].domain);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(openai_tenants_name(&tenants, cases[i].domain), cases[i].name);
    assert_null(openai_tenants_name(&tenants, 77));
    openai_tenants_free(&tenants);
    assert_null(openai_tenants_name(&tenants, 0));
    openai_tenants_free(&tenants);
}

static void names_that_collide_are_refused(void **state) {
    (void)state;
    openai_tenants tenants = {0};
    cl_error error;
    uint32_t domain;
    assert_int_equal(openai_tenants_domain(&tenants, "team-337551", &domain, &error), CL_OK);
    assert_int_equal(domain, 4595325);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(openai_tenants_domain(&tenants, "team-366488", &domain, &error), CL_ERR_ARG);
        assert_string_equal(error.message,
                            "the tenants 'team-337551' and 'team-366488' have the same hash, 4595325; rename one of them");
    }
    assert_int_equal(openai_tenants_domain(&tenants, "team-337551", &domain, &error), CL_OK);
    openai_tenants_free(&tenants);
}

static void names_are_printable(void **state) {
    (void)state;
    char longest[66];
    memset(longest, 'x', 65);
    longest[64] = '\0';
    openai_tenants tenants = {0};
    uint32_t domain;
    cl_error error;
    assert_int_equal(openai_tenants_domain(&tenants, longest, &domain, &error), CL_OK);
    longest[64] = 'x';
    longest[65] = '\0';
    const char *const wrong[] = {"", "a b", " a", "a\t", "\x7f", "\xc3\xa4", longest};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(openai_tenants_domain(&tenants, wrong[i], &domain, &error), CL_ERR_ARG);
        assert_non_null(strstr(error.message, "1 to 64 printable ASCII characters"));
    }
    openai_tenants_free(&tenants);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_has_one_domain),
        cmocka_unit_test(names_that_collide_are_refused),
        cmocka_unit_test(names_are_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
