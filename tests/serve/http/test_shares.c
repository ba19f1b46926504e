/* Shares: no tenant holds more than it leaves free, and none is left with nothing. */
#include "tests/support/testing.h"

#include "serve/http/shares.h"

static size_t take_all(http_shares *s, uint32_t domain) {
    size_t n = 0;
    while (shares_take(s, domain, 1)) n++;
    return n;
}

static void a_tenant_holds_as_much_as_it_leaves(void **state) {
    (void)state;
    http_shares s;
    shares_init(&s, 64);
    assert_int_equal(take_all(&s, 7), 32);
    assert_int_equal(take_all(&s, 8), 16);
    assert_int_equal(take_all(&s, 9), 8);
    assert_int_equal(take_all(&s, 7), 0);
    assert_true(shares_take(&s, 7, 0)); /* an ordinary request, of which no byte counts */
    assert_int_equal(shares_amount(&s), 56);
    shares_give_back(&s, 7, 32);
    assert_int_equal(take_all(&s, 10), 20); /* beside 24 that others hold */
    assert_int_equal(s.n_entries, 3);       /* the entry of a tenant that holds nothing is another's */
    shares_give_back(&s, 8, 16);
    shares_give_back(&s, 9, 8);
    shares_give_back(&s, 10, 20);
    assert_int_equal(shares_amount(&s), 0);
    assert_false(shares_take(&s, 7, 33));
    assert_false(shares_take(&s, 7, SIZE_MAX));
    assert_true(shares_take(&s, 7, 32));
    assert_true(shares_take(&s, 7, 0));
    shares_give_back(&s, 7, 0);
    shares_destroy(&s);
}

static void without_a_limit_there_is_nothing(void **state) {
    (void)state;
    http_shares s;
    shares_init(&s, 0);
    assert_false(shares_take(&s, 7, 1));
    assert_true(shares_take(&s, 7, 0));
    shares_destroy(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tenant_holds_as_much_as_it_leaves),
        cmocka_unit_test(without_a_limit_there_is_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
