/* What reads options from the command line and the environment (options_parse.c), and from a file (options_file.c). */
#ifndef CLI_OPTIONS_PARSE_H
#define CLI_OPTIONS_PARSE_H

#include "options.h"

enum { MAX_OPTIONS = 256 }; /* rows of the table */

/* Where to write why the options are wrong. */
typedef struct cli_message {
    char *text; /* [size] */
    size_t size;
} cli_message;

/* Write the message. Returns OPTIONS_WRONG. */
cli_options_status options_wrong(cli_message m, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Set the option's field. source: the flag, the environment variable, or the place in a file, for messages. */
cli_options_status option_assign(const cli_option *o, const char *text, const char *source, cli_options *opt, cli_message m);

/* The rows of the table that are set. */
typedef struct cli_rows {
    bool row[MAX_OPTIONS];
} cli_rows;

/* Let *opt own a text, which is freed if memory is lacking; NULL is lacking memory, too. */
cli_options_status options_own(cli_options *opt, char *text, cli_message m);

/*
 * Set the options of the command that are not in `set` from a TOML file. All of the file is checked, also what is meant for
 * other commands.
 */
cli_options_status options_read_file(cli_command_id cmd, const char *path, const cli_rows *set, cli_options *opt,
                                     cli_message m);

static inline bool option_belongs(const cli_option *o, cli_command_id cmd) { return o->commands >> cmd & 1; }

#endif
