/* Salts get domains by their bytes, keep them while they are used and a while longer, and never share one. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <string.h>

#include "chunkllama/engine/salts.h"

static int n_cleared;
static void clear(void *ctx) { n_cleared += *(int *)ctx; }
static int one = 1;

static cl_salt *acquire(cl_salts *s, uint32_t domain, const char *text) {
    cl_salt *salt = cl_salts_acquire(s, domain, text, strlen(text));
    assert_non_null(salt);
    return salt;
}

static uint32_t domain_of(cl_salts *s, uint32_t domain, const char *text) {
    cl_salt *salt = acquire(s, domain, text);
    const uint32_t kv_domain = salt->kv_domain;
    cl_salts_release(s, salt);
    return kv_domain;
}

static void equal_bytes_have_equal_domains(void **state) {
    (void)state;
    cl_salts s;
    cl_salts_init(&s, 100, 50, clear, &one);
    const uint32_t a = domain_of(&s, 1, "a");
    assert_int_equal(a, 100);
    assert_int_equal(domain_of(&s, 1, "a"), a);
    assert_int_equal(cl_salts_find(&s, 1, "a", 1)->kv_domain, a);
    assert_null(cl_salts_find(&s, 2, "a", 1));
    assert_null(cl_salts_find(&s, 1, "aa", 2)); /* to look for a salt gives it no domain */
    assert_int_equal(s.n_given, 1);
    const uint32_t others[] = {domain_of(&s, 2, "a"), domain_of(&s, 1, "b"), domain_of(&s, 1, "aa")};
    cl_salt *with_zero = cl_salts_acquire(&s, 1, "a\0", 2);
    for (int i = 0; i < 3; i++) assert_true(others[i] != a && others[i] != with_zero->kv_domain);
    assert_true(with_zero->kv_domain != a);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < i; k++) assert_true(others[i] != others[k]);
    cl_salts_free(&s); /* also with a user */
}

/* The salts that were used last are kept; one that is used is kept however many others come. */
static void the_oldest_are_forgotten(void **state) {
    (void)state;
    cl_salts s;
    cl_salts_init(&s, 0, 1u << 30, clear, &one);
    cl_salt *used = acquire(&s, 0, "used"), *again = acquire(&s, 0, "used");
    assert_ptr_equal(used, again);
    cl_salts_release(&s, again);
    const uint32_t first = domain_of(&s, 0, "first"), second = domain_of(&s, 0, "second");
    assert_int_equal(domain_of(&s, 0, "first"), first); /* used later than the second now */
    char text[16];
    for (int i = 0; i < CL_SALTS_KEPT - 1; i++) {
        snprintf(text, sizeof text, "%d", i);
        domain_of(&s, 0, text);
    }
    assert_int_equal(s.unused.n, CL_SALTS_KEPT);
    assert_int_equal(domain_of(&s, 0, "first"), first);
    assert_true(domain_of(&s, 0, "second") > second);
    assert_int_equal(s.unused.n, CL_SALTS_KEPT);
    assert_int_equal(domain_of(&s, 0, "used"), used->kv_domain);
    cl_salts_release(&s, used);
    cl_salts_free(&s);
}

/* When all domains have been given, caches are cleared, unused salts forgotten, and domains in use are not given again. */
static void domains_begin_again(void **state) {
    (void)state;
    cl_salts s;
    n_cleared = 0;
    cl_salts_init(&s, 10, 4, clear, &one);
    cl_salt *used = acquire(&s, 0, "used");
    assert_int_equal(used->kv_domain, 10);
    assert_int_equal(domain_of(&s, 0, "a"), 11);
    assert_int_equal(domain_of(&s, 0, "b"), 12);
    assert_int_equal(domain_of(&s, 0, "c"), 13);
    assert_int_equal(n_cleared, 0);
    assert_int_equal(domain_of(&s, 0, "d"), 11);
    assert_int_equal(n_cleared, 1);
    assert_int_equal(domain_of(&s, 0, "a"), 12); /* what it had is not found any more */
    assert_int_equal(domain_of(&s, 0, "used"), 10);
    cl_salts_release(&s, used);
    cl_salts_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_bytes_have_equal_domains),
        cmocka_unit_test(the_oldest_are_forgotten),
        cmocka_unit_test(domains_begin_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
