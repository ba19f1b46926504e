/* Cuts text into the pieces inside which byte-level BPE merges, by the regular expressions of a named pre-tokenizer. */
#ifndef LLAMA_TEXT_PRETOKENIZER_H
#define LLAMA_TEXT_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "llama/common/error.h"
#include "llama/common/str.h"

typedef struct cl_pretokenizer cl_pretokenizer;

/* By the name in tokenizer.ggml.pre. CL_ERR_UNSUPPORTED lists the names there are. */
cl_status cl_pretokenizer_create(cl_str name, cl_pretokenizer **p, cl_error *error);
void cl_pretokenizer_free(cl_pretokenizer **p);

/* A piece that is in the vocabulary as it stands is that token, whatever the merges say. */
bool cl_pretokenizer_whole_words(const cl_pretokenizer *p);
/* The models that use it put BOS first where the file does not say. */
bool cl_pretokenizer_adds_bos(const cl_pretokenizer *p);

/* The definition asks for normalisation form C. */
bool cl_pretokenizer_normalizes(const cl_pretokenizer *p);

/*
 * *out: the text in normalisation form C where the definition says so, maybe in *buf, which the caller frees. Text that is not
 * UTF-8 stays as it is.
 */
cl_status cl_pretokenizer_normalize(const cl_pretokenizer *p, cl_str text, char **buf, cl_str *out, cl_error *error);

typedef cl_status (*cl_pretokenizer_fn)(void *ctx, const char *piece, size_t size, cl_error *error);

/*
 * Call fn for each piece in order; together they are the text, in normalisation form C where the definition says so. A byte
 * that is not UTF-8 is a piece of its own. Pieces live until fn returns.
 */
cl_status cl_pretokenizer_split(const cl_pretokenizer *p, const char *text, size_t size, cl_pretokenizer_fn fn, void *ctx,
                                cl_error *error);

#endif
