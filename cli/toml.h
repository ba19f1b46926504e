/* Reads TOML files as lists of values. It is C++ behind this interface, since Debian's libraries for TOML are. */
#ifndef CLI_TOML_H
#define CLI_TOML_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum toml_kind { TOML_STRING, TOML_INTEGER, TOML_REAL, TOML_BOOLEAN, TOML_LIST, TOML_TABLE, TOML_OTHER } toml_kind;

/* A value. Strings are owned by the list. */
typedef struct toml_value {
    char *table; /* the name of the table that the value is in, "" at the top level */
    char *key;   /* a table that is empty has the key "" */
    char *text;  /* the value as text; a list of strings or integers has commas between them; "" if it has another kind */
    toml_kind kind;
    int line; /* from 1 */
} toml_value;

typedef struct toml_values {
    toml_value *values; /* [n] in the order of the file */
    size_t n;
} toml_values;

/*
 * Read the text [size] of a file, which has tables at the top level only. path: its name, for messages. False: the text is no
 * TOML, and message [message_size] says "PATH:LINE: why", or memory is lacking. Free with toml_free.
 */
bool toml_read(const char *text, size_t size, const char *path, toml_values *values, char *message, size_t message_size);
void toml_free(toml_values *values);

#ifdef __cplusplus
}
#endif

#endif
