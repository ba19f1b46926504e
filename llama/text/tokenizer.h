/*
 * Text to token ids and back, by the tokenizer in the model file: byte-level BPE with the pre-tokenizer that the file names, or
 * SentencePiece-style BPE with byte fallback.
 *
 * Immutable after creation; safe from any number of threads.
 */
#ifndef LLAMA_TEXT_TOKENIZER_H
#define LLAMA_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llama/common/error.h"
#include "llama/file/model_file.h"

typedef struct cl_tokenizer cl_tokenizer;

/* Append a token. CL_ERR_NOMEM, with the list as it was. */
cl_status cl_token_list_add(cl_token_list *list, int32_t id, cl_error *error);

/* The file is borrowed until cl_tokenizer_free. */
cl_status cl_tokenizer_create(const cl_model_file *file, cl_tokenizer **tok, cl_error *error);
void cl_tokenizer_free(cl_tokenizer **tok);

int32_t cl_tokenizer_n_vocab(const cl_tokenizer *tok);
int32_t cl_tokenizer_bos(const cl_tokenizer *tok);             /* -1: none */
int32_t cl_tokenizer_eos(const cl_tokenizer *tok);             /* -1: none */
bool cl_tokenizer_adds_bos(const cl_tokenizer *tok);           /* the file asks for BOS before a plain prompt */
bool cl_tokenizer_is_end(const cl_tokenizer *tok, int32_t id); /* end of sequence, of turn or of message: generation stops */

/*
 * Bytes of the longest piece, so that n tokens are at most n times as many bytes of text; of text as it is encoded. What the
 * vocabulary has neither tokens nor bytes for may vanish before.
 */
size_t cl_tokenizer_longest(const cl_tokenizer *tok);

/*
 * Text may become shorter before it is encoded: NFC (tokenizers of Qwen's kind) may compose it to a third of its bytes, and
 * SentencePiece reads U+2581, of three bytes, as a space.
 */
bool cl_tokenizer_shortens(const cl_tokenizer *tok);

/*
 * Append the ids of size bytes of text. Plain text only: the names of special tokens in it are encoded as ordinary text.
 * Bytes that are not UTF-8 are encoded as bytes where the vocabulary can. Adds no BOS. `first` says that the text starts a
 * prompt (SentencePiece puts a space before it then).
 */
cl_status cl_tokenizer_encode(const cl_tokenizer *tok, const char *text, size_t size, bool first, cl_token_list *out,
                              cl_error *error);

/*
 * Append the ids of a template's own text, in which the names of special tokens stand for them.
 */
cl_status cl_tokenizer_encode_template(const cl_tokenizer *tok, const char *text, size_t size, bool first, cl_token_list *out,
                                       cl_error *error);

/*
 * Bytes of one token, as they appear in output text (special tokens: empty unless `special`). Returns the number of bytes;
 * writes at most size of them. May be part of a UTF-8 character.
 */
size_t cl_tokenizer_piece(const cl_tokenizer *tok, int32_t id, bool special, char *buf, size_t size);

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
