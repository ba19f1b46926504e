/* SentencePiece-style BPE: characters merge by their tokens' scores, the rest falls back to bytes. */
#ifndef LLAMA_SPM_H
#define LLAMA_SPM_H

#include "tokenizer.h"
#include "vocab.h"

typedef struct spm spm;

/* From the file's scores; file and vocabulary are borrowed until spm_free. */
cl_status spm_create(const model_file *file, const vocab *v, spm **s, cl_error *error);
void spm_free(spm **s);

/* Ids of text without special tokens; `prefix`: a space goes before it, if the file wants that. */
cl_status spm_encode(const spm *s, const char *text, size_t size, bool prefix, token_list *out, cl_error *error);

#endif
