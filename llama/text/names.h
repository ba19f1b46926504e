/* A set of added tokens by their text, to find the longest one that a given text begins with. */
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
    cl_name *all; /* [n] sorted by bytes, then by id; owned */
    size_t n;
    size_t first[257]; /* [b] is the index of the first name that begins with byte b or a higher one */
} cl_names;

/* Take ownership of all [n], which is sorted; its texts' bytes are borrowed until cl_names_free. */
void cl_names_init(cl_names *names, cl_name *all, size_t n);
void cl_names_free(cl_names *names);

static inline bool cl_names_begin_with(const cl_names *names, unsigned char byte) {
    return names->first[byte] < names->first[byte + 1];
}

/*
 * The longest name that `text` begins with, or NULL; of names with equal bytes, the one with the lowest id. *taken: the
 * bytes of `text` that it covers. With `spaced`, U+2581 in the text counts as a space. The time is proportional to the bytes
 * that the text shares with any name, times the logarithm of the number of names.
 */
const cl_name *cl_names_at(const cl_names *names, bool spaced, const char *text, size_t size, size_t *taken);

#endif
