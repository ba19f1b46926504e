/* SentencePiece-style BPE: characters are merged by the scores of the tokens, or by trained merges, and fall back to bytes. */
#ifndef CHUNKLLAMA_TEXT_SPM_H
#define CHUNKLLAMA_TEXT_SPM_H

#include "tokenizer.h"
#include "vocab.h"

typedef struct cl_spm cl_spm;

/* Before which texts a space is put, if the file wants one (tokenizer.space_prefix). A text ends at added tokens. */
typedef enum cl_spm_prefix {
    CL_SPM_PREFIX_PROMPT,  /* SentencePiece: before a prompt, and before a text behind a token that was added later */
    CL_SPM_PREFIX_FIRST,   /* "first": before the text that a prompt begins with, unless that begins with a space */
    CL_SPM_PREFIX_ALWAYS,  /* "always": before all texts that do not begin with a space */
    CL_SPM_PREFIX_PREPEND, /* "prepend": before all texts */
} cl_spm_prefix;

/*
 * From the file's scores, or from its merges if it wants `merges` or has the ids of merges. Borrows file and vocabulary until
 * cl_spm_free. *s is NULL after an error.
 */
cl_status cl_spm_create(const cl_model_file *file, const cl_vocab *v, bool merges, cl_spm **s, cl_error *error);
void cl_spm_free(cl_spm **s);
cl_spm_prefix cl_spm_prefix_rule(const cl_spm *s);

/* Whether BOS comes before a prompt, if the file does not say. */
bool cl_spm_adds_bos(const cl_spm *s);

/*
 * *out: the text with plain spaces, and with a space before it as below; in *buf, which the caller frees. A second time changes
 * nothing.
 */
cl_status cl_spm_normalize(const cl_spm *s, const char *text, size_t size, bool prefix, char **buf, cl_str *out,
                           cl_error *error);

/* Append the ids of a text without added tokens. prefix: put a space before it, if the file wants one and the rule allows it.
 */
cl_status cl_spm_encode(const cl_spm *s, const char *text, size_t size, bool prefix, cl_token_list *out, cl_error *error);

#endif
