/* Options that every subcommand has, and the threads and measured limits that come of them. */
#include "common.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cpu.h"

void bench_common_options(bench_common *c, option_list *list) {
    *c = (bench_common){.threads = ca_cpu_count()};
    const option_row rows[] = {
        {"threads", OPTION_INT, &c->threads, 1, 1024, "threads", 0},
        {"quick", OPTION_FLAG, &c->quick, 0, 0, "tiny shapes: shows that it works; its figures mean nothing", 0},
        {"json", OPTION_FLAG, &c->json, 0, 0, "print lines of JSON, not a table", 0},
        {"out", OPTION_TEXT, &c->dir, 0, 0, "folder for lines of JSON, table and plot as files", 'o'},
    };
    options_add(list, rows, sizeof rows / sizeof *rows);
}

bool bench_common_start(bench_common *c, const char *command) {
    if (c->dir && mkdir(c->dir, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "cattn-bench %s: --out %s cannot be made: %s\n", command, c->dir, strerror(errno));
        return false;
    }
    c->limits = limits_of((int)c->threads, c->quick);
    if (!c->limits) return false;
    c->pool = ca_pool_create((int)c->threads);
    if (!c->pool) fprintf(stderr, "cattn-bench %s: the threads cannot be started; lower --threads\n", command);
    return c->pool;
}

void bench_common_stop(bench_common *c) { ca_pool_destroy(&c->pool); }
