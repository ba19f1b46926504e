/* The tokens of a vocabulary: their types, the bytes each stands for, and finding them by those bytes. */
#ifndef LLAMA_TEXT_VOCAB_H
#define LLAMA_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "llama/common/error.h"
#include "llama/common/hash.h"
#include "llama/file/model_file.h"
#include "names.h"

/* ---- SentencePiece's space ---- */

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

/* ---- The vocabulary ---- */

/* As in tokenizer.ggml.token_type. */
typedef enum cl_vocab_type {
    CL_VOCAB_NORMAL = 1,
    CL_VOCAB_UNKNOWN = 2,
    CL_VOCAB_CONTROL = 3,
    CL_VOCAB_USER = 4, /* added to a trained vocabulary: found in any text before all else */
    CL_VOCAB_UNUSED = 5,
    CL_VOCAB_BYTE = 6,
} cl_vocab_type;

typedef struct cl_vocab {
    int32_t n;
    unsigned char *types;  /* [n] vocab_type */
    cl_str *pieces;        /* [n] the bytes of output text; of special tokens their name */
    bool spaced;           /* SentencePiece's: U+2581 in a text is a space */
    size_t longest;        /* bytes of the longest piece */
    char *bytes;           /* what the pieces point into */
    cl_str_map words;      /* tokens that merging can yield */
    cl_str_map by_name;    /* special and added tokens */
    cl_names special;      /* found where names stand for tokens */
    cl_names user;         /* found everywhere */
    bool begins_name[256]; /* first bytes of a text that may start with one of either */
    /* [n] in the file: 1 for an added token that is searched for in text after that was normalised; NULL: there is none */
    const unsigned char *late;
} cl_vocab;

/* byte_level: texts are in the alphabet of byte-level BPE; otherwise they have U+2581 for spaces and "<0xNN>" for bytes. */
cl_status cl_vocab_load(cl_vocab *v, const cl_model_file *file, bool byte_level, cl_error *error);
void cl_vocab_free(cl_vocab *v);

/* The token that merging may yield with these bytes, or -1. */
int32_t cl_vocab_find(const cl_vocab *v, const char *data, size_t size);

/*
 * The longest special or added token that text (size >= 1) starts with, and the bytes it takes; or -1. Special ones only within
 * the first special_size (<= size) bytes. Time goes with the bytes that text shares with any of them, and the logarithm of
 * their number.
 */
int32_t cl_vocab_added_at(const cl_vocab *v, const char *text, size_t size, size_t special_size, size_t *taken);

/* Control and unknown tokens: not text. */
static inline bool cl_vocab_is_special(const cl_vocab *v, int32_t id) {
    return v->types[id] == CL_VOCAB_CONTROL || v->types[id] == CL_VOCAB_UNKNOWN;
}

/* Special tokens never are: only a template names them, and it means them. */
static inline bool cl_vocab_is_late(const cl_vocab *v, int32_t id) {
    return v->late && v->late[id] && !cl_vocab_is_special(v, id);
}

/*
 * Translate from the alphabet of byte-level BPE, in which every byte has a printable character; text with any other character
 * stays as it is. buf has room for text.size bytes. Returns the number of bytes.
 */
size_t cl_vocab_from_byte_level(cl_str text, char *buf);

/* The byte that a token of this text stands for, as "<0x0A>" for a line feed; -1: it reads otherwise. */
int cl_vocab_byte_token(cl_str text);

#endif
