/* Command-line options from tables: `--name VALUE`, `--name=VALUE`, flags, letters for some; and those of every subcommand. */
#ifndef BENCH_SHARED_BENCH_OPTIONS_H
#define BENCH_SHARED_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "chunkattn/base/threads.h"
#include "limits.h"

typedef enum option_kind { OPTION_FLAG, OPTION_INT, OPTION_TEXT } option_kind;

typedef struct option_row {
    const char *name; /* without the dashes */
    option_kind kind;
    void *value; /* bool *, int64_t * or const char **, holding the default */
    int64_t min, max;
    const char *help;
    char letter; /* 0: none */
} option_row;

enum { OPTIONS_MAX = 40, OPTIONS_COMMAND = 1024 };

/* A subcommand's options: its own and those that it has in common with others. Begins as {0}. */
typedef struct option_list {
    option_row rows[OPTIONS_MAX];
    int n;
    /* After options_read: the command line that repeats the measurement, without the folders of paths. */
    char command[OPTIONS_COMMAND];
} option_list;

void options_add(option_list *list, const option_row *rows, int n);

typedef enum options_result { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_WRONG } options_result;

/*
 * Read argv[1..] into the values of the list. OPTIONS_HELP: --help was given, and the help is printed. OPTIONS_WRONG: stderr
 * says what is wrong. about: a sentence for the help.
 */
options_result options_read(int argc, char **argv, option_list *list, const char *about);

/* ---- Options of every subcommand ---- */

typedef struct bench_common {
    int64_t threads;
    const char *dir; /* folder for results as files; NULL: none */
    bool json, quick;
    const option_list *options; /* all of the subcommand's */
    /* Set by bench_common_start: */
    ca_pool *pool;
    const limits *limits;
} bench_common;

/* Set the defaults and add the options. */
void bench_common_options(bench_common *common, option_list *list);

/* Once the options are read: make the folder, start the threads, measure the limits. False with a message on stderr. */
bool bench_common_start(bench_common *common, const char *command);
void bench_common_stop(bench_common *common);

#endif
