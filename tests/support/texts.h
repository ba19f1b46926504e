/* Long texts for tests. */
#ifndef TESTS_SUPPORT_TEXTS_H
#define TESTS_SUPPORT_TEXTS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"

/* n times `part` between two others, with its number, from 0, for '~' and the next one's for '@'. The caller frees the text. */
static inline char *numbered(const char *before, const char *part, size_t n, const char *after) {
    size_t size = 0;
    for (const char *c = part; *c; c++) size += *c == '~' || *c == '@' ? 20 : 1;
    char *text = malloc(strlen(before) + n * size + strlen(after) + 1);
    assert_non_null(text);
    char *at = stpcpy(text, before);
    for (size_t i = 0; i < n; i++)
        for (const char *c = part; *c; c++) {
            if (*c == '~' || *c == '@')
                at += sprintf(at, "%zu", *c == '~' ? i : i + 1);
            else
                *at++ = *c;
        }
    strcpy(at, after);
    return text;
}

/* n times `part` as it is between two others. The caller frees the text. */
static inline char *repeated(const char *before, const char *part, size_t n, const char *after) {
    const size_t size = strlen(part);
    char *text = malloc(strlen(before) + n * size + strlen(after) + 1);
    assert_non_null(text);
    char *at = stpcpy(text, before);
    for (size_t i = 0; i < n; i++) at = stpcpy(at, part);
    strcpy(at, after);
    return text;
}

#endif
