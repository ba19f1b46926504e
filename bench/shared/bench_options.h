/* Command-line options from tables: `--name VALUE`, `--name=VALUE`, flags, letters for some; and the command line that they
 * make. */
#ifndef BENCH_SHARED_BENCH_OPTIONS_H
#define BENCH_SHARED_BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

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

/* Add the rows up to one without a name. */
void options_add(option_list *list, const option_row *rows);

typedef enum options_result { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_WRONG } options_result;

/*
 * Read argv[1..] into the values of the list. OPTIONS_HELP: --help was given, and the help is printed. OPTIONS_WRONG: stderr
 * says what is wrong. about: a sentence for the help.
 */
options_result options_read(int argc, char **argv, option_list *list, const char *about);

#endif
