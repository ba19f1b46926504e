/* Bytes that belong to somebody else and are not terminated: names and texts of a model file. */
#ifndef LLAMA_COMMON_STR_H
#define LLAMA_COMMON_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

typedef struct cl_str {
    const char *data;
    size_t size;
} cl_str;

static inline cl_str cl_str_of(const char *text) { return (cl_str){text, strlen(text)}; }
static inline bool cl_str_is(cl_str s, const char *text) { return s.size == strlen(text) && memcmp(s.data, text, s.size) == 0; }

bool cl_str_contains(cl_str s, const char *part);

/* Replace control characters, U+0080 to U+009F too, by question marks: a terminal would take them as commands. */
void cl_str_disarm(char *text, size_t size);

/* A name from a file, fit to be shown: control characters replaced, cut to the buffer (size >= 8). Returns buf. */
const char *cl_str_show(cl_str s, char *buf, size_t size);

#endif
