/* A set of added tokens by their texts, to find the longest one that a given text begins with. */
#ifndef CHUNKLLAMA_TEXT_ADDED_TOKENS_H
#define CHUNKLLAMA_TEXT_ADDED_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

#include "chunkllama/common/str.h"

typedef struct cl_added_token {
    cl_str text; /* not empty */
    int32_t id;
} cl_added_token;

typedef struct cl_added_tokens {
    cl_added_token *all; /* [n] sorted by bytes, then by id; owned */
    size_t n;
    size_t first[257]; /* [b] is the index of the first token whose text begins with byte b or a higher one */
} cl_added_tokens;

/* Take ownership of all [n], which is sorted here; the bytes of the texts are borrowed until cl_added_tokens_free. */
void cl_added_tokens_init(cl_added_tokens *tokens, cl_added_token *all, size_t n);
void cl_added_tokens_free(cl_added_tokens *tokens);

/* Whether the text of any token begins with this byte. */
static inline bool cl_added_tokens_start_with(const cl_added_tokens *tokens, unsigned char byte) {
    return tokens->first[byte] < tokens->first[byte + 1];
}

/*
 * The token with the longest text that `text` begins with, or NULL; of tokens with equal texts, the one with the lowest id.
 * *matched: the bytes of `text` that it covers. With `metaspace`, U+2581 in `text` counts as a space. The time is proportional
 * to the bytes that `text` shares with any token, times the logarithm of the number of tokens.
 */
const cl_added_token *cl_added_tokens_find(const cl_added_tokens *tokens, bool metaspace, const char *text, size_t size,
                                           size_t *matched);

#endif
