/* What reads options from the command line and the environment (options_parse.c), and from a file (options_file.c). */
#ifndef CLI_OPTIONS_PARSE_H
#define CLI_OPTIONS_PARSE_H

#include "options.h"

enum { MAX_OPTIONS = 256 }; /* rows of the table */

/* Where to write why the options are wrong. */
typedef struct message {
    char *text; /* [size] */
    size_t size;
} message;

/* Write the message. Returns OPTIONS_WRONG. */
options_status options_wrong(message m, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Set the option's field. source: the flag, the environment variable, or the place in a file, for messages. */
options_status option_assign(const option *o, const char *text, const char *source, options *opt, message m);

/* The rows of the table that are set. */
typedef struct rows_set {
    bool row[MAX_OPTIONS];
} rows_set;

/* Let *opt own a text, which is freed if memory is lacking; NULL is lacking memory, too. */
options_status options_own(options *opt, char *text, message m);

/*
 * Set the options of the command that are not in `set` from a TOML file. All of the file is checked, also what is meant for
 * other commands.
 */
options_status options_read_file(command_id cmd, const char *path, const rows_set *set, options *opt, message m);

static inline bool option_belongs(const option *o, command_id cmd) { return o->commands >> cmd & 1; }

#endif
