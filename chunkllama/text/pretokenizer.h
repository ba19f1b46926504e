/* Pre-tokenizers: they cut text into the pieces within which byte-level BPE merges, by regular expressions. */
#ifndef CHUNKLLAMA_TEXT_PRETOKENIZER_H
#define CHUNKLLAMA_TEXT_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "chunkllama/common/error.h"
#include "chunkllama/common/str.h"

typedef struct cl_pretokenizer cl_pretokenizer;

/* The pre-tokenizer with this name in tokenizer.ggml.pre, which is borrowed. CL_ERR_UNSUPPORTED: it is not known; *p is NULL.
 */
cl_status cl_pretokenizer_create(cl_str name, cl_pretokenizer **p, cl_error *error);

/*
 * The pre-tokenizer with these steps of a tokenizer.json, written as in cuts.h. CL_ERR_UNSUPPORTED names a step that is not
 * known; *p is NULL then.
 */
cl_status cl_pretokenizer_create_of_steps(const cl_str *steps, size_t n, bool nfc, bool whole_words, cl_pretokenizer **p,
                                          cl_error *error);
void cl_pretokenizer_free(cl_pretokenizer **p);

/* Its name; of one with steps, the name of one with the same rules, or "tokenizer.json". */
cl_str cl_pretokenizer_name(const cl_pretokenizer *p);

/* Whether a piece that equals the text of a token becomes that token, whatever the merges yield. */
bool cl_pretokenizer_whole_words(const cl_pretokenizer *p);
/* Whether the models that use it put BOS before a prompt, if the file does not say. */
bool cl_pretokenizer_adds_bos(const cl_pretokenizer *p);

/* Whether its definition begins with normalisation form C. */
bool cl_pretokenizer_normalizes(const cl_pretokenizer *p);

/*
 * *out: the text, in normalisation form C if the definition says so, perhaps in *buf, which the caller frees. Text that is not
 * UTF-8 is not changed.
 */
cl_status cl_pretokenizer_normalize(const cl_pretokenizer *p, cl_str text, char **buf, cl_str *out, cl_error *error);

typedef cl_status (*cl_pretokenizer_fn)(void *ctx, const char *piece, size_t size, cl_error *error);

/*
 * Call fn for each piece in order, until it fails. The pieces are the text, in normalisation form C if the definition says so;
 * a byte that is not UTF-8 is a piece of its own. A piece is valid until fn returns.
 */
cl_status cl_pretokenizer_split(const cl_pretokenizer *p, const char *text, size_t size, cl_pretokenizer_fn fn, void *ctx,
                                cl_error *error);

#endif
