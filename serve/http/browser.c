/*
 * Keeps web pages of other origins from using the server through the browser of somebody who may.
 *
 * A browser sends some requests of any page to any server, and only hides the answer from the page. Two marks tell such a
 * request: the page's origin is not this server's, or Sec-Fetch-Site says so. A page that belongs to the server may be behind a
 * proxy that changes Host; then Sec-Fetch-Site, X-Forwarded-Host or allowed_hosts says that it is the server's own.
 *
 * By DNS rebinding a page makes its own name one of this machine, so that for the browser both have one origin. Therefore a
 * server that needs no key and takes connections of this machine only is addressed by names that nobody else can have. With a
 * key, the page lacks that.
 */
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "http.h"

static host_text text_of(const char *value, const char *end) { return (host_text){value, strcspn(value, end)}; }

/* The same without the port that its scheme implies. */
static host_text without_default_port(host_text h, const char *scheme) {
    const char *port = strncasecmp(scheme, "https:", 6) == 0 ? ":443" : ":80";
    const size_t n = strlen(port);
    return h.size > n && memcmp(h.at + h.size - n, port, n) == 0 ? (host_text){h.at, h.size - n} : h;
}

static bool is_equal(host_text a, host_text b) { return a.size == b.size && strncasecmp(a.at, b.at, a.size) == 0; }

/* Whether a list of names, separated by commas or blanks, has this one. Ports do not count. */
static bool lists(const char *names, host_text name) {
    for (const char *at = names; at && *(at += strspn(at, ", ")); at += strcspn(at, ", "))
        if (is_equal(host_without_port(text_of(at, ", ")), host_without_port(name))) return true;
    return false;
}

/* ---- Origins ---- */

/* Whether the page's origin is this server: its host is the one that the request is for, or that a proxy passes on. */
static bool is_own(const http_exchange *x, const char *origin, host_text host) {
    const char *scheme_end = strstr(origin, "://");
    if (!scheme_end) return false; /* "null": the browser does not say whose page it is */
    const host_text page = without_default_port(text_of(scheme_end + 3, "/"), origin);
    const char *forwarded = http_header(x, "X-Forwarded-Host");
    const host_text hosts[] = {host, text_of(forwarded ? forwarded : "", ", ")};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (hosts[i].size > 0 && is_equal(without_default_port(hosts[i], origin), page)) return true;
    return lists(x->srv->config.allowed_hosts, page);
}

/* Whether the user goes to the page itself, by a link of another site: nothing but the browser's window gets the answer. */
static bool is_navigation(const http_exchange *x, const char *method) {
    const char *mode = http_header(x, "Sec-Fetch-Mode"), *use = http_header(x, "Sec-Fetch-Dest");
    return strcmp(method, MHD_HTTP_METHOD_GET) == 0 && mode && strcmp(mode, "navigate") == 0 && use &&
           strcmp(use, "document") == 0;
}

/* Whether the request is one of a page of another site that the server does not know. */
static bool is_foreign(const http_exchange *x, const char *method, host_text host) {
    const char *origin = http_header(x, MHD_HTTP_HEADER_ORIGIN), *site = http_header(x, "Sec-Fetch-Site");
    const char *allowed = x->srv->config.cors_origin;
    if (allowed && (strcmp(allowed, "*") == 0 || (origin && strcmp(allowed, origin) == 0))) return false;
    if (site && (strcasecmp(site, "same-origin") == 0 || strcasecmp(site, "none") == 0)) return false;
    if (site && strcasecmp(site, "cross-site") == 0) return origin || !is_navigation(x, method);
    return origin && !is_own(x, origin, host);
}

/* ---- Hosts ---- */

/* Names of this machine, which by RFC 6761 no other can have. */
static bool is_localhost(host_text h) {
    if (h.size > 0 && h.at[h.size - 1] == '.') h.size--; /* the root of all names */
    static const char name[] = "localhost";
    const size_t n = sizeof name - 1;
    if (h.size < n || strncasecmp(h.at + h.size - n, name, n) != 0) return false;
    return h.size == n || h.at[h.size - n - 1] == '.';
}

/* Whether only some names may be those of the server. */
static bool checks_host(const http_exchange *x) {
    const char *allowed = x->srv->config.allowed_hosts;
    if (allowed) return !lists(allowed, text_of("*", ""));
    const union MHD_ConnectionInfo *peer = MHD_get_connection_info(x->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    return x->srv->is_local && !x->srv->keys.needed && peer && peer->client_addr->sa_family != AF_UNIX;
}

static bool may_be_host(const http_exchange *x, host_text host) {
    if (host.size == 0 || !checks_host(x)) return true; /* browsers always name it */
    const host_text name = host_without_port(host);
    return host_is_address(name) || is_localhost(name) || lists(x->srv->config.allowed_hosts, name);
}

bool browser_may_call(const http_exchange *x, const char *method, host_text host, openai_error *error) {
    if (!may_be_host(x, host)) {
        openai_fail(error, NULL,
                    "the host '%.*s' is not one of this server; address it as localhost or by its IP address, or start it "
                    "with --allowed-hosts",
                    (int)host.size, host.at);
        return openai_set_status(error, MHD_HTTP_FORBIDDEN, "host_not_allowed");
    }
    if (!is_foreign(x, method, host)) return true;
    const char *origin = http_header(x, MHD_HTTP_HEADER_ORIGIN);
    openai_fail(error, NULL,
                "the request comes from a web page of another site (%.200s), which this server does not serve; start it with "
                "--cors-origin, or if the site is a proxy of this server, with --allowed-hosts",
                origin ? origin : "without Origin");
    return openai_set_status(error, MHD_HTTP_FORBIDDEN, "origin_not_allowed");
}
