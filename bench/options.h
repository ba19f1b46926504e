/* Command-line options from a table: `--name VALUE`, `--name=VALUE` and flags. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum option_kind { OPTION_FLAG, OPTION_INT, OPTION_TEXT } option_kind;

typedef struct option_row {
    const char *name; /* without the dashes */
    option_kind kind;
    void *value; /* bool *, int64_t * or const char **, holding the default */
    int64_t min, max;
    const char *help;
} option_row;

typedef enum options_result { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_WRONG } options_result;

/*
 * Read argv[1..] into the values of rows [n]. OPTIONS_HELP: --help was given and answered on stdout. OPTIONS_WRONG: said on
 * stderr what is wrong. about: a sentence for the help.
 */
options_result options_read(int argc, char **argv, const option_row *rows, int n, const char *about);

#endif
