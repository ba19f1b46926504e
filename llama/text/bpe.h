/* Byte-level BPE: text is cut by a pre-tokenizer, and each piece's bytes merge by rank. */
#ifndef LLAMA_TEXT_BPE_H
#define LLAMA_TEXT_BPE_H

#include "tokenizer.h"
#include "vocab.h"

typedef struct cl_bpe cl_bpe;

/* From the file's merges and pre-tokenizer; file and vocabulary are borrowed until cl_bpe_free. */
cl_status cl_bpe_create(const cl_model_file *file, const cl_vocab *v, cl_bpe **b, cl_error *error);
void cl_bpe_free(cl_bpe **b);

/* The family's habit where the file does not say. */
bool cl_bpe_adds_bos(const cl_bpe *b);

/* Text is normalised first. */
bool cl_bpe_normalizes(const cl_bpe *b);

/* *out: text as it is before it is cut, maybe in *buf, which the caller frees. Once more changes nothing. */
cl_status cl_bpe_normalize(const cl_bpe *b, cl_str text, char **buf, cl_str *out, cl_error *error);

/* Ids of text without special tokens. A byte that the vocabulary lacks is left out. */
cl_status cl_bpe_encode(const cl_bpe *b, const char *text, size_t size, cl_token_list *out, cl_error *error);

#endif
