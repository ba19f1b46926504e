/*
 * The budget of a choice's reasoning: the tokens between two marks of its text are counted, and once they are as many as the
 * request allows, those that end the reasoning are forced.
 *
 * What is forced is a function of the request and of the choice's tokens, so it does not depend on what is batched, drafted or
 * preempted.
 */
#ifndef CHUNKLLAMA_ENGINE_REASONING_H
#define CHUNKLLAMA_ENGINE_REASONING_H

#include "chunkllama/text/tokenizer.h"

/* After some tokens of a completion. Zero-initialised where the request has no budget. */
typedef struct cl_reasoning {
    bool inside;       /* the text is reasoning */
    uint8_t n_matched; /* bytes of the mark that comes next with which the text ends */
    uint8_t n_missing; /* bytes that a character at the end of the text lacks */
    int32_t n_forced;  /* of the request's tokens that end reasoning, those that have come */
    int64_t n_counted; /* tokens of reasoning */
} cl_reasoning;

/* Before the first token. */
cl_reasoning cl_reasoning_begin(const cl_engine_request *params);

/* Add the next token. */
void cl_reasoning_add(cl_reasoning *r, const cl_engine_request *params, const cl_tokenizer *tok, int32_t token);

/* The tokens [*n] that must come next, borrowed from the request; *n is 0 if the next token is drawn. */
const int32_t *cl_reasoning_forced(const cl_reasoning *r, const cl_engine_request *params, int32_t *n);

#endif
