/* SentencePiece-style BPE: characters merge by their tokens' scores, or by trained merges; the rest falls back to bytes. */
#ifndef LLAMA_TEXT_SPM_H
#define LLAMA_TEXT_SPM_H

#include "tokenizer.h"
#include "vocab.h"

typedef struct spm spm;

/* Which texts the space goes before, where the file wants one (tokenizer.space_prefix). A text lies between added tokens. */
typedef enum spm_prefix {
    SPM_PREFIX_PROMPT,  /* SentencePiece: a prompt, as its own token where it begins with an added one */
    SPM_PREFIX_FIRST,   /* "first": a text that a prompt begins with, unless it begins with a space itself */
    SPM_PREFIX_ALWAYS,  /* "always": all texts, unless they begin with a space */
    SPM_PREFIX_PREPEND, /* "prepend": all texts */
} spm_prefix;

/* From the file's scores or merges; file and vocabulary are borrowed until spm_free. */
cl_status spm_create(const model_file *file, const vocab *v, spm **s, cl_error *error);
void spm_free(spm **s);
spm_prefix spm_prefix_rule(const spm *s);

/* *out: text with plain spaces, and one before it as below; in *buf, which the caller frees. Once more changes nothing. */
cl_status spm_normalize(const spm *s, const char *text, size_t size, bool prefix, char **buf, str *out, cl_error *error);

/* Ids of text without special tokens; `prefix`: a space goes before it, if the file wants that and the rule allows it. */
cl_status spm_encode(const spm *s, const char *text, size_t size, bool prefix, token_list *out, cl_error *error);

#endif
