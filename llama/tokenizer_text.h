/* How text is taken apart, for those who put a prompt together from several texts. */
#ifndef LLAMA_TOKENIZER_TEXT_H
#define LLAMA_TOKENIZER_TEXT_H

#include "tokenizer.h"

/*
 * The first special token named in a template's text: its id, and where its name lies. -1, with *start = size, if there is
 * none.
 */
int32_t tokenizer_next_special(const tokenizer *tok, const char *text, size_t size, size_t *start, size_t *name_size);

#endif
