/*
 * Finds zero characters in the head of a request.
 *
 * libmicrohttpd 0.9.75 replaces the separators between the strings of a head by zeros, and drops the bytes behind a zero that
 * the client sent. But the strings still lie in the received head, in its order, so the bytes between them show whether
 * something was dropped. Later versions refuse such heads themselves. A string that lies elsewhere is ignored.
 */
#include <string.h>

#include "http.h"

typedef struct head_walk {
    const char *begin, *end; /* the head as it was received */
    const char *at;          /* the end of the last string; NULL: not known */
    int n_zeros;             /* that the next string may follow: 1 on the same line, 2 on the next one */
    bool found;
} head_walk;

/* Examine the bytes between the last string and `next`: blanks, ends of lines, and zeros in place of separators. */
static void look_between(head_walk *w, const char *next, int n_zeros) {
    for (const char *at = w->at; at && at < next; at++) {
        if (*at == '\0')
            n_zeros--;
        else if (!strchr(" \t\r\n", *at))
            w->found = true;
    }
    if (n_zeros < 0) w->found = true;
}

/* Pass over the next string of the head. */
static void pass(head_walk *w, const char *string, size_t size, int n_zeros) {
    const bool known = string >= w->begin && string + size <= w->end && (!w->at || w->at <= string);
    if (known) look_between(w, string, n_zeros);
    w->at = known ? string + size : NULL;
}

static enum MHD_Result pass_field(void *walk, enum MHD_ValueKind kind, const char *name, size_t name_size, const char *value,
                                  size_t value_size) {
    (void)kind;
    pass(walk, name, name_size, 2);
    if (value) pass(walk, value, value_size, 1);
    return MHD_YES;
}

bool head_has_zero(struct MHD_Connection *connection, const char *method, const char *target, size_t target_size,
                   const char *version) {
    const union MHD_ConnectionInfo *size = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (!size) return false;
    head_walk w = {.begin = method, .end = method + size->header_size, .at = method};
    pass(&w, method, strlen(method), 0);
    pass(&w, target, target_size, 1);
    pass(&w, version, strlen(version), 1);
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, pass_field, &w);
    look_between(&w, w.end, 4);
    return w.found;
}
