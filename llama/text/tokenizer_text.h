/* Encoding of a text that is partly a template's: what chat formats need beyond tokenizer.h. */
#ifndef LLAMA_TEXT_TOKENIZER_TEXT_H
#define LLAMA_TEXT_TOKENIZER_TEXT_H

#include "tokenizer.h"

/* Bytes [start, end) of a text. */
typedef struct cl_text_span {
    size_t start, end;
} cl_text_span;

/*
 * As cl_tokenizer_encode, but inside the spans, which ascend and do not overlap, the names of special tokens stand for them.
 * Merges go over a span's ends, as they do where a template was filled in before encoding.
 */
cl_status cl_tokenizer_encode_spans(const cl_tokenizer *tok, const char *text, size_t size, bool first,
                                    const cl_text_span *spans, size_t n_spans, cl_token_list *out, cl_error *error);

#endif
