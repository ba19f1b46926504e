/* SentencePiece-style BPE: characters merge by their tokens' scores, or by trained merges; the rest falls back to bytes. */
#ifndef LLAMA_TEXT_SPM_H
#define LLAMA_TEXT_SPM_H

#include "tokenizer.h"
#include "vocab.h"

typedef struct cl_spm cl_spm;

/* Which texts the space goes before, where the file wants one (tokenizer.space_prefix). A text lies between added tokens. */
typedef enum cl_spm_prefix {
    CL_SPM_PREFIX_PROMPT,  /* SentencePiece: a prompt, as its own token where it begins with an added one */
    CL_SPM_PREFIX_FIRST,   /* "first": a text that a prompt begins with, unless it begins with a space itself */
    CL_SPM_PREFIX_ALWAYS,  /* "always": all texts, unless they begin with a space */
    CL_SPM_PREFIX_PREPEND, /* "prepend": all texts */
} cl_spm_prefix;

/* From the file's scores or merges; file and vocabulary are borrowed until cl_spm_free. */
cl_status cl_spm_create(const cl_model_file *file, const cl_vocab *v, cl_spm **s, cl_error *error);
void cl_spm_free(cl_spm **s);
cl_spm_prefix cl_spm_prefix_rule(const cl_spm *s);

/* *out: text with plain spaces, and one before it as below; in *buf, which the caller frees. Once more changes nothing. */
cl_status cl_spm_normalize(const cl_spm *s, const char *text, size_t size, bool prefix, char **buf, cl_str *out,
                           cl_error *error);

/* Ids of text without special tokens; `prefix`: a space goes before it, if the file wants that and the rule allows it. */
cl_status cl_spm_encode(const cl_spm *s, const char *text, size_t size, bool prefix, cl_token_list *out, cl_error *error);

#endif
