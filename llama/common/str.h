/* Bytes that belong to somebody else and are not terminated: names and texts of a model file. */
#ifndef LLAMA_COMMON_STR_H
#define LLAMA_COMMON_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct str {
    const char *data;
    size_t size;
} str;

static inline str str_of(const char *text) { return (str){text, strlen(text)}; }
static inline bool str_is(str s, const char *text) { return s.size == strlen(text) && memcmp(s.data, text, s.size) == 0; }

bool str_contains(str s, const char *part);

/* Replace control characters, U+0080 to U+009F too, by question marks: a terminal would take them as commands. */
void str_disarm(char *text, size_t size);

/* A name from a file, fit to be shown: control characters replaced, cut to the buffer (size >= 8). Returns buf. */
const char *str_show(str s, char *buf, size_t size);

#endif
