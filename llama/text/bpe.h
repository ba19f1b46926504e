/* Byte-level BPE: text is cut by a pre-tokenizer, and each piece's bytes merge by rank. */
#ifndef LLAMA_TEXT_BPE_H
#define LLAMA_TEXT_BPE_H

#include "tokenizer.h"
#include "vocab.h"

typedef struct bpe bpe;

/* From the file's merges and pre-tokenizer; file and vocabulary are borrowed until bpe_free. */
cl_status bpe_create(const model_file *file, const vocab *v, bpe **b, cl_error *error);
void bpe_free(bpe **b);

/* The family's habit where the file does not say. */
bool bpe_adds_bos(const bpe *b);

/* Text is normalised first. */
bool bpe_normalizes(const bpe *b);

/* *out: text as it is before it is cut, maybe in *buf, which the caller frees. Once more changes nothing. */
cl_status bpe_normalize(const bpe *b, str text, char **buf, str *out, cl_error *error);

/* Ids of text without special tokens. A byte that the vocabulary lacks is left out. */
cl_status bpe_encode(const bpe *b, const char *text, size_t size, token_list *out, cl_error *error);

#endif
