/*
 * Text to token ids and back, with the tokenizer of the model file: byte-level BPE with the pre-tokenizer that the file names,
 * or SentencePiece-style BPE with byte fallback.
 *
 * Immutable after creation; safe from any number of threads.
 */
#ifndef CHUNKLLAMA_TEXT_TOKENIZER_H
#define CHUNKLLAMA_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunkllama/common/error.h"
#include "chunkllama/file/model_file.h"

typedef struct cl_tokenizer cl_tokenizer;

/* Append a token. CL_ERR_NOMEM, with the list as it was. */
cl_status cl_token_list_add(cl_token_list *list, int32_t id, cl_error *error);

/* Borrows the file until cl_tokenizer_free. CL_ERR_FORMAT and CL_ERR_UNSUPPORTED name the key; *tok is NULL after an error. */
cl_status cl_tokenizer_create(const cl_model_file *file, cl_tokenizer **tok, cl_error *error);
void cl_tokenizer_free(cl_tokenizer **tok);

int32_t cl_tokenizer_n_vocab(const cl_tokenizer *tok);

/* The tokens that begin and end a sequence; -1: none. */
int32_t cl_tokenizer_bos(const cl_tokenizer *tok);
int32_t cl_tokenizer_eos(const cl_tokenizer *tok);

/* Whether BOS comes before a plain prompt. */
bool cl_tokenizer_adds_bos(const cl_tokenizer *tok);

/* Whether EOS comes after a plain text of which an embedding is made. */
bool cl_tokenizer_adds_eos(const cl_tokenizer *tok);

/*
 * Append the tokens that come before a plain prompt, and those that come after a plain text of which an embedding is made:
 * BOS and EOS, or what the post_processor of a folder's tokenizer.json says.
 */
cl_status cl_tokenizer_add_leading(const cl_tokenizer *tok, cl_token_list *list, cl_error *error);
cl_status cl_tokenizer_add_trailing(const cl_tokenizer *tok, cl_token_list *list, cl_error *error);

/* The name of the pre-tokenizer, which cuts text before it is merged; empty: the tokenizer has none. */
cl_str cl_tokenizer_pre(const cl_tokenizer *tok);

/* What may make tokens wrong, as a sentence; NULL: nothing. Static. */
const char *cl_tokenizer_warning(const cl_tokenizer *tok);

/* Whether text, outside of chats, has the name of a special token before the deadline has passed; *name: the first one,
 * borrowed.
 */
bool cl_tokenizer_names_special(const cl_tokenizer *tok, const char *text, size_t size, cl_str *name);

/* The tokens of a prompt for text in the middle: `prefix`, the text before it, `suffix`, the text behind it, `middle`. */
typedef struct cl_fim_tokens {
    int32_t prefix, suffix, middle;
} cl_fim_tokens;

/* False: the vocabulary lacks one of them, so the model was not trained for such prompts. */
bool cl_tokenizer_fim(const cl_tokenizer *tok, cl_fim_tokens *fim);

/* Whether generation stops at a token: an end of sequence, turn or message. */
bool cl_tokenizer_is_end(const cl_tokenizer *tok, int32_t id);

/*
 * The bytes of the longest piece: n tokens encode at most n times as many bytes of text. This counts the text as it is encoded;
 * characters for which the vocabulary has neither tokens nor bytes may be dropped before.
 */
size_t cl_tokenizer_longest(const cl_tokenizer *tok);

/*
 * Whether text may become shorter before it is encoded: normalisation form C (Qwen's tokenizers) may compose it to a third of
 * its bytes, and SentencePiece reads U+2581, which has three bytes, as a space.
 */
bool cl_tokenizer_shortens(const cl_tokenizer *tok);

/*
 * Append the ids of text [size], in which the names of special tokens are ordinary text. Bytes that are not UTF-8 are encoded
 * as bytes if the vocabulary has tokens for them. Adds no BOS. first: the text begins a prompt, before which SentencePiece puts
 * a space. After an error *out may hold some of the ids.
 */
cl_status cl_tokenizer_encode(const cl_tokenizer *tok, const char *text, size_t size, bool first, cl_token_list *out,
                              cl_error *error);

/* The same for a template's own text, in which the names of special tokens stand for these tokens. */
cl_status cl_tokenizer_encode_template(const cl_tokenizer *tok, const char *text, size_t size, bool first, cl_token_list *out,
                                       cl_error *error);

/*
 * The bytes of one token in output text, of which at most `size` are written to buf. Returns their number: 0 for ids outside
 * the vocabulary, and for special tokens unless `special`. They may be a part of a UTF-8 character.
 */
size_t cl_tokenizer_piece(const cl_tokenizer *tok, int32_t id, bool special, char *buf, size_t size);

/* The bytes [start, end) of a text. */
typedef struct cl_text_span {
    size_t start, end;
} cl_text_span;

/*
 * As cl_tokenizer_encode, but inside the spans, which ascend and do not overlap, the names of special tokens stand for these
 * tokens. Merges may cross the end of a span, as they do when a template is filled in before its text is encoded.
 */
cl_status cl_tokenizer_encode_spans(const cl_tokenizer *tok, const char *text, size_t size, bool first,
                                    const cl_text_span *spans, size_t n_spans, cl_token_list *out, cl_error *error);

#endif
