/* Byte-level BPE: a pre-tokenizer cuts text into pieces, and the bytes of each piece are merged by rank. */
#ifndef CHUNKLLAMA_TEXT_BPE_H
#define CHUNKLLAMA_TEXT_BPE_H

#include "tokenizer.h"
#include "vocab.h"

typedef struct cl_bpe cl_bpe;

/* From the file's merges and pre-tokenizer. Borrows file and vocabulary until cl_bpe_free. *b is NULL after an error. */
cl_status cl_bpe_create(const cl_model_file *file, const cl_vocab *v, cl_bpe **b, cl_error *error);
void cl_bpe_free(cl_bpe **b);

/* The pre-tokenizer's name, as in tokenizer.ggml.pre; where the file has none, that of the vocabulary, or "default"
 * (pretokenizer.h). */
cl_str cl_bpe_pre(const cl_bpe *b);

/* Whether the file names no pre-tokenizer and its vocabulary is none that is known, so that text may be cut wrongly. */
bool cl_bpe_guesses(const cl_bpe *b);

/* Whether models with this pre-tokenizer put BOS before a prompt, if the file does not say. */
bool cl_bpe_adds_bos(const cl_bpe *b);

/* Whether text is normalised first. */
bool cl_bpe_normalizes(const cl_bpe *b);

/* *out: the text as it is before it is cut, perhaps in *buf, which the caller frees. A second time changes nothing. */
cl_status cl_bpe_normalize(const cl_bpe *b, cl_str text, char **buf, cl_str *out, cl_error *error);

/* Append the ids of a text without added tokens. A byte that the vocabulary lacks is dropped. */
cl_status cl_bpe_encode(const cl_bpe *b, const char *text, size_t size, cl_token_list *out, cl_error *error);

#endif
