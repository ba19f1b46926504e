/* One answer of the engine, written out while it comes. */
#ifndef CLI_STREAM_H
#define CLI_STREAM_H

#include <signal.h>
#include <stdio.h>

#include "engine/engine.h"
#include "options.h"
#include "text.h"

typedef struct answer {
    text text; /* all of it; free with answer_free */
    cl_engine_finish finish;
    int64_t n_prompt, n_cached, n_completion;
    double first_s, total_s; /* until the first token, until the last */
} answer;

/*
 * Answer a prompt with one choice, sampled as the options say, and write its text to out as it comes. When *stop becomes
 * non-zero (NULL: never) the answer ends there.
 */
cl_status stream_answer(cl_engine *e, const options *opt, const cl_token_list *prompt, const volatile sig_atomic_t *stop,
                        FILE *out, answer *a, cl_error *error);

void answer_free(answer *a);

#endif
