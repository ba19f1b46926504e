/* Gets one answer from the engine, and writes its text out as it comes. */
#ifndef CLI_STREAM_H
#define CLI_STREAM_H

#include <signal.h>
#include <stdio.h>

#include "chunkllama/engine/engine.h"
#include "options.h"
#include "session.h"
#include "text_buffer.h"

typedef struct cli_answer {
    cli_text text; /* the whole text */
    cl_engine_finish finish;
    int64_t n_prompt, n_cached, n_completion; /* tokens */
    double first_s;                           /* seconds from the submission to the first token */
    double total_s;                           /* seconds from the submission to the end */
} cli_answer;

/*
 * Answer a prompt with one choice, sampled as the options say, and write its text to `out` as it comes.
 *
 * Returns when the answer is complete; when *stop becomes non-zero (NULL: never), the answer is cancelled. Fills *a, which
 * answer_free frees, also after an error. Errors are those of cl_engine_submit and of the request's events.
 */
cl_status stream_answer(const cli_session *s, const cli_options *opt, const cl_token_list *prompt,
                        const volatile sig_atomic_t *stop, FILE *out, cli_answer *a, cl_error *error);

void answer_free(cli_answer *a);

#endif
