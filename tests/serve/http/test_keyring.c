/* API keys that are replaced while they are looked up. */
#include "tests/support/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "serve/http/keyring.h"

enum { ALICE = 1306897498, BOB = 325888088 }; /* the domains of these names */

static server_keys make_keys(const char *const (*lines)[2], size_t n) {
    server_keys keys = {0};
    for (size_t i = 0; i < n; i++) assert_int_equal(server_keys_add(&keys, lines[i][0], lines[i][1], NULL), CL_OK);
    return keys;
}

/* The domain of a key; -1: it is refused. */
static int64_t domain_of(keyring *k, const char *key) {
    uint32_t domain;
    return keyring_find(k, key, strlen(key), &domain) ? (int64_t)domain : -1;
}

static void keys_are_replaced(void **state) {
    (void)state;
    static const char *const before[][2] = {{"alice", "a"}, {"default", "d"}}, *const after[][2] = {{"bob", "b"},
                                                                                                    {"alice", "a2"}};
    server_keys first = make_keys(before, 2), second = make_keys(after, 2), third = make_keys(before + 1, 1);
    keyring k;
    cl_error error;
    uint32_t domain;
    assert_true(keyring_init(&k, &first) && k.needed && keyring_has_tenants(&k));
    assert_true(domain_of(&k, "a") == ALICE && domain_of(&k, "d") == 0 && domain_of(&k, "b") == -1);
    assert_int_equal(keyring_replace(&k, &second, &error), CL_OK);
    assert_int_equal(second.n, 0);
    assert_true(domain_of(&k, "a") == -1 && domain_of(&k, "a2") == ALICE && domain_of(&k, "b") == BOB &&
                domain_of(&k, "d") == -1);
    assert_true(keyring_find_tenant(&k, "bob", &domain) && domain == BOB);
    assert_false(keyring_find_tenant(&k, "default", &domain));
    assert_int_equal(keyring_replace(&k, &third, &error), CL_OK);
    assert_false(keyring_has_tenants(&k));
    assert_true(domain_of(&k, "d") == 0 && domain_of(&k, "b") == -1);
    assert_string_equal(keyring_tenant(&k, BOB), "bob"); /* its requests may still run */
    assert_string_equal(keyring_tenant(&k, ALICE), "alice");
    assert_null(keyring_tenant(&k, ALICE + 1));
    keyring_destroy(&k);
    assert_int_equal(first.n, 2);
    server_keys_free(&first);
}

static void what_is_wrong_changes_nothing(void **state) {
    (void)state;
    static const char *const before[][2] = {{"team-337551", "a"}}, *const after[][2] = {{"bob", "b"}, {"team-366488", "c"}};
    server_keys first = make_keys(before, 1), second = make_keys(after, 2), none = {0};
    keyring k, open;
    cl_error error;
    assert_true(keyring_init(&k, &first) && keyring_init(&open, NULL));
    assert_int_equal(keyring_replace(&k, &second, &error), CL_ERR_ARG);
    assert_non_null(strstr(error.message, "'team-366488' has the same hash as 'team-337551'"));
    assert_int_equal(second.n, 2);
    assert_int_equal(keyring_replace(&k, &none, &error), CL_ERR_ARG);
    assert_int_equal(keyring_replace(&open, &second, &error), CL_ERR_ARG);
    assert_true(!open.needed && !keyring_has_tenants(&open) && domain_of(&open, "b") == -1);
    assert_true(domain_of(&k, "a") >= 0 && domain_of(&k, "b") == -1);
    assert_null(keyring_tenant(&k, BOB));
    keyring_destroy(&k);
    keyring_destroy(&open);
    server_keys_free(&first);
    server_keys_free(&second);
}

static atomic_bool ended;

static void *look_up(void *k) {
    while (!atomic_load(&ended)) {
        const int64_t domain = domain_of(k, "a");
        if (domain != ALICE || strcmp(keyring_tenant(k, ALICE), "alice") != 0) return k;
        keyring_has_tenants(k);
    }
    return NULL;
}

static void threads_may_look_meanwhile(void **state) {
    (void)state;
    static const char *const lines[][2] = {{"alice", "a"}, {"bob", "b"}};
    server_keys first = make_keys(lines, 2);
    keyring k;
    pthread_t threads[2];
    assert_true(keyring_init(&k, &first));
    for (size_t i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, look_up, &k), 0);
    for (int i = 0; i < 200; i++) {
        server_keys keys = make_keys(lines, 1 + (size_t)(i % 2));
        assert_int_equal(keyring_replace(&k, &keys, NULL), CL_OK);
        assert_int_equal(domain_of(&k, "b"), i % 2 ? BOB : -1);
    }
    atomic_store(&ended, true);
    for (size_t i = 0; i < 2; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    keyring_destroy(&k);
    server_keys_free(&first);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_replaced),
        cmocka_unit_test(what_is_wrong_changes_nothing),
        cmocka_unit_test(threads_may_look_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
