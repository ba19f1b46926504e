/* Texts with ids, to be found where another text begins with one of them. */
#ifndef LLAMA_TEXT_NAMES_H
#define LLAMA_TEXT_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "llama/common/str.h"

typedef struct cl_name {
    cl_str text; /* not empty */
    int32_t id;
} cl_name;

typedef struct cl_names {
    cl_name *all; /* in the order of their bytes; those with the same bytes by id */
    size_t n;
    size_t first[257]; /* where those with a first byte begin */
} cl_names;

/* Take over n names; the bytes they point to are borrowed. */
void cl_names_init(cl_names *names, cl_name *all, size_t n);
void cl_names_free(cl_names *names);

static inline bool cl_names_begin_with(const cl_names *names, unsigned char byte) {
    return names->first[byte] < names->first[byte + 1];
}

/*
 * The longest that text starts with, of equal ones the lowest id, and the bytes of text it takes; or NULL. spaced: U+2581 in
 * the text is a space. Time goes with the bytes that text shares with any of them, and the logarithm of their number.
 */
const cl_name *cl_names_at(const cl_names *names, bool spaced, const char *text, size_t size, size_t *taken);

#endif
