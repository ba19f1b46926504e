/* Reads the hosts that heads name: in Host, in a target that is a whole URL, and in Origin. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "http.h"

host_text host_without_port(host_text h) {
    size_t size = h.size;
    while (size > 0 && h.at[size - 1] >= '0' && h.at[size - 1] <= '9') size--;
    return size > 0 && h.at[size - 1] == ':' ? (host_text){h.at, size - 1} : h;
}

bool host_is_address(host_text h) {
    char text[64];
    struct in6_addr address;
    const bool in_brackets = h.size > 2 && h.at[0] == '[' && h.at[h.size - 1] == ']';
    if (in_brackets) h = (host_text){h.at + 1, h.size - 2};
    if (h.size >= sizeof text) return false;
    memcpy(text, h.at, h.size);
    text[h.size] = '\0';
    return inet_pton(in_brackets ? AF_INET6 : AF_INET, text, &address) == 1;
}

static bool is_name(host_text h) {
    enum { MOST_BYTES = 255 };
    for (size_t i = 0; i < h.size; i++) {
        const char c = h.at[i];
        const bool is_letter = (c | 32) >= 'a' && (c | 32) <= 'z', is_digit = c >= '0' && c <= '9';
        if (!is_letter && !is_digit && (!c || !strchr("-._~", c))) return false;
    }
    return h.size > 0 && h.size <= MOST_BYTES;
}

bool host_is_valid(host_text h) {
    enum { MOST_DIGITS = 5, MOST = 65535 };
    const host_text name = host_without_port(h);
    const size_t n_digits = h.size - name.size; /* and a colon, if there is a port */
    if (n_digits > MOST_DIGITS + 1 || (n_digits > 1 && strtol(name.at + name.size + 1, NULL, 10) > MOST)) return false;
    return is_name(name) || (name.size > 0 && name.at[0] == '[' && host_is_address(name));
}

host_text host_without_blanks(host_text h) {
    while (h.size > 0 && (h.at[h.size - 1] == ' ' || h.at[h.size - 1] == '\t')) h.size--;
    return h;
}

http_target target_read(const char *target) {
    const size_t scheme = strncasecmp(target, "http://", 7) == 0 ? 7 : strncasecmp(target, "https://", 8) == 0 ? 8 : 0;
    const host_text host = {target + scheme, scheme ? strcspn(target + scheme, "/?#") : 0};
    if (scheme ? host_is_valid(host) : *target == '/' || strcmp(target, "*") == 0)
        return (http_target){.is_valid = true, .host = scheme, .path = scheme + host.size};
    return (http_target){0};
}
