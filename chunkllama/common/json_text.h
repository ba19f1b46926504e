/*
 * JSON texts with what jansson 2.14 refuses: numbers beyond 64 bits, and escapes of a lone surrogate, which clients that cut
 * text send.
 *
 * A number that a long long or a double cannot hold becomes an object with one member, whose name no client can send and whose
 * value is the number's text. So code that expects another kind of value refuses it, with cl_json_is_object where that is an
 * object, and code that passes values on writes the same digits again. A lone surrogate becomes U+FFFD.
 */
#ifndef CHUNKLLAMA_COMMON_JSON_TEXT_H
#define CHUNKLLAMA_COMMON_JSON_TEXT_H

#include <jansson.h>

#include "str.h"

/*
 * A copy of text [size] that jansson accepts, for the caller to free, and its size; NULL: the text may be parsed as it is, or,
 * if *no_memory is set, memory is lacking. A text that is no JSON stays none, and one that is a single number stays as it is.
 */
char *cl_json_mended(const char *text, size_t size, size_t *mended_size, bool *no_memory);

/* As json_loadb of the text so mended. Where memory is lacking, the text of *wrong says so, and its line is -1. */
json_t *cl_json_load(const char *text, size_t size, size_t flags, json_error_t *wrong);

/* Whether a value stands for a number beyond 64 bits; *number is its text, terminated and borrowed from the value. */
bool cl_json_is_number(const json_t *value, cl_str *number);

/* json_is_object, but for what stands for a number. */
bool cl_json_is_object(const json_t *value);

/* Write the numbers beyond 64 bits in text [size], which jansson has written without an indent, as numbers. Returns the new
 * size. */
size_t cl_json_restore(char *text, size_t size);

/* As json_dumps of a value without an indent, with numbers restored, and reals by as few digits as they need. */
char *cl_json_dumps(const json_t *value, size_t flags);

#endif
