/*
 * A model of one attention layer with weights from a hash, in place of llama's forward pass and tokenizer: small and exact,
 * its logits depend on every token of the context through the real cache and kernels.
 */
#ifndef TESTS_CHUNKLLAMA_ENGINE_TOY_MODEL_H
#define TESTS_CHUNKLLAMA_ENGINE_TOY_MODEL_H

#include <stdint.h>

#include "chunkllama/model/model.h"

enum { TOY_END = 0, TOY_SPECIAL = 269, TOY_VOCAB = 272, TOY_CONTEXT = 4096, TOY_EMBD = 128 };

/* Static; token 0 ends, 1..255 are bytes, the rest longer pieces. TOY_END and TOY_SPECIAL are special: "<end>" and "<s>". */
const cl_model *toy_model(void);

/* Another model of the same vocabulary, whose logits are near those of the first, with this part of its bytes. */
const cl_model *toy_draft_model(float part);

/* The model itself, as a draft model that costs nothing. */
const cl_model *toy_free_model(void);

/* Rows computed since the last call, by all engines. */
int64_t toy_take_rows(void);

/* Of the steps from now on, n fail, beginning with the one with number `first` >= 1. */
void toy_fail_steps(int first, int n);

/* From now on steps wait before they compute anything, so that a test knows what has been submitted when. */
void toy_hold(void);
/* Let n of them pass, and wait until the next one waits; the engine must have work for it. */
void toy_pass(int n);
void toy_release(void);

#endif
