/* What the server's parts share. */
#ifndef SERVER_SERVER_STATE_H
#define SERVER_SERVER_STATE_H

#include <microhttpd.h>
#include <pthread.h>

#include "metrics.h"
#include "preparer.h"
#include "server.h"
#include "watch.h"

struct generation;

struct server {
    server_config config;
    cl_engine *engine;
    openai_context context;
    char *model_name; /* owned */
    int64_t started;  /* seconds since 1970 */
    uint16_t port;
    struct MHD_Daemon *daemon;
    preparer *preparer;
    watch *watch;
    metrics metrics;

    pthread_mutex_t lock; /* of what follows, and of each generation's references */
    pthread_cond_t freed; /* a generation is gone */
    struct generation *generations;
    bool stopping;
};

#endif
