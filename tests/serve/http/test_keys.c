/* Files of API keys, the search for a client's key, and the ring of keys that a server replaces. */
#include "tests/support/testing.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/http/keyring.h"

enum { ALICE = 1306897498, BOB = 325888088 }; /* the domains of these names */

/* Read keys from a file with these bytes [size]. */
static cl_status read_bytes(server_keys *keys, const char *text, size_t size, cl_error *error) {
    char path[] = "/tmp/keys_test_XXXXXX";
    const int fd = mkstemp(path);
    assert_int_equal(write(fd, text, size), size);
    close(fd);
    const cl_status status = server_keys_read(keys, path, -1, error);
    unlink(path);
    return status;
}

static void assert_domain(const server_keys *keys, const char *key, uint32_t domain) {
    const server_key *found = server_keys_find(keys, key, strlen(key));
    if (!found || found->domain != domain) fail_msg("%s is of domain %u", key, found ? found->domain : UINT32_MAX);
}

static void lines_name_key_and_weight(void **state) {
    (void)state;
    static const char text[] = "\xef\xbb\xbf# tenants\r\n"
                               "alice key-a 2.5\r\n"
                               "\n"
                               "  bob\tkey-b  \n"
                               "# key-c\n"
                               "alice key-a2\n"
                               "default key-d 10\n"
                               "key-e\n"
                               "team 0123456789";
    server_keys keys = {0};
    cl_error error;
    if (read_bytes(&keys, text, sizeof text - 1, &error) != CL_OK) fail_msg("%s", error.message);
    assert_int_equal(keys.n, 6);
    assert_true(keys.has_tenants);
    assert_domain(&keys, "key-a", ALICE);
    assert_domain(&keys, "key-a2", ALICE);
    assert_domain(&keys, "key-b", BOB);
    assert_domain(&keys, "key-d", 0);
    assert_domain(&keys, "key-e", 0);
    assert_int_equal(keys.n_weights, 2);
    assert_true(keys.weights[0].domain == ALICE && keys.weights[0].weight == 2.5f);
    assert_true(keys.weights[1].domain == 0 && keys.weights[1].weight == 10);
    server_keys_free(&keys);
    assert_int_equal(keys.n, 0);
}

static void quotas_follow_the_key(void **state) {
    (void)state;
    static const char text[] = "alice key-a 2 requests_per_minute=60 tokens_per_minute=1000\n"
                               "bob key-b tokens_per_minute=1000000000\n"
                               "bob key-b2 requests_per_minute=1\n"
                               "default key-d tokens_per_minute=5\n"
                               "carol key-c 3\n";
    server_keys keys = {0};
    cl_error error;
    if (read_bytes(&keys, text, sizeof text - 1, &error) != CL_OK) fail_msg("%s", error.message);
    const quota_limit expected[] = {{.domain = ALICE, .requests = 60, .tokens = 1000},
                                    {.domain = BOB, .requests = 1, .tokens = 1000000000},
                                    {.domain = 0, .tokens = 5}};
    assert_true(keys.n == 5 && keys.n_weights == 2);
    assert_int_equal(keys.n_quotas, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(keys.quotas[i].domain, expected[i].domain);
        assert_int_equal(keys.quotas[i].requests, expected[i].requests);
        assert_int_equal(keys.quotas[i].tokens, expected[i].tokens);
    }
    assert_domain(&keys, "key-b2", BOB);
    server_keys_free(&keys);
}

/* llama-server's format: all keys are of one tenant, as they are there. */
static void a_plain_list_is_one_tenant(void **state) {
    (void)state;
    server_keys keys = {0};
    cl_error error;
    assert_int_equal(read_bytes(&keys, "sk-1\nsk-2\n\n42\n", 14, &error), CL_OK);
    assert_false(keys.has_tenants);
    assert_domain(&keys, "sk-1", 0);
    assert_domain(&keys, "sk-2", 0);
    assert_domain(&keys, "42", 0);
    server_keys_free(&keys);
}

static void only_the_whole_key_is_right(void **state) {
    (void)state;
    char longest[SERVER_MAX_KEY + 2];
    memset(longest, 'k', sizeof longest - 1);
    longest[SERVER_MAX_KEY] = '\0';
    server_keys keys = {0};
    cl_error error;
    assert_int_equal(server_keys_add(&keys, OPENAI_DEFAULT_TENANT, "secret", &error), CL_OK);
    assert_int_equal(server_keys_add(&keys, OPENAI_DEFAULT_TENANT, longest, &error), CL_OK);
    assert_domain(&keys, "secret", 0);
    assert_domain(&keys, longest, 0);
    static const char *const wrong[] = {"", "s", "secre", "secret2", "Secret", "secreT", "kk"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) assert_null(server_keys_find(&keys, wrong[i], strlen(wrong[i])));
    assert_null(server_keys_find(&keys, "secret\0", 7));
    longest[SERVER_MAX_KEY] = 'k';
    assert_null(server_keys_find(&keys, longest, SERVER_MAX_KEY + 1));
    longest[SERVER_MAX_KEY - 1] = 'x';
    assert_null(server_keys_find(&keys, longest, SERVER_MAX_KEY));
    server_keys_free(&keys);
}

static void wrong_lines_are_named(void **state) {
    (void)state;
    char many[SERVER_MAX_KEYS * 8 + 16], long_key[SERVER_MAX_KEY + 8] = "x ";
    size_t size = 0;
    for (int i = 0; i <= SERVER_MAX_KEYS; i++) size += (size_t)snprintf(many + size, sizeof many - size, "k%d\n", i);
    memset(long_key + 2, 'k', SERVER_MAX_KEY + 1);
#define TEXT(text) text, sizeof(text) - 1
    const struct {
        const char *text;
        size_t size;
        const char *in_message;
    } cases[] = {
        {TEXT(""), " has no key; write NAME KEY, or KEY, in a line for each"},
        {TEXT("# a b\n\n"), " has no key; "},
        {TEXT("a k\na b c d\n"),
         ", line 2: there are more than three words before the quotas; write NAME KEY WEIGHT, NAME KEY or KEY"},
        {TEXT("key 2\n"), ", line 1: the second word is a weight, not a key; write NAME KEY WEIGHT"},
        {TEXT("\n\na key 0\n"), ", line 3: the third word must be a weight from 0.001 to 1000"},
        {TEXT("a key 1001\n"), "from 0.001 to 1000"},
        {TEXT("a key 1x\n"), "from 0.001 to 1000"},
        {TEXT("a key nan\n"), "from 0.001 to 1000"},
        {TEXT("a key 1\na key2 1\n"), ", line 2: an earlier line has the tenant's weight; write it once"},
        {TEXT("a key 2 x\n"), ", line 1: there are more than three words before the quotas"},
        {TEXT("a key 2 requests_per_minute=1 x\n"), ", line 1: there are more than three words before the quotas"},
        {TEXT("a key 1 tokens_per_min=5\n"), ", line 1: there are more than three words before the quotas"},
        {TEXT("a key tokens_per_min=5\n"), "from 0.001 to 1000, or a quota such as tokens_per_minute=100000"},
        {TEXT("key tokens_per_minute:5\n"),
         ", line 1: the second word is no key; quotas are requests_per_minute=N and tokens_"},
        {TEXT("alice requests_per_minute=5\n"), ", line 1: a name or a key is missing before the quotas; write NAME KEY "
                                                "requests_per_minute=N, and 'default' for NAME"},
        {TEXT("tokens_per_minute=5\n"), "write NAME KEY tokens_per_minute=N, and 'default' for NAME if the key has none"},
        {TEXT("a key requests_per_minute=0\n"),
         ", line 1: requests_per_minute=N must have a whole number from 1 to 1000000000 in place of N"},
        {TEXT("a key tokens_per_minute=-1\n"), "tokens_per_minute=N must have a whole number"},
        {TEXT("a key tokens_per_minute=\n"), "tokens_per_minute=N must have a whole number"},
        {TEXT("a key tokens_per_minute=1.5\n"), "tokens_per_minute=N must have a whole number"},
        {TEXT("a key tokens_per_minute=1000000001\n"), "tokens_per_minute=N must have a whole number"},
        {TEXT("a k tokens_per_minute=1\na k2 tokens_per_minute=1\n"),
         ", line 2: an earlier word has the tenant's tokens_per_minute=N"},
        {TEXT("a key\nb key\n"), ", line 2: the key is there twice; leave one out"},
        {TEXT("a k\xc3\xa4y\n"), ", line 1: byte 1 of the key is no printable ASCII character"},
        {TEXT("\xc3\xa4 key\n"), ", line 1: a tenant's name must be 1 to 64 printable ASCII characters"},
        {TEXT("a key\0\n"), ", line 1: there is a zero character; remove it"},
        {TEXT("team-337551 a\nteam-366488 b\n"), ", line 2: the tenants 'team-337551' and 'team-366488' have the same hash"},
        {long_key, strlen(long_key), ", line 1: the key has 513 characters; it must have 1 to 512"},
        {many, size, ", line 1025: there are more than 1024 keys; leave some out"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        server_keys keys = {0};
        cl_error error;
        assert_int_equal(read_bytes(&keys, cases[i].text, cases[i].size, &error), CL_ERR_FORMAT);
        if (!strstr(error.message, cases[i].in_message) || strncmp(error.message, "/tmp/keys_test_", 15) != 0)
            fail_msg("'%s' does not say '%s'", error.message, cases[i].in_message);
        server_keys_free(&keys);
    }
    server_keys keys = {0};
    cl_error error;
    assert_int_equal(server_keys_read(&keys, "/no/such/file", -1, &error), CL_ERR_FILE);
    assert_string_equal(error.message,
                        "cannot open /no/such/file: No such file or directory; name a file with a key on each line");
    assert_int_equal(server_keys_read(&keys, "/", -1, &error), CL_ERR_FILE);
    assert_string_equal(error.message, "cannot read /: Is a directory; name a file with a key on each line");
    assert_int_equal(server_keys_add(&keys, OPENAI_DEFAULT_TENANT, "", &error), CL_ERR_ARG);
    server_keys_free(&keys);
}

/* Which tenants may have requests, and their names for messages. */
static void tenants_are_listed(void **state) {
    (void)state;
    char text[32];
    uint32_t domain;
    server_keys keys = {0};
    server_keys_list_tenants(&keys, text, sizeof text);
    assert_string_equal(text, "default");
    assert_true(server_keys_find_tenant(&keys, "default", &domain) && domain == 0);
    assert_true(server_keys_find_tenant(NULL, "default", &domain) && domain == 0);
    assert_false(server_keys_find_tenant(NULL, "bob", &domain));
    assert_false(server_keys_find_tenant(&keys, "bob", &domain));
    static const char *const lines[][2] = {{"bob", "k1"}, {"alice", "k2"}, {"bob", "k3"}, {"long-name", "k4"}};
    for (size_t i = 0; i < 4; i++) assert_int_equal(server_keys_add(&keys, lines[i][0], lines[i][1], NULL), CL_OK);
    server_keys_list_tenants(&keys, text, sizeof text);
    assert_string_equal(text, "bob, alice, long-name");
    assert_true(server_keys_find_tenant(&keys, "alice", &domain) && domain == keys.keys[1].domain);
    assert_false(server_keys_find_tenant(&keys, "default", &domain));
    assert_false(server_keys_find_tenant(&keys, "alic", &domain));
    server_keys_list_tenants(&keys, text, 20);
    assert_string_equal(text, "bob, alice, ...");
    server_keys_list_tenants(&keys, text, 4);
    assert_string_equal(text, "...");
    server_keys_free(&keys);
}

/* ---- The ring: keys that are replaced while they are looked up ---- */

static server_keys make_keys(const char *const (*lines)[2], size_t n) {
    server_keys keys = {0};
    for (size_t i = 0; i < n; i++) assert_int_equal(server_keys_add(&keys, lines[i][0], lines[i][1], NULL), CL_OK);
    return keys;
}

/* The domain of a key; -1: it is refused. */
static int64_t domain_of(http_keyring *k, const char *key) {
    uint32_t domain;
    return keyring_find(k, key, strlen(key), &domain) ? (int64_t)domain : -1;
}

static void what_is_wrong_changes_nothing(void **state) {
    (void)state;
    static const char *const before[][2] = {{"team-337551", "a"}}, *const after[][2] = {{"bob", "b"}, {"team-366488", "c"}};
    server_keys first = make_keys(before, 1), second = make_keys(after, 2), none = {0};
    http_keyring k, open;
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
    http_keyring k;
    pthread_t threads[2];
    assert_true(keyring_init(&k, &first));
    for (size_t i = 0; i < 2; i++) assert_int_equal(pthread_create(&threads[i], NULL, look_up, &k), 0);
    for (int i = 0; i < 200; i++) {
        server_keys keys = make_keys(lines, 1 + (size_t)(i % 2));
        assert_int_equal(keyring_replace(&k, &keys, NULL), CL_OK);
        assert_int_equal(domain_of(&k, "b"), i % 2 ? BOB : -1);
        if (i > 0) assert_string_equal(keyring_tenant(&k, BOB), "bob"); /* its requests may still run */
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
        cmocka_unit_test(lines_name_key_and_weight),     cmocka_unit_test(quotas_follow_the_key),
        cmocka_unit_test(a_plain_list_is_one_tenant),    cmocka_unit_test(only_the_whole_key_is_right),
        cmocka_unit_test(wrong_lines_are_named),         cmocka_unit_test(tenants_are_listed),
        cmocka_unit_test(what_is_wrong_changes_nothing), cmocka_unit_test(threads_may_look_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
