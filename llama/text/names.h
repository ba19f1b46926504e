/* Texts with ids, to be found where another text begins with one of them. */
#ifndef LLAMA_TEXT_NAMES_H
#define LLAMA_TEXT_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "llama/common/str.h"

typedef struct name {
    str text; /* not empty */
    int32_t id;
} name;

typedef struct names {
    name *all; /* in the order of their bytes; those with the same bytes by id */
    size_t n;
    size_t first[257]; /* where those with a first byte begin */
} names;

/* Take over n names; the bytes they point to are borrowed. */
void names_init(names *names, name *all, size_t n);
void names_free(names *names);

static inline bool names_begin_with(const names *names, unsigned char byte) {
    return names->first[byte] < names->first[byte + 1];
}

/*
 * The longest that text starts with, of equal ones the lowest id, and the bytes of text it takes; or NULL. spaced: U+2581 in
 * the text is a space. Time goes with the bytes that text shares with any of them, and the logarithm of their number.
 */
const name *names_at(const names *names, bool spaced, const char *text, size_t size, size_t *taken);

#endif
