/* Options that every subcommand has, and the threads and measured limits that come of them. */
#ifndef BENCH_SHARED_COMMON_H
#define BENCH_SHARED_COMMON_H

#include "base/threads.h"
#include "limits.h"
#include "options.h"

typedef struct bench_common {
    int64_t threads;
    const char *dir; /* where results go as files; NULL: nowhere */
    bool json, quick;
    ca_pool *pool; /* from here on: of bench_common_start */
    const limits *limits;
} bench_common;

/* Set the defaults and add the options. */
void bench_common_options(bench_common *common, option_list *list);

/* Once the options are read: make the folder, start the threads, measure the limits. False with a message on stderr. */
bool bench_common_start(bench_common *common, const char *command);
void bench_common_stop(bench_common *common);

#endif
