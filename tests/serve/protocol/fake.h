/*
 * Stand-ins for the model and the engine, for tests of serve/protocol/ and serve/http/ alone: every byte is a token, the chat
 * format joins the messages, and the engine repeats the prompt, one token per step.
 */
#ifndef TESTS_SERVE_PROTOCOL_FAKE_H
#define TESTS_SERVE_PROTOCOL_FAKE_H

#include "chunkllama/engine/engine.h"

enum { FAKE_BOS = 256, FAKE_END = 257, FAKE_VOCAB = 258, FAKE_EMBD = 3 };
enum { FAKE_FIM_PREFIX = 1, FAKE_FIM_SUFFIX = 2, FAKE_FIM_MIDDLE = 3 };

const cl_model *fake_model(void);
/* The model's chat: it joins the contents of the messages. */
cl_chat *fake_chat(void);
/*
 * Append to this array the inputs of chats from now on, by the names in cl_chat_input; NULL: stop. argument_text: what
 * cl_chat_takes_argument_text returns. On one thread only.
 */
void fake_record_chats(json_t *chats, bool argument_text);

/* Set the result of cl_chat_reply; NULL: the format of Hermes, without reasoning. Borrowed until the next call. */
void fake_set_reply(const cl_reply_format *format);

/* Set the result of cl_tokenizer_shortens. The fake tokenizer never shortens text. */
void fake_shorten(bool shortens);

/* Set the results of cl_tokenizer_adds_bos, with which chats begin then, of cl_tokenizer_adds_eos and of cl_tokenizer_fim. */
void fake_add_bos(bool adds);
void fake_add_eos(bool adds);
void fake_fill_gaps(bool fills);

/* Set the text of FAKE_BOS, which is borrowed; NULL: "<s>". */
void fake_name_bos(const char *text);

/* Whether the texts "no" and "yes" are tokens, n and y, where they do not begin a prompt. */
void fake_know_words(bool knows);

/* While text is held, calls that tokenize text wait, until the deadline of their thread. */
void fake_hold_text(bool hold);
/* Wait until such a call waits. */
void fake_wait_for_text(void);

typedef struct fake_config {
    int32_t step_us;       /* a step's duration */
    int32_t max_running;   /* further requests wait */
    int32_t prefill_steps; /* steps from admission to the first token */
    int64_t n_ctx;         /* tokens */
    int32_t max_waiting;   /* further requests are refused with CL_ERR_BUSY; 0: none are */
} fake_config;

/*
 * Its cache is empty. All pins find room. Free with cl_engine_destroy. A request with
 * max_tokens < 0 gets n_ctx - n_prompt tokens. A prompt with the byte '!' fails with CL_ERR_NOMEM after its prefill. An
 * embedding is {number of tokens, last token, cl_engine_pooling}. retry_after_s of the statistics is half a second for each
 * request that waits, and at least one.
 */
cl_engine *fake_engine_create(const fake_config *config);

/* For loops that wait for a state. */
void fake_pause(void);

/* While grammars are held, submitting a request with one waits; and whether such a call waits. */
void fake_hold_grammars(bool hold);
bool fake_compiles(void);

/* While steps are held, no step ends, and running requests report nothing. Destroying an engine lets them go on. */
void fake_hold_steps(bool hold);

#endif
