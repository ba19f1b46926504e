/* The tokens of a vocabulary: their types, the bytes that each stands for, and the search for tokens by these bytes. */
#ifndef CHUNKLLAMA_TEXT_VOCAB_H
#define CHUNKLLAMA_TEXT_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "added_tokens.h"
#include "chunkllama/common/error.h"
#include "chunkllama/common/hash.h"
#include "chunkllama/common/vocab_type.h"
#include "chunkllama/file/model_file.h"

typedef struct cl_vocab {
    int32_t n;
    int32_t n_trained;       /* later ids were added to the trained vocabulary: they are behind its last word */
    unsigned char *types;    /* [n] cl_vocab_type */
    cl_str *pieces;          /* [n] the bytes of each token's text; of a special token, its name */
    bool metaspace;          /* U+2581 in a text is a space (SentencePiece) */
    size_t longest;          /* bytes of the longest piece */
    char *bytes;             /* memory of the pieces and words */
    cl_str_map words;        /* tokens that merges can yield, by the bytes that they yield */
    cl_str_map by_name;      /* special and added tokens */
    cl_added_tokens special; /* special tokens, found only where a template's text names them */
    cl_added_tokens user;    /* other added tokens, found in any text */
    bool begins_name[256];   /* whether a text that begins with this byte may start with one of these tokens */
    /* [n] 1 for an added token that is searched for in normalised text; borrowed from the file. NULL: there are none. */
    const unsigned char *normalized;
} cl_vocab;

/*
 * Load the vocabulary of a file, which is borrowed until cl_vocab_free; that is due after a failure too. byte_level: texts are
 * written in the alphabet of byte-level BPE; otherwise with U+2581 for spaces and "<0xNN>" for bytes. CL_ERR_FORMAT;
 * CL_ERR_NOMEM.
 */
cl_status cl_vocab_load(cl_vocab *v, const cl_model_file *file, bool byte_level, cl_error *error);
void cl_vocab_free(cl_vocab *v);

/*
 * The token with these bytes that merges can yield, or -1. A token whose text no merge can yield, for it has characters that
 * the alphabet of byte-level BPE lacks, or a space where SentencePiece writes U+2581, is not found.
 */
int32_t cl_vocab_find(const cl_vocab *v, const char *data, size_t size);

/*
 * The longest special or added token that text [size >= 1] starts with, or -1; special ones only within the first special_size
 * (<= size) bytes. *matched: the bytes that it covers. The time is proportional to the bytes that the text shares with any of
 * these tokens, times the logarithm of their number.
 */
int32_t cl_vocab_find_added(const cl_vocab *v, const char *text, size_t size, size_t special_size, size_t *matched);

/* Control and unknown tokens: not text. */
static inline bool cl_vocab_is_special(const cl_vocab *v, int32_t id) {
    return v->types[id] == CL_VOCAB_CONTROL || v->types[id] == CL_VOCAB_UNKNOWN;
}

/* Whether a token is searched for in normalised text. Special tokens never are, since only a template can name them. */
static inline bool cl_vocab_is_normalized(const cl_vocab *v, int32_t id) {
    return v->normalized && v->normalized[id] && !cl_vocab_is_special(v, id);
}

/*
 * Translate text from the alphabet of byte-level BPE, in which every byte has a printable character, to buf [text.size], and
 * set *size to the number of bytes written. False: the text has another character, and is copied as it is.
 */
bool cl_vocab_from_byte_level(cl_str text, char *buf, size_t *size);

#endif
