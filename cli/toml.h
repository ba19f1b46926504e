/* Reads the values of TOML files. It is C++ behind this interface, since Debian's libraries for TOML are. */
#ifndef CLI_TOML_H
#define CLI_TOML_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum toml_kind { TOML_STRING, TOML_INTEGER, TOML_REAL, TOML_BOOLEAN, TOML_LIST, TOML_TABLE, TOML_OTHER } toml_kind;

/* A value. Strings are borrowed. */
typedef struct toml_value {
    const char *table; /* the name of the table that the value is in, "" at the top level */
    const char *key;   /* a table itself has the key "" */
    const char *text;  /* the value as text; a list of strings or integers has commas between them; "" if it has another kind */
    toml_kind kind;
    int line; /* from 1 */
} toml_value;

/*
 * Call take(ctx, value) for each value of the text [size] of a file, which has tables at the top level only, in the order of
 * the file. path: its name, for messages. False: the text is no TOML, or memory is lacking, of which message [message_size]
 * says "PATH:LINE: why", or a call has returned false, which was then the last one.
 */
bool toml_read(const char *text, size_t size, const char *path, bool (*take)(void *ctx, const toml_value *v), void *ctx,
               char *message, size_t message_size);

#ifdef __cplusplus
}
#endif

#endif
