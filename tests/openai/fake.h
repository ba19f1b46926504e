/*
 * Stand-ins for the model and the engine, for tests of the server alone: every byte is a token, chat puts the messages one
 * after another, and the engine repeats the prompt, a token a step.
 */
#ifndef TESTS_OPENAI_FAKE_H
#define TESTS_OPENAI_FAKE_H

#include "engine/engine.h"

enum { FAKE_BOS = 256, FAKE_END = 257, FAKE_VOCAB = 258 };

const cl_model *fake_model(void);

/* Whether text may become shorter before it is tokenized; it does not. */
void fake_shorten(bool shortens);

/* While text is held, whoever tokenizes any waits. */
void fake_hold_text(bool hold);
/* Returns once somebody does. */
void fake_wait_for_text(void);

typedef struct fake_config {
    int32_t step_us;       /* a step's duration */
    int32_t max_running;   /* more requests wait */
    int32_t prefill_steps; /* steps from admission to the first token */
    int64_t n_ctx;
} fake_config;

/* max_tokens < 0 means n_ctx - n_prompt. A prompt that holds the byte '!' fails with CL_ERR_NOMEM when it comes to generate. */
cl_engine *fake_engine_create(const fake_config *config);

#endif
