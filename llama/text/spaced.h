/* SentencePiece's texts, in which U+2581 is a space. */
#ifndef LLAMA_TEXT_SPACED_H
#define LLAMA_TEXT_SPACED_H

#include <stddef.h>
#include <string.h>

static const char cl_SPACED[] = "\xe2\x96\x81"; /* U+2581 */

/* Bytes of the U+2581 that text starts with, or 0. */
static inline size_t cl_spaced_size(const char *text, size_t size) {
    const size_t n = sizeof cl_SPACED - 1;
    return size >= n && memcmp(text, cl_SPACED, n) == 0 ? n : 0;
}

/* Copy a text with spaces for U+2581. buf has room for size bytes. Returns the number of bytes. */
static inline size_t cl_spaced_translate(const char *text, size_t size, char *buf) {
    size_t n = 0;
    for (size_t i = 0; i < size; n++) {
        const size_t space = cl_spaced_size(text + i, size - i);
        buf[n] = space ? ' ' : text[i];
        i += space ? space : 1;
    }
    return n;
}

#endif
