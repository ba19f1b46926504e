/* The one table of what the server answers. */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "http.h"

typedef struct route {
    const char *path;
    const char *method;
    bool prefix;    /* paths that begin with `path` are meant, too */
    bool needs_key; /* where the server has an API key */
    enum MHD_Result (*handle)(exchange *x);
} route;

/* NULL: none. */
const route *route_find(const char *path);

#endif
