/* Which requests of browsers are served: by their origin, by Sec-Fetch-Site, and by the host that they name. */
#include "tests/support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "server_fixture.h"

/* What a server is started with. */
typedef struct start {
    const char *allowed_hosts, *cors_origin;
    bool has_key, is_open; /* it needs a key; it listens on all addresses */
} start;

static int set_up_browser(void **state, const start *how) {
    fixture *f = calloc(1, sizeof *f);
    server_config config = base_config();
    config.allowed_hosts = how->allowed_hosts;
    config.cors_origin = how->cors_origin;
    if (how->is_open) config.host = "0.0.0.0";
    if (how->has_key && server_keys_add(&f->keys, OPENAI_DEFAULT_TENANT, "secret", NULL) != CL_OK) return -1;
    if (how->has_key) config.keys = &f->keys;
    return set_up_config(state, f, &config);
}

/* The status of a request with these headers, in which %u is the server's port. */
static int status_of(uint16_t port, const char *line, const char *headers) {
    char named[300], request[500];
    snprintf(named, sizeof named, headers, port, port);
    snprintf(request, sizeof request, "%s HTTP/1.1\r\n%s\r\nAuthorization: Bearer secret\r\nConnection: close\r\n\r\n", line,
             named);
    const int fd = client_connect(port);
    client_send_bytes(fd, request, strlen(request));
    char *text = client_read_all(fd);
    const int status = strncmp(text, "HTTP/1.1 ", 9) == 0 ? atoi(text + 9) : 0;
    if (status == 403 && !strstr(text, "not_allowed")) fail_msg("%s", text);
    free(text);
    close(fd);
    return status;
}

typedef struct browser_case {
    const char *headers;
    int status;
} browser_case;

static void check(const start *how, const char *line, const browser_case *cases, size_t n) {
    void *state;
    assert_int_equal(set_up_browser(&state, how), 0);
    const fixture *f = state;
    for (size_t i = 0; i < n; i++) {
        const int status = status_of(f->port, line, cases[i].headers);
        if (status != cases[i].status) fail_msg("%s with %s: %d, not %d", line, cases[i].headers, status, cases[i].status);
    }
    tear_down(&state);
}
#define CHECK(line, cases, ...) check(&(start){__VA_ARGS__}, line, cases, sizeof(cases) / sizeof *(cases))

#define HOST "Host: localhost:%u\r\n"

static void pages_of_other_sites_are_refused(void **state) {
    (void)state;
    static const browser_case cases[] = {
        {HOST "Accept: */*", 200},
        {HOST "Origin: http://localhost:%u", 200},
        {HOST "Origin: HTTP://LocalHost:%u", 200},
        {HOST "Origin: http://evil.example", 403},
        {HOST "Origin: http://localhost", 403},
        {HOST "Origin: http://localhost:1", 403},
        {HOST "Origin: http://localhost:%u.evil.example", 403},
        {HOST "Origin: http://xlocalhost:%u", 403},
        {HOST "Origin: null", 403},
        {HOST "Origin:", 403},
        {HOST "Origin: chrome-extension://abc", 403},
        {HOST "Origin: http://evil.example\r\nSec-Fetch-Site: cross-site", 403},
        {HOST "Origin: http://localhost:%u\r\nSec-Fetch-Site: Cross-Site", 403},
        {"Host: localhost.:%u\r\nAccept: */*", 200},
        {HOST "Origin: http://localhost:1\r\nSec-Fetch-Site: same-site", 403},
        {HOST "Origin: https://chat.example\r\nSec-Fetch-Site: same-origin", 200}, /* behind a proxy that changes Host */
        {HOST "Origin: https://chat.example\r\nX-Forwarded-Host: chat.example", 200},
        {HOST "Origin: https://chat.example\r\nX-Forwarded-Host: other.example", 403},
        {HOST "Sec-Fetch-Site: cross-site", 403},
        {HOST "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image", 403},
        {HOST "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe", 403},
        {HOST "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document", 200},
        {HOST "Sec-Fetch-Site: same-origin", 200},
        {HOST "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate", 200},
        {"Host: 127.0.0.1\r\nOrigin: http://127.0.0.1:80", 200},
        {"Host: 127.0.0.1:443\r\nOrigin: https://127.0.0.1", 200},
    };
    CHECK("GET /v1/models", cases, 0);
    CHECK("GET /v1/models", cases, .has_key = true);
    static const browser_case forms[] = {
        {HOST "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document", 403}, /* a form */
        {HOST "Origin: http://evil.example", 403},
        {HOST "Origin: http://localhost:%u", 200},
    };
    CHECK("POST /cache/reset", forms, 0);
}

static void pages_that_are_named_are_served(void **state) {
    (void)state;
    static const browser_case named[] = {
        {HOST "Origin: https://chat.example", 200}, {HOST "Origin: https://chat.example\r\nSec-Fetch-Site: cross-site", 200},
        {HOST "Origin: http://chat.example", 403},  {HOST "Origin: http://localhost:%u", 200},
        {HOST "Sec-Fetch-Site: cross-site", 403},
    };
    CHECK("GET /v1/models", named, .cors_origin = "https://chat.example");
    static const browser_case all[] = {{HOST "Origin: http://evil.example", 200}, {HOST "Origin: null", 200}};
    CHECK("GET /v1/models", all, .cors_origin = "*");
    static const browser_case proxied[] = {
        {"Host: 127.0.0.1:%u\r\nOrigin: https://chat.example", 200},
        {"Host: chat.example\r\nOrigin: https://chat.example", 200},
        {"Host: 127.0.0.1:%u\r\nOrigin: https://evil.example", 403},
    };
    CHECK("GET /v1/models", proxied, .allowed_hosts = "other.example,chat.example");
    static const browser_case foreign[] = {{HOST "Origin: https://evil.example", 403}};
    CHECK("GET /v1/models", foreign, .allowed_hosts = "*"); /* which names no page */
}

/* Without a key and on this machine only, a name that DNS may have rebound is refused. */
static void hosts_of_others_are_refused(void **state) {
    (void)state;
    static const browser_case local[] = {
        {HOST "A: b", 200},
        {"Host: LOCALHOST", 200},
        {"Host: localhost:%u \t ", 200},
        {"Host: a.localhost:80", 200},
        {"Host: 127.0.0.1:%u", 200},
        {"Host: 10.1.2.3", 200},
        {"Host: [::1]:%u", 200},
        {"Host: [fe80::1]", 200},
        {"Host:", 200},
        {"Host: evil.example", 403},
        {"Host: evil.example:%u\r\nOrigin: http://evil.example:%u\r\nSec-Fetch-Site: same-origin", 403},
        {"Host: localhost.evil.example", 403},
        {"Host: xlocalhost", 403},
        {"Host: 127.0.0.1.evil.example", 403},
        {"Host: 127.1", 403},
        {"Host: evil.example ", 403},
    };
    CHECK("GET /cache", local, 0);
    static const browser_case listed[] = {
        {"Host: b.example:8080", 200}, {"Host: A.EXAMPLE", 200}, {"Host: c.example", 403},
        {"Host: 127.0.0.1:%u", 200},   {"Host: localhost", 200},
    };
    CHECK("GET /cache", listed, .allowed_hosts = "a.example:80, b.example");
    CHECK("GET /cache", listed, .allowed_hosts = "a.example, b.example", .has_key = true, .is_open = true);
    static const browser_case any[] = {{"Host: c.example", 200}};
    CHECK("GET /cache", any, .allowed_hosts = "*");
    CHECK("GET /cache", any, .has_key = true);
    CHECK("GET /cache", any, .is_open = true);
}

/* The host of a target that is a URL counts, and Host does not (RFC 9112, 3.2.2). */
static void the_target_names_the_host(void **state) {
    (void)state;
    static const browser_case local[] = {
        {"Host: evil.example", 200},
        {"Host: evil.example\r\nOrigin: http://localhost:8080", 200},
        {"Host: evil.example\r\nOrigin: http://evil.example", 403},
    };
    CHECK("GET http://localhost:8080/cache", local, 0);
    CHECK("GET HTTP://LocalHost:8080/cache?a=b", local, 0);
    static const browser_case rebound[] = {{HOST "A: b", 403}, {HOST "Origin: http://localhost:%u", 403}};
    CHECK("GET http://evil.example/cache", rebound, 0);
    CHECK("GET https://evil.example:443", rebound, 0);
    CHECK("GET http://evil.example?/localhost", rebound, 0);
    static const browser_case listed[] = {{"Host: c.example", 200}};
    CHECK("GET http://a.example/cache", listed, .allowed_hosts = "a.example", .is_open = true);
    static const browser_case unlisted[] = {{"Host: a.example", 403}};
    CHECK("GET http://c.example/cache", unlisted, .allowed_hosts = "a.example", .is_open = true);
}

/* Also where any name is allowed. */
static void hosts_that_are_no_names_are_refused(void **state) {
    (void)state;
    static char longest[] = "Host: %0255u", too_long[] = "Host: %0256u"; /* of digits: zeros and the port */
    const browser_case cases[] = {
        {"Host: under_score.a-b~c.example.:65535", 200},
        {"Host: a:", 200},
        {"Host: [2001:db8::1.2.3.4]:08080", 200},
        {longest, 200},
        {too_long, 400},
        {"Host: a b", 400},
        {"Host: a\tb", 400},
        {"Host: a,b", 400},
        {"Host: a@b", 400},
        {"Host: a/b", 400},
        {"Host: http://a", 400},
        {"Host: a\\b", 400},
        {"Host: a?b", 400},
        {"Host: a#b", 400},
        {"Host: \"a\"", 400},
        {"Host: 'a'", 400},
        {"Host: <a>", 400},
        {"Host: a%%62", 400},
        {"Host: \xc3\xa4", 400},
        {"Host: a\x01", 400},
        {"Host: :80", 400},
        {"Host: a:b", 400},
        {"Host: a:-1", 400},
        {"Host: a: 80", 400},
        {"Host: a:65536", 400},
        {"Host: a:000080", 400},
        {"Host: a:99999999999999999999", 400},
        {"Host: a:80:80", 400},
        {"Host: ::1", 400},
        {"Host: [::1", 400},
        {"Host: []", 400},
        {"Host: [a]", 400},
        {"Host: [127.0.0.1]", 400},
        {"Host: [fe80::1%%25eth0]", 400},
        {"Host: [::1]a", 400},
    };
    CHECK("GET /cache", cases, .is_open = true);
    CHECK("GET http://localhost/cache", cases, .allowed_hosts = "*", .has_key = true); /* Host is read, too */
}

static void targets_that_are_none_are_refused(void **state) {
    (void)state;
    static const browser_case named[] = {{HOST "A: b", 400}};
    static const char *const lines[] = {
        "GET http:///cache",
        "GET http://:80/cache",
        "GET http://localhost:x/cache",
        "GET http://a@localhost/cache",
        "GET http://local%68ost/cache",
        "GET http://a%2fb/cache",
        "GET http:%2f%2flocalhost/cache",
        "GET http:/cache",
        "GET ftp://localhost/cache",
        "GET cache",
        "GET localhost:80",
        "CONNECT localhost:80",
        "GET *",
        "GET %2a",
        "OPTIONS %2a",
        "GET %2fcache",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) CHECK(lines[i], named, 0);
    static const browser_case whole[] = {{HOST "A: b", 404}};
    CHECK("OPTIONS *", whole, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_other_sites_are_refused),    cmocka_unit_test(pages_that_are_named_are_served),
        cmocka_unit_test(hosts_of_others_are_refused),         cmocka_unit_test(the_target_names_the_host),
        cmocka_unit_test(hosts_that_are_no_names_are_refused), cmocka_unit_test(targets_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
