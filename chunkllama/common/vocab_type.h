/* The conventions of files and tokenizers: the types of tokens, U+2581 for spaces, and byte tokens. */
#ifndef CHUNKLLAMA_COMMON_VOCAB_TYPE_H
#define CHUNKLLAMA_COMMON_VOCAB_TYPE_H

#include <stddef.h>
#include <string.h>

#include "str.h"

/* As in tokenizer.ggml.token_type. */
typedef enum cl_vocab_type {
    CL_VOCAB_NORMAL = 1,
    CL_VOCAB_UNKNOWN = 2,
    CL_VOCAB_CONTROL = 3,
    CL_VOCAB_USER = 4, /* added to a trained vocabulary: found in any text before it is cut and merged */
    CL_VOCAB_UNUSED = 5,
    CL_VOCAB_BYTE = 6,
} cl_vocab_type;

/* ---- Metaspace: SentencePiece writes spaces as U+2581 ---- */

static const char CL_METASPACE[] = "\xe2\x96\x81"; /* U+2581 */

/* The size of the U+2581 that text starts with, or 0. */
static inline size_t cl_metaspace_size(const char *text, size_t size) {
    const size_t n = sizeof CL_METASPACE - 1;
    return size >= n && memcmp(text, CL_METASPACE, n) == 0 ? n : 0;
}

/* Copy a text to buf [size], with spaces instead of U+2581. Returns the number of bytes written. */
static inline size_t cl_metaspace_replace(const char *text, size_t size, char *buf) {
    size_t n = 0;
    for (size_t i = 0; i < size; n++) {
        const size_t space = cl_metaspace_size(text + i, size - i);
        buf[n] = space ? ' ' : text[i];
        i += space ? space : 1;
    }
    return n;
}

/* ---- Byte tokens ---- */

/* The byte that a byte token of this text stands for, such as "<0x0A>" for a line feed; -1: the text has another form. */
int cl_vocab_byte_token(cl_str text);

#endif
