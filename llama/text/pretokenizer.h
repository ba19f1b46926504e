/* Cuts text into the pieces inside which byte-level BPE merges, by the regular expressions of a named pre-tokenizer. */
#ifndef LLAMA_TEXT_PRETOKENIZER_H
#define LLAMA_TEXT_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "llama/common/error.h"
#include "llama/common/str.h"

typedef struct pretokenizer pretokenizer;

/* By the name in tokenizer.ggml.pre. CL_ERR_UNSUPPORTED lists the names there are. */
cl_status pretokenizer_create(str name, pretokenizer **p, cl_error *error);
void pretokenizer_free(pretokenizer **p);

/* A piece that is in the vocabulary as it stands is that token, whatever the merges say. */
bool pretokenizer_whole_words(const pretokenizer *p);
/* The models that use it put BOS first where the file does not say. */
bool pretokenizer_adds_bos(const pretokenizer *p);

/* The definition asks for normalisation form C. */
bool pretokenizer_normalizes(const pretokenizer *p);

/*
 * *out: the text in normalisation form C where the definition says so, maybe in *buf, which the caller frees. Text that is not
 * UTF-8 stays as it is.
 */
cl_status pretokenizer_normalize(const pretokenizer *p, str text, char **buf, str *out, cl_error *error);

typedef cl_status (*pretokenizer_fn)(void *ctx, const char *piece, size_t size, cl_error *error);

/*
 * Call fn for each piece in order; together they are the text, in normalisation form C where the definition says so. A byte
 * that is not UTF-8 is a piece of its own. Pieces live until fn returns.
 */
cl_status pretokenizer_split(const pretokenizer *p, const char *text, size_t size, pretokenizer_fn fn, void *ctx,
                             cl_error *error);

#endif
